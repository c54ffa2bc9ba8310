"""The planner: groups that look like the whole population and are quick to average.

It starts from two sides, a deal that keeps every group's gradients balanced and groups of near
neighbours, improves each by local search (search.py), shakes the better one and searches again, and
has the network's clock decide between the best of all (objective.py).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow

from coterie.costs import Floats, Ints
from coterie.errors import GroupingError
from coterie.grouping import Evidence, Grouping, Planner
from coterie.grouping.few import polish, settle
from coterie.grouping.objective import Objective, Priced, price
from coterie.grouping.search import ByGram, ByVectors, Field, deal, descend, exchange

DENSE = 300  # nodes up to which all swaps are weighed at once
SWEEPS = 12  # at most, over the nodes, where there are more
RANK = 256  # of the vectors that stand for a large Gram matrix
SHAKES, SHAKES_OF_FEW = 500, 200  # over the nodes: how often a search starts over by default
SHAKEN = 0.1  # part of the nodes that a shake moves
WORTH = 0.005  # part of the cost that a sweep must take off, for another to follow
SMALL = 16  # nodes up to which every swap and move is weighed as it is
CLOCKED, CLOCKED_OF_FEW = 3, 6  # groupings that the network's clock decides between


@dataclass(frozen=True)
class Effort:
    """How long to look: a number of shakes (by default few), or seconds of wall time.

    With a number the answer depends on the seed alone. `anneal` takes a worse grouping now and
    then on the way, ever more seldom: worth it only with many shakes.
    """

    shakes: int | None = None
    budget_s: float | None = None
    anneal: bool = False


ORDINARY = Effort()


def coterie(alpha_iid: float = 1.0, alpha_comm: float = 1.0, effort: Effort = ORDINARY) -> Planner:
    """Return the planner for weights of Delta and of transfer seconds."""

    def plan(e: Evidence, rng: np.random.Generator) -> Grouping:
        found = search(e, Objective(e, alpha_iid, alpha_comm), effort, rng)
        return best_by_the_clock(found)

    return plan


def search(
    e: Evidence, objective: Objective, effort: Effort, rng: np.random.Generator
) -> "_Search":
    """Search until the effort is spent, or until Ctrl-C when there is a time to spend."""
    state = _Search(e, objective, rng)
    end = None if effort.budget_s is None else time.monotonic() + effort.budget_s
    try:
        for z, servers in state.starts():
            state.improve(z, servers)
        shakes = effort.shakes
        if shakes is None:
            few = len(e.p) <= SMALL
            shakes = 10**9 if end else SHAKES_OF_FEW if few else SHAKES // len(e.p)
        for done in range(shakes):
            if end is not None and time.monotonic() > end:
                break
            heat = 0.02 * (1 - done / shakes) if effort.anneal else 0.0
            state.improve(*state.shaken(heat))
    except KeyboardInterrupt:
        if end is None or not state.found:
            raise
    return state


def best_by_the_clock(state: "_Search") -> Grouping:
    """Have the clock time the few groupings that seem best, and take the best of them."""
    o, trace = state.objective, tuple(state.trace)
    few = state.found if o.comm else state.found[:1]
    priced = [price(o, f.grouping) for f in few] if o.comm else few
    if len(state.e.p) <= SMALL and o.comm and state.seats is None:
        priced = [polish(o, f, state.least, state.most, state.rng) for f in priced]
    best = min(priced, key=lambda f: f.cost)
    return replace(best.grouping, cost_trace=trace)


class _Search:
    """Groupings found so far, and how to find more."""

    def __init__(self, e: Evidence, objective: Objective, rng: np.random.Generator) -> None:
        self.e, self.objective, self.rng = e, objective, rng
        self.found: list[Priced] = []  # by the rough delays
        self.trace: list[float] = []
        self.seen: set[bytes] = set()
        self.here: Priced | None = None
        self._heat = 0.0
        n, K = len(e.p), e.num_groups
        self.dense, self.kept = n <= DENSE, CLOCKED if n > SMALL else CLOCKED_OF_FEW
        self.sums: ByGram | ByVectors
        if self.dense:
            self.sums = ByGram(e.p[:, None] * e.inner * e.p[None, :], K)
        else:
            self.sums = ByVectors((e.p[:, None] * _vectors(e, rng)).astype(np.float32), K)
        self.least, self.most, self.seats = _room(e)

    def starts(self) -> Iterator[tuple[Ints, Ints | None]]:
        """Deal by gradients, in even groups and in any, and by nearness; some with fixed servers.

        Where limits fix the servers, groups are also searched for as if they did not: an answer
        that keeps to the limits anyway may be the better one.
        """
        e, o = self.e, self.objective
        refused = None
        if self.seats is not None:
            try:
                yield _matched(e, self._field(self.seats)), self.seats
            except GroupingError as error:
                refused = error
        for servers in [None] if self.seats is None else [None, self.seats]:
            seats = _seats(e, e.num_groups) if servers is None else servers
            field = self._field(seats, fixed=servers is not None)
            even = replace(field, most=np.minimum(field.most, -(-len(e.p) // e.num_groups)))
            if o.iid or not o.comm:
                spread = np.argsort(-o.pull, kind="stable")
                yield self._dealt(replace(even, comm=0.0), spread), servers
            if o.iid and self.dense:  # some groups like all, and some of hardly anybody
                for _ in range(-(-e.num_groups // 5)):
                    order = self.rng.permutation(len(e.p))
                    yield self._dealt(replace(field, comm=0.0), order, seeded=True), servers
            if o.comm:
                near = replace(even, iid=0.0, comm=1.0)
                yield self._dealt(near, np.arange(len(e.p))), servers
        if refused is not None and not self.found:
            raise refused

    def _dealt(self, field: Field, order: Ints, *, seeded: bool = False) -> Ints:
        sums, K = self.sums, self.e.num_groups
        empty = ByGram(sums.H, K) if isinstance(sums, ByGram) else ByVectors(sums.X, K)
        return deal(empty, order, field, seeds=K if seeded else 0)

    def improve(self, z: Ints, servers: Ints | None = None) -> None:
        """Search from z, with these servers or those it suggests, and keep what comes of it."""
        if z.min() < 0:  # a deal that could not keep to the limits
            return
        o = self.objective
        grouping = self._served(z, servers)
        if grouping is None:
            return
        field = self._field(grouping.servers, fixed=servers is not None)
        if isinstance(self.sums, ByGram):
            z = descend(self.sums, z, field)
            if len(z) <= SMALL and o.comm and self.seats is None:
                z = settle(o, self.sums.H, z, self.least, self.most)
        else:
            cost = self._rough(grouping).cost
            for _ in range(SWEEPS):
                z = exchange(self.sums, z, field, self.rng.permutation(len(z)))
                before, cost = cost, self._rough(replace(grouping, z=z)).cost
                if cost > (1 - WORTH) * before:
                    break
        grouping = self._served(z, servers)
        if grouping is None:
            return
        new = self._rough(grouping)
        key = _canon(z)
        if key not in self.seen:
            self.seen.add(key)
            self.found = sorted([*self.found, new], key=lambda f: f.cost)[: self.kept]
        self.trace.append(self.found[0].cost)
        if self.here is None or new.cost < self.here.cost or self.rng.random() < self._odds(new):
            self.here = new

    def _served(self, z: Ints, servers: Ints | None) -> Grouping | None:
        """Give groups their servers; None where no server can take one of them."""
        if servers is not None and self.seats is not None:
            return Grouping(z, servers)
        try:
            return self.objective.rough.serve(z)
        except GroupingError:
            return None

    def _rough(self, grouping: Grouping) -> Priced:
        o = self.objective
        Delta = o.divergence(grouping.z)
        group_s = o.rough.group_s(grouping.z, grouping.servers) if o.comm else 0.0
        return Priced(grouping, Delta, group_s, o.cost(Delta, group_s))

    def _odds(self, new: Priced) -> float:
        assert self.here is not None
        return float(np.exp((self.here.cost - new.cost) / self._heat)) if self._heat else 0.0

    def shaken(self, heat: float) -> tuple[Ints, Ints | None]:
        """Pass some nodes of the grouping at hand around; where servers are fixed, they stay."""
        assert self.here is not None
        self._heat = heat * self.here.cost
        z, K = self.here.grouping.z.copy(), self.e.num_groups
        few = len(z) <= SMALL
        count = max(3, int((self.rng.random() if few else SHAKEN) * len(z)))
        some = self.rng.choice(len(z), min(len(z), count), replace=False)
        passed = z[np.roll(some, 1)]
        if few and self.rng.random() < 0.5:  # to anywhere, so that sizes change
            passed = self.rng.integers(K, size=len(some))
        field, old = self._field(self.here.grouping.servers), z[some]
        z[some] = np.where(field.may[some, passed], passed, old)
        size = np.bincount(z, minlength=K)
        if ((size < self.least) | (size > self.most)).any():
            z[some] = old
        servers = self.here.grouping.servers
        free = self.seats is not None and not np.array_equal(servers, self.seats)
        return z, None if free else servers

    def _field(self, servers: Ints, *, fixed: bool = True) -> Field:
        e, o = self.e, self.objective
        n, K = len(e.p), e.num_groups
        nodes = np.arange(n)
        may = np.ones((n, K), dtype=bool)
        if self.seats is not None and fixed:
            if e.limits.max_hops is not None:
                may = (e.between(servers, nodes) <= e.limits.max_hops).T
            sitting = servers < n
            may[servers[sitting]] = False
            may[servers[sitting], np.flatnonzero(sitting)] = True
        far = o.rough.far(servers, nodes).T if o.comm else np.zeros((n, K))
        added = o.rough.member_s(servers) if o.comm else np.zeros(K)
        return Field(o.iid, o.comm, far, added, may, self.least, self.most)


def _canon(z: Ints) -> bytes:
    """Name a grouping, whatever its groups' numbers."""
    _, first, of = np.unique(z, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[of].astype(np.int32).tobytes()


def _vectors(e: Evidence, rng: np.random.Generator) -> Floats:
    """Rows [n, r] whose inner products are, or are near, those of the gradients."""
    if e.vectors is not None:
        return e.vectors
    n = len(e.p)
    if e.gram is None:
        return np.zeros((n, 1))
    rank = min(n, RANK)
    basis, _ = np.linalg.qr(e.gram @ rng.standard_normal((n, rank)))
    values, turn = np.linalg.eigh(basis.T @ e.gram @ basis)
    rows: Floats = basis @ turn * np.sqrt(np.maximum(values, 0.0))
    return rows


def _seats(e: Evidence, K: int) -> Ints:
    """K nodes far from each other in hops, or places that are near to all nodes together."""
    nodes = np.arange(len(e.p))
    if len(e.places):
        hops = e.between(e.places, nodes).astype(np.float64)
        away = np.full(len(nodes), np.inf)
        chosen: list[int] = []
        for k in range(K):
            free = (
                np.arange(len(e.places))
                if k >= len(e.places)
                else np.setdiff1d(np.arange(len(e.places)), chosen)
            )
            chosen.append(int(free[np.minimum(hops[free], away).sum(axis=1).argmin()]))
            away = np.minimum(away, hops[chosen[-1]])
        return e.places[chosen]
    seats = [0]
    away = e.between(np.array(seats), nodes)[0].astype(np.float64)
    while len(seats) < K:
        away[seats] = -1
        seats.append(int(away.argmax()))
        away = np.minimum(away, e.between(np.array(seats[-1:]), nodes)[0])
    return np.array(seats, dtype=np.int64)


def _room(e: Evidence) -> tuple[Ints, Ints, Ints | None]:
    """Least and most members of each group, and its server where limits fix it beforehand."""
    n, K, limits = len(e.p), e.num_groups, e.limits
    most = n if limits.max_size is None else limits.max_size
    if limits.min_size * K > n:
        raise GroupingError(f"{K} groups of at least {limits.min_size} need more than {n} nodes")
    if most * K < n:
        raise GroupingError(f"{K} groups of at most {most} have no room for {n} nodes")
    least, room = np.full(K, limits.min_size), np.full(K, most)
    if limits.capacity is None and limits.max_hops is None:
        return least, room, None
    if limits.capacity is None or len(e.places):
        seats = _seats(e, K)
    else:
        if len(limits.capacity) != n:
            raise GroupingError(f"capacity must have a number for each of {n} nodes")
        seats = np.sort(np.argsort(-limits.capacity, kind="stable")[:K])
        room = np.minimum(room, limits.capacity[seats])
        if room.sum() < n:
            raise GroupingError(
                f"the {K} servers of most capacity take {int(room.sum())} of {n} nodes; "
                "raise capacities, or make more groups"
            )
        if room.min() < limits.min_size:
            raise GroupingError(
                f"a server of capacity {int(room.min())} cannot have {limits.min_size} members"
            )
    return least, room, seats


def _matched(e: Evidence, field: Field) -> Ints:
    """Find any grouping within the limits, by a flow from nodes to groups; or say why none is."""
    n, K = field.may.shape
    alone = np.flatnonzero(~field.may.any(axis=1))
    if len(alone):
        raise GroupingError(
            f"node {alone[0]} has no server within {e.limits.max_hops} hops; raise max_hops, or "
            "make more groups"
        )
    node, group = np.nonzero(field.may)
    even = np.minimum(field.most, np.maximum(-(-n // K), field.least))
    for room in (even, field.most):
        tail = np.concatenate([np.zeros(n, int), 1 + node, 1 + n + np.arange(K)])
        head = np.concatenate([1 + np.arange(n), 1 + n + group, np.full(K, 1 + n + K)])
        cap = np.concatenate([np.ones(n + len(node), int), room]).astype(np.int32)
        graph = coo_array((cap, (tail, head)), shape=(n + K + 2, n + K + 2)).tocsr()
        flow = maximum_flow(graph, 0, n + K + 1)
        if flow.flow_value == n:
            taken = flow.flow.tocoo()
            used = (taken.data > 0) & (taken.row >= 1) & (taken.row <= n)
            z = np.empty(n, dtype=np.int64)
            z[taken.row[used] - 1] = taken.col[used] - 1 - n
            if (np.bincount(z, minlength=K) >= field.least).all():
                return z
    raise GroupingError(
        f"no {K} groups were found within the limits on size, capacity and hops; loosen one of them"
    )
