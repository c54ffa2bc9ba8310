"""Who takes part in a round: a sample of the nodes, less those who vanish or come too late."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.streams import Stream, generator


@dataclass(frozen=True, eq=False)
class Present:
    """Who was asked, whose model counts, and the seconds until the last of them was done."""

    asked: Ints
    counted: Ints
    compute_s: float


@dataclass(frozen=True)
class Participation:
    """How nodes take part in the local steps before an aggregation.

    A fraction of every group, or of all nodes, is asked, at least one; of these each vanishes with
    probability `dropout`. A node that works longer than `deadline_s` (0: no deadline) is not waited
    for. Nodes' speeds vary from round to round with `jitter`, the standard deviation of their log.
    """

    fraction: float = 1.0
    sampled: Literal["group", "all"] = "group"
    dropout: float = 0.0
    deadline_s: float = 0.0
    jitter: float = 0.0

    @property
    def full(self) -> bool:
        """Whether everybody always takes part, at an even pace."""
        return self.fraction == 1 and not (self.dropout or self.deadline_s or self.jitter)

    def at(self, t: int, z: Ints, work_s: Floats, seed: int) -> Present:
        """Say who is there at the aggregation after step t; work_s [n] is each node's local work.

        Without a deadline the round lasts until the slowest survivor is done: who vanishes is
        missed at once. With one, it lasts until then as soon as anybody is missing.

        >>> Participation(deadline_s=2.0).at(1, np.array([0, 0]), np.array([1.0, 3.0]), 0)
        Present(asked=array([0, 1]), counted=array([0]), compute_s=2.0)
        """
        rng = generator(seed, Stream.PARTICIPATION, t)
        asked = self._asked(z, rng)
        if not (self.jitter or self.dropout or self.deadline_s):  # nothing else is drawn
            return Present(asked, asked, float(work_s[asked].max()))
        takes = work_s * rng.lognormal(0.0, self.jitter, len(z))
        stays = rng.random(len(z)) >= self.dropout
        in_time = takes <= self.deadline_s if self.deadline_s else np.ones(len(z), dtype=bool)
        counted = asked[(stays & in_time)[asked]]
        if self.deadline_s and len(counted) < len(asked):
            return Present(asked, counted, self.deadline_s)
        waited = counted if len(counted) else asked
        return Present(asked, counted, float(takes[waited].max()))

    def _asked(self, z: Ints, rng: np.random.Generator) -> Ints:
        order = rng.permutation(len(z))
        if self.sampled == "all":
            return np.sort(order[: self._share(len(z))])
        sizes = np.bincount(z)
        asked = np.array([self._share(size) for size in sizes.tolist()])
        order = order[np.argsort(z[order], kind="stable")]  # group by group
        rank = np.arange(len(z)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[rank < np.repeat(asked, sizes)])

    def _share(self, size: int) -> int:
        """Nodes that are asked of so many."""
        return max(1, round(self.fraction * size))
