"""What all engines do with a torch module: its tensors as one vector, its data, its scores."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import CoterieError, ModelError, TrainingError, words_of
from coterie.core.plugins import reason
from coterie.engine.contract import HeldPart, Score
from coterie.engine.device import Together, for_sums, on_host
from coterie.engine.draws import Drawing
from coterie.engine.task import CLASSIFICATION, Task

if TYPE_CHECKING:
    from coterie.engine.habits import Habits

CHUNK_VALUES = 2048 * 784  # input values in one forward pass where gradients or scores are summed
WIDE_VALUES = 1 << 26  # values of a layer in one such pass: 256 MB
CHUNK_TOKENS = 1 << 24  # values of a layer in such a pass of tokens: 64 MB
CACHED_VALUES = 128 * 784  # the same for convolutions, whose many channels should stay in cache
GRAM_COLUMNS = 16_384  # gradient entries multiplied in single precision before a double sum

Seen = NDArray[np.uint8] | NDArray[np.float32] | NDArray[np.int64]  # pixels, numbers or tokens
Answers = NDArray[np.int64] | NDArray[np.float32]
Arrays = tuple[Seen, Answers]
Piece = list[NDArray[Any]]  # of examples that were scored: sums, then what metrics keep of each
HeldOut = Mapping[HeldPart, Arrays]
HeldSizes = Mapping[HeldPart, Ints]  # examples of each node, in nodes' order


@dataclass(frozen=True, eq=False)
class Nodes:
    """Examples of all nodes, one node after the other: x [N, ...], y [N, ...], sizes [n].

    A part of them keeps everybody's number: nodes that are elsewhere have no examples here, and
    `shares` [n] says what part of all data each node holds.
    """

    x: Seen
    y: Answers
    sizes: Ints
    shares: Floats | None = None

    @classmethod
    def of(cls, nodes: Sequence[Arrays]) -> "Nodes":
        """Put the examples of single nodes together."""
        x: Any = np.concatenate([x for x, _ in nodes])
        y: Any = np.concatenate([y for _, y in nodes])
        return cls(x, y, np.array([len(y) for _, y in nodes]))

    def part(self, here: Ints) -> "Nodes":
        """Return the examples of some nodes, by rising number; the others are elsewhere.

        >>> whole = Nodes(np.zeros((6, 4), dtype=np.uint8), np.arange(6), np.array([1, 3, 2]))
        >>> some = whole.part(np.array([0, 2]))
        >>> some.y.tolist(), some.sizes.tolist()
        ([0, 4, 5], [1, 0, 2])
        """
        rows = self.rows_of(here)
        sizes = np.zeros_like(self.sizes)
        sizes[here] = self.sizes[here]
        return Nodes(self.x[rows], self.y[rows], sizes, self.sizes / self.sizes.sum())

    def rows_of(self, here: Ints) -> Ints:
        """Return the examples' places of some nodes, node by node."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        return np.concatenate([np.arange(starts[i], starts[i + 1]) for i in here])


class Shards:
    """The nodes' examples as tensors on a device; pixels stay bytes until a batch needs them."""

    def __init__(
        self, nodes: Nodes, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        """Take the examples, and the dtype of models; arrays in order already are not copied."""
        self.dtype = dtype
        self.x = torch.from_numpy(np.ascontiguousarray(nodes.x)).to(device)
        self.y = torch.from_numpy(np.ascontiguousarray(nodes.y)).to(device)
        self.sizes = nodes.sizes
        self.starts: Ints = np.concatenate([[0], np.cumsum(nodes.sizes)])
        whole = nodes.shares is None
        self.p: Floats = nodes.sizes / nodes.sizes.sum() if nodes.shares is None else nodes.shares
        self.here: Ints = np.arange(len(nodes.sizes)) if whole else np.flatnonzero(nodes.sizes)
        self.row: Ints = np.zeros(len(nodes.sizes), dtype=np.int64)  # of a node among those here
        self.row[self.here] = np.arange(len(self.here))

    def __len__(self) -> int:
        """Count the nodes."""
        return len(self.sizes)

    def of(self, i: int) -> tuple[Tensor, Tensor]:
        """Return all examples of node i."""
        at = slice(int(self.starts[i]), int(self.starts[i + 1]))
        return self.x[at], self.y[at]


class FlatModule:
    """A module whose averaged tensors are views of one vector, the trained ones first."""

    def __init__(
        self,
        model: nn.Module,
        habits: "Habits | None" = None,
        some: Tensor | None = None,
        task: Task = CLASSIFICATION,
    ) -> None:
        """Take a module over, and what it is to learn; it must not be used by anybody else.

        Of what its habits are known some examples tell the rest. If it treats examples one by one,
        no score depends on how they are cut into chunks or laid out.
        """
        self.model, self.task = model, task
        self.flat, self.trained = _flatten(model)
        self.d_trained = sum(w.numel() for w in self.trained)
        self._counters = [(b, b.clone()) for b in model.buffers() if not b.is_floating_point()]
        self.draws = habits is None or not habits.apart  # random numbers, for all that is known
        told = self.draws and habits is not None and habits.draws_apart
        self._drawing = Drawing() if told and self.flat.device.type == "cpu" else None
        convolves = any(isinstance(m, nn.Conv2d) for m in model.modules())
        apart = some if habits and habits.scores_apart and convolves else None
        cached = apart is not None and apart.device.type == "cpu"
        self._chunk = CACHED_VALUES if cached else CHUNK_VALUES
        wide = [m.out_features for m in model.modules() if isinstance(m, nn.Linear)]
        self._most = max(1, WIDE_VALUES // max(wide, default=1))
        self._widest = max((len(w) for w in self.trained if w.ndim), default=1)
        self._channels_last = False
        if apart is not None and apart.ndim == 4:
            self._channels_last = self._takes_channels_last(apart)
        self._first = self._channels_last and self.draws  # in training
        if self._first and self._drawing is not None and apart is not None:
            self._first = not self._draws_alike(apart)

    def load(self, w: Tensor) -> None:
        """Make w the module's state; whole-number buffers, such as counters, start over."""
        self.flat.copy_(w)
        for buffer, initial in self._counters:
            buffer.copy_(initial)

    def scores(self, x: Tensor) -> Tensor:
        """Run the module on pixels or numbers; convolutions are quicker with channels last.

        Not so in training where other numbers would be dropped then.
        """
        values, training = inputs(x, self.flat.dtype), self.model.training
        if self._channels_last and not (self._first and training):
            values = values.to(memory_format=torch.channels_last)
        elif values is x:
            values = x.clone()  # a module may work in place
        with (self._drawing if training else None) or nullcontext():
            found = self.model(values)
        return self.task.shaped(found, len(values))

    def seed(self, seed: int) -> None:
        """Restart the stream that the module draws from."""
        if self._drawing is not None:
            self._drawing.generator.manual_seed(seed % 2**63)
        else:
            seed_dropout(seed, self.flat.device)

    def _takes_channels_last(self, x: Tensor) -> bool:
        """Whether the module runs with channels last; one that views its tensors may not."""
        values = inputs(x, self.flat.dtype).to(memory_format=torch.channels_last)
        training = self.model.training
        self.model.train(training and not self.draws)
        try:
            self.gradient(self.model(values).sum())
        except Exception:  # whatever a user's module cannot do with them
            return False
        finally:
            self.model.train(training)
        return True

    def _draws_alike(self, x: Tensor) -> bool:
        """Whether the module gives the same in training with channels last, which draws in order.

        It does with dropout. Numbers that it draws by itself may be laid out as its tensors are.
        """
        assert self._drawing is not None
        kept, training = self.flat.clone(), self.model.training
        self.model.train()
        found: list[Tensor] = []
        try:
            for layout in (torch.contiguous_format, torch.channels_last):
                self._drawing.ordered = layout is torch.channels_last
                self.load(kept)
                self.seed(0)
                with torch.no_grad(), self._drawing:
                    found.append(self.model(inputs(x, kept.dtype).clone(memory_format=layout)))
            alike = torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-4)
        except Exception:  # whatever a user's module cannot do with so few examples
            alike = False
        finally:
            self.load(kept)
            self.model.train(training)
        self._drawing.ordered = alike
        return alike

    def gradient(self, loss: Tensor) -> tuple[Tensor, ...]:
        """Gradient of the trained parameters; zero for one that the loss does not depend on."""
        return torch.autograd.grad(loss, self.trained, allow_unused=True, materialize_grads=True)

    def full_gradient(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Loss, a double, and gradient [d] at the loaded model over all of a node, in chunks."""
        total = self.flat.new_zeros(self.d_trained)
        loss_sum = torch.zeros((), dtype=torch.float64, device=for_sums(x.device))
        size = self.chunk(x)
        for xs, ys in zip(torch.split(x, size), torch.split(y, size), strict=True):
            with model_errors(f"in evaluation mode with a batch of {len(ys)}"):
                loss = self.task.loss(self.scores(xs), ys, "sum")
                total += torch.cat([g.reshape(-1) for g in self.gradient(loss)])
            loss_sum += loss.detach().to(loss_sum)
        return loss_sum / len(y), total / len(y)

    def chunk(self, x: Tensor) -> int:
        """Return how many examples of x [N, ...] go through the module at once.

        Fewer where a layer is far wider than they are: 37,000 numbers of each of 75,000 are 11 GB.
        Tokens become vectors as wide as the layers, one for each.
        """
        if x.dtype == torch.int64:
            return max(1, CHUNK_TOKENS // (x[0].numel() * self._widest))
        return min(chunk(x, self._chunk), self._most)

    @torch.inference_mode()
    def score(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """Sum of the losses of the loaded model, and what is right and there, by class.

        Doubles [1 + 2 classes], where the examples are, if that has doubles; then what the task's
        metrics keep of each example.
        """
        with model_errors(f"in evaluation mode with a batch of {len(y)}"):
            scores = self.scores(x)
            loss = self.task.loss(scores, y, "sum")
        counts = self._counted(scores, y, self._right(scores, y))
        sums = torch.cat([loss.to(counts).reshape(1), counts.flatten()])
        return [sums, *self.task.rows(scores, y)]

    @torch.inference_mode()
    def each(self, x: Tensor, y: Tensor, *, keep: bool = False) -> "Each":
        """Score examples one by one by the loaded model; keep what metrics need of them, or not."""
        with model_errors(f"in evaluation mode with a batch of {len(y)}"):
            scores = self.scores(x)
            losses = self.task.loss(scores, y, "none")
        right = self._right(scores, y)
        rows = self.task.rows(scores, y) if keep else []
        return Each(losses, right, self._counted(scores, y, right), rows)

    def _right(self, scores: Tensor, y: Tensor) -> Tensor:
        """What is right of every example [B]: itself, or some of its tokens or labels."""
        right = self.task.right
        return torch.zeros_like(scores.flatten(1)[:, 0]) if right is None else right(scores, y)

    def _counted(self, scores: Tensor, y: Tensor, right: Tensor) -> Tensor:
        """Count what is right, and what there is: by class where examples have one [2, classes]."""
        if self.task.labelled:
            return tally_classes(right, y, 2 if self.task.target == "binary" else scores.shape[1])
        there = for_sums(y.device)
        units = torch.from_numpy(self.task.counted(y.cpu().numpy())).to(there)
        return torch.stack([right.to(there).double().sum(), units.double().sum()])[:, None]

    def export(self) -> dict[str, Tensor]:
        """Return the loaded model as named tensors."""
        return {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()}


@dataclass(frozen=True, eq=False)
class Each:
    """Losses [B] of examples, what is right of each [B], counts by class, and what metrics keep."""

    losses: Tensor
    right: Tensor
    by_class: Tensor
    rows: list[Tensor]


def tally_classes(right: Tensor, y: Tensor, classes: int) -> Tensor:
    """Count right answers and examples of every class, as doubles [2, classes].

    >>> tally_classes(torch.tensor([True, False, True]), torch.tensor([0, 0, 2]), 3).tolist()
    [[1.0, 0.0, 1.0], [2.0, 0.0, 1.0]]
    """
    if for_sums(y.device).type == "cpu":
        true = y.cpu().numpy()
        counts = np.bincount(true, minlength=classes)
        hits = np.bincount(true, weights=right.cpu().numpy(), minlength=classes)
        return torch.from_numpy(np.array([hits, counts], dtype=np.float64))
    each = torch.stack([right.double(), torch.ones_like(right, dtype=torch.float64)])
    return each.new_zeros(2, classes).index_add_(1, y, each)


@contextmanager
def model_errors(where: str) -> Iterator[None]:
    """Say in one line what a user's module could not do."""
    try:
        yield
    except (CoterieError, MemoryError):
        raise
    except Exception as error:
        plain = isinstance(error, RuntimeError | ValueError | AssertionError)  # of torch, mostly
        said = words_of(error).strip().partition("\n")[0] if plain else ""
        raise TrainingError(f"the model failed {where}: {said or reason(error)}") from error


def evaluate(module: FlatModule, w: Tensor, x: Tensor, y: Tensor, targets: Answers) -> Score:
    """Score the model w on examples, in evaluation mode; their targets are on the host, too."""
    module.load(w)
    module.model.eval()
    size = module.chunk(x)
    pieces = Pieces(len(y), size)
    for at in pieces.starts:
        pieces.put(at, module.score(x[at : at + size], y[at : at + size]))
    return mean_score(pieces.to_host(), targets, module.task)


class Pieces:
    """Scores of n examples, of so many at a time: sums, and what metrics keep of each."""

    def __init__(self, n: int, size: int) -> None:
        """Take how many there are, and how many are scored at once."""
        self.starts = list(range(0, n, size))
        self._n, self._size, self._kept = n, size, Together()

    def put(self, at: int, found: Sequence[Tensor]) -> None:
        """Keep what `FlatModule.score` found of the examples from one on."""
        (sums, *rows), number = found, at // self._size
        lengths = [len(self.starts), *(self._n for _ in rows)]
        places = [slice(number, number + 1), *(slice(at, at + self._size) for _ in rows)]
        self._kept.put([sums[None], *rows], lengths, places)

    def to_host(self) -> list[Piece]:
        """Bring all of it to the host."""
        if not self.starts:
            return []
        sums, *rows = (on_host(array) for array in self._kept.arrays)
        return [
            [sums[number], *(some[at : at + self._size] for some in rows)]
            for number, at in enumerate(self.starts)
        ]


def mean_score(pieces: Sequence[Piece], y: Answers, task: Task = CLASSIFICATION) -> Score:
    """Put the scores of pieces of examples together, to the same digits in any order."""
    loss = math.fsum(float(piece[0][0]) for piece in pieces) / len(y)
    counts = np.sum([piece[0][1:] for piece in pieces], axis=0)
    right, count = counts.astype(np.int64).reshape(2, -1)
    accuracy = None if task.right is None else int(right.sum()) / int(count.sum())
    metrics = None
    if task.metrics:
        kept = [np.concatenate(rows) for rows in zip(*(p[1:] for p in pieces), strict=True)]
        metrics = task.measured(kept, y)
    units = int(right.sum()), int(count.sum())
    if not task.labelled:
        return Score(loss, accuracy, units=units, metrics=metrics)
    return Score(loss, accuracy, right, count, units, metrics)


def held_by_node(held_out: HeldOut, sizes: HeldSizes | None) -> dict[HeldPart, Nodes]:
    """Return the held-out parts of which nodes have examples of their own, ordered by node."""
    found: dict[HeldPart, Nodes] = {}
    for part, own in (sizes or {}).items():
        x, y = held_out[part]
        assert own.sum() == len(y)  # each example is one node's
        if len(y):
            found[part] = Nodes(x, y, own)
    return found


def inputs(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return what a model of this dtype sees: pixels divided by 255, the others as they are."""
    if x.dtype == torch.int64:
        return x
    return x.to(dtype).div_(255) if x.dtype == torch.uint8 else x.to(dtype)


def chunk(x: Tensor, values: int = CHUNK_VALUES) -> int:
    """Return how many examples of x [N, ...] go through a model at once, to bound its memory.

    >>> chunk(torch.empty(5, 1, 28, 28)), chunk(torch.empty(5, 3, 84, 84))
    (2048, 75)
    """
    return max(1, values // x[0].numel())


def centred_gram(grads: Tensor, p: Floats) -> Floats:
    """Gram matrix of g_i - sum_j p_j g_j, [n, n] from [n, d], summed in double precision.

    >>> centred_gram(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), np.array([0.5, 0.5])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    return summed_gram(torch.split(grads, GRAM_COLUMNS, dim=1), p)


def summed_gram(pieces: Iterable[Tensor], p: Floats) -> Floats:
    """Gram matrix [n, n] of centred gradients that come in pieces [n, some columns]."""
    gram = torch.zeros(0, dtype=torch.float64)
    for piece in pieces:
        centred = piece - torch.from_numpy(p).to(piece) @ piece
        if not len(gram):
            where = for_sums(piece.device)
            gram = torch.zeros(len(p), len(p), dtype=torch.float64, device=where)
        gram += (centred @ centred.T).to(gram)
    found: Floats = gram.cpu().numpy()
    return found


def cosines(rows: Tensor) -> Floats:
    """Cosines between rows [n, n]; a row of zeros is at right angles to all.

    >>> cosines(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    unit = torch.nn.functional.normalize(rows.to(for_sums(rows.device)).double(), dim=1)
    found: Floats = (unit @ unit.T).cpu().numpy()
    return found


def last_layer(trained: Sequence[nn.Parameter]) -> int:
    """Count the entries of the last weights, and of the bias behind them if there is one."""
    tail = 2 if len(trained) > 1 and trained[-1].ndim == 1 else 1
    return sum(w.numel() for w in trained[-tail:])


def seed_dropout(seed: int, device: torch.device) -> None:
    """Restart the stream of random layers; on a CPU far cheaper than torch.manual_seed."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed % 2**63)
    else:
        torch.manual_seed(seed % 2**63)


def state_tensors(model: nn.Module) -> list[Tensor]:
    """Everything that is averaged: trained parameters first, then floating-point buffers.

    A frozen parameter is the same everywhere: it is no part of what nodes train and send.
    """
    trained = [w for w in model.parameters() if w.requires_grad]
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    return [*trained, *buffers]


def places_of(model: nn.Module, names: Collection[str]) -> Tensor:
    """Return the places in a model's vector of the tensors that are named.

    >>> places_of(nn.Linear(3, 2), ["bias"]).tolist()
    [6, 7]
    """
    called = {id(w): name for name, w in (*model.named_parameters(), *model.named_buffers())}
    unknown = set(names) - set(called.values())
    if unknown:
        raise ModelError(
            f"the model has no tensor {sorted(unknown)[0]!r}; it has {', '.join(called.values())}"
        )
    found, at = [], 0
    for w in state_tensors(model):
        if called[id(w)] in names:
            found.append(torch.arange(at, at + w.numel()))
        at += w.numel()
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def _flatten(model: nn.Module) -> tuple[Tensor, list[nn.Parameter]]:
    """Move all averaged tensors of a module into one vector; the module keeps views of it."""
    tensors = state_tensors(model)
    flat = torch.cat([w.detach().reshape(-1) for w in tensors])
    at = 0
    for w in tensors:
        w.data = flat[at : at + w.numel()].view_as(w)
        at += w.numel()
    return flat, [w for w in model.parameters() if w.requires_grad]
