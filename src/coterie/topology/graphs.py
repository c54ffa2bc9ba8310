"""Networks by rule: fat trees, jellyfish, edge and cloud, Waxman's random graph."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from coterie.core.amounts import size
from coterie.core.arrays import Floats, Ints
from coterie.core.errors import TopologyError
from coterie.core.memory import ALWAYS_THERE, physical_memory
from coterie.topology.values import Speed, Topology, assemble

LINK = Speed()
LINK_BYTES = 200  # of a link of a tree while it is built
WAY_BYTES = 48  # of hops, latency and speed between two switches that have nodes, and copies


def fat_tree(edge_of: Ints, access: Speed = LINK, inner: Speed = LINK) -> Topology:
    """Build the paper's fat tree, whose pods are the network edges.

    With P pods a pod has h = ceil(P/2) edge switches and h aggregation switches, fully joined, and
    aggregation switch a of every pod is joined to core switches a*h .. a*h + h-1.

    >>> tree = fat_tree(np.repeat(np.arange(10), 10))
    >>> tree.n_switches, sorted(set(tree.hops.ravel().tolist()))
    (125, [0, 2, 4, 6])
    """
    pods = int(edge_of.max()) + 1
    half = -(-pods // 2)
    switch_of = np.empty(len(edge_of), dtype=np.int64)
    for pod in range(pods):
        hosts = np.flatnonzero(edge_of == pod)
        shelf = np.arange(len(hosts)) * half // max(len(hosts), half)
        switch_of[hosts] = half * half + pod * 2 * half + half + shelf
    return _tree(switch_of, pods, half, access, inner)


def kary_fat_tree(n: int, k: int | None, access: Speed = LINK, inner: Speed = LINK) -> Topology:
    """Build a k-ary fat tree: k pods of k/2 edge switches with k/2 ports for devices each.

    Devices fill the ports in order; without k it is the smallest tree with room for them all.

    >>> kary_fat_tree(16, 4).n_switches
    20
    """
    k = k or next(k for k in range(2, 2 * n + 4, 2) if k**3 // 4 >= n)
    if k % 2 or k < 2:
        raise TopologyError(f"network.k must be even and >= 2, got {k}")
    half = k // 2
    if n > k * half * half:
        raise TopologyError(
            f"a {k}-ary fat tree has room for {k * half * half} devices, got {n}; raise network.k"
        )
    pod, port = np.divmod(np.arange(n), half * half)
    switch_of = half * half + pod * k + half + port // half
    return _tree(switch_of, k, half, access, inner)


def _tree(switch_of: Ints, pods: int, half: int, access: Speed, inner: Speed) -> Topology:
    core = half * half
    _check_tree(pods, half)
    pod, a, j = (grid.ravel() for grid in np.indices((pods, half, half)))
    first = core + pod * 2 * half  # aggregation switches, then edge switches
    links = np.stack([first + half + j, first + a, first + a, a * half + j], axis=1).reshape(-1, 2)
    tiers = ("pod", "core") * (len(links) // 2)
    return assemble(switch_of, links, tiers, core + pods * 2 * half, access, inner)


def _check_tree(pods: int, half: int) -> None:
    """Refuse a tree whose links, and ways between all its switches, memory has no room for."""
    links, hosts = 2 * pods * half * half, pods * half
    needed = LINK_BYTES * links + WAY_BYTES * hosts * hosts
    there = physical_memory() if needed > ALWAYS_THERE else None
    if there is not None and needed > there:
        raise TopologyError(
            f"a fat tree of {pods:,} pods has {hosts:,} switches for nodes, whose ways to each "
            f"other need {size(needed)} of memory, this machine has {size(there)}; lower "
            "partition.num_edges, or use network.topology = 'edge-cloud'"
        )


def jellyfish(
    edge_of: Ints,
    degree: int,
    rng: np.random.Generator,
    access: Speed = LINK,
    inner: Speed = LINK,
) -> Topology:
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
    return assemble(edge_of, links, ("core",) * len(links), S, access, inner)


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


def edge_cloud(edge_of: Ints, access: Speed = LINK, inner: Speed = LINK) -> Topology:
    """Build a star of stars: devices on the base station of their edge, all of them on a cloud.

    Base stations and the cloud are places: they serve groups, not the devices. With one edge the
    base station is the cloud.

    >>> star = edge_cloud(np.array([0, 0, 1]))
    >>> star.hops.tolist(), star.place_hops.tolist()
    ([[0, 2, 4], [2, 0, 4], [4, 4, 0]], [[2, 2, 2], [1, 1, 3], [3, 3, 1]])
    """
    stations = int(edge_of.max()) + 1
    if stations == 1:
        one = assemble(edge_of, np.zeros((0, 2), dtype=np.int64), (), 1, access, inner, (0,))
        return replace(one, switch_names=("cloud",))
    links = np.stack([np.arange(stations), np.full(stations, stations)], axis=1)
    places = (stations, *range(stations))  # of two as near, the cloud serves
    tiers = ("backhaul",) * stations
    net = assemble(edge_of, links, tiers, stations + 1, access, inner, places)
    return replace(net, switch_names=(*(f"base station {e}" for e in range(stations)), "cloud"))


def waxman(
    edge_of: Ints,
    alpha: float,
    beta: float,
    rng: np.random.Generator,
    access: Speed = LINK,
    inner: Speed = LINK,
) -> Topology:
    """Build Waxman's random graph: a switch an edge, at random places in a unit square.

    Two switches at distance d are joined with probability alpha * exp(-d / (beta * sqrt(2))); those
    of a shortest tree over all are joined in any case. A link's latency is the given one times its
    length over the mean length.

    >>> net = waxman(np.arange(20), 0.4, 0.2, np.random.default_rng(0))
    >>> bool(net.latency_s[20:].std() > 0), round(float(net.latency_s[20:].mean()), 9)
    (True, 0.001)
    """
    from scipy.sparse.csgraph import minimum_spanning_tree
    from scipy.spatial.distance import cdist

    S = int(edge_of.max()) + 1
    where = rng.random((S, 2))
    apart: Floats = cdist(where, where)
    joined = rng.random((S, S)) < alpha * np.exp(-apart / (beta * np.sqrt(2)))
    joined |= minimum_spanning_tree(apart).toarray() > 0
    links = np.argwhere(np.triu(joined | joined.T, 1))
    net = assemble(edge_of, links, ("core",) * len(links), S, access, inner)
    length = apart[links[:, 0], links[:, 1]]
    net.latency_s[net.n_devices :] *= length / length.mean() if len(links) else 1.0
    return net
