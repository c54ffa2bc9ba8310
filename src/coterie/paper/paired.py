"""Paired tests over seeds: of two algorithms on the same seed, the difference counts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.analysis.fair import interval

HOLDS, HOLDS_NOT, UNTOLD, NOT_RUN = "holds", "does not hold", "not told apart", "not run"
MOST_FLIPPED = 16  # differences, of which 2^16 choices of signs are tried
SLACK = 1e-9  # of sums that are equal but for the order of their terms

Claim = Literal["more", "not less", "level"]


@dataclass(frozen=True)
class Paired:
    """Differences by seed, their mean with its 95% interval, and an exact p-value.

    The interval is Student's, infinite of one seed. `p` is that of flipped signs, two-sided; None
    of more than 16 seeds.
    """

    by_seed: dict[int, float]
    mean: float
    low: float
    high: float
    p: float | None


def paired(upper: Mapping[int, float], lower: Mapping[int, float]) -> Paired | None:
    """Subtract on every seed that both have; None if there is none.

    >>> found = paired({0: 3.0, 1: 5.0, 2: 9.0, 7: 1.0}, {0: 2.0, 1: 3.0, 2: 6.0, 8: 1.0})
    >>> found.by_seed, found.mean, round(found.low, 3), round(found.high, 3), found.p
    ({0: 1.0, 1: 2.0, 2: 3.0}, 2.0, -0.484, 4.484, 0.25)
    """
    both = sorted(upper.keys() & lower.keys())
    if not both:
        return None
    differences = {seed: upper[seed] - lower[seed] for seed in both}
    values = list(differences.values())
    found = interval(values)
    p = flipped(values) if len(values) <= MOST_FLIPPED else None
    return Paired(differences, found.mean, found.low, found.high, p)


def flipped(differences: Sequence[float]) -> float:
    """Return how often a sum is as far from 0, over all choices of signs.

    That is the p-value of "each difference might as well have had the other sign". It cannot be
    below 2 / 2^n.

    >>> flipped([1.0, 2.0, 3.0]), flipped([3.0, -1.0]), flipped([0.0])
    (0.25, 1.0, 1.0)
    """
    sums = np.zeros(1)
    for value in differences:
        sums = np.concatenate([sums + value, sums - value])
    far = abs(math.fsum(differences))
    return float(np.mean(np.abs(sums) >= far - SLACK * math.fsum(map(abs, differences))))


def judged(found: Paired | None, claim: Claim, margin: float = 0.0) -> str:
    """Say in a word whether a claim about a difference holds, by its interval.

    "more" is above 0, "not less" at most a margin below 0, "level" within the margin of 0. A claim
    does not hold if all of the interval is on the other side, and is not told apart else.

    >>> close = Paired({}, 0.1, -0.2, 0.4, None)
    >>> [judged(close, claim, 0.5) for claim in ("more", "not less", "level")]
    ['not told apart', 'holds', 'holds']
    """
    if found is None:
        return NOT_RUN
    if claim == "level":
        holds = -margin <= found.low and found.high <= margin
        fails = found.low > margin or found.high < -margin
    elif claim == "not less":
        holds, fails = found.low >= -margin, found.high < -margin
    else:
        holds, fails = found.low > 0, found.high < 0
    return HOLDS if holds else HOLDS_NOT if fails else UNTOLD
