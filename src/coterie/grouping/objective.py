"""What the planner lowers: alpha_iid * Delta / C + alpha_comm * (seconds of a cycle) / C.

Delta is exact and cheap. Seconds are exact by the network's clock, for the few groupings worth the
milliseconds that takes; while searching, a rough figure stands for them: what a group's members add
up to at its server's link, and the round trips, or slow links, on the way of the farthest of them.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.grouping import Evidence, Grouping
from coterie.grouping.path_costs import by_hops, ways
from coterie.network.tcp import PROFILES

TCP = PROFILES["tuned"]
ENTRIES = 1 << 18  # of servers and nodes, up to which all delays between them are worked out once


@dataclass(frozen=True, eq=False)
class Objective:
    """Both costs of a grouping, over their normalising constants, weighted."""

    evidence: Evidence
    alpha_iid: float = 1.0
    alpha_comm: float = 1.0
    timed: dict[tuple[bytes, bytes], float] = field(default_factory=dict)  # by groups and servers

    @cached_property
    def pull(self) -> Floats:
        """Square of p_i |g_i| [n]: how far each node alone would draw its group."""
        e = self.evidence
        if e.gram is None and e.vectors is not None:
            square = (e.vectors**2).sum(axis=1)
        else:
            square = np.maximum(np.diag(e.inner), 0.0)
        pull: Floats = e.p**2 * square
        return pull

    @cached_property
    def iid(self) -> float:
        """Weight of Delta; its constant is what Delta is expected to be of groups at random."""
        n, K = len(self.evidence.p), self.evidence.num_groups
        if not self.alpha_iid or K == 1 or n == 1:
            return self.alpha_iid if K > 1 else 0.0
        m = n / K
        spread = m / n * (1 - m / n) * n / (n - 1) * float(self.pull.sum())
        return self.alpha_iid / (K * np.sqrt(spread) or 1.0)

    @cached_property
    def comm(self) -> float:
        """Weight of a second of group mean; the constant is a cycle of nothing but global means."""
        d = self.evidence.delays
        if d is None:
            return self.alpha_comm / max(1.0, float(self.rough.hops_s))
        return self.alpha_comm * (d.tau2 - 1) / (d.tau2 * d.global_s or 1.0)

    def cost(self, Delta: float, group_s: float) -> float:
        """Combine a Delta and the seconds of a group mean."""
        d = self.evidence.delays
        rest = 0.0 if d is None else self.alpha_comm / (d.tau2 or 1)
        return self.iid * Delta + self.comm * group_s + rest

    def divergence(self, z: Ints) -> float:
        """Sum over the groups of |sum p_i g_i|, which is Delta."""
        e = self.evidence
        K = int(z.max()) + 1
        if e.gram is None and e.vectors is not None:
            sums = np.zeros((K, e.vectors.shape[1]))
            np.add.at(sums, z, e.p[:, None] * e.vectors)
            return float(np.sqrt((sums**2).sum(axis=1)).sum())
        one = np.zeros((K, len(z)))
        one[z, np.arange(len(z))] = e.p
        return float(np.sqrt(np.maximum(((one @ e.inner) * one).sum(axis=1), 0.0)).sum())

    def group_s(self, grouping: Grouping) -> float:
        """Seconds of a mean of every group, by the network's clock; else by hops.

        Searches that start apart meet: every other grouping has been timed before.
        """
        d = self.evidence.delays
        if d is None:
            return self.rough.group_s(grouping.z, grouping.servers)
        key = grouping.z.tobytes(), grouping.servers.tobytes()
        if key not in self.timed:
            self.timed[key] = d.group_s(grouping.z, grouping.servers)
        return self.timed[key]

    @cached_property
    def rough(self) -> "Rough":
        """Delays by a formula."""
        return Rough(self.evidence)


@dataclass(frozen=True, eq=False)
class Priced:
    """A grouping, and what it costs."""

    grouping: Grouping
    Delta: float
    group_s: float
    cost: float


def price(objective: Objective, grouping: Grouping) -> Priced:
    """Work out the true cost of a grouping."""
    Delta, group_s = objective.divergence(grouping.z), objective.group_s(grouping)
    return Priced(grouping, Delta, group_s, objective.cost(Delta, group_s))


class Rough:
    """A formula for delays: mean routes, and no sharing but at the servers' own links.

    A server's link takes its members' models one after the other. A member adds to that the round
    trips of its own route, and what its route's slowest link takes longer than all of them.
    """

    def __init__(self, evidence: Evidence) -> None:
        """Work out what all transfers have in common."""
        self._evidence = e = evidence
        top, n = e.topology, len(e.p)
        self._latency = np.ones(n)
        self._wire = 0.0
        self._in_s = self._out_s = np.zeros(n + top.n_switches)
        self._rounds = 0.5
        self.hops_s = 1.0
        if e.delays is None:
            self._ways = by_hops(top)
            some = np.arange(n)[:: max(1, n // 64)]
            self.hops_s = float(e.between(some, some).mean()) or 1.0
        else:
            self._ways = ways(top)
            self._latency = top.latency_s[:n]
            nbytes = e.delays.nbytes
            self._wire = float(nbytes + TCP.header * -(-nbytes // TCP.segment))
            speed = top.bytes_per_s[: 2 * n]
            self._in_s = np.concatenate([self._wire / speed[1::2], np.zeros(top.n_switches)])
            self._out_s = np.concatenate([self._wire / speed[::2], np.zeros(top.n_switches)])
            self._rounds = 2 * (0.5 + self._bursts(nbytes))  # and a handshake, there and back
        self._trip = self._ways.latency_s + self._ways.latency_s.T
        self._others = max(n / e.num_groups - 1, 0.0)  # members of a group but its server
        able = e.places if len(e.places) else np.arange(n)
        crowd = self._others * min(self._in_s[able].min(), self._out_s[able].min())
        slowest = self._wire * float(self._ways.byte_s.max())
        self._uneven = max(slowest, self._in_s.max(), self._out_s.max()) > crowd

    def _bursts(self, nbytes: int) -> int:
        """Count the windows of a transfer, until it has filled its part of the way."""
        e, top, n = self._evidence, self._evidence.topology, len(self._evidence.p)
        inner, between = top.latency_s[n:], self._ways.latency_s
        way = min(2 * float(inner.mean()), float(between.mean())) if len(inner) else 0.0
        trip = 2 * (2 * float(np.mean(self._latency)) + way)
        speed = float(top.bytes_per_s[: 2 * n].mean())
        filled = speed * trip / (n / e.num_groups) / (TCP.segment + TCP.header)
        needed, window, sent, bursts = min(nbytes / TCP.segment, filled), TCP.first_window, 0, 0
        while sent < needed:
            sent, bursts = sent + window, bursts + 1
            window = max(TCP.second_window, 2 * window) if bursts > 1 else TCP.second_window
        return bursts

    def far(self, servers: Ints, nodes: Ints) -> Floats:
        """Seconds that way and windows cost nodes [m] with each of some servers [K]: [K, m]."""
        if self._table is None:
            return self._far(servers, nodes)
        row_of, table = self._table
        far: Floats = table[row_of[servers][:, None], nodes]
        return far

    @cached_property
    def _table(self) -> tuple[Ints, Floats] | None:
        """Row of every vertex that can serve, and `far` of them all; None where they are many."""
        e, n = self._evidence, len(self._evidence.p)
        able = np.concatenate([np.arange(n), e.places])
        if len(able) * n > ENTRIES:
            return None
        row_of = np.full(e.topology.n_vertices, -1, dtype=np.int64)
        row_of[able] = np.arange(len(able))
        return row_of, self._far(able, np.arange(n))

    def _far(self, servers: Ints, nodes: Ints) -> Floats:
        top, n = self._evidence.topology, len(self._evidence.p)
        row_of = self._ways.row_of
        at, of = row_of[top.switch_at(servers)], row_of[top.switch_of[nodes]]
        ends = np.where(servers < n, self._latency[np.minimum(servers, n - 1)], 0.0)
        far: Floats = self._trip[np.ix_(at, of)]
        far += 2 * self._latency[nodes] + 2 * ends[:, None]
        far *= self._rounds
        if self._uneven:
            byte_s = self._ways.byte_s
            up = np.maximum(self._wire * byte_s[np.ix_(at, of)], self._out_s[nodes])
            far += np.maximum(up - self._others * self._in_s[servers][:, None], 0.0)
            down = np.maximum(self._wire * byte_s[np.ix_(of, at)].T, self._in_s[nodes])
            far += np.maximum(down - self._others * self._out_s[servers][:, None], 0.0)
        far[servers[:, None] == nodes[None, :]] = 0.0
        return far

    def member_s(self, servers: Ints) -> Floats:
        """Seconds that every member but itself adds at each server's own link [K]."""
        added: Floats = self._in_s[servers] + self._out_s[servers]
        return added

    def group_s(self, z: Ints, servers: Ints) -> float:
        """Seconds of the slowest group."""
        K = len(servers)
        longest = np.zeros(K)
        for k in range(K):
            longest[k] = self.far(servers[k : k + 1], np.flatnonzero(z == k)).max()
        others = np.bincount(z, minlength=K) - 1  # a place is sent all, but adds nothing
        return float((longest + self.member_s(servers) * others).max())

    def serve(self, z: Ints) -> Grouping:
        """Give every group the server of least delay; ties to the switch that serves fewest."""
        e, K = self._evidence, int(z.max()) + 1
        able = e.places
        serving: dict[int, int] = {}
        servers = np.empty(K, dtype=np.int64)
        for k in range(K):
            members = np.flatnonzero(z == k)
            if not len(e.places):
                able = members
            far = self.far(able, members)
            cost = far.max(axis=1) + self.member_s(able) * (len(members) - 1)
            cost = cost + 1e-3 * far.mean(axis=1)
            cost[~self._can_serve(able, members)] = np.inf
            if not np.isfinite(cost.min()):
                raise GroupingError(
                    f"no server can take a group of {len(members)} under the limits on capacity "
                    "and hops; allow more of either, or more groups"
                )
            best = able[cost <= cost.min() * (1 + 1e-9)]
            switches = e.topology.switch_at(best)
            chosen = int(np.argmin([serving.get(int(s), 0) for s in switches]))
            servers[k] = best[chosen]
            serving[int(switches[chosen])] = serving.get(int(switches[chosen]), 0) + 1
        return Grouping(z, servers)

    def _can_serve(self, able: Ints, members: Ints) -> NDArray[np.bool_]:
        e, limits = self._evidence, self._evidence.limits
        can = np.ones(len(able), dtype=bool)
        if limits.capacity is not None:
            nodes = able < len(e.p)
            can[nodes] &= limits.capacity[able[nodes]] >= len(members)
        if limits.max_hops is not None:
            can &= (e.between(able, members) <= limits.max_hops).all(axis=1)
        return can
