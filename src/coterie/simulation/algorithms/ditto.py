"""Ditto: every node has a model for itself, pulled to the one that all learn together.

Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021. The pull is
taken implicitly, (w - lr g + lr lam w_given) / (1 + lr lam), so that no lam is too strong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.engine.update import At, Update
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.algorithms.options import at_least

if TYPE_CHECKING:
    from torch import Tensor


def ditto(lam: float = 0.1) -> Algorithm:
    """Ditto: FedAvg, and beside it a model of every node's own, pulled to it by lam."""
    at_least("lam", lam, 0)

    def beside(g: Tensor, w: Tensor, at: At) -> Tensor:
        """(g + lam (w - w_given)) / (1 + lr lam)."""
        return g.add(w - at.given, alpha=lam) / (1 + at.lr * lam)

    about = "Ditto: a model of each node's own beside the global one"
    return Algorithm(about, Update(beside=beside, work=2.0))
