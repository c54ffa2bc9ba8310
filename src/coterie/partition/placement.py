"""Which network edge each node sits under."""

import numpy as np

from coterie.core.arrays import Ints
from coterie.partition.measure import emd, pooled
from coterie.partition.values import Placement


def place(num_nodes: int, num_edges: int) -> Ints:
    """Put nodes under edges in order, as evenly as possible.

    >>> place(5, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    per_edge = [len(part) for part in np.array_split(np.arange(num_nodes), num_edges)]
    return np.repeat(np.arange(num_edges), per_edge)


def place_by(
    placement: Placement, in_order: Ints, class_counts: Ints, rng: np.random.Generator
) -> Ints:
    """Place nodes as a setting says; each edge keeps the number of nodes it has `in_order` [n]."""
    if placement == "random":
        return rng.permutation(in_order)
    if placement == "by_similarity":
        gathered = alike(class_counts, in_order)
        return max(in_order, gathered, key=lambda edge_of: _distance(class_counts, edge_of))
    return in_order


def alike(class_counts: Ints, in_order: Ints) -> Ints:
    """Fill one edge after the other: a node far from the whole, then those most like it.

    >>> counts = np.array([[9, 1], [0, 9], [8, 2], [0, 5]])
    >>> alike(counts, np.array([0, 0, 1, 1])).tolist()
    [1, 0, 1, 0]
    """
    shares = class_counts / class_counts.sum(axis=1, keepdims=True)
    far = emd(class_counts).round(12)  # so that equal nodes are equal on every machine
    edge_of = np.full(len(in_order), -1, dtype=np.int64)
    for edge, size in enumerate(np.bincount(in_order)):
        free = np.flatnonzero(edge_of < 0)
        seed = free[np.argmax(far[free])]
        near = np.abs(shares[free] - shares[seed]).sum(axis=1).round(12)
        nearest = np.argsort(near, kind="stable")[:size]
        edge_of[free[nearest]] = edge
    return edge_of


def _distance(class_counts: Ints, edge_of: Ints) -> float:
    """Mean distance of the edges to the whole, weighted by examples."""
    edges = pooled(class_counts, edge_of)
    return float(emd(edges) @ edges.sum(axis=1))
