"""What time it is: simulated seconds, and the bytes that the links have carried."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coterie.network import Transfer


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


def step_seconds(
    examples: NDArray[np.int64], flops_per_example: float, flops_per_s: float
) -> float:
    """Seconds of one local step: the slowest node's examples times operations over speed.

    >>> step_seconds(np.array([10, 40]), 1e6, 5e9)
    0.008
    """
    return float(examples.max()) * flops_per_example / flops_per_s
