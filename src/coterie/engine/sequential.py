"""The oracle: one node after the other, one model in memory, nothing clever."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from coterie.engine import Floats, Gradients, Ints, LocalSteps, Models, Score
from coterie.errors import DivergenceError, TrainingError
from coterie.models.size import state_tensors
from coterie.sketch import Sketch

CHUNK_VALUES = 2048 * 784  # input values in one forward pass where gradients or scores are summed
FLOAT_BYTES = 2 << 30  # pixels that would take more than this as floats are kept as bytes
GRAM_COLUMNS = 16_384  # gradient entries multiplied in single precision before a double sum

Arrays = tuple[NDArray[np.uint8] | NDArray[np.float32], Ints]  # pixels or numbers, labels


class Sequential:
    """Trains every node in turn through one module whose tensors are views of one flat vector."""

    def __init__(
        self,
        model: nn.Module,
        nodes: Sequence[Arrays],
        held_out: Mapping[Literal["val", "test"], Arrays],
        steps: LocalSteps,
        device: str = "cpu",
    ) -> None:
        """Take the module, each node's examples, and the held-out parts."""
        self._device = torch.device(device)
        self._model = model.to(self._device)
        self._steps = steps
        pixels = sum(x.size for x, _ in [*nodes, *held_out.values()])
        self._as_floats = 4 * pixels <= FLOAT_BYTES
        self._nodes = [self._tensors(arrays) for arrays in nodes]
        self._held_out = {part: self._tensors(arrays) for part, arrays in held_out.items()}
        sizes = np.array([len(y) for _, y in self._nodes])
        self._p: Floats = sizes / sizes.sum()
        self._flat, self._trained = _flatten(self._model)
        self._d_trained = sum(w.numel() for w in self._trained)
        self._d_last = _last_layer(self._trained)
        self._counters = [(b, b.clone()) for b in model.buffers() if not b.is_floating_point()]
        self._w0 = self._flat.clone()

    def initial(self) -> Models:
        """Give every node the same random model w(0)."""
        return Models(self._w0[None].clone(), np.zeros(len(self._nodes), dtype=np.int64))

    def advance(self, models: Models, start: int, stop: int, z: Ints) -> Models:
        """Take local steps start+1 .. stop on every node, then average by z, weighted by data."""
        K = int(z.max()) + 1
        mass = np.bincount(z, weights=self._p)
        means = torch.zeros(K, len(self._flat), dtype=torch.float64)  # on the CPU: MPS has none
        self._model.train()
        cuda = [torch.cuda.current_device()] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):  # dropout draws from its own stream per step
            for i, k in enumerate(z):
                self._load(models.w[models.of_node[i]])
                for t in range(start + 1, stop + 1):
                    self._local_step(i, t)
                means[k].add_(self._flat.cpu().double(), alpha=float(self._p[i] / mass[k]))
        return Models(means.float().to(self._device), z)

    def gradients(self, w: Tensor, sketch: Sketch | None = None) -> Gradients:
        """Compute every node's full-data loss and gradient at w.

        In evaluation mode, so that they are functions of w alone: no dropout, and batch norm with
        its running statistics if it keeps any, else with those of up to `chunk` examples.
        """
        n = len(self._nodes)
        grads = torch.empty(n, self._d_trained, device=self._device)  # [n, d]
        losses = np.empty(n)
        self._load(w)
        self._model.eval()
        for i, (x, y) in enumerate(self._nodes):
            losses[i], grads[i] = self._full_gradient(x, y)
        sketches = sketch.apply(grads.cpu().numpy()) if sketch else None
        last = grads[:, -self._d_last :]
        return Gradients(losses, centred_gram(grads, self._p), cosines(last), sketches)

    @torch.inference_mode()
    def evaluate(self, w: Tensor, part: Literal["val", "test"]) -> Score:
        """Score the model w on held-out examples."""
        self._load(w)
        self._model.eval()
        x, y = self._held_out[part]
        loss, right = 0.0, 0
        size = chunk(x)
        for xs, ys in zip(torch.split(x, size), torch.split(y, size), strict=True):
            scores = self._model(_inputs(xs))
            loss += float(cross_entropy(scores, ys, reduction="sum"))
            right += int((scores.argmax(dim=1) == ys).sum())
        return Score(loss / len(y), right / len(y))

    def export(self, w: Tensor) -> dict[str, Tensor]:
        """Return the model w as named tensors."""
        self._load(w)
        return {k: v.detach().cpu().clone() for k, v in self._model.state_dict().items()}

    def _local_step(self, i: int, t: int) -> None:
        """w_i <- w_i - eta grad F_i(w_i), by mini-batches unless the batch is full."""
        x, y = self._nodes[i]
        lr = self._steps.lr_at(t)
        self._seed_dropout((self._steps.seed * 1_000_003 + t) * 1_000_003 + i)
        for batch in self._steps.batches(t, i, len(y)):
            xs, ys = (x, y) if batch is None else (x[batch], y[batch])
            try:
                loss = cross_entropy(self._model(_inputs(xs)), ys)
            except (RuntimeError, ValueError) as error:
                reason = str(error).strip().partition("\n")[0]
                raise TrainingError(
                    f"the model failed at step {t} on node {i} with a batch of {len(ys)}: {reason}"
                ) from error
            if not math.isfinite(loss.item()):
                raise DivergenceError(
                    f"the loss is {loss.item()} at step {t} on node {i}; lower train.lr "
                    f"(now {self._steps.lr:g})"
                )
            grads = self._gradient(loss)
            with torch.no_grad():
                for w, g in zip(self._trained, grads, strict=True):
                    w.sub_(g, alpha=lr)

    def _gradient(self, loss: Tensor) -> tuple[Tensor, ...]:
        """Gradient of the trained parameters; zero for one that the loss does not depend on."""
        return torch.autograd.grad(loss, self._trained, allow_unused=True, materialize_grads=True)

    def _load(self, w: Tensor) -> None:
        """Make w the module's state; whole-number buffers, such as counters, start over."""
        self._flat.copy_(w)
        for buffer, initial in self._counters:
            buffer.copy_(initial)

    def _seed_dropout(self, seed: int) -> None:
        """Restart the stream of random layers; on a CPU far cheaper than torch.manual_seed."""
        if self._device.type == "cpu":
            torch.default_generator.manual_seed(seed % 2**63)
        else:
            torch.manual_seed(seed % 2**63)

    def _full_gradient(self, x: Tensor, y: Tensor) -> tuple[float, Tensor]:
        """F_i(w) and its gradient [d] over all examples of a node."""
        total = torch.zeros(self._d_trained, device=self._device)
        loss_sum = 0.0
        size = chunk(x)
        for xs, ys in zip(torch.split(x, size), torch.split(y, size), strict=True):
            loss = cross_entropy(self._model(_inputs(xs)), ys, reduction="sum")
            total += torch.cat([g.reshape(-1) for g in self._gradient(loss)])
            loss_sum += loss.item()
        return loss_sum / len(y), total / len(y)

    def _tensors(self, arrays: Arrays) -> tuple[Tensor, Tensor]:
        x, y = arrays
        values = torch.from_numpy(np.ascontiguousarray(x)).to(self._device)
        if self._as_floats:
            values = _inputs(values)
        return values, torch.from_numpy(np.ascontiguousarray(y)).to(self._device)


def _inputs(x: Tensor) -> Tensor:
    """Return what a model sees: pixels divided by 255, numbers as they are."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x


def chunk(x: Tensor) -> int:
    """Return how many examples of x [N, ...] go through a model at once, to bound its memory.

    >>> chunk(torch.empty(5, 1, 28, 28)), chunk(torch.empty(5, 3, 84, 84))
    (2048, 75)
    """
    return max(1, CHUNK_VALUES // x[0].numel())


def centred_gram(grads: Tensor, p: Floats) -> Floats:
    """Gram matrix of g_i - sum_j p_j g_j, [n, n] from [n, d], summed in double precision.

    >>> centred_gram(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), np.array([0.5, 0.5])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    weights = torch.from_numpy(p).to(grads)
    gram = np.zeros((len(p), len(p)))
    for piece in torch.split(grads, GRAM_COLUMNS, dim=1):
        centred = piece - weights @ piece
        gram += (centred @ centred.T).cpu().numpy()
    return gram


def cosines(rows: Tensor) -> Floats:
    """Cosines between rows [n, n]; a row of zeros is at right angles to all.

    >>> cosines(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    unit = torch.nn.functional.normalize(rows.double(), dim=1)
    found: Floats = (unit @ unit.T).cpu().numpy()
    return found


def _last_layer(trained: list[nn.Parameter]) -> int:
    """Count the entries of the last weights, and of the bias behind them if there is one."""
    tail = 2 if len(trained) > 1 and trained[-1].ndim == 1 else 1
    return sum(w.numel() for w in trained[-tail:])


def _flatten(model: nn.Module) -> tuple[Tensor, list[nn.Parameter]]:
    """Move all averaged tensors of a module into one vector; the module keeps views of it."""
    tensors = state_tensors(model)
    flat = torch.cat([w.detach().reshape(-1) for w in tensors])
    at = 0
    for w in tensors:
        w.data = flat[at : at + w.numel()].view_as(w)
        at += w.numel()
    return flat, [w for w in model.parameters() if w.requires_grad]
