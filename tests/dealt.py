"""Partitions that the tests deal, and tables of who holds what."""

import numpy as np

from coterie.core.arrays import Ints
from coterie.partition import Examples, Partition, Rule, Spread, make_partition

SPREADS = [Spread("normal", 1), Spread("normal", 3), Spread("normal", 5), Spread("exponential")]


def deal(
    kind: str,
    y: Ints,
    nodes: int | None,
    edges: int,
    spread: Spread,
    seed: int,
    users: Ints | None = None,
) -> Partition:
    rule = Rule(kind, nodes, edges, spread=spread)
    return make_partition(rule, Examples(y, users), np.random.default_rng(seed))


def class_table(part: Partition, y: Ints) -> Ints:
    """Examples of each class on each node [n, C]."""
    return np.array([np.bincount(y[i], minlength=int(y.max()) + 1) for i in part.indices])


def edge_table(part: Partition, y: Ints) -> Ints:
    table = class_table(part, y)
    return np.array([table[part.edge_of == e].sum(axis=0) for e in np.unique(part.edge_of)])
