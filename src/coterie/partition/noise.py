"""Label counts with noise: what a node can tell a planner, and keep its examples to itself."""

import numpy as np

from coterie.core.arrays import Ints
from coterie.core.errors import PartitionError


def noised(counts: Ints, epsilon: float, rng: np.random.Generator) -> Ints:
    """Add Laplace noise of scale 1 / epsilon to counts [n, classes], each node for itself.

    One example more or less changes one count by 1, so what a node tells is epsilon-differentially
    private (Dwork et al., 2006). Counts are rounded, none is below 0, and every node has one
    example at least; what is done to noised counts tells no more.

    >>> noised(np.array([[100, 0], [3, 50]]), 1e6, np.random.default_rng(0)).tolist()
    [[100, 0], [3, 50]]
    """
    if not (np.isfinite(epsilon) and epsilon > 0):
        raise PartitionError(f"epsilon must be above 0, got {epsilon:g}; 1 is usual")
    told = np.rint(counts + rng.laplace(scale=1 / epsilon, size=counts.shape))
    found: Ints = np.maximum(told, 0).astype(np.int64)
    empty = np.flatnonzero(found.sum(axis=1) == 0)
    found[empty, rng.integers(counts.shape[1], size=len(empty))] = 1
    return found
