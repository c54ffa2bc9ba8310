"""A network numbered by its names, so that the order of its file decides nothing."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from coterie.core.arrays import Ints
from coterie.topology.values import Topology

Key = tuple[list[tuple[int, str]], str]


def by_name(topology: Topology) -> Topology:
    """Number devices, switches and links anew, all in the order of their names.

    >>> star = Topology(
    ...     np.array([1, 1, 0]), np.array([[0, 1]]), ("core",), 2, np.arange(1.0, 9.0), np.zeros(4),
    ...     names=("n10", "n9", "x", "west", "east"),
    ... )
    >>> sorted_star = by_name(star)
    >>> sorted_star.names, sorted_star.switch_of.tolist(), sorted_star.bytes_per_s.tolist()
    (('n9', 'n10', 'x', 'east', 'west'), [0, 0, 1], [3.0, 4.0, 1.0, 2.0, 5.0, 6.0, 8.0, 7.0])
    """
    n, names = topology.n_devices, topology.names
    devices, switches = _order(names[:n]), _order(names[n:])
    number = np.argsort(switches)  # of every switch, now
    links = number[topology.links.reshape(-1, 2)]  # [L, 2]
    turned = links[:, 0] > links[:, 1]
    links = np.sort(links, axis=1)
    order = np.lexsort((links[:, 1], links[:, 0]))
    both = topology.bytes_per_s.reshape(-1, 2)  # [n + L, 2]
    inner = np.where(turned[:, None], both[n:, ::-1], both[n:])[order]
    places = number[np.array(topology.places, dtype=np.int64)]  # [m]
    ranked = np.argsort(places)
    capacity, may = topology.place_capacity, topology.may_serve
    return replace(
        topology,
        switch_of=number[topology.switch_of[devices]],
        links=links[order],
        tiers=tuple(topology.tiers[link] for link in order),
        bytes_per_s=np.concatenate([both[devices], inner]).ravel(),
        latency_s=np.concatenate([topology.latency_s[devices], topology.latency_s[n:][order]]),
        places=tuple(places[ranked].tolist()),
        names=(*(names[i] for i in devices), *(names[n + s] for s in switches)),
        place_capacity=None if capacity is None else capacity[ranked],
        may_serve=None if may is None else may[devices],
    )


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names, and the numbers in them as such.

    >>> in_order(["cam 10", "cam 9", "10", "9", "cam"])
    ['9', '10', 'cam', 'cam 9', 'cam 10']
    """
    return sorted(names, key=_key)


def _order(names: Sequence[str]) -> Ints:
    return np.array(sorted(range(len(names)), key=lambda i: _key(names[i])), dtype=np.int64)


def _key(name: str) -> Key:
    """Text and numbers in turns; a number's length goes first, so that 9 is before 10."""
    parts = re.split("([0-9]+)", name)
    bare = [part.lstrip("0") if at % 2 else part for at, part in enumerate(parts)]
    return [(len(part) if at % 2 else 0, part) for at, part in enumerate(bare)], name
