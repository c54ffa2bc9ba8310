"""What time it is: simulated seconds, and the bytes that the links have carried."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from coterie.core.arrays import Floats
from coterie.core.errors import ConfigError
from coterie.network import Transfer

LONGEST_S = 1e90  # of a run, so that sums of times are still numbers


@dataclass(frozen=True)
class Clock:
    """Seconds so far, by what they were spent on, and bytes by network tier.

    >>> Clock().after("global", 2.0, Transfer(0.5, {"access": 8})).seconds
    2.5
    """

    seconds: float = 0.0
    compute_s: float = 0.0
    group_s: float = 0.0
    global_s: float = 0.0
    grouping_s: float = 0.0
    bytes_by_tier: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> float:
        """Bytes over all links so far."""
        return float(sum(self.bytes_by_tier.values()))

    def after(self, event: str, compute_s: float, transfer: Transfer) -> "Clock":
        """Time after local work behind a barrier and then a transfer of the given kind."""
        moved = Transfer(0.0, self.bytes_by_tier) + transfer
        return Clock(
            seconds=self.seconds + compute_s + transfer.seconds,
            compute_s=self.compute_s + compute_s,
            group_s=self.group_s + transfer.seconds * (event == "group"),
            global_s=self.global_s + transfer.seconds * (event == "global"),
            grouping_s=self.grouping_s + transfer.seconds * (event == "grouping"),
            bytes_by_tier=moved.bytes_by_tier,
        )


def draw_speeds(
    kind: Literal["constant", "uniform", "lognormal"],
    n: int,
    mean: float,
    spread: float,
    rng: np.random.Generator,
) -> Floats:
    """Draw the speeds of n nodes around a mean.

    Uniform ones lie within mean * (1 +- spread); the log of lognormal ones has that standard
    deviation.

    >>> draw_speeds("uniform", 2, 5e9, 0.0, np.random.default_rng(0)).tolist()
    [5000000000.0, 5000000000.0]
    """
    if kind == "uniform":
        if spread >= 1:
            raise ConfigError(f"compute.spread must be < 1 for uniform speeds, got {spread:g}")
        return mean * rng.uniform(1 - spread, 1 + spread, n)
    if kind == "lognormal":
        return mean * rng.lognormal(-(spread**2) / 2, spread, n)
    return np.full(n, mean)
