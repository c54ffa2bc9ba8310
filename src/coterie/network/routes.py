"""Which links a transfer crosses: one shortest path for every flow."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Ints
from coterie.network.values import Flows, Phase
from coterie.topology import Topology

Routing = Literal["ecmp", "single"]
ROUTINGS: dict[str, str] = {
    "ecmp": "each flow takes one of the shortest paths, by a hash of its two ends and the seed",
    "single": "the first shortest path for all, as ns-3 routes by default",
}


def route(topology: Topology, phase: Phase, routing: Routing = "ecmp", seed: int = 0) -> Flows:
    """Give every transfer its path, a shortest one in links.

    Hop by hop, a flow at a switch goes on to one of the neighbours that are a link closer to its
    end: with "ecmp" the one that a hash of (source, destination, switch, seed) names, so the flows
    between two switches spread evenly and each keeps to one path; with "single" the first.
    Transfers of nothing, or from a vertex to itself, need no network and are left out.
    """
    moving = (phase.src != phase.dst) & (phase.nbytes > 0)
    src, dst, nbytes = phase.src[moving], phase.dst[moving], phase.nbytes[moving]
    n, F = topology.n_devices, len(src)
    here, goal = topology.switch_at(src), topology.switch_at(dst)
    goals, goal_row = np.unique(goal, return_inverse=True)
    hops = topology.hops_to(goals)
    left = hops[goal_row, here].astype(np.int64)
    up, down = src < n, dst < n
    first = np.concatenate([[0], np.cumsum(left + up + down)])
    links = np.empty(first[-1], dtype=np.int64)
    links[first[:-1][up]] = 2 * src[up]
    links[first[1:][down] - 1] = 2 * dst[down] + 1
    at = first[:-1] + up
    here = here.copy()
    for step in range(int(left.max(initial=0))):
        f = np.flatnonzero(left > step)
        s = here[f]
        way, onward = _onward(topology, hops, s, goal_row[f])
        if routing == "single":
            pick = np.zeros(len(f), dtype=np.int64)
        else:
            ways = onward.count[way].astype(np.uint64)
            pick = (_hash(src[f], dst[f], s, seed) % ways).astype(np.int64)
        taken = onward.first[way] + pick
        links[at[f] + step] = onward.port[taken]
        here[f] = onward.neighbour[taken]
    return Flows(src, dst, nbytes, links, first, np.zeros(F))


@dataclass(frozen=True, eq=False)
class _Onward:
    """Ways on from switches to goals: `count` of each from `first` on, its link and where to."""

    first: Ints
    count: Ints
    port: Ints
    neighbour: Ints


def _onward(
    topology: Topology, hops: NDArray[np.uint16], here: Ints, goal_row: Ints
) -> tuple[Ints, _Onward]:
    """List, once for all flows at a switch with one goal, the neighbours a link closer to it.

    Returns which way each flow is on [F], and the ways.
    """
    G = len(hops)
    pairs, way = np.unique(here * G + goal_row, return_inverse=True)
    s, g = pairs // G, pairs % G
    first, port, neighbour = topology.ports
    degree = np.diff(first)[s]
    start = np.cumsum(degree) - degree
    place = np.arange(int(degree.sum())) + np.repeat(first[s] - start, degree)
    closer = hops[np.repeat(g, degree), neighbour[place]] < np.repeat(hops[g, s], degree)
    count = np.add.reduceat(closer, start, dtype=np.int64)
    kept = place[closer]
    return way, _Onward(np.cumsum(count) - count, count, port[kept], neighbour[kept])


def _hash(src: Ints, dst: Ints, switch: Ints, seed: int) -> NDArray[np.uint64]:
    """Mix four numbers into 64 bits (the finaliser of SplitMix64 over each in turn)."""
    mixed = np.full(len(src), seed % 2**64, dtype=np.uint64)
    for part in (src, dst, switch):
        mixed = mixed + part.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed
