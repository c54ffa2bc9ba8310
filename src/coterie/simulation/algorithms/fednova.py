"""FedNova: updates are divided by the number of local steps, so that more do not weigh more.

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
    """w_given + (w_i - w_given) tau_eff / tau_i: each update as if all took as many steps."""
    return at.given + (w - at.given) * (at.mean_steps / at.steps)


def fednova() -> Algorithm:
    """FedNova: updates are divided by a node's batches, so that more batches do not weigh more."""
    about = (
        "FedNova: updates are divided by the number of local steps, so that more steps do not "
        "weigh more"
    )
    return Algorithm(about, Update(send=send, extra=lambda d, scope: 1, momentum=False))
