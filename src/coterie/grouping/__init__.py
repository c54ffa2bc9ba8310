"""Who trains with whom: what a planner may see, what it returns, and the planners.

A planner is a function from evidence and a random generator to a grouping; a user's own is named
by its import path, `"my_pkg.groups:plan"`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import Ints
from coterie.core.errors import GroupingError
from coterie.grouping.evidence import NO_LIMITS, Delays, Evidence, Limits

__all__ = [
    "NO_LIMITS",
    "Delays",
    "Evidence",
    "Grouping",
    "Limits",
    "Planner",
    "check_grouping",
    "with_servers",
]
NO_PLACES: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Grouping:
    """A group number for every node, the server node of every group, and the costs on the way."""

    z: Ints
    servers: Ints
    cost_trace: tuple[float, ...] = ()

    @property
    def sizes(self) -> list[int]:
        """Nodes in every group."""
        return [int(size) for size in np.bincount(self.z)]


Planner = Callable[[Evidence, np.random.Generator], Grouping]


def with_servers(z: Ints, evidence: Evidence, cost_trace: tuple[float, ...] = ()) -> Grouping:
    """Give every group as its server the member with the least sum of hops to the group.

    Where the network has places that serve, the best of them is the server instead. Ties go to the
    switch that serves the fewest groups yet, then to the lowest number, so that several groups'
    servers do not crowd behind one switch.
    """
    K, n = int(z.max()) + 1, len(z)
    site = np.concatenate([evidence.switch_of, evidence.places - n])  # the switch of each vertex
    serving = np.zeros(int(site.max()) + 1, dtype=np.int64)
    servers = np.empty(K, dtype=np.int64)
    for k in range(K):
        members = np.flatnonzero(z == k)
        if len(evidence.places):
            able = n + np.arange(len(evidence.places))
            far = evidence.topology.far(evidence.places, members)
        else:
            able = members
            far = evidence.topology.far(members, members)
        best = able[far == far.min()]
        chosen = best[np.argmin(serving[site[best]])]
        serving[site[chosen]] += 1
        servers[k] = chosen if chosen < n else evidence.places[chosen - n]
    return Grouping(z, servers, cost_trace)


def check_grouping(grouping: object, n: int, places: Ints = NO_PLACES) -> Grouping:
    """Reject a planner's answer that is not a grouping of n nodes, served by them or by places."""
    if not isinstance(grouping, Grouping):
        found = type(grouping).__name__
        raise GroupingError(f"a planner must return a coterie.Grouping, got {found}")
    z, servers = np.asarray(grouping.z), np.asarray(grouping.servers)
    if z.dtype.kind not in "iu" or servers.dtype.kind not in "iu":
        raise GroupingError("a planner must return whole numbers for z and servers")
    if z.shape != (n,) or z.min() < 0 or len(np.unique(z)) != z.max() + 1:
        raise GroupingError(f"a planner must number every one of {n} nodes 0..K-1, none empty")
    by_node = servers < n
    known = servers.shape == (z.max() + 1,) and servers.min() >= 0
    if not known or not np.isin(servers[~by_node], places).all():
        raise GroupingError(f"a planner must name one of the {n} nodes as server of every group")
    if not (z[servers[by_node]] == np.flatnonzero(by_node)).all():
        raise GroupingError("a planner must name as server of a group one of its members")
    return Grouping(z.astype(np.int64), servers.astype(np.int64), grouping.cost_trace)
