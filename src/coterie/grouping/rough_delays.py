"""A formula for delays: what the planner goes by while it searches, and how servers are chosen."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.grouping.evidence import Evidence
from coterie.grouping.path_costs import by_hops
from coterie.grouping.values import Grouping
from coterie.network.tcp import PROFILES

TCP = PROFILES["tuned"]
ENTRIES = 1 << 18  # of servers and nodes, up to which all delays between them are worked out once
FEW = 16  # servers that are weighed on shared links: so many near ones, and as many amid members
FIRST = 32  # servers that are weighed first: most others are then known to be worse
WEIGHED = 1 << 18  # servers and switches of members that are weighed at once, for the memory
NEARLY = 0.5  # of the time at the ends
TIE = 1e-9  # relative
LIMITS = 64  # times up that are tried for all groups
MUCH = 0.01  # part by which all means must be sooner, for groups to have other servers than alone


@dataclass(frozen=True, eq=False)
class _Members:
    """Members of one group by their switches: rows [m] of these, and what is on each [m]."""

    row: Ints
    count: Ints
    latency_s: Floats  # the most of any member; so are in and out
    in_s: Floats
    out_s: Floats
    slowest: Ints  # whose they are, in and out [2, m]
    next_s: Floats  # and the most of all others there [2, m]
    best: Ints  # members that would serve best: by both ways of their link, by each [3, m]; or -1

    @property
    def size(self) -> int:
        return int(self.count.sum())


class Rough:
    """A formula for delays: mean routes, and what shares the servers' own links and the switches'.

    A server's link takes its members' models one after the other. A member adds to that the round
    trips of its own route, and what its route's slowest link takes longer than all of them. Nothing
    is quicker than the busiest link between switches.
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
        self.shared = None
        if e.delays is None:
            self._ways = by_hops(top)
            some = np.arange(n)[:: max(1, n // 64)]
            self.hops_s = float(e.between(some, some).mean()) or 1.0
        else:
            routes = e.delays.routes
            self._ways, self.shared = routes.ways, routes.shared
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
        self.unlike = any(bool((s[:n] != s[0]).any()) for s in (self._in_s, self._out_s))
        self._node_row = self._ways.row_of[top.switch_of]
        if self.shared is not None and not self._binds(crowd):
            self.shared = None

    def _binds(self, crowd_s: float) -> bool:
        """Whether links between switches could take as long as what is at either end of them.

        Seen by nodes that are dealt out in turn, each group served by its first.
        """
        n, K = len(self._evidence.p), self._evidence.num_groups
        if self.shared is None or n <= K:
            return False
        if K == 1:  # wherever it is, all models meet there
            return True
        z = np.arange(n) % K
        loads = self.shared.loads(self._node_row[:K][z], self._node_row)
        busiest = self._wire * max(float(load.max(initial=0.0)) for load in loads)
        slowest = max(float(self._out_s.max()), float(self._in_s.max()))
        return busiest > NEARLY * max(crowd_s, slowest)

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
        n, at, of = len(self._evidence.p), self._row(servers), self._node_row[nodes]
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

    def _row(self, vertices: Ints) -> Ints:
        rows: Ints = self._ways.row_of[self._evidence.topology.switch_at(vertices)]
        return rows

    def member_s(self, servers: Ints) -> Floats:
        """Seconds that every member but itself adds at each server's own link [K]."""
        added: Floats = self._in_s[servers] + self._out_s[servers]
        return added

    def group_s(self, z: Ints, servers: Ints) -> float:
        """Seconds until the last model is there, and until the last mean is back."""
        n, server = len(z), servers[z]
        at, of, others = self._row(server), self._node_row, np.bincount(z)[z] - 1
        ends = np.where(server < n, self._latency[np.minimum(server, n - 1)], 0.0)
        way = self._rounds * (self._trip[at, of] + 2 * self._latency + 2 * ends)
        byte_s = self._ways.byte_s  # a place is sent all, but adds nothing
        up = np.maximum(self._wire * byte_s[at, of], self._out_s[:n])
        down = np.maximum(self._wire * byte_s[of, at], self._in_s[:n])
        crowd_in, crowd_out = self._in_s[server] * others, self._out_s[server] * others
        away = server != np.arange(n)
        there = (way / 2 + np.maximum(up, crowd_in)).max(initial=0.0, where=away)
        back = (way / 2 + np.maximum(down, crowd_out)).max(initial=0.0, where=away)
        if self.shared is not None:
            least = float(way.min(initial=np.inf, where=away)) / 2 if away.any() else 0.0
            busy_up, busy_down = self.shared.loads(at, of)
            there = max(there, self._wire * busy_up.max(initial=0.0) + least)
            back = max(back, self._wire * busy_down.max(initial=0.0) + least)
        return float(there + back)

    def tolls(self, z: Ints, servers: Ints) -> Floats | None:
        """Seconds that each node with each server adds on the links that are busiest [n, K]."""
        if self.shared is None:
            return None
        rows = self._row(servers)
        up, down = self.shared.loads(rows[z], self._node_row)
        tolls: Floats = self._wire * self.shared.tolls(rows, up, down)[:, self._node_row].T
        return tolls

    def serve(self, z: Ints, *, limited: bool = True) -> Grouping:
        """Give every group the server of least delay; ties to the switch that serves fewest.

        Links that groups share are counted with the servers chosen so far, and then once more with
        all of them. A server that limits forbid is refused, where they count.
        """
        groups = self._by_switch(z, limited=limited)
        servers = np.full(len(groups), -1, dtype=np.int64)
        serving: dict[int, int] = {}
        D = 0 if self.shared is None else self.shared.directions
        total, own = np.zeros((2, D)), [np.zeros((2, 0))] * len(groups)
        room = self._room() if limited else {}
        weighed: list[_Weighed] = [_Weighed.nothing()] * len(groups)
        binds = False
        for again in (False, True) if self.shared is not None and len(groups) > 1 else (False,):
            if again and not binds:
                break
            for k, members in enumerate(groups):
                if again:
                    total -= own[k]
                    if servers[k] in room:
                        room[int(servers[k])] += members.size
                    serving[int(self._row(servers[k : k + 1])[0])] -= 1
                able = self._able(members, room, limited=limited)
                weighed[k] = found = self._weigh(able, members, total)
                binds |= found.held
                best = found.best
                rows = self._row(best)
                servers[k] = best[int(np.argmin([serving.get(int(row), 0) for row in rows]))]
                if servers[k] in room:
                    room[int(servers[k])] -= members.size
                row = int(self._row(servers[k : k + 1])[0])
                serving[row] = serving.get(row, 0) + 1
                if self.shared is not None:
                    goal = np.full(len(members.row), row)
                    own[k] = np.array(
                        self.shared.loads(goal, members.row, members.count.astype(np.float64))
                    )
                    total += own[k]
        if not room:
            servers = _together(weighed, servers)
        return Grouping(z, servers)

    def _by_switch(self, z: Ints, *, limited: bool) -> list[_Members]:
        """Sum up every group by its members' switches, with a member for each that could serve."""
        n = len(z)
        rows, others = self._node_row, np.bincount(z)[z] - 1
        barred = ~self._may_serve(others + 1, limited=limited)
        links = (self.member_s(np.arange(n)), self._in_s[:n], self._out_s[:n])
        best = []
        for link_s in links if self.unlike else links[:1]:
            burden = link_s * others + 2 * self._rounds * self._latency
            burden[barred] = np.inf
            order = np.lexsort((np.arange(n), burden, rows, z))
            pair = z[order] * len(self._trip) + rows[order]
            first = np.flatnonzero(np.diff(pair, prepend=-1))
            best.append(np.where(np.isfinite(burden[order[first]]), order[first], -1))
        served = np.array(best)

        def most(values: Floats) -> Floats:
            found: Floats = np.maximum.reduceat(values[order], first)
            return found

        row, count = rows[order[first]], np.diff(first, append=n)
        latency_s, in_s, out_s = map(most, (self._latency, self._in_s[:n], self._out_s[:n]))
        own = [_two_most(values[:n], order, first) for values in (self._in_s, self._out_s)]
        slowest, next_s = (np.array(each) for each in zip(*own, strict=True))
        ends = np.searchsorted(z[order[first]], np.arange(int(z.max()) + 2))
        return [
            _Members(
                row[a:b],
                count[a:b],
                latency_s[a:b],
                in_s[a:b],
                out_s[a:b],
                slowest[:, a:b],
                next_s[:, a:b],
                served[:, a:b],
            )
            for a, b in pairwise(ends)
        ]

    def _may_serve(self, sizes: Ints, *, limited: bool) -> NDArray[np.bool_]:
        """Whether each node may serve a group of so many [n]."""
        e, limits = self._evidence, self._evidence.limits
        told = e.topology.may_serve
        may = np.ones(len(e.p), dtype=bool) if told is None else told.copy()
        if limited and limits.capacity is not None:
            may &= limits.capacity >= sizes
        return may

    def _room(self) -> dict[int, int]:
        """Members that each place with a capacity has room for."""
        e, capacity = self._evidence, self._evidence.topology.place_capacity
        if capacity is None:
            return {}
        return dict(zip(e.places.tolist(), capacity.tolist(), strict=True))

    def _able(self, members: _Members, room: dict[int, int], *, limited: bool) -> Ints:
        """List who may serve a group, or say that nobody may; places have so much room left."""
        e, limits = self._evidence, self._evidence.limits
        able = e.places if len(e.places) else np.unique(members.best[members.best >= 0])
        if room:
            able = able[[room[int(place)] >= members.size for place in able]]
        if limited and limits.max_hops is not None and len(able):
            wanted, _ = e.topology.switches_hops
            links = e.topology.hops_to(e.topology.switch_at(able))[:, wanted[members.row]]
            hops = links.astype(np.int64) + 1 + (able < len(e.p))[:, None]
            alone = (members.count == 1) & (members.best[0] == able[:, None])
            able = able[((hops <= limits.max_hops) | alone).all(axis=1)]
        if not len(able):
            raise GroupingError(
                f"no server can take a group of {members.size}: none may, or capacity or max_hops "
                "forbid it; allow more of them, or more groups"
            )
        return able

    def _weigh(self, able: Ints, members: _Members, rest: Floats) -> "_Weighed":
        """Weigh servers for a group.

        Those whose own link is quickest come first; what is slower by that alone is left out.
        """
        n = len(self._evidence.p)
        ends = np.where(able < n, self._latency[np.minimum(able, n - 1)], 0.0)
        least = self.member_s(able) * (members.size - 1) + 2 * self._rounds * ends
        order = np.argsort(least, kind="stable")
        found = self._serving_s(able[np.sort(order[:FIRST])], members, rest)
        more = np.sort(order[FIRST:][least[order[FIRST:]] <= found.cost.min() * (1 + TIE)])
        return found.joined(self._serving_s(able[more], members, rest)) if len(more) else found

    def _serving_s(self, able: Ints, members: _Members, rest: Floats) -> "_Weighed":
        """Seconds of a group, up and back, with each of some servers."""
        m = members
        at, of = self._row(able), m.row
        rows = 16 * max(1, WEIGHED // 16 // max(1, len(of)))  # BLAS rounds by fours, as of all
        parts = [self._ends_s(able[i : i + rows], m) for i in range(0, len(able), rows)]
        there, back, cost = (np.concatenate(each) for each in zip(*parts, strict=True))
        if self.shared is None:
            return _Weighed(able, there, back, cost, False)
        amid = np.zeros(len(self._trip))
        amid[of] = m.count
        some = np.union1d(
            np.argsort(cost, kind="stable")[:FEW], np.argsort(-amid[at], kind="stable")[:FEW]
        )
        busy = self._wire * self.shared.busiest(at[some], of, m.count.astype(np.float64), rest)
        held = bool(((busy[0] > there[some]) | (busy[1] > back[some])).any())
        up_s, down_s = np.maximum(there[some], busy[0]), np.maximum(back[some], busy[1])
        return _Weighed(able[some], up_s, down_s, up_s + down_s + 1e-2 * cost[some], held)

    def _ends_s(self, able: Ints, m: _Members) -> tuple[Floats, Floats, Floats]:
        """Seconds up and back with each of some servers by what is at both ends, and their cost."""
        n, at, of, others = len(self._evidence.p), self._row(able), m.row, m.size - 1
        ends = np.where(able < n, self._latency[np.minimum(able, n - 1)], 0.0)
        way = self._rounds * (self._trip[np.ix_(at, of)] + 2 * m.latency_s + 2 * ends[:, None])
        byte_s = self._ways.byte_s
        # what a server has itself it need not send
        in_s, out_s = (
            np.where(slowest == able[:, None], rest_s, most_s)
            for slowest, rest_s, most_s in zip(m.slowest, m.next_s, (m.in_s, m.out_s), strict=True)
        )
        up = np.maximum(self._wire * byte_s[np.ix_(at, of)], out_s)
        down = np.maximum(self._wire * byte_s[np.ix_(of, at)].T, in_s)
        up = np.maximum(up, (self._in_s[able] * others)[:, None])
        down = np.maximum(down, (self._out_s[able] * others)[:, None])
        there, back = (way / 2 + up).max(axis=1), (way / 2 + down).max(axis=1)
        mean: Floats = 1e-3 * (way @ m.count) / m.size
        return there, back, there + back + mean


@dataclass(frozen=True, eq=False)
class _Weighed:
    """Servers for a group: seconds up and back, what decides between them, all [m].

    `held` is whether links that are shared decide.
    """

    able: Ints
    there: Floats
    back: Floats
    cost: Floats
    held: bool

    @staticmethod
    def nothing() -> "_Weighed":
        """Begin with no server."""
        none = np.zeros(0)
        return _Weighed(none.astype(np.int64), none, none, none, False)

    @property
    def best(self) -> Ints:
        """Those that cost least, by their numbers."""
        best: Ints = np.sort(self.able[self.cost <= self.cost.min() * (1 + TIE)])
        return best

    def joined(self, more: "_Weighed") -> "_Weighed":
        """Put others beside them."""
        return _Weighed(
            np.concatenate([self.able, more.able]),
            np.concatenate([self.there, more.there]),
            np.concatenate([self.back, more.back]),
            np.concatenate([self.cost, more.cost]),
            self.held or more.held,
        )


def _together(weighed: list[_Weighed], servers: Ints) -> Ints:
    """Change servers where all groups' means are over sooner for it.

    All models must be there before any mean is sent back. So it is the slowest group up, and the
    slowest back, that count: a group may take a server that is slower in all, but quicker in one.
    """
    own = [int(np.flatnonzero(w.able == s)[0]) for w, s in zip(weighed, servers, strict=True)]
    pairs = list(zip(weighed, own, strict=True))
    usual = max(w.there[i] for w, i in pairs) + max(w.back[i] for w, i in pairs)
    least_up = max(float(w.there.min()) for w in weighed)
    best, chosen = usual * (1 - MUCH), servers
    limits = np.unique(np.concatenate([w.there for w in weighed]))
    limits = limits[(limits >= least_up) & (limits < best)]
    some = np.linspace(0, len(limits) - 1, min(len(limits), LIMITS)).astype(np.int64)
    for limit in limits[some]:
        quick = [np.where(w.there <= limit, w.back, np.inf) for w in weighed]
        total = limit + max(float(back.min()) for back in quick)
        if total < best:
            best = total
            slow = total - limit
            chosen = np.array(
                [
                    s if w.there[i] <= limit and w.back[i] <= slow else w.able[int(back.argmin())]
                    for (w, i), back, s in zip(pairs, quick, servers, strict=True)
                ]
            )
    return chosen


def _two_most(values: Floats, order: Ints, first: Ints) -> tuple[Ints, Floats]:
    """Who has the most of every part of `order` that begins at `first`, and the most of others."""
    by = np.repeat(np.arange(len(first)), np.diff(first, append=len(order)))
    sorted_ = order[np.lexsort((values[order], by))]
    last = np.append(first[1:], len(order)) - 1
    other = np.where(last > first, values[sorted_[np.maximum(last - 1, 0)]], 0.0)
    return sorted_[last], other
