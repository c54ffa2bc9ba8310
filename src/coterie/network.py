"""How long a transfer takes: a first clock by the busiest link.

Every flow follows one shortest path, chosen among equals by a hash of its two ends. A pattern of
simultaneous flows lasts as long as its busiest link needs for the bytes it carries, plus the
latency of the longest path. Headers, TCP's slow start and losses are not modelled.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coterie.topology import Topology

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Transfer:
    """Seconds of a pattern of flows, and the bytes its links carried by tier.

    >>> Transfer(1.0, {"access": 10}) + Transfer(0.5, {"access": 5, "core": 5})
    Transfer(seconds=1.5, bytes_by_tier={'access': 15, 'core': 5})
    """

    seconds: float
    bytes_by_tier: dict[str, int]

    def __add__(self, other: "Transfer") -> "Transfer":
        """One pattern after the other."""
        mine, theirs = self.bytes_by_tier, other.bytes_by_tier
        both = {t: mine.get(t, 0) + theirs.get(t, 0) for t in {**mine, **theirs}}
        return Transfer(self.seconds + other.seconds, both)


@dataclass(frozen=True, eq=False)
class Network:
    """A topology with one speed and one latency for all its links."""

    topology: Topology
    bytes_per_s: float
    latency_s: float

    def aggregation(self, z: Ints, servers: Ints, nbytes: int) -> Transfer:
        """Time one aggregation: every node sends to its group's server, then gets the mean back."""
        return self.upload(z, servers, nbytes) + self._transfer(servers[z], _everyone(z), nbytes)

    def upload(self, z: Ints, servers: Ints, nbytes: int) -> Transfer:
        """Time nbytes from every node to its group's server, all at once."""
        return self._transfer(_everyone(z), servers[z], nbytes)

    def _transfer(self, src: Ints, dst: Ints, nbytes: int) -> Transfer:
        moving = src != dst  # a server needs no network to reach itself
        src, dst = src[moving], dst[moving]
        tiers = ("access", *dict.fromkeys(self.topology.tiers))
        if not len(src):
            return Transfer(0.0, dict.fromkeys(tiers, 0))
        flows = self._flows_on_links(src, dst)
        load = flows * nbytes
        longest = int(self.topology.hops[src, dst].max())
        seconds = float(load.max()) / self.bytes_per_s + longest * self.latency_s
        n_hosts = len(self.topology.switch_of)
        tier_of = np.repeat(np.array(["access"] * n_hosts + list(self.topology.tiers)), 2)
        return Transfer(seconds, {t: int(load[tier_of == t].sum()) for t in tiers})

    def _flows_on_links(self, src: Ints, dst: Ints) -> Ints:
        """Count the flows on every directed link: 2i up and 2i+1 down for host i, then the rest."""
        top = self.topology
        n_hosts = len(top.switch_of)
        flows = np.zeros(2 * (n_hosts + len(top.links)), dtype=np.int64)
        np.add.at(flows, 2 * src, 1)
        np.add.at(flows, 2 * dst + 1, 1)
        here, goal = top.switch_of[src], top.switch_of[dst]
        mix = src * 2_654_435_761 + dst * 2_246_822_519
        hops, (neighbour, port) = top.switch_hops, self._neighbours
        for step in range(int(hops[here, goal].max())):
            active = np.flatnonzero(here != goal)
            at, to = here[active], goal[active]
            closer = (hops[neighbour[at], to[:, None]] < hops[at, to][:, None]) & (port[at] >= 0)
            choice = ((mix[active] >> (7 * step)) & 0xFFFF) % closer.sum(1)
            taken = np.argmax(np.cumsum(closer, axis=1) > choice[:, None], axis=1)
            np.add.at(flows, 2 * n_hosts + port[at, taken], 1)
            here[active] = neighbour[at, taken]
        return flows

    @cached_property
    def _neighbours(self) -> tuple[Ints, Ints]:
        """Tables [S, most links of a switch]: the neighbours, and directed link numbers or -1."""
        top = self.topology
        of: list[list[tuple[int, int]]] = [[] for _ in range(top.n_switches)]
        for number, (a, b) in enumerate(top.links.tolist()):
            of[a].append((b, 2 * number))
            of[b].append((a, 2 * number + 1))
        width = max([1, *(len(row) for row in of)])
        table = np.array([row + [(0, -1)] * (width - len(row)) for row in of], dtype=np.int64)
        return table[:, :, 0], table[:, :, 1]


def _everyone(z: Ints) -> Ints:
    return np.arange(len(z), dtype=np.int64)
