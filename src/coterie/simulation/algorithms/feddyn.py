"""FedDyn: a proximal term and a linear term of each node's own, so that all share an optimum.

Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.engine.update import Arrays, At, Kept, Mean, Pull, Update
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.algorithms.options import above

if TYPE_CHECKING:
    from torch import Tensor


def feddyn(alpha: float = 0.1) -> Algorithm:
    """FedDyn: a proximal term, of weight alpha, and a linear term of each node's own."""
    above("alpha", alpha, 0)

    def begin(n: int, w: Tensor) -> Kept:
        """No linear terms yet: h_i [n, d] of the nodes, and h [d] of the server."""
        return Kept(node={"h": w.new_zeros(n, len(w))}, server={"h": w.new_zeros(len(w))})

    def pull(at: At) -> Pull:
        """g - h_i + alpha (w - w_given), which is one pull to w_given + h_i / alpha."""
        return Pull(towards=(at.node["h"] / alpha).add_(at.given), strength=alpha)

    def renew(w: Tensor, at: At) -> Arrays:
        """h_i <- h_i - alpha (w_i - w_given)."""
        return {"h": (w - at.given).mul_(-alpha).add_(at.node["h"])}

    def server(w: Tensor, mean: Mean) -> tuple[Tensor, Arrays]:
        """h <- h - alpha share (mean - w_last), where `share` took part; w <- mean - h / alpha."""
        h = mean.server["h"] - alpha * mean.share * (w - mean.given)
        return w - h / alpha, {"h": h}

    update = Update(begin, pull, renew=renew, server=server, momentum=False)
    return Algorithm("FedDyn: a proximal term and a linear term of each node's own", update)
