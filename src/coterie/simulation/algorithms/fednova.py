"""FedNova: nodes that take more steps weigh no more for it.

Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization,
NeurIPS 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.engine.update import At, Update
from coterie.simulation.algorithm import Algorithm

if TYPE_CHECKING:
    from torch import Tensor


def send(w: Tensor, at: At) -> Tensor:
    """w_given + (w_i - w_given) tau_eff / tau_i: every node's way as if all took as many steps."""
    return at.given + (w - at.given) * (at.mean_steps / at.steps)


def fednova() -> Algorithm:
    """FedNova: ways are normalised by a node's batches, so that who takes more weighs no more."""
    about = "FedNova: nodes that take more steps weigh no more for it"
    return Algorithm(about, Update(send=send, extra=lambda d, scope: 1, momentum=False))
