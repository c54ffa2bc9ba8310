"""What ordinary queues do to many transfers at once: they serve in order, and they drop.

A device sends in order what waits in its queue, so flows that would end together end one after the
other. Beyond that a queue that has been standing for CoDel's interval drops packets. A flow with
many packets under way repairs that in a round trip; one with few, as when very many send to one
(incast), waits for TCP's time-out. Which flow that hits is a matter of chance: the last of a link
stand for it here. What repairs cost the link itself is a part of a round trip.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.network.values import Floats, Ints

QUEUE = 100  # packets that a device holds in order
TARGET_S, INTERVAL_S = 0.005, 0.1  # CoDel's: a queue this long, for this long, drops
TIMEOUT_S = 1.0  # the least of TCP's retransmission time-outs
ENOUGH_PACKETS = 16  # under way, to repair a loss at the end of a flow without a time-out
THREE_MORE = 4  # packets under way, to repair any loss: one lost, three that tell
REPAIRS = 32  # flows that lose together cost a link a round trip; fewer, a part of one
STARVED_S = 0.6  # by which long transfers that meet time-outs all along overrun
STALLED = 0.05  # part of the flows of a link that wait for a time-out


@dataclass(frozen=True, eq=False)
class Crowd:
    """Flows at the link where each meets most traffic; all arrays [F]."""

    link: Ints
    bytes_per_s: Floats  # of that link
    one_source: NDArray[np.bool_]  # whether others have the same source, as in a broadcast
    filled: Floats  # since when the path is full; inf: never
    round_trip: Floats
    last_burst: Floats  # bytes


def with_queues(ended: Floats, crowd: Crowd, packet: int) -> Floats:
    """Stagger the ends of flows that fair queues would end together, and add time-outs."""
    _, link, flows = np.unique(crowd.link, return_inverse=True, return_counts=True)
    order = np.lexsort((np.arange(len(ended)), ended, link))
    rank = np.empty(len(ended), dtype=np.int64)
    rank[order] = np.arange(len(ended)) - np.repeat(np.cumsum(flows) - flows, flows)
    m = flows[link]

    packet_s = packet / crowd.bytes_per_s
    bursts = np.bincount(link, crowd.last_burst)[link] / crowd.bytes_per_s
    waiting = np.minimum(bursts, QUEUE * packet_s)
    met = np.isfinite(crowd.filled)
    end, full = np.zeros(len(flows)), np.full(len(flows), np.inf)
    np.maximum.at(end, link, np.where(met, ended, 0.0))
    np.minimum.at(full, link, crowd.filled)
    T, dropping = end[link], full[link] + waiting + TARGET_S + INTERVAL_S
    under_way = (crowd.round_trip + TARGET_S + waiting) / (m * packet_s)
    starved = (under_way < THREE_MORE) & (dropping < T)

    spread = np.where(crowd.one_source, 1.0, 0.5) * waiting
    spread = np.where(starved & (T > TIMEOUT_S), TIMEOUT_S, spread)
    floor = np.minimum(ended, np.where(met, T, ended) - spread)  # nothing ends before its crowd
    repair = np.where(dropping < ended, crowd.round_trip * np.minimum(m, REPAIRS) / REPAIRS, 0.0)
    staggered = np.maximum(ended - spread * (1 - (rank + 1) / m), floor) + repair * met
    hit = (under_way < ENOUGH_PACKETS) & (dropping < T) & (m > 1) & met
    hit &= rank >= m - np.maximum(1, np.floor(STALLED * m))
    late = np.where(starved, T + STARVED_S, T - INTERVAL_S + TIMEOUT_S + crowd.round_trip)
    late = np.where(starved & (T < TIMEOUT_S), dropping + TIMEOUT_S + crowd.round_trip, late)
    queued: Floats = np.where(hit, np.maximum(staggered, late), staggered)
    return queued
