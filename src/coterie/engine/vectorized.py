"""The fast engine: many nodes at once where that pays, on every core, with the same results.

Work is cut into jobs that do not depend on how many threads do them, and what they return is
added up in the order of the jobs, so that the number of threads changes no digit.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from threading import Event

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import ModelError, TrainingError
from coterie.divergences.sketch import Sketch
from coterie.engine.contract import (
    Gradients,
    HeldPart,
    LocalSteps,
    Measured,
    Models,
    NodeScores,
    Score,
)
from coterie.engine.device import for_sums, prepared
from coterie.engine.gradients import Gauge
from coterie.engine.habits import Habits, find_habits
from coterie.engine.kernels import Kernel, convolved, reasons
from coterie.engine.kernels.batching import stacks
from coterie.engine.kernels.calibrate import choose_kernel, takes_long
from coterie.engine.kernels.compiled import Compiled, has_numba, loads, why_not_compiled
from coterie.engine.kernels.convolved import Convolved, numbers_of_an_example
from coterie.engine.kernels.dense import Dense, Layer, find_chain
from coterie.engine.kernels.rows import find_row
from coterie.engine.kernels.single import Single
from coterie.engine.kernels.stacked import Stacked
from coterie.engine.kernels.stages import Net, find_net
from coterie.engine.local_rule import PLAIN, LocalRule
from coterie.engine.means import add_up, counts, divide
from coterie.engine.memory import OWN, remembering
from coterie.engine.module import (
    HeldOut,
    HeldSizes,
    Nodes,
    Piece,
    Pieces,
    Shards,
    last_layer,
    mean_score,
)
from coterie.engine.own_models import distinct, one_by_one, own_models
from coterie.engine.scoring import Scorer, Tally, of_rows
from coterie.engine.sequential import Sequential
from coterie.engine.task import CLASSIFICATION, Task
from coterie.engine.threads import Team
from coterie.engine.turns import Turns, mean_steps

ADDED = 1 << 16  # numbers of a model that are added at once: they stay in a core's cache
JOB_BYTES = 16 << 20  # of models that a job returns before they are averaged
GRADIENT_VALUES = 512 * 784  # input values in one forward pass of a group's gradient


@dataclass(frozen=True)
class Watched(LocalSteps):
    """Local steps that end early, with an error, once nobody waits for them."""

    leaving: Event = field(default_factory=Event)

    def lr_at(self, t: int) -> float:
        """Learning rate of step t; every kernel asks for it in every step."""
        if self.leaving.is_set():
            raise CancelledError
        return super().lr_at(t)


class Vectorized:
    """Trains stacks of nodes, or nodes one by one, whichever is quicker for the module."""

    def __init__(
        self,
        model: nn.Module,
        nodes: Nodes,
        held_out: HeldOut,
        steps: LocalSteps,
        device: str = "cpu",
        rule: LocalRule = PLAIN,
        workers: int = 1,
        *,
        held_sizes: HeldSizes | None = None,
        habits: Habits | None = None,
        kernel: str = "",
        work: float = 0.0,
        task: Task = CLASSIFICATION,
    ) -> None:
        """Take the module, each node's examples, the held-out parts, and the cores to use.

        With held_sizes the held-out parts are the nodes' own, ordered by node.
        What the module does with a batch, and how it trains quickest, is found out unless told. Of
        a part of the nodes it is told, as all parts have to do alike. `work` is how many examples
        will be trained on: what has to be compiled pays where they are many.
        """
        if any(w._backward_hooks for w in model.parameters()):
            raise ModelError(
                "the model has hooks on its parameters, which are lost where it is copied; use "
                "train.engine = 'sequential'"
            )
        self._oracle = Sequential(
            model, nodes, held_out, steps, device, rule, held_sizes=held_sizes, task=task
        )
        self._task = task
        self._model, self._steps, self._rule = model, steps, rule
        self._device = prepared(device)
        self._shards, self._held_out = self._oracle.shards, self._oracle.held_out
        self._held_by_node, self._whole = self._oracle.held_by_node, nodes.shares is None
        module = self._oracle.module
        self._d, self._d_trained = len(module.flat), module.d_trained
        self._d_last = last_layer(module.trained)
        self._habits = habits or find_habits(model, self._shards.x, self._shards.dtype)
        self._alone = self._habits.apart
        self._team = Team(workers if self._threads_pay(workers) else 1, self._device)
        self._single = Single(model, self._shards, self._team.workers, self._habits, task)
        self._row = find_row(model, self._shards.x, self._shards.dtype) if task.softmax else None
        self._layers, self._net = self._written_out()
        self._why = "" if kernel else self._why_not_compiled(work)
        self._kernel = self._named(kernel) if kernel else self._choose()

    def _threads_pay(self, workers: int) -> bool:
        """Whether threads can do the work, and not only wait for each other.

        What draws from torch's one generator cannot share it with other threads.
        """
        if workers == 1 or self._habits.apart or not self._habits.draws_apart:
            return self._habits.draws_apart
        one = Single(self._model, self._shards, 1, self._habits, self._task)
        return takes_long(one, self._shards, self._steps, self._oracle.initial().w[0])

    @property
    def habits(self) -> Habits:
        """What the module does with a batch."""
        return self._habits

    @property
    def shards(self) -> Shards:
        """The examples of the nodes here."""
        return self._shards

    @property
    def workers(self) -> int:
        """Cores in use."""
        return self._team.workers

    def choice(self) -> dict[str, str]:
        """Return how this engine executes: what a resumed run needs to give the same digits.

        And why it has no compiled loops, which are the quickest, where it has none.
        """
        return {"kernel": self._kernel.name} | ({"why": self._why} if self._why else {})

    def choose(self, choice: dict[str, str]) -> None:
        """Execute as another engine did."""
        self._kernel, self._why = self._named(choice["kernel"]), choice.get("why", "")

    def _named(self, kernel: str) -> Kernel:
        kernels = self._kernels()
        loops = kernel in (Compiled.name, Convolved.name)
        if loops and not (has_numba() and loads()):
            raise ModelError(
                "the run was begun with compiled loops, which need Numba; install it: "
                "pip install 'coterie[fast]'"
            )
        if kernel not in kernels:
            raise ModelError(
                f"the run was begun with kernel {kernel!r}, which cannot train this model here; "
                f"what can: {', '.join(kernels)}"
            )
        return kernels[kernel]()

    def _written_out(self) -> tuple[list[Layer] | None, Net | None]:
        """Return the module's layers, and stages, if it can be written out in such a way."""
        if self._row is None:
            return None, None
        layers, net = find_chain(self._row), find_net(self._row)
        whole = self._alone and layers and layers[-1].end == self._d
        images = self._habits.draws_apart and self._shards.x.ndim == 4
        return layers if whole else None, net if images else None

    def _kernels(self) -> dict[str, Callable[[], Kernel]]:
        """List what can train the module here."""
        layers, net = self._layers, self._net
        kernels: dict[str, Callable[[], Kernel]] = {"single": lambda: self._single}
        loops = has_numba() and not self._why_no_loops()
        if self._alone:
            kernels["stacked"] = lambda: Stacked(
                self._model, self._shards, self._single, self._task
            )
        if layers:
            kernels["dense"] = lambda: Dense(layers, self._shards)
            if loops:
                kernels["compiled"] = lambda: Compiled(layers, self._shards)
        if net and loops:
            kernels["convolved"] = lambda: Convolved(net, self._shards, self._single, self._habits)
        return kernels

    def _why_no_loops(self) -> str:
        """Say why compiled loops, which check nothing, cannot have what is here; "" if they can."""
        if not self._task.softmax:
            return reasons.OTHER_TASK
        layers = self._layers or (self._net and self._net.layers)
        if not layers:
            return reasons.why_not_written_out(self._model, self._row)
        if self._device.type != "cpu":
            return reasons.OTHER_DEVICE
        if self._shards.dtype not in (torch.float32, torch.float64):
            return reasons.OTHER_NUMBERS
        y = self._shards.y
        fit = y.dtype == torch.int64 and bool(((y >= 0) & (y < layers[-1].rows)).all())
        return "" if fit else reasons.OTHER_LABELS

    def _why_not_compiled(self, work: float) -> str:
        """Say why a run over so many examples does not use compiled loops; "" if it does."""
        steps, rule = self._steps, self._rule
        if (why := self._why_no_loops()) or self._layers or not self._net:
            return why or why_not_compiled(steps, rule, work * self._d)
        batch = min(steps.batch_size or 1, int(self._shards.sizes.max()))
        image: tuple[int, int, int] = tuple(self._shards.x.shape[1:])  # type: ignore[assignment]
        numbers = numbers_of_an_example(self._net, image, batch)
        return why_not_compiled(steps, rule, work * numbers, convolved.MUCH)

    def _choose(self) -> Kernel:
        kernels = self._kernels()
        if not self._why:
            return kernels[Compiled.name if self._layers else Convolved.name]()
        kernels.pop(Convolved.name, None)
        if "dense" in kernels or len(kernels) == 1:
            return kernels.get("dense", kernels["single"])()
        return choose_kernel(
            [make() for make in kernels.values()],
            self._model,
            self._shards,
            self._steps,
            self._oracle.initial().w[0],
            self._task.name,
        )

    def initial(self) -> Models:
        """Give every node the same random model w(0)."""
        return self._oracle.initial()

    def advance(
        self, models: Models, start: int, stop: int, z: Ints, present: Ints | None = None
    ) -> Models:
        """Take local steps start+1 .. stop on every node, then average by z, weighted by data."""
        there = np.arange(len(z)) if present is None else present
        others = mean_steps(self._steps, stop - start, self._shards.sizes, z, there)
        sums, own = self.sums(models, start, stop, z, there, others)
        means = divide(sums, self._shards.sizes, models, z, there)
        return remembering(Models(means.to(models.w), z, models.memory), OWN, own)

    def sums(
        self, models: Models, start: int, stop: int, z: Ints, there: Ints, others: Floats
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Take local steps on the nodes here, of those who are there; add up their weighted models.

        `others` [n] are the batches that those take, on average, who are averaged with a node.
        Returns their sum [K, d] by group, each model times its node's examples, in double
        precision, and what the nodes here keep. What is not finite is an error here on a CPU alone:
        a GPU would have to be waited for, and whoever scores its models finds out.
        """
        K = int(z.max()) + 1
        mine = there[np.isin(there, self._shards.here)]
        weight = counts(self._shards.sizes, mine)
        own: dict[str, Tensor] = {}
        if self._one_gradient_does(start, stop):
            sums = self._group_steps(models, stop, z, mine, weight, K)
        else:
            turns = Turns(
                self._rule,
                models,
                self._steps,
                start,
                stop,
                self._shards.sizes,
                self._shards.row,
                self._d_trained,
                others,
                mine,
            )
            sums, own = self._node_steps(models, turns, start, stop, z, mine, weight, K), turns.own
        if self._device.type == "cpu" and not torch.isfinite(sums).all():
            self._kernel.forget()
            self._oracle.advance(models, start, stop, z, mine)  # it names the node and the step
            raise TrainingError(
                f"steps {start + 1} to {stop}: kernel {self._kernel.name!r} made numbers that are "
                "not finite, and the plain engine makes none; use train.engine = 'sequential'"
            )
        return sums, own

    def _node_steps(
        self,
        models: Models,
        turns: Turns,
        start: int,
        stop: int,
        z: Ints,
        there: Ints,
        weight: Ints,
        K: int,
    ) -> Tensor:
        """Train every node and add up the groups' models [K, d]."""
        kernel, steps = self._kernel, Watched(**vars(self._steps), leaving=self._team.leaving)
        update = self._rule.update

        def stepped(few: Ints) -> list[Tensor]:
            begun = turns.begin(few)
            done = kernel.train(begun.w, begun.rows, few, start, stop, steps, self._rule, begun.at)
            if begun.at is None or not update.ends:
                return done
            sent = turns.end(few, _whole(done), begun.at)
            if update.beside is not None:
                second = turns.begin_beside(few, begun.at)
                own = kernel.train(
                    second.w, second.rows, few, start, stop, steps, turns.beside, second.at
                )
                turns.end_beside(few, _whole(own))
            return [sent]

        def train(nodes: Ints) -> list[tuple[int, float, Tensor]]:
            groups, at_group = np.unique(z[nodes], return_inverse=True)
            mass = np.bincount(at_group, weights=weight[nodes])
            parts = weight[nodes] / mass[at_group]  # of the job's mean; a node alone stays exact
            weights = torch.zeros(len(groups), len(nodes), dtype=models.w.dtype)
            weights[at_group, np.arange(len(nodes))] = torch.from_numpy(parts).to(weights)
            weights = weights.to(self._device)
            total = models.w.new_zeros(len(groups), self._d)
            if isinstance(kernel, Compiled) and kernel.serves(steps, self._rule):
                rows = models.of_node[nodes]
                kernel.add(total, at_group, parts, models.w, rows, nodes, start, stop, steps)
                return [(int(k), float(mass[at]), total[at]) for at, k in enumerate(groups)]
            c = kernel.stack(self._steps.batch_size or int(self._shards.sizes[nodes[0]]))
            for few in stacks(self._shards.sizes[nodes], c, padded=not self._steps.batch_size):
                done = stepped(nodes[few])
                if kernel.one_by_one:
                    return [(int(z[nodes[0]]), float(weight[nodes[0]]), done[0][0])]
                add_up(total, weights[:, few], done)
            return [(int(k), float(mass[at]), total[at]) for at, k in enumerate(groups)]

        sums = self._no_sums(K)
        size = ADDED if sums.device.type == "cpu" else self._d
        for parts in self._team.do(train, self._jobs(there)):
            for k, times, w in parts:
                for at in range(0, self._d, size):
                    piece = slice(at, at + size)
                    sums[k, piece].add_(w[piece].to(sums), alpha=times)
        return sums

    def _no_sums(self, K: int) -> Tensor:
        return torch.zeros(K, self._d, dtype=torch.float64, device=for_sums(self._device))

    def _jobs(self, nodes: Ints) -> list[Ints]:
        """Cut nodes, the largest first, into jobs that neither cores nor groups decide.

        One by one they are jobs of their own, so that their sum is the plain engine's.
        """
        if not len(nodes):
            return []
        if self._kernel.one_by_one:
            return [nodes[at : at + 1] for at in range(len(nodes))]
        order = nodes[np.lexsort((nodes, -self._shards.sizes[nodes]))]
        c = self._kernel.stack(self._steps.batch_size or int(self._shards.sizes[order[0]]))
        fits = max(1, JOB_BYTES // (self._shards.dtype.itemsize * self._d * c))
        size = c * max(1, min(fits, len(nodes) // (8 * c)))
        return [order[at : at + size] for at in range(0, len(order), size)]

    def _one_gradient_does(self, start: int, stop: int) -> bool:
        """Whether all nodes take one batch each and are averaged right after it.

        Nodes of a group that start from the same model then end, on average, where that model ends
        with one step along their mean gradient, momentum and FedProx included.
        """
        size = self._steps.batch_size
        one = size is None or self._steps.unit == "batch" or size >= self._shards.sizes.max()
        update = self._rule.update
        still = update.still and update.correct is None and not update.ends
        still = still or not update.local
        return self._alone and stop == start + 1 and one and still

    def _group_steps(
        self, models: Models, t: int, z: Ints, there: Ints, weight: Ints, K: int
    ) -> Tensor:
        """Take one step with every group's mean gradient; sums [K, d], as of its nodes' models."""
        sums = self._no_sums(K)
        lr = self._steps.lr_at(t)
        jobs = []
        for row, k in sorted(
            set(zip(models.of_node[there].tolist(), z[there].tolist(), strict=True))
        ):
            nodes = there[(models.of_node[there] == row) & (z[there] == k)]
            w = models.w[row].to(sums)
            mass = float(weight[nodes].sum())
            sums[k] += mass * w
            sums[k, : self._d_trained] -= lr * mass * self._rule.weight_decay * w[: self._d_trained]
            jobs += [(k, models.w[row], *part) for part in self._parts(t, nodes, weight[nodes])]

        def gradient(job: tuple[int, Tensor, Ints, Floats]) -> tuple[int, Tensor]:
            k, w, rows, weights = job
            index = torch.from_numpy(rows).to(self._device)
            return k, self._kernel.weighted(w, index, torch.from_numpy(weights).to(w))

        for k, g in self._team.do(gradient, jobs):
            sums[k, : self._d_trained] -= lr * g.to(sums)
        return sums

    def _parts(self, t: int, nodes: Ints, weight: Ints) -> Iterator[tuple[Ints, Floats]]:
        """Cut the batches of nodes, one after the other, into pieces of rows and their weights."""
        rows, taken = [], np.empty(len(nodes), dtype=np.int64)
        sizes = self._shards.sizes[nodes]
        for at, order in enumerate(self._steps.orders(t, nodes, sizes)):
            batch = np.arange(sizes[at]) if order is None else order[: self._steps.batch_size]
            rows.append(self._shards.starts[nodes[at]] + batch)
            taken[at] = len(batch)
        together, weights = np.concatenate(rows), np.repeat(weight / taken, taken)
        size = max(1, GRADIENT_VALUES // self._shards.x[0].numel())
        for at in range(0, len(together), size):
            yield together[at : at + size], weights[at : at + size]

    def gradients(self, w: Tensor, sketch: Sketch | None = None) -> Gradients:
        """Compute every node's full-data loss and gradient at w, as the planner may see them."""
        return self.gauge().gradients(w, sketch)

    def measure(self, w: Tensor, z: Ints) -> Measured:
        """Compute every node's full-data loss at w, and how the groups z diverge there."""
        return self.gauge().measure(w, z)

    def gauge(self) -> Gauge:
        """Return what takes gradients of the nodes here."""
        return Gauge(self._kernel, self._shards, self._team, self._d_trained, self._d_last)

    def losses(self, ws: Tensor) -> Floats:
        """Compute every node's full-data loss [n, m] at each of m models [m, d]; no gradients."""
        n, here = len(self._shards), self._shards.here
        sums = [
            self.scorer().tally(self._shards, np.full(n, k), ws.__getitem__).loss
            for k in range(len(ws))
        ]
        return np.stack(sums, axis=1)[here] / self._shards.sizes[here, None]

    def own_losses(self, models: Models) -> Floats:
        """Compute every node's full-data loss [n] at its own model; no gradients."""
        return self._tally(self._shards, models).loss / self._shards.sizes

    def scorer(self) -> Scorer:
        """Return what scores examples of the nodes here.

        Nodes that train one by one on actors are scored so, as no digit may depend on who has them.
        """
        apart = not self._whole and self._kernel.one_by_one
        return Scorer(self._single, self._team, together=self._habits.scores_apart and not apart)

    def _tally(self, data: Shards, models: Models, *, keep: bool = False) -> Tally:
        first, which = distinct(models)

        def vector(k: int) -> Tensor:
            return own_models(models, first[k : k + 1])[0]

        return self.scorer().tally(data, which, vector, keep=keep)

    def has_own(self, part: HeldPart) -> bool:
        """Whether nodes hold out examples of their own in a part; else it is pooled."""
        return part in self._held_by_node

    def score_nodes(self, models: Models, part: HeldPart) -> NodeScores:
        """Score each node's own model on what the node holds out, or all where that is pooled."""
        own = self._held_by_node.get(part)
        if own is not None:
            tally = self._tally(own, models, keep=True)
            return tally.scores(own.sizes, self._oracle.targets[part], self._task)
        first, which = distinct(models)
        return of_rows(which, (self.evaluate(w, part) for w in one_by_one(models, first)))

    def evaluate(self, w: Tensor, part: HeldPart) -> Score:
        """Score the model w on held-out examples."""
        return mean_score(self.scores(w, part), self._oracle.targets[part], self._task)

    def piece(self, part: HeldPart) -> int:
        """Return how many held-out examples are scored at once."""
        with self._single.module() as module:
            return module.chunk(self._held_out[part][0])

    def scores(self, w: Tensor, part: HeldPart) -> list[Piece]:
        """Score w on piece after piece of what is held out, as FlatModule.score does."""
        x, y = self._held_out[part]
        if not len(y):
            return []
        size = self.piece(part)
        pieces = Pieces(len(y), size)

        def score(at: int) -> None:
            with self._single.module() as module:
                module.load(w)
                module.model.eval()
                pieces.put(at, module.score(x[at : at + size], y[at : at + size]))

        for _ in self._team.do(score, pieces.starts):
            pass
        return pieces.to_host()

    def export(self, w: Tensor) -> dict[str, Tensor]:
        """Return the model w as named tensors."""
        return self._oracle.export(w)


def _whole(pieces: list[Tensor]) -> Tensor:
    """Put the pieces [c, ...] of models together: [c, d]."""
    return torch.cat([piece.flatten(1) for piece in pieces], dim=1)
