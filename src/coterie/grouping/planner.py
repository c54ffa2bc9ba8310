"""The planner: groups that look like the whole population and are quick to average.

It starts from two sides, a deal that keeps every group's gradients balanced and groups of near
neighbours, improves each by local search (search.py), shakes the better one and searches again, and
has the network's clock decide between the best of all (objective.py).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.core.threads import one_thread
from coterie.grouping import Evidence, Grouping, Planner
from coterie.grouping.objective import Objective, Priced, price
from coterie.grouping.search import ByGram, ByVectors, Field, deal, descend, exchange, never
from coterie.grouping.servers import (
    edges_as_groups,
    groups_by_region,
    matched,
    room,
    spread,
)
from coterie.grouping.small_search import polish, settle

DENSE = 300  # nodes up to which all swaps are weighed at once
SWEEPS = 12  # at most, over the nodes, where there are more
RANK = 256  # of the vectors that stand for a large Gram matrix
SHAKES, SHAKES_OF_FEW = 500, 200  # over the nodes: how often a search starts over by default
SHAKEN = 0.1  # part of the nodes that a shake moves
WORTH = 0.005  # part of the cost that a sweep must take off, for another to follow
TOLLED = 6  # searches of few nodes, at most, each by the tolls of what the last one found
SMALL = 16  # nodes up to which every swap and move is weighed as it is
CLOCKED, CLOCKED_OF_FEW = 3, 6  # groupings that the network's clock decides between


@dataclass(frozen=True)
class Effort:
    """How long to look: a number of shakes (by default few), seconds of wall time, or until either.

    With a number the answer depends on the seed alone. `anneal` takes a worse grouping now and
    then on the way, ever more seldom: worth it only with many shakes. `keep` has Ctrl-C end the
    search with the best so far; without it the interrupt goes through.
    """

    shakes: int | None = None
    budget_s: float | None = None
    anneal: bool = False
    keep: bool = False

    def spent(self, shakes: int, seconds: float, n: int, *, unlike: bool = False) -> float:
        """Part of the effort that so many shakes of n nodes, and seconds, are: 1 or more is all.

        By default nodes with unlike links are shaken more often: there is more to find.

        >>> Effort(shakes=10, budget_s=4.0).spent(2, 3.0, n=100), Effort(shakes=0).spent(0, 0.0, 1)
        (0.75, 1.0)
        """
        most = self.shakes
        if most is None and self.budget_s is None:
            most = SHAKES_OF_FEW if n <= SMALL else (1 + 3 * unlike) * SHAKES // n
        parts = [] if most is None else [shakes / most if most else 1.0]
        if self.budget_s is not None:
            parts.append(seconds / self.budget_s if self.budget_s else 1.0)
        return max(parts)


ORDINARY = Effort()
Ended = Literal["done", "out of time", "interrupted"]


def coterie(
    alpha_iid: float = 1.0,
    alpha_comm: float = 1.0,
    effort: Effort = ORDINARY,
    clock: Callable[[], float] = time.monotonic,
) -> Planner:
    """Return the planner for weights of Delta and of transfer seconds; `clock` times a budget."""

    def plan(e: Evidence, rng: np.random.Generator) -> Grouping:
        with one_thread():
            found = search(e, Objective(e, alpha_iid, alpha_comm), effort, rng, clock)
            return best_by_the_clock(found)

    return plan


def search(
    e: Evidence,
    objective: Objective,
    effort: Effort,
    rng: np.random.Generator,
    clock: Callable[[], float] = time.monotonic,
) -> "_Search":
    """Search until the effort is spent; its `ended` says whether by time or by Ctrl-C."""
    began = clock()
    end = np.inf if effort.budget_s is None else began + effort.budget_s
    state = _Search(e, objective, rng, end, clock)
    try:
        for z, servers in state.starts():
            state.improve(z, servers)
            if state.found and state.over():
                break
        if not state.found:
            raise GroupingError(f"no {e.num_groups} groups were found within the limits")
        for done in count():
            unlike = bool(objective.comm) and objective.rough.unlike
            spent = effort.spent(done, clock() - began, len(e.p), unlike=unlike)
            if spent >= 1:
                break
            state.improve(*state.shaken(0.02 * (1 - spent) if effort.anneal else 0.0))
        state.ended = "out of time" if state.over() else "done"
    except KeyboardInterrupt:
        if not (effort.keep and state.found):
            raise
        state.ended = "interrupted"
    return state


def best_by_the_clock(state: "_Search") -> Grouping:
    """Have the clock time the few groupings that seem best, and take the best of them."""
    o, trace = state.objective, tuple(state.trace)
    few = state.found if o.comm else state.found[:1]
    priced = [price(o, f.grouping) for f in few] if o.comm else few
    if state.few and o.comm and state.seats is None:
        priced = [polish(o, f, state.least, state.most, state.rng) for f in priced]
    best = min(priced, key=lambda f: f.cost)
    return replace(best.grouping, cost_trace=trace)


class _Search:
    """Groupings found so far, and how to find more."""

    def __init__(
        self,
        e: Evidence,
        objective: Objective,
        rng: np.random.Generator,
        end: float,
        clock: Callable[[], float],
    ) -> None:
        self.e, self.objective, self.rng, self._end, self._clock = e, objective, rng, end, clock
        self.ended: Ended = "done"
        self.found: list[Priced] = []  # by the rough delays
        self.trace: list[float] = []
        self.seen: dict[bytes, float] = {}  # costs
        self.here: Priced | None = None
        self._heat = 0.0
        n, K = len(e.p), e.num_groups
        self.dense, self.kept = n <= DENSE, CLOCKED if n > SMALL else CLOCKED_OF_FEW
        self.sums: ByGram | ByVectors
        if self.dense:
            self.sums = ByGram(e.p[:, None] * e.inner * e.p[None, :], K)
        else:
            self.sums = ByVectors((e.p[:, None] * _vectors(e, rng)).astype(np.float32), K)
        self.least, self.most, self.seats = room(e)
        self.region_of = None if e.limits.regions is None else groups_by_region(e)
        self.few = n <= SMALL and e.limits.regions is None and e.topology.place_capacity is None

    def over(self) -> bool:
        """Whether the time is up."""
        return self._clock() >= self._end

    def starts(self) -> Iterator[tuple[Ints, Ints | None]]:
        """Deal by gradients, in even groups and in any, and by nearness; some with fixed servers.

        Where limits fix the servers, groups are also searched for as if they did not: an answer
        that keeps to the limits anyway may be the better one.
        """
        e, o = self.e, self.objective
        refused = None
        if self.seats is not None:
            try:
                yield matched(e, self._field(self.seats)), self.seats
            except GroupingError as error:
                refused = error
        for servers in [None] if self.seats is None else [None, self.seats]:
            seats = spread(e, o.rough) if servers is None else servers
            field = self._field(seats, fixed=servers is not None)
            even = replace(field, most=np.minimum(field.most, self._even()))
            if o.iid or not o.comm:
                order = np.argsort(-o.pull, kind="stable")
                alike = replace(even, comm=0.0)
                yield self._dealt_once("alike", alike, order, servers), servers
            if o.iid and self.dense:  # some groups like all, and some of hardly anybody
                for _ in range(-(-e.num_groups // 5)):
                    order = self.rng.permutation(len(e.p))
                    yield self._dealt(replace(field, comm=0.0), order, seeded=True), servers
            if o.comm:
                near = replace(even, iid=0.0, comm=1.0)
                yield self._dealt_once("near", near, np.arange(len(e.p)), servers), servers
            if o.comm and servers is None and o.rough.shared is not None:
                yield from self._by_edges()
        if refused is not None and not self.found:
            raise refused

    def _even(self) -> Ints:
        """Members of each group where all are as large, or all of a region [K]."""
        n, K, regions = len(self.e.p), self.e.num_groups, self.e.limits.regions
        if regions is None or self.region_of is None:
            return np.full(K, -(-n // K))
        shared = np.bincount(regions) / np.bincount(self.region_of)
        return np.ceil(shared)[self.region_of].astype(np.int64)

    def _by_edges(self) -> Iterator[tuple[Ints, None]]:
        """Begin with the network edges, joined or cut until they are K; as they are, they count."""
        if self.region_of is not None:
            return
        z = edges_as_groups(self.e)
        size = np.bincount(z, minlength=self.e.num_groups)
        if (size < self.least).any() or (size > self.most).any():
            return
        if (grouping := self._served(z, None)) is not None:
            self._keep(self._rough(grouping))
            yield z, None

    def _keep(self, new: Priced) -> None:
        key = canon(new.grouping.z)
        if new.cost < self.seen.get(key, np.inf):  # the same groups may have other servers
            self.seen[key] = new.cost
            rest = [f for f in self.found if canon(f.grouping.z) != key]
            self.found = sorted([*rest, new], key=lambda f: f.cost)[: self.kept]
        self.here = self.here or new

    def _dealt_once(self, by: str, field: Field, order: Ints, servers: Ints | None) -> Ints:
        """Deal by one cost alone: how it is weighed makes no difference."""
        dealt, key = self.objective.common.dealt, (by, servers is not None)
        if key not in dealt:
            z = self._dealt(field, order)
            if z.min() < 0:
                return z
            dealt[key] = z
        return dealt[key]

    def _dealt(self, field: Field, order: Ints, *, seeded: bool = False) -> Ints:
        sums, K = self.sums, self.e.num_groups
        empty = ByGram(sums.H, K) if isinstance(sums, ByGram) else ByVectors(sums.X, K)
        over = self.over if self.found else never  # the first must be whole
        return deal(empty, order, field, seeds=K if seeded else 0, over=over)

    def improve(self, z: Ints, servers: Ints | None = None) -> None:
        """Search from z, with these servers or those it suggests, and keep what comes of it."""
        if z.min() < 0:  # a deal that could not keep to the limits, or had no time
            return
        grouping = self._served(z, servers)
        if grouping is None:
            return
        field = self._field(grouping.servers, fixed=servers is not None)
        z = self._searched(grouping, field)
        grouping = self._served(z, servers)
        if grouping is None:
            return
        new = self._rough(grouping)
        self._keep(new)
        self.trace.append(self.found[0].cost)
        if self.here is None or new.cost < self.here.cost or self.rng.random() < self._odds(new):
            self.here = new

    def _searched(self, grouping: Grouping, field: Field) -> Ints:
        """Sweep over the nodes while that pays; tolls on shared links are set anew every time.

        A sweep by old tolls may have crowded a link: then what was there before counts.
        """
        o, z = self.objective, grouping.z
        few = isinstance(self.sums, ByGram)
        tolled = bool(o.comm) and o.rough.shared is not None
        best, cost = z, self._rough(grouping).cost
        for _ in range(TOLLED if few and tolled else 1 if few else SWEEPS):
            if tolled:
                field = replace(field, toll=o.rough.tolls(z, grouping.servers))
            if isinstance(self.sums, ByGram):
                z = descend(self.sums, z, field, over=self.over)
                if self.few and o.comm and self.seats is None:
                    z = settle(o, self.sums.H, z, self.least, self.most)
            else:
                z = exchange(self.sums, z, field, self.rng.permutation(len(z)), self.over)
            before, now = cost, self._rough(replace(grouping, z=z)).cost
            if now < cost or not tolled:
                best, cost = z, now
            if now > (1 - WORTH) * before or self.over():
                break
        return best

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
        if self.region_of is not None and e.limits.regions is not None:
            may &= e.limits.regions[:, None] == self.region_of
        far = o.rough.far(servers, nodes).T if o.comm else np.zeros((n, K))
        added = o.rough.member_s(servers) if o.comm else np.zeros(K)
        return Field(o.iid, o.comm, far, added, may, self.least, self.most)


def canon(z: Ints) -> bytes:
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
