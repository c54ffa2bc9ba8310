"""Which links a transfer crosses: one shortest path for every flow."""

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
    neighbour, port = topology.ports
    at = first[:-1] + up
    here = here.copy()
    for step in range(int(left.max(initial=0))):
        f = np.flatnonzero(left > step)
        s = here[f]
        closer = (hops[goal_row[f, None], neighbour[s]] < (left[f] - step)[:, None]) & (
            port[s] >= 0
        )
        if routing == "single":
            taken = closer.argmax(axis=1)
        else:
            pick = _hash(src[f], dst[f], s, seed) % closer.sum(axis=1).astype(np.uint64)
            taken = (np.cumsum(closer, axis=1) > pick[:, None].astype(np.int64)).argmax(axis=1)
        links[at[f] + step] = port[s, taken]
        here[f] = neighbour[s, taken]
    return Flows(src, dst, nbytes, links, first, np.zeros(F))


def _hash(src: Ints, dst: Ints, switch: Ints, seed: int) -> NDArray[np.uint64]:
    """Mix four numbers into 64 bits (the finaliser of SplitMix64 over each in turn)."""
    mixed = np.full(len(src), seed % 2**64, dtype=np.uint64)
    for part in (src, dst, switch):
        mixed = mixed + part.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed
