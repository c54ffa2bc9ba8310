"""Who sends what to whom in one aggregation, phase by phase."""

import numpy as np

from coterie.core.arrays import Ints
from coterie.network.values import Phase
from coterie.topology import Topology


def gather(
    z: Ints,
    servers: Ints,
    nbytes: int,
    via: Ints | None = None,
    nodes: Ints | None = None,
) -> tuple[Phase, ...]:
    """Send every node's model to its group's server, or first to the vertex via [n].

    With `nodes`, z and via are theirs, and only they send. A collector sends one model on for each
    group: the mean of those it got, and its own.

    >>> z, via = np.array([0, 0, 0]), np.array([0, 2, 2])
    >>> [(p.src.tolist(), p.dst.tolist()) for p in gather(z, np.array([0]), 10, via)]
    [([1], [2]), ([2], [0])]
    """
    server = servers[z]
    senders = np.arange(len(z)) if nodes is None else nodes
    if via is None:
        return (_phase(senders, server, nbytes),)
    first = _phase(senders, via, nbytes)
    onward = np.unique(np.stack([z, via, server], axis=1)[via != server], axis=0)
    return tuple(p for p in (first, _phase(onward[:, 1], onward[:, 2], nbytes)) if len(p.src))


def scatter(there: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """Send the mean back the way the models came."""
    return tuple(Phase(p.dst, p.src, p.nbytes) for p in reversed(there))


def one_per_edge(
    topology: Topology, edge_of: Ints, z: Ints, servers: Ints, nodes: Ints | None = None
) -> Ints:
    """Choose who sends when combining under an edge is free: one node of each group and edge.

    The authors' combination, for the server's own edge, too. Nodes on the server's own switch are
    not combined: each sends. With `nodes`, z is theirs.

    >>> from coterie.topology import fat_tree
    >>> pods = np.repeat([0, 1, 2], 4)  # of two switches each, with two nodes
    >>> one_per_edge(fat_tree(pods), pods, np.zeros(12, int), np.array([0])).tolist()
    [0, 1, 2, 4, 8]
    """
    nodes = np.arange(len(z)) if nodes is None else nodes
    beside = topology.switch_of[nodes] == topology.switch_at(servers)[z]
    pairs = np.stack([z, edge_of[nodes]], axis=1)[~beside]
    _, first = np.unique(pairs, axis=0, return_index=True)
    found: Ints = np.union1d(nodes[beside], nodes[~beside][first])
    return found


def collectors(
    topology: Topology, edge_of: Ints, z: Ints, servers: Ints, nodes: Ints | None = None
) -> Ints:
    """Choose where each node's model goes first when models are combined in the network [n].

    The members of a group under one network edge send to one of them, or to a place in the network
    that can serve, so that the edge sends one model on: the collector that makes fewest links
    carry a model, and of these the one with the quickest link of its own. Where that would not be
    fewer than sending all to the server, and under the server's own edge, nothing is combined. With
    `nodes`, only they take part, and z is theirs.
    """
    nodes = np.arange(len(z)) if nodes is None else nodes
    via: Ints = servers[z].copy()
    if not len(z):
        return via
    n = topology.n_devices
    places = topology.place_vertices
    speed = topology.bytes_per_s[: 2 * n].reshape(n, 2)
    own_s = np.zeros(topology.n_vertices)  # of a byte in and out; a place has no link of its own
    own_s[:n] = (1 / speed).sum(axis=1)
    pairs, of = np.unique(np.stack([z, edge_of[nodes]], axis=1), axis=0, return_inverse=True)
    order = np.argsort(of, kind="stable")
    for (k, edge), at in zip(pairs, np.split(order, np.cumsum(np.bincount(of))[:-1]), strict=True):
        server, members = servers[k], nodes[at]
        if len(members) < 2 or (server < n and edge_of[server] == edge):
            continue
        candidates = np.concatenate([members, places])
        carried = topology.far(candidates, members)
        carried += topology.between(candidates, servers[[k]])[:, 0]
        best = int(np.lexsort((own_s[candidates], carried))[0])
        if carried[best] < topology.between(servers[[k]], members).sum():
            via[at] = candidates[best]
    return via


def _phase(src: Ints, dst: Ints, nbytes: int) -> Phase:
    moving = src != dst  # a server needs no network to reach itself
    return Phase(src[moving], dst[moving], np.full(int(moving.sum()), nbytes, dtype=np.int64))
