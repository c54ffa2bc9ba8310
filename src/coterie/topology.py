"""Where the nodes are: hosts on switches, switches joined by links, and hops between hosts."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from coterie.errors import TopologyError, unknown

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Topology:
    """Hosts 0..n-1, each on one switch, and an undirected switch graph.

    `links` [L, 2] joins switches; `tiers` [L] names each link's tier; `switch_of` [n] is the switch
    of every host. Host links are not listed: there is exactly one per host, in tier "access".
    """

    switch_of: Ints
    links: Ints
    tiers: tuple[str, ...]
    n_switches: int

    @cached_property
    def switch_hops(self) -> Ints:
        """Links between every two switches [S, S]."""
        S, L = self.n_switches, len(self.links)
        a, b = self.links.T if L else (np.zeros(0, int), np.zeros(0, int))
        graph = coo_array((np.ones(L), (a, b)), shape=(S, S)).tocsr()
        hops = shortest_path(graph, directed=False, unweighted=True)
        if not np.isfinite(hops).all():
            raise TopologyError("the network is not connected: some switches cannot be reached")
        return hops.astype(np.int64)

    @cached_property
    def hops(self) -> Ints:
        """Links between every two hosts [n, n]: 0 to itself, 2 on the same switch."""
        between = self.switch_hops[np.ix_(self.switch_of, self.switch_of)] + 2
        np.fill_diagonal(between, 0)
        return between


def fat_tree(edge_of: Ints) -> Topology:
    """Build the paper's fat tree, whose pods are the network edges.

    With P pods a pod has h = ceil(P/2) edge switches and h aggregation switches, fully joined, and
    aggregation switch a of every pod is joined to core switches a*h .. a*h + h-1.

    >>> tree = fat_tree(np.repeat(np.arange(10), 10))
    >>> tree.n_switches, sorted(set(tree.hops.ravel().tolist()))
    (125, [0, 2, 4, 6])
    """
    pods = int(edge_of.max()) + 1
    half = -(-pods // 2)
    core = half * half
    links, tiers = [], []
    for pod in range(pods):
        first = core + pod * 2 * half  # aggregation switches, then edge switches
        for a in range(half):
            for j in range(half):
                links.append((first + half + j, first + a))
                tiers.append("pod")
                links.append((first + a, a * half + j))
                tiers.append("core")
    switch_of = np.empty(len(edge_of), dtype=np.int64)
    for pod in range(pods):
        hosts = np.flatnonzero(edge_of == pod)
        shelf = np.arange(len(hosts)) * half // max(len(hosts), half)
        switch_of[hosts] = core + pod * 2 * half + half + shelf
    return Topology(switch_of, np.array(links), tuple(tiers), core + pods * 2 * half)


def jellyfish(edge_of: Ints, degree: int, rng: np.random.Generator) -> Topology:
    """Build a jellyfish: one switch an edge, joined at random with up to `degree` links each.

    A random ring comes first, so the graph is always connected; random pairs of switches with free
    ports are joined, and ports left over are spliced into random links, until at most one is free.

    >>> net = jellyfish(np.repeat(np.arange(6), 2), 3, np.random.default_rng(0))
    >>> bool((net.hops >= 0).all()), np.bincount(net.links.ravel()).tolist()
    (True, [3, 3, 3, 3, 3, 3])
    """
    if degree < 2:
        raise TopologyError(
            f"network.degree must be >= 2 to keep a jellyfish connected, got {degree}"
        )
    S = int(edge_of.max()) + 1
    ring = rng.permutation(S)
    adjacent = np.zeros((S, S), dtype=bool)
    if S > 1:
        adjacent[ring, np.roll(ring, 1)] = True
    adjacent |= adjacent.T
    added = True
    while added:  # random matchings among switches with free ports: fast for many switches
        free = rng.permutation(np.flatnonzero(adjacent.sum(1) < degree))
        half = len(free) // 2
        a, b = free[:half], free[half : 2 * half]
        fresh = ~adjacent[a, b]
        added = bool(fresh.any())
        adjacent[a[fresh], b[fresh]] = adjacent[b[fresh], a[fresh]] = True
    while len(pairs := _joinable(adjacent, degree)):  # what the matchings missed, if anything
        a, b = pairs[rng.integers(len(pairs))]
        adjacent[a, b] = adjacent[b, a] = True
    _use_up_ports(adjacent, degree, rng)
    links = np.argwhere(np.triu(adjacent))
    return Topology(edge_of.astype(np.int64), links, ("core",) * len(links), S)


def _joinable(adjacent: NDArray[np.bool_], degree: int) -> Ints:
    free = adjacent.sum(1) < degree
    return np.argwhere(np.triu(~adjacent & free[:, None] & free[None, :], 1))


def _use_up_ports(adjacent: NDArray[np.bool_], degree: int, rng: np.random.Generator) -> None:
    """Splice two leftover ports u, v into a link x-y: x-u and v-y replace it.

    u and v are neighbours or the same switch (else they had been joined), so x still reaches y.
    """
    S = len(adjacent)
    while True:
        stubs = np.repeat(np.arange(S), np.maximum(degree - adjacent.sum(1), 0))
        if len(stubs) < 2:
            return
        u, v = rng.permutation(stubs)[:2]
        near_u, near_v = adjacent[u].copy(), adjacent[v].copy()
        near_u[[u, v]] = near_v[[u, v]] = True
        links = np.argwhere(adjacent & ~near_u[:, None] & ~near_v[None, :])
        if not len(links):
            return
        x, y = links[rng.integers(len(links))]
        adjacent[x, y] = adjacent[y, x] = False
        adjacent[x, u] = adjacent[u, x] = adjacent[v, y] = adjacent[y, v] = True


TOPOLOGIES: dict[str, str] = {
    "fat-tree": "pods are the network edges: hops 2 on a switch, 4 in a pod, 6 across",
    "jellyfish": "one switch per network edge, joined at random (network.degree links each)",
}


def make_topology(
    name: str, edge_of: Ints, degree: int = 4, rng: np.random.Generator | None = None
) -> Topology:
    """Build a topology by name for nodes placed under edges."""
    if name == "fat-tree":
        return fat_tree(edge_of)
    if name == "jellyfish":
        return jellyfish(edge_of, degree, rng or np.random.default_rng(0))
    raise TopologyError(unknown("topology", name, TOPOLOGIES))
