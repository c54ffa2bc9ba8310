"""Which network edge each node sits under."""

import numpy as np

from coterie.partition.values import Ints, Placement


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
        edge_of = np.empty_like(in_order)
        edge_of[alike(class_counts)] = np.sort(in_order)
        return edge_of
    return in_order


def alike(class_counts: Ints) -> Ints:
    """Order nodes so that neighbours hold the same classes: by their largest class, then the next.

    >>> alike(np.array([[9, 1, 0], [0, 1, 9], [8, 0, 2], [0, 5, 0]])).tolist()
    [0, 2, 3, 1]
    """
    ranked = np.argsort(-class_counts, axis=1, kind="stable")  # [n, C] classes, most held first
    return np.lexsort(ranked.T[::-1])
