"""Numbers by which answers to all examples are measured, beside their targets."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def auc(scores: Array, y: Array) -> float:
    """Chance that a positive example has a higher score than a negative one; ties count half.

    It is nan where all examples are of one kind.

    >>> auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 0, 1, 1]))
    0.875
    """
    positive = y > 0
    n, m = int(positive.sum()), int((~positive).sum())
    if not (n and m):
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # from 1, equal scores in the middle
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))


def macro_auc(scores: Array, y: Array) -> float:
    """Mean of the labels' AUCs [N, m], of those that some examples have and some have not."""
    each = np.array([auc(scores[:, c], y[:, c]) for c in range(y.shape[1])])
    there = each[~np.isnan(each)]
    return float(there.mean()) if len(there) else float("nan")


def r2(predicted: Array, y: Array) -> float:
    """Share of the targets' variance that predictions explain, in the mean over targets [N, m].

    It is nan where a target is the same everywhere.

    >>> r2(np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [2.0], [3.0]]))
    0.5
    """
    wanted = y.astype(np.float64)
    left = np.square(wanted - predicted).sum(axis=0)
    whole = np.square(wanted - wanted.mean(axis=0)).sum(axis=0)
    if not whole.all():
        return float("nan")
    return float((1 - left / whole).mean())
