"""Links between switches that many transfers share: a site's uplink carries all that leaves it.

As with other routes (path_costs.py), what is said is about the mean of the shortest ones.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.grouping.path_costs import ENTRIES, Links
from coterie.topology import Topology

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST = 1 << 24  # links on all routes, beyond which nothing is said of them
SHARP = 16  # of the smoothed maximum over links


@dataclass(frozen=True, eq=False)
class SharedLinks:
    """What a byte on its way between two of H switches costs every direction of the D / 2 links.

    `seconds` [H * H, D] has a row goal * H + source for each pair of switches.
    """

    seconds: "csr_array"
    H: int

    def loads(self, goal: Ints, source: Ints, count: Floats | None = None) -> tuple[Floats, Floats]:
        """Seconds a byte each on all links [D], up to the goals and back; of some pairs [m]."""
        H, ones = self.H, np.ones(len(goal)) if count is None else count
        up = np.bincount(goal * H + source, ones, H * H)
        down = np.bincount(source * H + goal, ones, H * H)
        return up @ self.seconds, down @ self.seconds

    def busiest(self, goals: Ints, source: Ints, count: Floats, rest: Floats) -> Floats:
        """Seconds a byte of the busiest link, up and back, with sources' bytes to each goal [m].

        Links carry `rest` [2, D] besides.
        """
        return sum(  # type: ignore[return-value]
            self._most(self._pairs(goals, source, count, back=back), at)
            for back, at in ((False, rest[0]), (True, rest[1]))
        )

    def _pairs(self, goals: Ints, source: Ints, count: Floats, *, back: bool) -> "csr_array":
        from scipy.sparse import csr_array

        H, m = self.H, len(source)
        pair = source * H + goals[:, None] if back else goals[:, None] * H + source
        first = np.arange(len(goals) + 1) * m
        chosen = csr_array((np.tile(count, len(goals)), pair.ravel(), first), (len(goals), H * H))
        found: csr_array = chosen @ self.seconds
        return found

    @staticmethod
    def _most(own: "csr_array", rest: Floats) -> Floats:
        """Most of rest + own [m, D] by row, where own is not 0; and of rest elsewhere."""
        most = np.full(own.shape[0], float(rest.max(initial=0.0)))
        full = np.flatnonzero(np.diff(own.indptr))
        if len(full):
            totals = own.data + rest[own.indices]
            most[full] = np.maximum(most[full], np.maximum.reduceat(totals, own.indptr[full]))
        return most

    def tolls(self, goal: Ints, up: Floats, down: Floats) -> Floats:
        """Seconds that a byte from every switch to each goal adds to the busiest link [m, H].

        The maximum is smoothed: links that are nearly as busy count, too.
        """
        H, sources = self.H, np.arange(self.H)
        rows = (goal[:, None] * H + sources).ravel(), (sources * H + goal[:, None]).ravel()
        both = [
            (self.seconds[row] @ _slope(load)).reshape(len(goal), H)
            for row, load in zip(rows, (up, down), strict=True)
        ]
        tolls: Floats = both[0] + both[1]
        return tolls


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
    batch = max(1, min(H, ENTRIES // max(1, len(links.to))))
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
    table = csr_array(vstack(parts))
    table.data /= topology.bytes_per_s[2 * n :][table.indices]
    return SharedLinks(table, H)
