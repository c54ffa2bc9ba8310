"""Groupings that need no search: everyone together, by network edge, at random."""

import numpy as np

from coterie.grouping import Evidence, Grouping, with_servers


def single(evidence: Evidence, rng: np.random.Generator) -> Grouping:
    """Put all nodes in one group, as FedAvg does."""
    return with_servers(np.zeros(len(evidence.p), dtype=np.int64), evidence)


def by_edge(evidence: Evidence, rng: np.random.Generator) -> Grouping:
    """Make every network edge a group, as HierFAVG does."""
    _, z = np.unique(evidence.edge_of, return_inverse=True)
    return with_servers(z.astype(np.int64), evidence)


def at_random(evidence: Evidence, rng: np.random.Generator) -> Grouping:
    """Deal the nodes to groups of equal size at random."""
    z = rng.permutation(np.arange(len(evidence.p)) % evidence.num_groups)
    return with_servers(z.astype(np.int64), evidence)
