"""Who may serve, and where limits fix it: seats, their room, and any grouping that fits them."""

from collections.abc import Callable

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.grouping import Evidence
from coterie.grouping.limits import check_limits
from coterie.grouping.objective import Rough
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
    if limits.capacity is not None:
        seats = np.sort(np.argsort(-limits.capacity, kind="stable")[:K])
        return least, np.minimum(most_of, limits.capacity[seats]), seats
    return least, most_of, None if limits.max_hops is None else spread(e)


def matched(e: Evidence, field: Field) -> Ints:
    """Find any grouping within the limits, by a flow from nodes to groups; or say why none is."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import maximum_flow

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
