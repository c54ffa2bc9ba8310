"""The paper's six settings, on two levels: an edge holds some of the classes, and each of its nodes
some of the edge's. `Dtq` reads: a node holds a *tenth* of the classes, an edge a *quarter*.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Ints
from coterie.core.errors import PartitionError
from coterie.partition.counts import deal_kinds, draw, fit_counts, hand_out
from coterie.partition.placement import place
from coterie.partition.values import Dealt, Examples, Rule, Spread

SHARES = {"t": ("tenth", 0.1), "q": ("quarter", 0.25), "h": ("half", 0.5)}
DIVERSITIES = ("Dtt", "Dtq", "Dth", "Dqq", "Dqh", "Dhh")


def diversity(kind: str) -> tuple[float, float] | None:
    """Read a setting such as "Dtq" as (share of classes per node, share per edge).

    >>> diversity("Dtq"), diversity("iid")
    ((0.1, 0.25), None)
    """
    if len(kind) == 3 and kind[0] == "D" and set(kind[1:]) <= set(SHARES):
        (node, node_share), (edge, edge_share) = SHARES[kind[1]], SHARES[kind[2]]
        if node_share > edge_share:
            raise PartitionError(
                f"a node of {kind!r} holds a {node} of the classes but its edge only a {edge}, and "
                f"a node's classes are drawn from its edge's; did you mean 'D{kind[2]}{kind[1]}'?"
            )
        return node_share, edge_share
    return None


def two_level(examples: Examples, rule: Rule, rng: np.random.Generator) -> Dealt:
    """Give each edge a share of the classes and each node a share of its edge's.

    The counts of classes are drawn around their mean and then fitted to it exactly: over all edges
    they sum to E * max(1, C * edge_share), and over all nodes likewise, as far as a node can have
    no more classes than its edge. A class's examples go to the nodes that hold it.
    """
    shares = diversity(rule.kind)
    assert shares is not None, "the table has this function for diversities only"
    edge_of = place(rule.n, rule.num_edges or 1)
    classes = np.unique(examples.y)
    per_node, per_edge = (max(1.0, len(classes) * share) for share in shares)
    of_edge = _classes_of_edges(edge_of, len(classes), per_node, per_edge, rule.spread, rng)
    held = _classes_of_nodes(edge_of, of_edge, per_node, rule.spread, rng)  # [n, C] bool
    return Dealt(hand_out(examples.y, classes, held, rule.spread, rng), edge_of)


def _classes_of_edges(
    edge_of: Ints,
    n_classes: int,
    per_node: float,
    per_edge: float,
    spread: Spread,
    rng: np.random.Generator,
) -> list[Ints]:
    """Choose the classes of every edge, each class in at least one."""
    nodes = np.bincount(edge_of)
    most = np.minimum(n_classes, np.floor(nodes * per_node + 1e-9)).astype(np.int64)
    total = int(np.rint(len(nodes) * per_edge))
    if total < n_classes:
        raise PartitionError(
            f"{len(nodes)} edges with {per_edge:g} classes each cannot hold all {n_classes} "
            f"classes; use at least {int(np.ceil(n_classes / per_edge))} edges or another "
            "partition.kind"
        )
    if total > most.sum():
        raise PartitionError(
            f"edges of {nodes.min()} to {nodes.max()} nodes with {per_node:g} classes a node "
            f"cannot hold {per_edge:g} classes an edge; use more nodes or another partition.kind"
        )
    drawn = draw(per_edge, 1, n_classes, len(nodes), spread, rng)
    counts = fit_counts(drawn, total, 1, most)
    return [np.flatnonzero(row) for row in deal_kinds(counts, n_classes, rng)]


def _classes_of_nodes(
    edge_of: Ints,
    of_edge: list[Ints],
    per_node: float,
    spread: Spread,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Choose the classes of every node among its edge's, each of the edge's on at least one."""
    nodes = np.bincount(edge_of)
    classes = np.array([len(c) for c in of_edge])
    least, most = np.maximum(nodes, classes), nodes * classes
    total = int(np.clip(np.rint(len(edge_of) * per_node), least.sum(), most.sum()))
    totals = fit_counts(nodes.astype(np.float64) * per_node, total, least, most)
    n_classes = max(int(c.max()) for c in of_edge) + 1
    held = np.zeros((len(edge_of), n_classes), dtype=bool)
    starts = np.concatenate([[0], np.cumsum(nodes)])
    for e, (start, stop) in enumerate(pairwise(starts)):
        drawn = draw(totals[e] / nodes[e], 1, classes[e], nodes[e], spread, rng)
        counts = fit_counts(drawn, int(totals[e]), 1, classes[e])
        held[start:stop, of_edge[e]] = deal_kinds(counts, int(classes[e]), rng)
    return held
