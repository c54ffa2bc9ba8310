"""Any module that treats examples one by one: torch.func runs many nodes' models as one."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from coterie.core.arrays import Ints
from coterie.engine.contract import LocalSteps
from coterie.engine.descent import Descent
from coterie.engine.kernels.batching import batches_of
from coterie.engine.kernels.sending import Sent, sent
from coterie.engine.kernels.single import Single, split
from coterie.engine.local_rule import LocalRule
from coterie.engine.module import Shards, chunk, inputs, model_errors
from coterie.engine.task import CLASSIFICATION, Task
from coterie.engine.update import At

STACK_BYTES = 8 << 20  # of weights trained together, which should stay in a CPU's cache
MOST_STACKED = 64
STACK_BYTES_AWAY, MOST_STACKED_AWAY = 256 << 20, 256  # a GPU needs many at once, and has room


class Stacked:
    """Trains nodes by a vectorised gradient of their module; full-data gradients node by node."""

    name, one_by_one = "stacked", False

    def __init__(
        self, model: nn.Module, shards: Shards, one_by_one: Single, task: Task = CLASSIFICATION
    ) -> None:
        """Take the module's shapes, the nodes' data, and who lends copies of the module."""
        self._shards, self._single, self._task = shards, one_by_one, task
        self._names = [k for k, w in model.named_parameters() if w.requires_grad]
        self._shapes = [w[None] for w in model.parameters() if w.requires_grad]
        self._bytes = shards.dtype.itemsize * sum(w.numel() for w in self._shapes)

    def forget(self) -> None:
        """Nothing is kept here."""

    def stack(self, batch: int) -> int:
        """Return how many nodes are trained together with batches of so many examples."""
        here = self._shards.x.device.type == "cpu"
        size, most = (STACK_BYTES, MOST_STACKED) if here else (STACK_BYTES_AWAY, MOST_STACKED_AWAY)
        return max(1, min(most, size // self._bytes, chunk(self._shards.x) // batch))

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
        """Take steps start+1 .. stop from the models w[rows], returned [c, d] in a list."""
        found = w.index_select(0, rows)
        ws = split(found, self._shapes)
        descent = Descent(rule, ws, at)
        with self._single.module() as module:  # a call changes it, so each thread has its own
            module.load(found[0])
            module.model.train()
            gradient = self._gradient(module.model)
            for t in range(start + 1, stop + 1):
                for batch in sent(batches_of(self._shards, nodes, t, steps), w.device):
                    now = [part[: batch.shape[0]] for part in ws]
                    with model_errors(f"at step {t} on {len(now[0])} nodes at once"):
                        grads = gradient(now, *self._taken(batch))
                    descent.step(grads, steps.lr_at(t))
        return [found]

    def _gradient(self, model: nn.Module) -> Callable[..., list[Tensor]]:
        """Return the gradients of stacked parameters, given stacked examples and weights."""
        fixed = {k: w.detach() for k, w in model.named_parameters() if not w.requires_grad}
        fixed |= dict(model.named_buffers())

        def loss(ws: list[Tensor], x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
            named = fixed | dict(zip(self._names, ws, strict=True))
            scores = self._task.shaped(functional_call(model, named, (x,)), len(y))
            each = self._task.loss(scores, y, "none")
            return (each * weights).sum()

        return vmap(grad(loss), randomness="error")

    def _taken(self, batch: Sent) -> tuple[Tensor, Tensor, Tensor]:
        """Examples [c, B, ...], targets [c, B, ...] and weights [c, B] of a batch."""
        x = inputs(self._shards.x.index_select(0, batch.index), self._shards.dtype)
        y = self._shards.y.index_select(0, batch.index)
        each = batch.weights
        weights = torch.zeros(batch.shape, dtype=self._shards.dtype, device=x.device)
        weights += each[..., 0] if isinstance(each, Tensor) else each
        shape = batch.shape
        return x.view(*shape, *x.shape[1:]), y.view(*shape, *y.shape[1:]), weights

    def gradients(self, w: Tensor, nodes: Ints, out: Tensor) -> Tensor:
        """Full-data losses [c] at one model w [d]; the gradients go to out [c, d]."""
        return self._single.gradients(w, nodes, out)

    def weighted(self, w: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """Gradient [d] of the weighted sum of some examples' losses at one model w."""
        return self._single.weighted(w, index, weights)
