"""Max-min fair shares: how flows divide the links they have in common."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints

FEW = 1_000_000  # pairs of links, up to which a full table is quicker than a sparse one


@dataclass(frozen=True, eq=False)
class Contention:
    """The links that flows can fight for: flow f crosses links[:, f], padded with the last link.

    The last link is no link, and never full. `limit` [F] is the slowest link of each path.
    """

    bytes_per_s: Floats
    links: Ints
    limit: Floats

    def shares(self, active: NDArray[np.bool_], most: Floats | None = None) -> Floats:
        """Return the max-min fair rate of every active flow, and 0 for the others [F].

        No flow gets more than `most` [F], which is `limit` unless told.

        Progressive filling, many links at a time: a link is settled when none of its flows is held
        lower elsewhere, then all its flows get an equal part of what is left of it.
        """
        rate = np.zeros(len(active))
        (alive,) = active.nonzero()
        limit = (self.limit if most is None else most)[alive]
        links = self.links.take(alive, axis=1)
        left, L = self.bytes_per_s.copy(), len(self.bytes_per_s)
        count = np.bincount(links.ravel(), minlength=L)
        while len(alive):
            share = left / np.maximum(count, 1)
            share[-1] = np.inf
            at_link = share.take(links)
            if len(links) == 1 and (at_link[0] <= limit).all():  # no flow has two links to share
                rate[alive] = at_link[0]
                break
            least = np.minimum(at_link.min(axis=0), limit)
            tight = at_link <= least * (1 + 1e-12)
            settled_link = np.bincount(links[tight], minlength=L) == count
            settled = (settled_link.take(links) & tight).any(axis=0) | (limit <= least)
            gone, part = links.compress(settled, axis=1), least[settled]
            rate[alive[settled]] = part
            parts = part if len(gone) == 1 else np.concatenate([part] * len(gone))
            taken = np.bincount(gone.ravel(), parts, minlength=L)
            left = np.maximum(left - taken, 0.0)
            count -= np.bincount(gone.ravel(), minlength=L)
            stays = ~settled
            alive, links, limit = alive[stays], links.compress(stays, axis=1), limit[stays]
        return rate


def _pairs(flow: Ints, link: Ints, F: int, L: int) -> tuple[Ints, Ints, Ints]:
    """Links that some flow crosses both of, and how many flows do."""
    if L * L > FEW:
        from scipy.sparse import csr_array

        sparse = csr_array((np.ones(len(link)), (flow, link)), shape=(F, L))
        both = (sparse.T @ sparse).tocoo()
        return both.row.astype(np.int64), both.col.astype(np.int64), both.data.astype(np.int64)
    hops = np.bincount(flow, minlength=F)  # SciPy takes a millisecond just to get going
    first = np.cumsum(hops) - hops
    times = np.repeat(hops, hops)  # each link of a path is paired with all of them
    a = np.repeat(link, times)
    step = np.arange(len(a)) - np.repeat(np.cumsum(times) - times, times)
    b = link[np.repeat(np.repeat(first, hops), times) + step]
    crossed = np.bincount(a * L + b, minlength=L * L)
    codes = np.flatnonzero(crossed)
    return codes // L, codes % L, crossed[codes]


def contention(links: Ints, first: Ints, bytes_per_s: Floats) -> Contention:
    """Keep of the links of all paths only those that can ever bind.

    A link whose flows all cross some other link that is no faster (and, when as fast, is crossed by
    more flows or comes later) never binds before it. In a transfer of all to one, for instance,
    only the last link is left.
    """
    F = len(first) - 1
    flow = np.repeat(np.arange(F), np.diff(first))
    used, link = np.unique(links, return_inverse=True)
    speed = bytes_per_s[used]
    crossed = np.bincount(link, minlength=len(used))
    a, b, shared = _pairs(flow, link, F, len(used))
    inside = (a != b) & (shared == crossed[a])  # all flows of a cross b too
    equal = (speed[b] == speed[a]) & ((crossed[b] > crossed[a]) | (b > a))
    kept = crossed > 1
    kept[a[inside & ((speed[b] < speed[a]) | equal)]] = False
    none = int(kept.sum())
    number = np.cumsum(kept) - 1
    stays = kept[link]
    flow, link = flow[stays], number[link[stays]]
    count = np.bincount(flow, minlength=F)
    column = np.arange(len(flow)) - np.repeat(np.cumsum(count) - count, count)
    table = np.full((max(1, int(count.max())), F), none)
    table[column, flow] = link
    slowest = np.minimum.reduceat(bytes_per_s[links], first[:-1])
    return Contention(np.append(speed[kept], np.inf), table, slowest)
