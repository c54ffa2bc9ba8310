"""What ordinary queues do to many transfers at once: they serve in order, and they drop.

A device sends in order what waits in its queue, so flows that would end together end one after the
other. Beyond that, CoDel drops a packet of a flow whose queue has been standing for an interval,
and more of them at shorter intervals. A flow mends that a round trip later, and is no later for it
unless the drop was among its last packets. Two things make it wait for TCP's time-out:

- fewer than three packets follow the dropped one, so that nothing tells the sender (a chance:
  counted as having happened where it is more likely than not for some flow of all);
- it shares its link with so many (incast) that the packet it sends again is dropped as well.

Which flows that hits is a matter of chance: the last of a link stand for the second kind here, and
the one that would have ended first for the first.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints

QUEUE = 100  # packets that a device holds in order
TARGET_S, INTERVAL_S = 0.005, 0.1  # CoDel's: a queue this long, for this long, drops
DROPS_S = (0.0, 0.1, 0.15)  # drops of a flow after its first; by then its window is small enough
TIMEOUT_S = 1.0  # the least of TCP's retransmission time-outs
TELLING = 3  # packets that must follow a lost one, to tell the sender
FEW_UNDER_WAY = 13  # packets of a flow; with fewer, repairs are lost too
FEW_THROUGH = 50  # packets of a flow in CoDel's interval; likewise
HARDLY_ANY = 4  # packets under way: time-outs all along
STALLED = 0.05  # part of the flows of a link that wait for a time-out
EXPECTED = 0.69  # flows that lose their end, for one to be more likely than none


@dataclass(frozen=True, eq=False)
class Crowd:
    """Flows at the link where each meets most traffic; all arrays [F]."""

    link: Ints
    bytes_per_s: Floats  # of that link
    one_source: NDArray[np.bool_]  # whether others have the same source, as in a broadcast
    filled: Floats  # since when the path is full; inf: never
    round_trip: Floats
    rest: Floats  # seconds from that link to the end
    last_burst: Floats  # bytes


def with_queues(ended: Floats, crowd: Crowd, packet: int) -> Floats:
    """Stagger the ends of flows that fair queues would end together, and add time-outs."""
    _, link, flows = np.unique(crowd.link, return_inverse=True, return_counts=True)
    order = np.lexsort((np.arange(len(ended)), ended, link))
    rank = np.empty(len(ended), dtype=np.int64)
    rank[order] = np.arange(len(ended)) - np.repeat(np.cumsum(flows) - flows, flows)
    m = flows[link]

    packet_s = packet / crowd.bytes_per_s
    each_s = m * packet_s  # from a flow's packet to its next
    bursts = np.bincount(link, crowd.last_burst)[link] / crowd.bytes_per_s
    waiting = np.minimum(bursts, QUEUE * packet_s)
    standing = TARGET_S + waiting
    met = np.isfinite(crowd.filled)
    end, full, nearest = np.zeros(len(flows)), *np.full((2, len(flows)), np.inf)
    np.maximum.at(end, link, np.where(met, ended, 0.0))
    np.minimum.at(full, link, crowd.filled)
    np.minimum.at(nearest, link, crowd.round_trip)
    T, dropping = end[link], full[link] + INTERVAL_S + 2 * standing
    crowded = (m > 1) & met
    under_way = (crowd.round_trip + standing) / each_s
    slow = INTERVAL_S / each_s < FEW_THROUGH
    in_vain = (slow | (under_way < FEW_UNDER_WAY)) & crowded & (dropping < T)

    spread = np.where(crowd.one_source, 1.0, 0.5) * waiting
    spread = np.where(in_vain & (under_way < HARDLY_ANY) & (T > TIMEOUT_S), TIMEOUT_S, spread)
    floor = np.minimum(ended, np.where(met, T, ended) - spread)  # nothing ends before its crowd
    queued: Floats = np.maximum(ended - spread * (1 - (rank + 1) / m), floor)
    behind = (crowd.round_trip - nearest[link]) / 2
    queued += np.where(crowded & (dropping < ended), behind, 0.0)

    left = ended - crowd.rest - waiting  # when its last packet leaves the queue
    unheard = np.zeros(len(ended))
    for after in DROPS_S:
        soonest = crowd.filled + INTERVAL_S + TARGET_S + after
        latest = soonest + 2 * standing
        told = (soonest + latest) / 2 + TELLING * each_s
        mended = np.where(told < left, told + crowd.round_trip + crowd.rest, 0.0)
        queued = np.maximum(queued, np.where(crowded, mended, 0.0))
        tail = np.maximum(left - TELLING * each_s, soonest)
        unheard += np.clip(np.minimum(left - each_s, latest) - tail, 0, None) / (2 * standing)
    unheard = np.where(crowded & ~in_vain, unheard, 0.0)

    hit = in_vain & (rank >= m - np.maximum(1, np.floor(STALLED * m)))
    last_drop = np.maximum(dropping, T - INTERVAL_S)
    waited = TIMEOUT_S + crowd.round_trip
    late = np.where(slow & (T > TIMEOUT_S), T + TIMEOUT_S / 2, last_drop + waited)
    if unheard.sum() > EXPECTED:
        f = np.where(unheard > 0, queued, np.inf).argmin()
        queued[f] += waited[f]
    return np.where(hit, np.maximum(queued, late), queued)
