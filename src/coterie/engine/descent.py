"""How a node steps along its gradient: SGD with momentum, weight decay, FedProx, a correction."""

from collections.abc import Sequence

import torch
from torch import Tensor

from coterie.engine.contract import LocalSteps
from coterie.engine.local_rule import LocalRule

LEAST_RATES = 1e-30  # below this, the way divided by the rates is no gradient any more


class Descent:
    """Steps of c nodes at once between two aggregations; tensors are [c, ...], one per parameter.

    `offset` is what a correction adds to every gradient.
    """

    def __init__(
        self, rule: LocalRule, ws: Sequence[Tensor], offset: Sequence[Tensor] | None = None
    ) -> None:
        """Take the parameters, which steps change in place."""
        self._rule, self._ws, self._offset = rule, ws, offset
        self._given = [w.clone() for w in ws] if rule.prox else None
        self._speed = [torch.zeros_like(w) for w in ws] if rule.momentum else None

    @torch.no_grad()
    def step(self, grads: Sequence[Tensor], lr: float) -> None:
        """Step the first nodes, as many as there are gradients of; these are left as they are.

        Two parameters may have one gradient tensor between them, or one that is expanded.
        """
        for at, gradient in enumerate(grads):
            c = len(gradient)
            w, g = self._ws[at][:c], gradient
            if self._rule.weight_decay:
                g = g.add(w, alpha=self._rule.weight_decay)
            if self._given is not None:
                g = g.add(w - self._given[at][:c], alpha=self._rule.prox)
            if self._offset is not None:
                g = g.add(self._offset[at][:c])
            if self._speed is not None:
                g = self._speed[at][:c].mul_(self._rule.momentum).add_(g)
            w.sub_(g, alpha=lr)


def travelled(steps: LocalSteps, start: int, stop: int, n_examples: int) -> float:
    """Sum of the learning rates of all mini-batches of a node from step start+1 to stop.

    >>> travelled(LocalSteps(0.5, 1.0, 10, "epoch", 0), 0, 2, 25)
    3.0
    """
    batches = 1
    if steps.batch_size is not None and steps.unit == "epoch":
        batches = -(-n_examples // steps.batch_size)
    return batches * sum(steps.lr_at(t) for t in range(start + 1, stop + 1))
