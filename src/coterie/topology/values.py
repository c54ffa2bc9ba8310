"""What a network is made of: devices on switches, switches joined by links, speeds and latencies.

Everything that a flow can start or end at is a vertex: device i is vertex i, switch s is n + s.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Bools, Floats, Ints
from coterie.core.errors import TopologyError
from coterie.topology.hops import hops_between

ROWS = 256
UNLIMITED = 10**9  # members of a place that has no capacity: more than any network has
MOST_LATENCY_S = 86_400.0
LEAST_BYTES_PER_S = 1.0  # that a file may have, as network.link_mbytes_per_s


@dataclass(frozen=True, eq=False)
class Topology:
    """n devices, each on one switch, and an undirected graph of S switches with L links.

    `switch_of` [n]; `links` [L, 2]; `tiers` [L] names each link's tier. Link number u < n is the
    access link of device u, in tier "access"; n + l is links[l]. Every link has two directions: 2u
    from device to switch or from links[l, 0] to links[l, 1], and 2u + 1 back. `bytes_per_s`
    [2 (n + L)] is the speed of every direction, `latency_s` [n + L] of every link.
    `places` are switches that can be a group's server; where there is none, a member is.
    `place_capacity` [m] is the most members that each of them serves, UNLIMITED where that is not
    said, or None where it is said of none. `may_serve` [n] says which devices can be a server, or
    None where all can.
    """

    switch_of: Ints
    links: Ints
    tiers: tuple[str, ...]
    n_switches: int
    bytes_per_s: Floats
    latency_s: Floats
    places: tuple[int, ...] = ()
    names: tuple[str, ...] = ()  # of the vertices, where a file names them
    switch_names: tuple[str, ...] = ()  # else of the switches, where they are more than that
    place_capacity: Ints | None = None
    may_serve: Bools | None = None

    def __post_init__(self) -> None:
        """Refuse what no clock could time."""
        n, S, L = self.n_devices, self.n_switches, len(self.links)
        if len(self.bytes_per_s) != 2 * (n + L) or len(self.latency_s) != n + L:
            raise TopologyError(f"a network of {n} devices and {L} links needs a speed for each")
        for end in (self.switch_of, self.links.ravel(), np.array(self.places, dtype=np.int64)):
            if len(end) and not (end.min() >= 0 and end.max() < S):
                raise TopologyError(f"switches are numbered 0..{S - 1}, got {int(end.max())}")
        bad = np.flatnonzero(~(np.isfinite(self.bytes_per_s) & (self.bytes_per_s > 0)))
        if len(bad):
            raise TopologyError(
                f"the speed of {self.link_name(bad[0])} must be above 0 and finite, got "
                f"{self.bytes_per_s[bad[0]]:g} bytes/s"
            )
        bad = np.flatnonzero(~((self.latency_s >= 0) & (self.latency_s <= MOST_LATENCY_S)))
        if len(bad):
            raise TopologyError(
                f"the latency of {self.link_name(2 * bad[0])} must be from 0 to "
                f"{MOST_LATENCY_S:,.0f} s, a day, got {self.latency_s[bad[0]]:g} s"
            )
        self._check_servers()

    def _check_servers(self) -> None:
        """Refuse capacities and permissions that fit no place or device, and a network of none."""
        n, capacity, may = self.n_devices, self.place_capacity, self.may_serve
        if capacity is not None and len(capacity) != len(self.places):
            raise TopologyError(
                f"{len(self.places)} places need a capacity each, got {len(capacity)}"
            )
        if capacity is not None and len(capacity) and capacity.min() < 1:
            raise TopologyError(f"the capacity of a place must be >= 1, got {capacity.min()}")
        if may is not None and len(may) != n:
            raise TopologyError(f"may_serve must be said of all {n} devices, got {len(may)}")
        if may is not None and n and not (may.any() or self.places):
            raise TopologyError(
                "no device may serve and no place does; let one of them, by may_serve or server"
            )

    @property
    def n_devices(self) -> int:
        """Devices, which are the nodes that train."""
        return len(self.switch_of)

    @property
    def n_vertices(self) -> int:
        """Devices and switches."""
        return self.n_devices + self.n_switches

    def switch_at(self, vertices: Ints) -> Ints:
        """Return the switch that each vertex is, or is on."""
        n = self.n_devices
        on: Ints = np.where(vertices < n, self.switch_of[np.minimum(vertices, n - 1)], vertices - n)
        return on

    @cached_property
    def ends(self) -> Ints:
        """The two vertices of every link [n + L, 2]."""
        n = self.n_devices
        access = np.stack([np.arange(n, dtype=np.int64), n + self.switch_of], axis=1)
        return np.concatenate([access, n + self.links.reshape(-1, 2)])

    @cached_property
    def tier_of(self) -> tuple[str, ...]:
        """Tier of every link [n + L]."""
        return ("access",) * self.n_devices + self.tiers

    @cached_property
    def numbered_tiers(self) -> tuple[tuple[str, ...], Ints]:
        """The tiers there are, and the number among them of every link's tier [n + L]."""
        number = {tier: at for at, tier in enumerate(dict.fromkeys(self.tier_of))}
        return tuple(number), np.array([number[tier] for tier in self.tier_of], dtype=np.int64)

    def name(self, vertex: int) -> str:
        """What a vertex is called."""
        if self.names:
            return self.names[vertex]
        switch = vertex - self.n_devices
        if switch < 0:
            return f"node {vertex}"
        return self.switch_names[switch] if self.switch_names else f"switch {switch}"

    def link_name(self, direction: int) -> str:
        """What one direction of a link is called."""
        a, b = self.ends[direction // 2][:: 1 if direction % 2 == 0 else -1]
        return f"{self.name(int(a))} -> {self.name(int(b))}"

    @cached_property
    def switches_hops(self) -> tuple[Ints, NDArray[np.uint16]]:
        """Links from every switch that has a device or is a place [H] to every switch [H, S]."""
        wanted = np.unique(np.concatenate([self.switch_of, np.array(self.places, dtype=np.int64)]))
        return wanted, hops_between(self.links, self.n_switches, wanted)

    def hops_to(self, switches: Ints) -> NDArray[np.uint16]:
        """Links from each of some switches with a device, or places, to every switch [., S]."""
        wanted, hops = self.switches_hops
        row = np.minimum(np.searchsorted(wanted, switches), len(wanted) - 1)
        if (odd := switches[wanted[row] != switches]).size:
            raise TopologyError(
                f"{self.name(self.n_devices + int(odd[0]))} cannot be an end: no device is on it, "
                "and it is no place that serves"
            )
        rows: NDArray[np.uint16] = hops[row]
        return rows

    @cached_property
    def hops(self) -> NDArray[np.int32]:
        """Links between every two devices [n, n]: 0 to itself, 2 on the same switch."""
        wanted, hops = self.switches_hops
        row = np.searchsorted(wanted, self.switch_of)
        n = self.n_devices
        between = np.empty((n, n), dtype=np.int32)
        for at in range(0, n, ROWS):  # some at a time, for the memory
            between[at : at + ROWS] = hops[row[at : at + ROWS]][:, self.switch_of]
        between += 2
        np.fill_diagonal(between, 0)
        return between

    def between(self, a: Ints, b: Ints) -> NDArray[np.int32]:
        """Links from some devices or places to others [len(a), len(b)]."""
        n = self.n_devices
        rows = self.hops_to(self.switch_at(a))
        hops: NDArray[np.int32] = rows[:, self.switch_at(b)].astype(np.int32) + (b < n)
        hops += (a < n)[:, None]
        hops[a[:, None] == b[None, :]] = 0
        return hops

    def far(self, a: Ints, b: Ints) -> Ints:
        """Sum of the links from each of some devices or places a to all devices b [len(a)].

        As the sums of `between`, switch by switch: many devices need no matrix of their pairs.
        """
        n = self.n_devices
        switches, at = np.unique(self.switch_at(a), return_inverse=True)
        counts = np.bincount(self.switch_of[b], minlength=self.n_switches)
        sums = (self.hops_to(switches).astype(np.int64) @ counts)[at] + len(b)
        sums += (a < n) * len(b)
        found: Ints = sums - 2 * np.isin(a, b)  # nothing from a device to itself
        return found

    @property
    def place_vertices(self) -> Ints:
        """The vertices of the places [m]."""
        return self.n_devices + np.array(self.places, dtype=np.int64)

    @cached_property
    def place_hops(self) -> NDArray[np.int32]:
        """Links between every place and every device [m, n]."""
        return self.between(self.place_vertices, np.arange(self.n_devices))

    @cached_property
    def ports(self) -> tuple[Ints, Ints, Ints]:
        """Directions out of every switch [2 L], those of s from first[s] on, and where they lead.

        Returns first [S + 1], the directions, and the switches at their ends [2 L].
        """
        n, S, L = self.n_devices, self.n_switches, len(self.links)
        at = np.concatenate([self.links[:, 0], self.links[:, 1]])
        to = np.concatenate([self.links[:, 1], self.links[:, 0]])
        direction = 2 * n + np.concatenate([2 * np.arange(L), 2 * np.arange(L) + 1])
        order = np.lexsort((direction // 2, at))
        first = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=S))])
        return first, direction[order], to[order]

    def with_access(self, up: Floats, down: Floats, latency_s: Floats) -> "Topology":
        """Give every device its own access link: speeds up and down [n], and latency [n]."""
        n = self.n_devices
        bytes_per_s, latency = self.bytes_per_s.copy(), self.latency_s.copy()
        bytes_per_s[0 : 2 * n : 2], bytes_per_s[1 : 2 * n : 2] = up, down
        latency[:n] = latency_s
        return replace(self, bytes_per_s=bytes_per_s, latency_s=latency)


@dataclass(frozen=True)
class Speed:
    """Speed and latency of a kind of link."""

    bytes_per_s: float = 1e8
    latency_s: float = 1e-3


def assemble(
    switch_of: Ints,
    links: Ints,
    tiers: tuple[str, ...],
    n_switches: int,
    access: Speed,
    inner: Speed,
    places: tuple[int, ...] = (),
) -> Topology:
    """Build a topology whose access links are all alike, and its other links too.

    >>> pair = assemble(np.array([0, 1]), np.array([[0, 1]]), ("core",), 2, Speed(), Speed())
    >>> pair.hops.tolist(), pair.link_name(0), pair.link_name(5)
    ([[0, 3], [3, 0]], 'node 0 -> switch 0', 'switch 1 -> switch 0')
    """
    n, L = len(switch_of), len(links)
    return Topology(
        switch_of.astype(np.int64),
        links.reshape(-1, 2).astype(np.int64),
        tiers,
        n_switches,
        np.repeat([access.bytes_per_s, inner.bytes_per_s], [2 * n, 2 * L]),
        np.repeat([access.latency_s, inner.latency_s], [n, L]),
        places,
    )
