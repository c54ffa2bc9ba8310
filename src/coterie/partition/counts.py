"""Whole numbers: drawn around a mean, fitted to a sum, and dealt out."""

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints
from coterie.partition.values import Spread


def fit_counts(x: Floats, total: int, lo: int | Ints, hi: int | Ints) -> Ints:
    """Scale x and round it to whole numbers within [lo, hi] that sum to total.

    The scale is found by bisection, the rounding is by largest remainder.

    >>> fit_counts(np.array([1.0, 1.0, 2.0]), 10, 1, 4).tolist()
    [3, 3, 4]
    """
    low = np.broadcast_to(np.asarray(lo, dtype=np.float64), x.shape)
    high = np.broadcast_to(np.asarray(hi, dtype=np.float64), x.shape)
    assert low.sum() <= total <= high.sum(), "callers check that the total can be met"
    x = np.maximum(x, 1e-9)
    below, above = 0.0, float((high / x).max()) + 1.0
    for _ in range(100):
        scale = (below + above) / 2
        if scale in (below, above):  # nothing lies between them
            break
        if np.clip(scale * x, low, high).sum() < total:
            below = scale
        else:
            above = scale
    exact = np.clip(above * x, low, high)
    counts = np.floor(exact + 1e-9)
    missing = total - int(counts.sum())
    for i in np.argsort(counts - exact, kind="stable"):
        if missing == 0:
            break
        step = np.clip(np.sign(missing), low[i] - counts[i], high[i] - counts[i])
        counts[i] += step
        missing -= int(step)
    assert missing == 0
    return counts.astype(np.int64)


def draw(
    mean: float, lo: float, hi: float, size: int, spread: Spread, rng: np.random.Generator
) -> Floats:
    """Draw counts around mean within [lo, hi]; the normal is cut evenly, to keep its mean."""
    if spread.kind == "exponential":
        return np.minimum(lo + rng.exponential(max(mean - lo, 0.0), size), hi)
    if spread.kind == "lognormal":
        log = spread.sd * rng.standard_normal(size)
        weights: Floats = np.exp(log - log.max())  # the largest is 1, so that no SD overflows
        drawn: Floats = np.clip(mean * weights / weights.mean(), lo, hi)
        return drawn
    half = max(min(mean - lo, hi - mean), 0.0)
    if half == 0 or spread.sd == 0:
        return np.full(size, mean)
    from scipy.special import ndtr, ndtri

    edge = float(ndtr(half / spread.sd))
    return mean + spread.sd * ndtri(rng.uniform(1 - edge, edge, size))


def deal_kinds(counts: Ints, n_kinds: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Give taker j counts[j] distinct kinds, always the least used ones, ties at random."""
    dealt = np.zeros((len(counts), n_kinds), dtype=bool)
    used = np.zeros(n_kinds)
    for j in rng.permutation(len(counts)):
        taken = np.argsort(used + rng.random(n_kinds))[: counts[j]]
        dealt[j, taken] = True
        used[taken] += 1
    return dealt


def hand_out(
    y: Ints,
    classes: Ints,
    held: NDArray[np.bool_],
    spread: Spread | None,
    rng: np.random.Generator,
) -> Ints:
    """Deal each class's examples to the nodes that hold it: held [n, classes] -> node of each [N].

    Evenly, or with counts that vary as `spread` says. A class with fewer examples than holders
    gives one each to as many of them, chosen at random, as it can.
    """
    node_of = np.full(len(y), -1, dtype=np.int64)
    for column, c in enumerate(classes):
        holders = np.flatnonzero(held[:, column])
        examples = rng.permutation(np.flatnonzero(y == c))
        if len(examples) < len(holders):
            holders = np.sort(rng.choice(holders, len(examples), replace=False))
        mean = len(examples) / len(holders)
        drawn = np.full(len(holders), mean)
        if spread is not None:
            drawn = draw(mean, 1, len(examples), len(holders), spread, rng)
        counts = fit_counts(drawn, len(examples), 1, len(examples))
        node_of[examples] = np.repeat(holders, counts)
    return node_of
