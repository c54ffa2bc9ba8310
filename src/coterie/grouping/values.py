"""What a planner returns, and the check of it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import Ints
from coterie.core.errors import GroupingError
from coterie.grouping.evidence import Evidence

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
