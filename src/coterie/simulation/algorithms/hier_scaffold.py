"""SCAFFOLD on both levels: corrected inside a group at its means, between groups at global ones.

Fang et al., Hierarchical Federated Learning with Multi-Timescale Gradient Correction, NeurIPS 2024
(MTGC), with mean gradients kept in place of their differences, as in SCAFFOLD: z_i = c_k - c_i and
y_k = b - b_k. Nodes keep c_i over a global mean, after which MTGC starts z_i afresh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.engine.update import Arrays, At, Kept, Mean, Pull, Update
from coterie.simulation.algorithm import Algorithm

if TYPE_CHECKING:
    from torch import Tensor


def begin(n: int, w: Tensor) -> Kept:
    """Mean gradients: c_i of nodes, c_k of groups, and b_k and b of the last round.

    Groups keep the sum of their c_k in the round so far, and the number of their means in it.
    """
    zeros = w.new_zeros(len(w))
    groups = {"c": zeros, "b": zeros, "sum": zeros, "means": w.new_zeros(())}
    return Kept({"c": w.new_zeros(n, len(w))}, groups, {"b": zeros.clone()})


def offset(at: At) -> Tensor:
    """(c_k - c_i) + (b - b_k)."""
    return (at.group["c"] - at.node["c"]).add_(at.server["b"]).sub_(at.group["b"])


def renew(w: Tensor, at: At) -> Arrays:
    """c_i <- the node's own mean gradient: its model's change by its rates, less the offset."""
    return {"c": (at.given - w).div_(at.rates).sub_(offset(at))}


def group(mean: Mean) -> Arrays:
    """c_k <- sum of p_i c_i over the group; b_k <- the mean of a round's c_k after a global one."""
    c = mean.by_group(mean.node["c"])
    total, means = mean.group["sum"] + c, mean.group["means"] + 1
    if mean.scope == "group":
        return {"c": c, "sum": total, "means": means}
    none = {"sum": total.new_zeros(total.shape), "means": means.new_zeros(means.shape)}
    return {"c": c, "b": total / means[:, None], **none}


def server(w: Tensor, mean: Mean) -> tuple[Tensor, Arrays]:
    """b <- sum_k p_k b_k."""
    return w, {"b": mean.over_all(mean.group["b"][mean.z])}


def hier_scaffold() -> Algorithm:
    """SCAFFOLD on both levels (MTGC): corrected inside groups, and between groups."""
    update = Update(
        begin=begin,
        pull=lambda at: Pull(offset=offset(at)),
        renew=renew,
        group=group,
        server=server,
        extra=lambda d, scope: 2 * d if scope == "global" else d,
        momentum=False,
    )
    return Algorithm("SCAFFOLD on both levels: inside groups and between them", update)
