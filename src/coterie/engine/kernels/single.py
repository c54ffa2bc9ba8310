"""Any module, one node after the other through it: where a stack of nodes would gain nothing."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.arrays import Ints
from coterie.core.errors import DivergenceError
from coterie.engine.contract import LocalSteps
from coterie.engine.descent import Descent
from coterie.engine.device import for_sums
from coterie.engine.habits import Habits
from coterie.engine.local_rule import LocalRule
from coterie.engine.module import FlatModule, Shards, model_errors
from coterie.engine.task import CLASSIFICATION, Task
from coterie.engine.update import At


class Single:
    """Trains nodes through copies of a module, one for every thread."""

    name, one_by_one = "single", True

    def __init__(
        self,
        model: nn.Module,
        shards: Shards,
        copies: int,
        habits: Habits,
        task: Task = CLASSIFICATION,
    ) -> None:
        """Take the module, which copies are made of, the nodes' data, and what is known of it."""
        self._shards = shards
        self._free: SimpleQueue[FlatModule] = SimpleQueue()
        for _ in range(copies):
            self._free.put(FlatModule(copy.deepcopy(model), habits, shards.x[:2], task))

    def forget(self) -> None:
        """Nothing is kept here: a model is loaded whole."""

    def stack(self, batch: int) -> int:
        """Return how many nodes are trained together: one."""
        return 1

    def train(
        self,
        w: Tensor,
        rows: Tensor,
        nodes: Ints,
        start: int,
        stop: int,
        steps: LocalSteps,
        rule: LocalRule,
        at: At | None,
    ) -> list[Tensor]:
        """Take steps start+1 .. stop from the models w[rows]; returns these [c, d] in a list."""
        here = w.device.type == "cpu"  # elsewhere the rows are not looked at
        given = [w[k] for k in rows.tolist()] if here else w.index_select(0, rows)
        found = w.new_empty(len(nodes), w.shape[1])
        with self.module() as module:
            module.model.train()
            for number, i in enumerate(nodes):
                module.load(given[number])
                own = None if at is None else at.one(number)
                local_steps(module, self._shards, int(i), start, stop, steps, rule, own, look=here)
                found[number] = module.flat
        return [found]

    def gradients(self, w: Tensor, nodes: Ints, out: Tensor) -> Tensor:
        """Full-data losses [c] at one model w [d]; the gradients go to out [c, d]."""
        losses = torch.zeros(len(nodes), dtype=torch.float64, device=for_sums(w.device))
        with self.module() as module:
            module.load(w)
            module.model.eval()
            for row, i in enumerate(nodes):
                losses[row], out[row] = module.full_gradient(*self._shards.of(int(i)))
        return losses

    def weighted(self, w: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """Gradient [d] of the weighted sum of some examples' losses at one model w."""
        x, y = self._shards.x.index_select(0, index), self._shards.y.index_select(0, index)
        with self.module() as module:
            module.load(w)
            module.model.train()
            with model_errors(f"in training mode with a batch of {len(y)}"):
                loss = module.task.loss(module.scores(x), y, "none") @ weights
                return torch.cat([g.reshape(-1) for g in module.gradient(loss)])

    @contextmanager
    def module(self) -> Iterator[FlatModule]:
        """Lend a copy of the module to the calling thread."""
        module = self._free.get()
        try:
            yield module
        finally:
            self._free.put(module)


def local_steps(
    module: FlatModule,
    shards: Shards,
    i: int,
    start: int,
    stop: int,
    steps: LocalSteps,
    rule: LocalRule,
    at: At | None,
    *,
    look: bool = True,
) -> None:
    """w_i <- w_i - eta grad F_i(w_i) for steps start+1 .. stop, by mini-batches unless full.

    Every loss must be finite, unless nobody is to look: a GPU has to be waited for.
    """
    x, y = shards.of(i)
    ws = [w.data[None] for w in module.trained]
    descent = Descent(rule, ws, at)
    for t in range(start + 1, stop + 1):
        if module.draws:
            module.seed(drawing_seed(steps, t, i))
        for batch in _sent(steps.batches(t, i, len(y)), x.device):
            xs, ys = (x, y) if batch is None else (x[batch], y[batch])
            with model_errors(f"at step {t} on node {i} with a batch of {len(ys)}"):
                loss = module.task.loss(module.scores(xs), ys)
                grads = module.gradient(loss)
            if look and not math.isfinite(loss.item()):
                raise DivergenceError(
                    f"the loss is {loss.item()} at step {t} on node {i}; lower train.lr "
                    f"(now {steps.lr:g})"
                )
            descent.step([g[None] for g in grads], steps.lr_at(t))


def drawing_seed(steps: LocalSteps, t: int, i: int) -> int:
    """Return the seed of what node i draws in step t, beside its batches."""
    return (steps.seed * 1_000_003 + t) * 1_000_003 + i


def _sent(batches: Sequence[Ints | None], device: torch.device) -> "Sequence[Ints | Tensor | None]":
    """Return the examples of each mini-batch where a device has them, sent there all at once."""
    drawn = [batch for batch in batches if batch is not None]
    if device.type == "cpu" or not drawn:
        return batches
    together = torch.from_numpy(np.concatenate(drawn)).to(device)
    return torch.split(together, [len(batch) for batch in drawn])


def split(flat: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Cut stacked vectors [c, d] into pieces shaped like the given tensors [c, ...]."""
    pieces, at = [], 0
    for w in like:
        size = w[0].numel()
        pieces.append(flat[:, at : at + size].view(len(flat), *w.shape[1:]))
        at += size
    return pieces
