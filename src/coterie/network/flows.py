"""The flow model: TCP transfers as fluids that share links fairly, held back by their windows.

A transfer of B bytes on the wire (its payload and a header for every segment) shakes hands for a
round trip, then releases a burst each round trip, every one about twice as large as the last. Once
a burst is not through when the next is due, everything is released, and so it is when there are
many of the largest windows to go. What is released is served at its max-min fair share, and all
that is left at the pace of one largest window each round trip at most. Every flow keeps time at the
link where it meets most traffic; the latency before that link delays its bursts, the latency behind
it its end.
"""

from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints
from coterie.network.incast import Crowd, with_queues
from coterie.network.max_min import Contention, contention
from coterie.network.tcp import PROFILES, Tcp
from coterie.network.values import Flows
from coterie.topology import Topology

RESOLUTION = 1e-3  # events closer than this part of the time a flow takes are one
OF_ROUND_TRIP = 0.25  # nor are events one that are this part of a burst's round trip apart
KNOWN = 64  # sets of senders whose rates are kept
MANY = 64  # windows to go, from where single bursts are not followed


def flow_seconds(topology: Topology, flows: Flows, tcp: Tcp = PROFILES["lossless"]) -> Floats:
    """Return the seconds until the last byte of every flow has arrived [F].

    Two nodes send 1 MB each over a switch to a third, all links 1 MB/s:

    >>> from coterie.network.routes import route
    >>> from coterie.network.values import Phase
    >>> from coterie.topology import Speed, assemble
    >>> slow = Speed(bytes_per_s=1e6, latency_s=0.001)
    >>> star = assemble(np.zeros(3, int), np.zeros((0, 2), int), (), 1, slow, slow)
    >>> two = Phase(np.array([0, 1]), np.array([2, 2]), np.array([1_000_000, 1_000_000]))
    >>> flow_seconds(star, route(star, two)).round(2).tolist()
    [2.08, 2.08]
    """
    if not len(flows):
        return np.zeros(0)
    order = np.lexsort((flows.start_s, flows.nbytes, flows.dst, flows.src))
    start = flows.start_s.min()
    sorted_flows = replace(flows.take(order), start_s=flows.start_s[order] - start)
    seconds = np.empty(len(flows))
    with np.errstate(over="ignore", invalid="ignore"):  # a link too slow takes forever: inf
        seconds[order] = start + _arrivals(topology, sorted_flows, tcp)
    return seconds


def _arrivals(topology: Topology, flows: Flows, tcp: Tcp) -> Floats:
    race = _delays(topology, flows, tcp)
    ended, filled, last_burst = _simulate(race, tcp)
    if not tcp.drops:
        return ended
    sources, source = np.unique(flows.src, return_inverse=True)
    shared = np.bincount(source, minlength=len(sources))[source] > 1
    speed = topology.bytes_per_s[race.clock]
    crowd = Crowd(race.clock, speed, shared, filled, race.round_trip, race.rest, last_burst)
    alone = race.begins + race.size / race.rivals.limit + race.rest
    return np.maximum(with_queues(ended, crowd, tcp.segment + tcp.header), alone)


@dataclass(frozen=True, eq=False)
class _Race:
    """Flows at the links they keep time at; all arrays [F]."""

    size: Floats  # bytes on the wire
    begins: Floats  # when the first burst gets there
    round_trip: Floats
    rest: Floats  # from there to the end
    clock: Ints  # those links
    rivals: Contention
    soonest_s: float  # least that any flow's busiest link needs for what it has to carry


def _delays(topology: Topology, flows: Flows, tcp: Tcp) -> _Race:
    link, flow, start = flows.links, flows.flow_of, flows.first[:-1]
    speed, back = topology.bytes_per_s[link], topology.bytes_per_s[link ^ 1]
    latency = topology.latency_s[link // 2]
    size = (flows.nbytes + tcp.header * -(-flows.nbytes // tcp.segment)).astype(np.float64)
    hop = latency + (np.minimum(size[flow], tcp.segment + tcp.header)) / speed

    def total(values: Floats) -> Floats:
        summed: Floats = np.add.reduceat(values, start)
        return summed

    busy = np.bincount(link, weights=size[flow], minlength=2 * len(topology.latency_s))
    wait = busy[link] / speed
    longest = np.maximum.reduceat(wait, start)
    busiest = wait >= longest[flow] * (1 - 1e-9)
    place = np.arange(len(link))
    clock = np.maximum.reduceat(np.where(busiest, place, -1), start)  # the last of the busiest
    shaking = total(2 * latency + tcp.shake / speed + tcp.shake / back)
    return _Race(
        size,
        flows.start_s + shaking + total(np.where(place < clock[flow], hop, 0.0)),
        total(hop + latency + tcp.header / back),
        total(np.where(place > clock[flow], hop, 0.0)) + latency[clock],
        link[clock],
        contention(link, flows.first, topology.bytes_per_s),
        float(longest.min()),
    )


def _simulate(race: _Race, tcp: Tcp) -> tuple[Floats, Floats, Floats]:
    """Go from event to event: a burst gets there, or is through.

    Return when each flow ends, since when its path is full (inf: never), and its last burst.
    """
    F, size = len(race.size), race.size
    full = tcp.segment + tcp.header
    largest = tcp.largest_window * full / tcp.segment
    window = np.full(F, min(tcp.first_window * full, largest), dtype=np.float64)
    through, released = np.zeros(F), np.zeros(F)
    release = race.begins.copy()  # when the next burst is there
    ended, filled, last_burst = np.full(F, np.inf), np.full(F, np.inf), np.zeros(F)
    active, rate, now, never = np.zeros(F, dtype=bool), np.zeros(F), 0.0, np.full(F, np.inf)
    limit = race.rivals.limit.copy()
    known: dict[bytes, Floats] = {}  # rates by who sends: bursts come and go, and come again
    while True:
        idle = np.divide(released - through, rate, out=never.copy(), where=active)
        idle += now
        first = min(idle.min(), release.min())
        if not isfinite(first):
            break
        apart = RESOLUTION * (first + race.soonest_s)
        coming = race.round_trip[release <= first + apart]
        apart = min(apart, OF_ROUND_TRIP * coming.min(initial=np.inf))
        apart = apart if isfinite(apart) else 0.0
        emptied, (fresh,) = idle <= first + apart, (release <= first + apart).nonzero()
        before, was = now, through
        now = max(idle[emptied].max(initial=0.0), release[fresh].max(initial=0.0))
        through = np.where(emptied, released, was + rate * (now - before))
        (done,) = (emptied & (through >= size)).nonzero()
        ended[done] = before + (size[done] - was[done]) / rate[done] + race.rest[done]

        paced = fresh[:0]
        if len(fresh):
            due, own, whole, sent = release[fresh], window[fresh], size[fresh], released[fresh]
            backlog = (idle[fresh] > due) & active[fresh]
            left = whole - sent
            steady = (own >= largest) & (left > MANY * largest) & ~backlog
            filled[fresh[backlog]] = np.minimum(filled[fresh[backlog]], now)
            last_burst[fresh] = burst = np.where(backlog, left, np.minimum(left, own))
            # with a backlog single bursts matter no more; a window each round trip still does
            at_once = backlog | steady
            released[fresh] = sent = np.where(at_once, whole, sent + burst)
            paced = fresh[at_once]
            if len(paced):
                limit[paced] = _pace(left[at_once], largest, race.round_trip[paced], limit[paced])
                known.clear()
            release[fresh] = np.where(sent < whole, due + race.round_trip[fresh], np.inf)
            second = own < tcp.second_window * full
            grown = np.where(second, tcp.second_window * full, tcp.growth * own)
            window[fresh] = np.minimum(grown, largest)

        sending = through < released
        if len(paced) or (sending != active).any():
            active, rate = sending, _rates(race.rivals, sending, limit, known)
    return ended, filled, last_burst


def _rates(
    rivals: Contention, active: NDArray[np.bool_], limit: Floats, known: dict[bytes, Floats]
) -> Floats:
    """Return the rates of those that send, from those that are known by who does."""
    who = active.tobytes()
    if who not in known:
        if len(known) >= KNOWN:
            known.clear()
        known[who] = rivals.shares(active, limit)
    return known[who]


def _pace(left: Floats, window: float, round_trip: Floats, limit: Floats) -> Floats:
    """Mean speed of what is left, a window each round trip and the last one at the path's speed."""
    last = np.minimum((left - 1) % window + 1, left)
    spent: Floats = (left - last) / window * round_trip + last / limit
    return np.minimum(left / spent, limit)
