"""Who may serve, and where limits fix it: seats, their room, and any grouping that fits them."""

from collections.abc import Callable

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.grouping import Evidence
from coterie.grouping.limits import check_limits
from coterie.grouping.rough_delays import Rough
from coterie.grouping.search import Field


def spread(e: Evidence, rough: Rough | None = None) -> Ints:
    """K nodes far from each other, or places that are near to all nodes together.

    Far is by the rough delays, or by hops, which is what a limit counts.
    """
    nodes = np.arange(len(e.p))

    def far(servers: Ints) -> Floats:
        if rough is not None:
            return rough.far(servers, nodes)
        return e.between(servers, nodes).astype(np.float64)

    return _near_all(e, far(e.places)) if len(e.places) else _far_apart(far, e.num_groups)


def _near_all(e: Evidence, far: Floats) -> Ints:
    """Choose places one by one, so that nodes are as near as can be to the nearest of them."""
    m, nodes = len(e.places), np.arange(len(e.p))
    away = np.full(len(nodes), np.inf)
    chosen: list[int] = []
    for k in range(e.num_groups):
        free = np.arange(m) if k >= m else np.setdiff1d(np.arange(m), chosen)
        chosen.append(int(free[np.minimum(far[free], away).sum(axis=1).argmin()]))
        away = np.minimum(away, far[chosen[-1]])
    return e.places[chosen]


def _far_apart(far: Callable[[Ints], Floats], K: int) -> Ints:
    """Choose nodes one by one, each the farthest from those chosen so far."""
    seats = [0]
    away = far(np.array(seats))[0]
    while len(seats) < K:
        away[seats] = -1
        seats.append(int(away.argmax()))
        away = np.minimum(away, far(np.array(seats[-1:]))[0])
    return np.array(seats, dtype=np.int64)


def room(e: Evidence) -> tuple[Ints, Ints, Ints | None]:
    """Least and most members of each group, and its server where limits fix it beforehand."""
    n, K, limits = len(e.p), e.num_groups, e.limits
    check_limits(limits, e.topology, K)
    most = n if limits.max_size is None else limits.max_size
    least, most_of = np.full(K, limits.min_size), np.full(K, most)
    if e.topology.place_capacity is not None:
        seats, most_there = _places_with_room(e)
        return least, np.minimum(most_of, most_there), seats
    if limits.capacity is not None:
        may = e.topology.may_serve
        room_of = limits.capacity if may is None else np.where(may, limits.capacity, 0)
        seats = np.sort(np.argsort(-room_of, kind="stable")[:K])
        return least, np.minimum(most_of, room_of[seats]), seats
    if limits.max_hops is not None:
        return least, most_of, covering(e, limits.max_hops)
    return least, most_of, _allowed(e)


def _allowed(e: Evidence) -> Ints | None:
    """K nodes that may serve, far from each other by hops; None where everybody may."""
    if e.topology.may_serve is None or len(e.places) or e.limits.regions is not None:
        return None
    able = np.flatnonzero(e.topology.may_serve)
    seats = _far_apart(lambda at: e.between(able[at], able).astype(np.float64), e.num_groups)
    return able[seats]


def _places_with_room(e: Evidence) -> tuple[Ints, Ints]:
    """Choose a place for every group, and the most members of each.

    One by one, the place that has room for most; one that serves several groups parts its room.
    """
    capacity = e.topology.place_capacity
    assert capacity is not None
    times = np.zeros(len(capacity), dtype=np.int64)
    for _ in range(e.num_groups):
        times[int((capacity // (times + 1)).argmax())] += 1
    at = np.repeat(np.arange(len(capacity)), times)
    nth = np.arange(len(at)) - np.repeat(np.cumsum(times) - times, times)
    most = capacity[at] // times[at] + (nth < capacity[at] % times[at])
    return e.places[at], np.minimum(most, len(e.p))


def covering(e: Evidence, max_hops: int) -> Ints:
    """Choose K servers so that, if it can be, every node has one within so many hops.

    One by one, the one with most nodes in reach that no other has; when all have one, again from
    the start. Of equals, the nearest to all; a place or node serves again only when all others do.
    """
    n, top = len(e.p), e.topology
    may = top.may_serve
    able = e.places if len(e.places) else np.arange(n) if may is None else np.flatnonzero(may)
    switches, at = np.unique(top.switch_at(able), return_inverse=True)
    counts = np.bincount(top.switch_of, minlength=top.n_switches)
    hops = top.hops_to(switches).astype(np.int64) + 1 + (not len(e.places))
    within = (hops <= max_hops).astype(np.int64)
    near = -(hops * counts).sum(axis=1)
    seats: list[list[int]] = [able[at == row].tolist() for row in range(len(switches))]
    free = [list(own) for own in seats]
    left, chosen = counts.copy(), []
    for _ in range(e.num_groups):
        if not any(free):
            free = [list(own) for own in seats]
        gain = within @ left
        if not (gain * np.array([bool(own) for own in free])).any():
            left = counts.copy()
            gain = within @ left
        order = np.lexsort((-near, -gain))
        row = next(int(r) for r in order if free[r])
        chosen.append(free[row].pop(0))
        left[within[row] > 0] = 0
    return np.array(chosen, dtype=np.int64)


def groups_by_region(e: Evidence) -> Ints:
    """Give every group a region [K]: each has one, and the rest goes where groups are largest.

    >>> sizes = np.repeat(np.arange(3), [2, 6, 4])
    >>> from coterie.grouping import Limits
    >>> from coterie.topology import fat_tree
    >>> limits = Limits(regions=sizes)
    >>> groups_by_region(Evidence(5, np.full(12, 1 / 12), sizes, fat_tree(sizes), limits=limits))
    array([0, 1, 1, 2, 2])
    """
    assert e.limits.regions is not None
    sizes = np.bincount(e.limits.regions)
    groups = np.ones(len(sizes), dtype=np.int64)
    for _ in range(e.num_groups - len(sizes)):
        groups[np.argmax(np.where(groups < sizes, sizes / groups, 0))] += 1
    return np.repeat(np.arange(len(sizes)), groups)


def edges_as_groups(e: Evidence) -> Ints:
    """Make K groups of the network edges: the nearest are joined, or the largest are cut.

    An edge that is cut deals its nodes out one by one.
    """
    n, K = len(e.p), e.num_groups
    _, first, edge_of = np.unique(e.edge_of, return_index=True, return_inverse=True)
    sizes = np.bincount(edge_of)
    E = len(sizes)
    if E <= K:
        parts = np.ones(E, dtype=np.int64)
        for _ in range(K - E):
            parts[np.argmax(np.where(parts < sizes, sizes / parts, 0))] += 1
        rank = np.empty(n, dtype=np.int64)
        order = np.argsort(edge_of, kind="stable")
        rank[order] = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        cut: Ints = (np.cumsum(parts) - parts)[edge_of] + rank % parts[edge_of]
        return cut
    hops = e.between(first, first).astype(np.float64)  # between an edge's first nodes
    seats = _far_apart(lambda at: hops[at].copy(), K)
    group = np.full(E, -1, dtype=np.int64)
    group[seats] = np.arange(K)
    load = sizes[seats].astype(np.float64)
    for edge in np.argsort(-sizes, kind="stable"):
        if group[edge] < 0:
            k = int(np.lexsort((load, hops[edge, seats]))[0])
            group[edge], load[k] = k, load[k] + sizes[edge]
    return group[edge_of]


def matched(e: Evidence, field: Field) -> Ints:
    """Find any grouping within the limits, by a flow from nodes to groups; or say why none is."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import maximum_flow

    n, K = field.may.shape
    alone = np.flatnonzero(~field.may.any(axis=1))
    if len(alone):
        raise GroupingError(
            f"{e.topology.name(int(alone[0]))} has no server within {e.limits.max_hops} hops; "
            "raise max_hops, or make more groups"
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
