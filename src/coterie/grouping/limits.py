"""Limits on groups: whether they can be kept at all, who keeps to them, and what breaks them."""

import numpy as np

from coterie.core.arrays import Ints
from coterie.core.errors import GroupingError
from coterie.grouping import Evidence, Grouping, Limits
from coterie.topology import Topology

KEEPERS = ("coterie", "label-ilp")  # groupings that keep to limits


def check_limits(limits: Limits, topology: Topology, num_groups: int) -> None:
    """Refuse limits that no grouping of a network's nodes could keep to, whatever their data.

    What passes may still be too tight: which nodes can share a server within max_hops is only known
    when groups are searched for.
    """
    n, K = topology.n_devices, num_groups
    most = n if limits.max_size is None else limits.max_size
    if limits.min_size > most:
        raise GroupingError(
            f"min_group_size must be <= max_group_size, got {limits.min_size} and {most}"
        )
    if limits.min_size * K > n:
        raise GroupingError(f"{K} groups of at least {limits.min_size} need more than {n} nodes")
    if most * K < n:
        raise GroupingError(f"{K} groups of at most {most} have no room for {n} nodes")
    may = topology.may_serve
    if may is not None and not topology.places and may.sum() < K:
        raise GroupingError(
            f"{K} groups need {K} servers, and {int(may.sum())} devices may serve; let more, or "
            "make fewer groups"
        )
    if limits.max_hops is not None:
        _check_hops(limits.max_hops, topology, K)
    if topology.place_capacity is not None:
        _check_places(topology.place_capacity, limits, topology)
    if limits.capacity is not None:
        _check_capacity(limits.capacity, limits.min_size, most, topology, K)
    if limits.regions is not None:
        _check_regions(limits, topology, K)


def _check_places(capacity: Ints, limits: Limits, topology: Topology) -> None:
    n = topology.n_devices
    room = int(np.minimum(capacity, n).sum())
    if room < n:
        raise GroupingError(
            f"places have room for {room} of {n} nodes; raise their capacity, or let more serve"
        )
    if limits.max_hops is not None:
        raise GroupingError("capacities of places do not go with max_hops; leave one of them out")


def _check_regions(limits: Limits, topology: Topology, K: int) -> None:
    assert limits.regions is not None
    sizes = np.bincount(limits.regions)
    if len(sizes) > K:
        raise GroupingError(
            f"{K} groups cannot keep {len(sizes)} regions apart; make as many groups, or more"
        )
    bound: list[str] = [name for name in given(limits) if name in ("max_hops", "capacity_file")]
    if topology.place_capacity is not None:
        bound.append("capacities of places")
    if bound:
        raise GroupingError(f"regions do not go with {bound[0]}; leave one of them out")


def _check_hops(max_hops: int, topology: Topology, K: int) -> None:
    n = topology.n_devices
    if topology.places:
        nearest = topology.hops_to(np.array(topology.places)).min(axis=0)[topology.switch_of] + 1
        if (alone := np.flatnonzero(nearest > max_hops)).size:
            raise GroupingError(
                f"{topology.name(int(alone[0]))} has no server within {max_hops} hops; raise "
                f"max_hops to {int(nearest.max())} or more"
            )
    elif max_hops < 2 and K < n:
        raise GroupingError(
            f"no node has a server but itself within {max_hops} hops; raise max_hops to 2 or more"
        )


def _check_capacity(capacity: Ints, least: int, most: int, topology: Topology, K: int) -> None:
    n = topology.n_devices
    if len(capacity) != n:
        raise GroupingError(
            f"capacity must have a number for each of {n} nodes, got {len(capacity)}"
        )
    if topology.places:
        raise GroupingError(
            f"capacity is of nodes, but here {topology.name(n + topology.places[0])} and such "
            "serve; leave capacity_file out"
        )
    room = np.minimum(np.sort(capacity)[::-1][:K], most)
    if room.sum() < n:
        raise GroupingError(
            f"the {K} servers of most capacity take {int(room.sum())} of {n} nodes; "
            "raise capacities, or make more groups"
        )
    if room.min() < least:
        raise GroupingError(f"a server of capacity {int(room.min())} cannot have {least} members")


def check_keeper(limits: Limits, method: str) -> None:
    """Refuse limits that a grouping would pass over; a planner of one's own is shown them.

    >>> check_keeper(Limits(), "random")
    >>> check_keeper(Limits(min_size=3), "coterie")
    """
    if method in KEEPERS or ":" in method:
        return
    for name in given(limits):
        raise GroupingError(
            f"algorithm.grouping {method!r} does not keep to {name}; use "
            f"{' or '.join(map(repr, KEEPERS))}, or leave {name} out"
        )


def given(limits: Limits) -> list[str]:
    """Name the settings that limit something.

    >>> given(Limits(max_size=5, max_hops=2))
    ['max_group_size', 'max_hops']
    """
    there = {
        "min_group_size": limits.min_size > 1,
        "max_group_size": limits.max_size is not None,
        "max_hops": limits.max_hops is not None,
        "capacity_file": limits.capacity is not None,
        "regions": limits.regions is not None,
    }
    return [name for name, is_given in there.items() if is_given]


def broken(e: Evidence, grouping: Grouping) -> str:
    """Say which limit a grouping does not keep to; the number of groups is not one."""
    limits, sizes = e.limits, np.array(grouping.sizes)
    if sizes.min() < limits.min_size:
        return f"min_group_size: {sizes.min()}"
    if limits.max_size is not None and sizes.max() > limits.max_size:
        return f"max_group_size: {sizes.max()}"
    if limits.max_hops is not None:
        hops = e.between(grouping.servers, np.arange(len(e.p)))
        farthest = int(hops[grouping.z, np.arange(len(e.p))].max())
        if farthest > limits.max_hops:
            return f"max_hops: {farthest}"
    if limits.capacity is not None:
        nodes = grouping.servers < len(e.p)
        over = sizes[nodes] > limits.capacity[grouping.servers[nodes]]
        if over.any():
            return f"capacity: {sizes[nodes][over].max()}"
    if limits.regions is not None:
        pairs = np.unique(np.stack([grouping.z, limits.regions]), axis=1)
        if pairs.shape[1] > len(sizes):
            return "regions"
    return _broken_roles(e, grouping, sizes)


def _broken_roles(e: Evidence, grouping: Grouping, sizes: Ints) -> str:
    """Say whether a server may not serve, or a place has more members than it takes."""
    top, servers, n = e.topology, grouping.servers, len(e.p)
    nodes = servers[servers < n]
    if top.may_serve is not None and not top.may_serve[nodes].all():
        return f"may_serve: {top.name(int(nodes[~top.may_serve[nodes]][0]))}"
    if top.place_capacity is not None:
        load = np.bincount(servers, sizes, top.n_vertices)[e.places]
        if (load > top.place_capacity).any():
            at = int((load - top.place_capacity).argmax())
            return f"capacity: {int(load[at])} at {top.name(int(e.places[at]))}"
    return ""
