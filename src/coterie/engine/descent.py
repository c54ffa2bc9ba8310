"""How a node steps along its gradient: SGD with momentum, weight decay, and an update."""

from collections.abc import Sequence

import torch
from torch import Tensor

from coterie.engine.local_rule import LocalRule
from coterie.engine.update import At, Pull


class Descent:
    """Steps of c nodes at once between two aggregations; tensors are [c, ...], one per parameter.

    `at` says where the nodes are in their turn; None where nothing is added to SGD.
    """

    def __init__(self, rule: LocalRule, ws: Sequence[Tensor], at: At | None = None) -> None:
        """Take the parameters, which steps change in place."""
        self._rule, self._ws = rule, ws
        self._pulls: list[Pull] | None = None
        self._at: list[At] | None = None
        if at is not None and rule.update.pull is not None:
            self._pulls = rule.update.pull(at).layers(ws)
        if at is not None and rule.update.correct is not None:
            self._at = at.layers(ws)
        self._speed = [torch.zeros_like(w) for w in ws] if rule.momentum else None

    @torch.no_grad()
    def step(self, grads: Sequence[Tensor], lr: float) -> None:
        """Step the first nodes, as many as there are gradients of; these are left as they are.

        Two parameters may have one gradient tensor between them, or one that is expanded.
        """
        for number, gradient in enumerate(grads):
            c = len(gradient)
            w, g = self._ws[number][:c], gradient
            if self._rule.weight_decay:
                g = g.add(w, alpha=self._rule.weight_decay)
            if self._pulls is not None:
                pull = self._pulls[number]
                if pull.towards is not None:
                    g = g.add(w - pull.towards[:c], alpha=pull.strength)
                if pull.offset is not None:
                    g = g.add(pull.offset[:c])
            if self._at is not None and self._rule.update.correct is not None:
                at = self._at[number].first(c)
                at.lr = lr
                g = self._rule.update.correct(g, w, at)
            if self._speed is not None:
                g = self._speed[number][:c].mul_(self._rule.momentum).add_(g)
            w.sub_(g, alpha=lr)
