"""What a planner may see of the nodes, their data and their network."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.grouping.path_costs import Ways, ways
from coterie.grouping.shared_links import SharedLinks, shared_links
from coterie.network import Network
from coterie.topology import Topology

ALIKE = 1e-12  # shares of labels that differ by less are the same
BALANCE = 1e-6  # how far the shares may sum from 1, and a Gram matrix be from symmetric


@dataclass(frozen=True, eq=False)
class Routes:
    """Routes of a topology, followed once, when they are first asked for."""

    topology: Topology

    @cached_property
    def ways(self) -> Ways:
        """Latency and slowest link between switches."""
        return ways(self.topology)

    @cached_property
    def shared(self) -> SharedLinks | None:
        """What links between switches have to share, if any have."""
        return shared_links(self.topology)


@dataclass(frozen=True, eq=False)
class Delays:
    """What transfers cost: nbytes from every node to its server and back, by the network's clock.

    A cycle is tau2 - 1 means of the groups and a global one, which takes global_s for any grouping.
    """

    network: Network
    nbytes: int
    tau2: int
    global_s: float
    given_routes: "Routes | None" = None  # of the network, where they have been followed before

    @cached_property
    def routes(self) -> "Routes":
        """What the network's routes are like."""
        return self.given_routes or Routes(self.network.topology)

    def group_s(self, z: Ints, servers: Ints) -> float:
        """Seconds of one mean of every group, all groups at once."""
        return self.network.aggregation(z, servers, self.nbytes).seconds

    def cycle_s(self, group_s: float) -> float:
        """Seconds that a cycle spends on transfers, with group means of group_s."""
        return group_s * (self.tau2 - 1) + self.global_s


@dataclass(frozen=True, eq=False)
class Limits:
    """What a grouping must keep to: sizes of groups, members of a server, and how far it may be.

    `capacity` [n] is the most members that each node can serve, itself among them. Nodes of unlike
    `regions` [n], numbered from 0, never share a group.
    """

    min_size: int = 1
    max_size: int | None = None
    max_hops: int | None = None
    capacity: Ints | None = None
    regions: Ints | None = None

    def __post_init__(self) -> None:
        """Refuse parts of members."""
        if self.capacity is not None:
            object.__setattr__(self, "capacity", whole_capacity(self.capacity))


def whole_capacity(capacity: Ints | Floats, names: Sequence[str] = ()) -> Ints:
    """Return capacities as whole numbers [n], or say which is none.

    >>> whole_capacity(np.array([2.0, 0.0, 5.0])).tolist()
    [2, 0, 5]
    """
    fine = np.isfinite(capacity) & (capacity >= 0) & (capacity == np.floor(capacity))
    if not fine.all():
        i = int(np.argmin(fine))
        raise GroupingError(
            f"the capacity of node {names[i] if names else i} must be a whole number of members, "
            f"got {capacity[i]:g}; round it down"
        )
    whole: Ints = capacity.astype(np.int64)
    return whole


NO_LIMITS = Limits()


@dataclass(frozen=True, eq=False)
class Evidence:
    """All a planner may see of n nodes, and how many groups it should make.

    p [n] shares of the data, edge_of [n] network edges, and the network's topology. Of the data
    whatever is there: the Gram matrix [n, n] of the centred gradients, or a sketch of them [n, r],
    or each node's label counts [n, classes]; and, where gradients are, the cosines [n, n] between
    nodes' gradients of the last layer. `delays` times a grouping; without it, hops count.
    """

    num_groups: int
    p: Floats
    edge_of: Ints
    topology: Topology
    gram: Floats | None = None
    sketch: Floats | None = None
    label_counts: Ints | None = None
    last_layer: Floats | None = None
    delays: Delays | None = None
    limits: Limits = NO_LIMITS

    def __post_init__(self) -> None:
        """Refuse what no planner could use."""
        n = len(self.p)
        if not 1 <= self.num_groups <= n:
            raise GroupingError(
                f"num_groups must be from 1 to num_nodes, got {self.num_groups} groups for "
                f"{n} nodes"
            )
        if not (np.isfinite(self.p).all() and self.p.min() >= 0):
            raise GroupingError("data shares must be numbers from 0")
        if abs(self.p.sum() - 1) > BALANCE:
            raise GroupingError(f"data shares must sum to 1, got {self.p.sum():.6g}")
        if self.limits.capacity is not None and len(self.limits.capacity) != n:
            raise GroupingError(
                f"capacity must have a number for each of {n} nodes, "
                f"got {len(self.limits.capacity)}"
            )
        for name, rows in (("gram", self.gram), ("sketch", self.sketch)):
            if rows is None:
                continue
            if rows.ndim != 2 or len(rows) != n:
                raise GroupingError(f"{name} must have a row for each of {n} nodes")
            fine = np.isfinite(rows)
            if not fine.all():  # a node's NaN is in its own row, and in a column of a Gram matrix
                worst = np.flatnonzero(fine.sum(axis=1) == fine.sum(axis=1).min())
                named = f"node {worst[0]}" if len(worst) < n or n == 1 else "several nodes"
                raise GroupingError(f"the gradient of {named} is not finite")
        if self.gram is not None:
            if self.gram.shape != (n, n):
                raise GroupingError(f"a Gram matrix must be {n} by {n}, got {self.gram.shape}")
            apart = np.abs(self.gram - self.gram.T)
            if apart.max(initial=0.0) > BALANCE * max(np.abs(np.diag(self.gram)).max(), 1e-300):
                i, j = np.unravel_index(int(apart.argmax()), apart.shape)
                raise GroupingError(
                    f"a Gram matrix must be symmetric, but [{i}, {j}] is {self.gram[i, j]:g} and "
                    f"[{j}, {i}] is {self.gram[j, i]:g}"
                )

    @property
    def switch_of(self) -> Ints:
        """The switch of every node [n]."""
        return self.topology.switch_of

    @property
    def hops(self) -> NDArray[np.int32]:
        """Links between every two nodes [n, n]; for some nodes only, see `between`."""
        return self.topology.hops

    def between(self, a: Ints, b: Ints) -> NDArray[np.int32]:
        """Links from nodes or places a to nodes b [len(a), len(b)]."""
        return self.topology.between(a, b)

    @property
    def places(self) -> Ints:
        """Vertices of the network that serve groups [m]; where there is none, a member does."""
        return self.topology.place_vertices

    @cached_property
    def inner(self) -> Floats:
        """Gram matrix [n, n] of whatever is known of the data; zeros if that is nothing."""
        if self.gram is not None:
            return self.gram
        vectors = self.vectors
        if vectors is None:
            return np.zeros((len(self.p), len(self.p)))
        return vectors @ vectors.T

    @cached_property
    def vectors(self) -> Floats | None:
        """Rows [n, r] whose inner products say how nodes' data differ; None with a Gram matrix."""
        if self.sketch is not None:
            return self.sketch
        if self.label_counts is None or self.gram is not None:
            return None
        apart: Floats = self.label_shares - self.p @ self.label_shares
        apart[np.abs(apart) < ALIKE] = 0.0  # of rounding, where shares are the same
        return apart

    @cached_property
    def label_shares(self) -> Floats:
        """Each node's label counts as shares [n, classes]."""
        if self.label_counts is None:
            raise GroupingError("this grouping needs the nodes' label counts")
        counts = self.label_counts.astype(np.float64)
        shares: Floats = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        return shares
