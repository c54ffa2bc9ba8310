"""SCAFFOLD: every node's steps are corrected by how its gradient differs from everybody's.

Karimireddy et al., ICML 2020. A node's correction is renewed from the node's change of its model
(option II): that change, divided by the summed rates, is its mean gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.engine.update import Arrays, At, Kept, Mean, Pull, Update
from coterie.simulation.algorithm import Algorithm

if TYPE_CHECKING:
    from torch import Tensor


def begin(n: int, w: Tensor) -> Kept:
    """No corrections yet: c_i [n, d] of the nodes, and c [d], which all know."""
    return Kept(node={"c": w.new_zeros(n, len(w))}, server={"c": w.new_zeros(len(w))})


def pull(at: At) -> Pull:
    """g - c_i + c."""
    return Pull(offset=at.server["c"] - at.node["c"])


def renew(w: Tensor, at: At) -> Arrays:
    """c_i <- c_i - c + (w_given - w_i) / rates."""
    return {"c": (at.given - w).div_(at.rates).sub_(at.server["c"]).add_(at.node["c"])}


def server(w: Tensor, mean: Mean) -> tuple[Tensor, Arrays]:
    """c <- sum_i p_i c_i."""
    return w, {"c": mean.over_all(mean.node["c"])}


CORRECTED = Update(
    begin=begin,
    pull=pull,
    renew=renew,
    server=server,
    extra=lambda d, scope: d if scope == "global" else 0,  # c travels with a model, both ways
    momentum=False,
)


def scaffold() -> Algorithm:
    """SCAFFOLD: local steps are corrected for how a node's gradient differs from all nodes'."""
    return Algorithm("SCAFFOLD: local steps corrected towards everybody's gradient", CORRECTED)
