"""Nodes whose losses can be worked out by hand."""

from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Quadratics:
    """Nodes with losses (w - c_i)' A_i (w - c_i) / 2 + b_i' w; convex where all A_i are.

    >>> one = Quadratics(np.ones((1, 1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1))
    >>> [x.tolist() for x in one.at(np.array([[3.0]]), np.array([0]))]
    [[4.5], [[3.0]]]
    """

    A: Floats  # [n, d, d]
    c: Floats  # [n, d]
    b: Floats  # [n, d]
    p: Floats  # [n]

    def at(self, models: Floats, of_node: Ints) -> tuple[Floats, Floats]:
        """Losses [n] and gradients [n, d]."""
        w = models[of_node]
        bent = np.einsum("nij,nj->ni", self.A, w - self.c)
        losses = 0.5 * ((w - self.c) * bent).sum(axis=1) + (self.b * w).sum(axis=1)
        return losses, bent + self.b

    def curve(self, w: Floats, direction: Floats) -> Floats:
        """Hessian times a direction."""
        bent: Floats = np.einsum("nij,nj->ni", self.A, direction)
        return bent

    def smoothness(self) -> float:
        """Largest eigenvalue of any node."""
        return float(np.linalg.eigvalsh(self.A).max())
