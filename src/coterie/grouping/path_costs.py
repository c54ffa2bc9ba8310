"""What the network's routes are like between switches: their latency, and their slowest link.

Routes are shortest in links, and where several are, each next link is as likely, as of flows that a
hash spreads (network/routes.py): what is said here is about the mean of them. It is by switch and
never by node, as 100,000 nodes are on some thousands of switches.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.topology import Topology

ENTRIES = 1 << 22  # of links that are followed at once


@dataclass(frozen=True, eq=False)
class Ways:
    """Routes between the H switches that have nodes or serve, from the column's to the row's.

    `row_of` [S] is each switch's row, or -1. `latency_s` [H, H] is of the links between switches,
    `byte_s` [H, H] the seconds of a byte on the slowest of them, 0 where there is none.
    """

    row_of: Ints
    latency_s: Floats
    byte_s: Floats


def ways(topology: Topology) -> Ways:
    """Follow all routes between the switches that matter.

    Two ways of two links, one of 1 + 1 ms and one of 1 + 3 ms, of which one link is slow:

    >>> links = np.array([[0, 1], [1, 3], [0, 2], [2, 3]])
    >>> latency_s = np.array([0, 0, 0.001, 0.001, 0.001, 0.003])
    >>> speed = np.repeat([1e6, 1e6, 1e6, 1e6, 1e6, 1e5], 2)
    >>> square = Topology(np.array([0, 3]), links, ("core",) * 4, 4, speed, latency_s)
    >>> found = ways(square)
    >>> found.latency_s.round(6).tolist(), found.byte_s.round(9).tolist()
    ([[0.0, 0.003], [0.003, 0.0]], [[0.0, 5.5e-06], [5.5e-06, 0.0]])
    """
    n = topology.n_devices
    latency_s, byte_s = topology.latency_s[n:], 1 / topology.bytes_per_s[2 * n :]
    if len(latency_s) and not (np.ptp(latency_s) or np.ptp(byte_s)):
        alike = by_hops(topology)
        there = alike.latency_s > 0
        return Ways(alike.row_of, alike.latency_s * latency_s[0], there * byte_s[0])
    wanted, hops = topology.switches_hops
    links = Links(topology)
    latency, slowest = np.zeros((2, len(wanted), len(wanted)))
    rows = max(1, ENTRIES // max(1, len(links.to)))
    for at in range(0, len(wanted), rows):
        some = slice(at, at + rows)
        towards = links.towards(hops[some].astype(np.int64))
        latency[some], slowest[some] = (values[:, wanted] for values in towards)
    return Ways(_row_of(topology), latency, slowest)


def by_hops(topology: Topology) -> Ways:
    """Count every link between switches as a second, and say nothing of speeds."""
    wanted, hops = topology.switches_hops
    near: Floats = hops[:, wanted].astype(np.float64)
    return Ways(_row_of(topology), near, np.zeros_like(near))


def _row_of(topology: Topology) -> Ints:
    wanted, _ = topology.switches_hops
    row_of = np.full(topology.n_switches, -1, dtype=np.int64)
    row_of[wanted] = np.arange(len(wanted))
    return row_of


class Links:
    """Neighbours of every switch, one list after the other, and the links that come from them."""

    def __init__(self, topology: Topology) -> None:
        """List them once."""
        n, links = topology.n_devices, topology.links
        number = np.arange(len(links))
        at = np.concatenate([links[:, 0], links[:, 1]])
        order = np.argsort(at, kind="stable")
        self.to: Ints = np.concatenate([links[:, 1], links[:, 0]])[order]
        self._degree = np.bincount(at, minlength=topology.n_switches)
        self._first = np.cumsum(self._degree) - self._degree
        towards = np.concatenate([2 * number + 1, 2 * number])[order]  # from a neighbour to here
        self.direction: Ints = towards
        self._latency_s = topology.latency_s[n + towards // 2]
        self._byte_s = 1 / topology.bytes_per_s[2 * n + towards]

    def towards(self, hops: Ints) -> tuple[Floats, Floats]:
        """Follow the routes to some goals, given the hops of every switch to each [B, S].

        Return the mean latency, and the mean seconds of a byte on the slowest link [B, S]. Switches
        d + 1 links from a goal have theirs from the neighbours that are d links from it.
        """
        shape, hops = hops.shape, hops.ravel()
        latency, slowest = np.zeros(len(hops)), np.zeros(len(hops))
        for near, far, link, part in self.last_steps(hops, shape[1]):
            total = part * (latency[near] + self._latency_s[link])
            latency += np.bincount(far, total, len(hops))
            total = part * np.maximum(slowest[near], self._byte_s[link])
            slowest += np.bincount(far, total, len(hops))
        return latency.reshape(shape), slowest.reshape(shape)

    def last_steps(self, hops: Ints, S: int) -> Iterator[tuple[Ints, Ints, Ints, Floats]]:
        """List, from the goals outwards, the links by which routes come a link nearer.

        hops [B * S] are of every switch to each goal. Yields where a step ends and where it begins
        [m], as places in `hops`, its link's place in `to`, and the part of routes that takes it.
        """
        for d in range(int(hops.max(initial=0))):
            pair = np.flatnonzero(hops == d)  # a goal and a switch
            degree = self._degree[pair % S]
            first = self._first[pair % S] - (np.cumsum(degree) - degree)
            link = np.repeat(first, degree) + np.arange(degree.sum())
            near = np.repeat(pair, degree)
            far = near - near % S + self.to[link]
            ahead = hops[far] == d + 1
            near, far, link = near[ahead], far[ahead], link[ahead]
            routes = np.maximum(np.bincount(far, minlength=len(hops)), 1)
            yield near, far, link, 1 / routes[far]
