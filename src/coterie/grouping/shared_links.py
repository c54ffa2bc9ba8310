"""Links between switches that many transfers share: a site's uplink carries all that leaves it.

As with other routes (path_costs.py), what is said is about the mean of the shortest ones.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.grouping.path_costs import ENTRIES, Links
from coterie.topology import Topology

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST = 1 << 24  # links on all routes, beyond which nothing is said of them
BATCH = 1 << 20  # links on routes that are followed at once
DENSE = 1 << 20  # pairs of switches and links, up to which all of them are kept
SHARP = 16  # of the smoothed maximum over links


@dataclass(frozen=True, eq=False)
class SharedLinks:
    """What a byte on its way between two of H switches costs every direction of the D / 2 links.

    `seconds` [H * H, D] has a row goal * H + source for each pair of switches.
    """

    seconds: "csr_array"
    H: int

    @property
    def directions(self) -> int:
        """Directions of links."""
        return int(self.seconds.shape[1])

    @cached_property
    def _whole(self) -> Floats | None:
        """The same with its zeros, where that is small: quicker to reckon with."""
        if self.H * self.H * self.directions > DENSE:
            return None
        whole: Floats = self.seconds.toarray()
        return whole

    def loads(self, goal: Ints, source: Ints, count: Floats | None = None) -> tuple[Floats, Floats]:
        """Seconds a byte each on all links [D], up to the goals and back; of some pairs [m]."""
        up, down = goal * self.H + source, source * self.H + goal
        return self._load(up, count), self._load(down, count)

    def _load(self, pairs: Ints, count: Floats | None) -> Floats:
        """Add up what pairs of switches [m] cost, each count [m] times: on all links [D]."""
        P = self.H * self.H
        if (whole := self._whole) is not None:
            small: Floats = np.bincount(pairs, count, P) @ whole
            return small
        if len(pairs) > P // 4:
            every: Floats = np.bincount(pairs, count, P) @ self.seconds
            return every
        first = self.seconds.indptr.astype(np.int64)
        length = first[pairs + 1] - first[pairs]
        end = np.cumsum(length)
        place = np.arange(int(end[-1]) if len(end) else 0)
        place += np.repeat(first[pairs] - end + length, length)
        times = np.ones(len(pairs)) if count is None else count
        cost = self.seconds.data[place] * np.repeat(times, length)
        return np.bincount(self.seconds.indices[place], cost, self.directions).astype(np.float64)

    def busiest(self, goals: Ints, source: Ints, count: Floats, rest: Floats) -> Floats:
        """Seconds a byte of the busiest link up, and back, with sources' bytes to each goal [2, m].

        Links carry `rest` [2, D] besides.
        """
        up, down = goals[:, None] * self.H + source, source * self.H + goals[:, None]
        if (whole := self._whole) is not None:
            there, back = count @ whole[up], count @ whole[down]
            return np.stack([_most(there, rest[0]), _most(back, rest[1])])
        return np.stack([self._most(up, count, rest[0]), self._most(down, count, rest[1])])

    def _most(self, pairs: Ints, count: Floats, rest: Floats) -> Floats:
        """Most of a load of pairs [m, s], each count [s] times, and of the rest [D], by row."""
        from scipy.sparse import csr_array

        m, s = pairs.shape
        chosen = csr_array(
            (np.tile(count, m), pairs.ravel(), np.arange(m + 1) * s), (m, self.H * self.H)
        )
        own = chosen @ self.seconds
        most = np.full(m, float(rest.max(initial=0.0)))
        full = np.flatnonzero(np.diff(own.indptr))
        if len(full):
            totals = own.data + rest[own.indices]
            most[full] = np.maximum(most[full], np.maximum.reduceat(totals, own.indptr[full]))
        return most

    def tolls(self, goal: Ints, up: Floats, down: Floats) -> Floats:
        """Seconds that a byte from every switch to each goal adds to the busiest link [m, H].

        The maximum is smoothed: links that are nearly as busy count, too.
        """
        H, there, back = self.H, self.seconds @ _slope(up), self.seconds @ _slope(down)
        tolls: Floats = there.reshape(H, H)[goal] + back.reshape(H, H)[:, goal].T
        return tolls


def _most(own: Floats, rest: Floats) -> Floats:
    most: Floats = (own + rest).max(axis=1, initial=0.0)
    return most


def _slope(load: Floats) -> Floats:
    """What an entry adds to the smoothed maximum of a load [D], for each of its seconds."""
    top = float(load.max(initial=0.0))
    if not top:
        return np.zeros_like(load)
    parts = (load / top) ** SHARP
    slope: Floats = (load / top) ** (SHARP - 1) * parts.sum() ** (1 / SHARP - 1)
    return slope


def shared_links(topology: Topology) -> SharedLinks | None:
    """Follow all routes between switches that have devices or serve; None where nothing is shared.

    Two sites on one core; a third of the way is shared:

    >>> links = np.array([[0, 2], [1, 2]])
    >>> speed = np.repeat([1.0, 1.0, 0.5, 0.25], 2)
    >>> sites = Topology(np.array([0, 1]), links, ("wan",) * 2, 3, speed, np.zeros(4))
    >>> found = shared_links(sites)
    >>> up, down = found.loads(np.array([1]), np.array([0]))
    >>> up.tolist(), down.tolist()
    ([2.0, 0.0, 0.0, 4.0], [0.0, 2.0, 4.0, 0.0])
    """
    from scipy.sparse import coo_array, csr_array, vstack

    wanted, hops = topology.switches_hops
    n, S, L, H = topology.n_devices, topology.n_switches, len(topology.links), len(wanted)
    alone = np.bincount(topology.switch_of, minlength=S).max(initial=0) <= 1
    farthest = int(hops[:, wanted].max(initial=0))
    if not L or (alone and farthest <= 1):
        return None
    links = Links(topology)
    parts, at = [], 0
    most = max(1, min(H, ENTRIES // max(1, len(links.to))))
    batch = 1  # the first goal tells how many links the others have
    while at < H:
        some = hops[at : at + batch].astype(np.int64)
        B = len(some)
        steps = list(links.last_steps(some.ravel(), S))
        near, far, link, part = (np.concatenate(each) for each in zip(*steps, strict=True))
        onward = coo_array((part, (far, near)), (B * S, B * S)).tocsr()
        own = coo_array((part, (far, links.direction[link])), (B * S, 2 * L)).tocsr()
        goals = (np.arange(B)[:, None] * S + wanted).ravel()
        total, ahead = own[goals], onward[goals]
        for _ in range(farthest - 1):
            total, ahead = total + ahead @ own, ahead @ onward
        parts.append(total)
        at += B
        if total.nnz / B * H > MOST:
            return None
        batch = min(most, max(1, BATCH * B // max(1, total.nnz)))
    table = csr_array(vstack(parts))
    table.data /= topology.bytes_per_s[2 * n :][table.indices]
    return SharedLinks(table, H)
