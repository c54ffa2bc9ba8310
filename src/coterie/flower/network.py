"""What is known of the network: from the user's CSV, from measured round trips, or nothing."""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.core.arrays import Floats
from coterie.core.csv_rows import header, read_rows
from coterie.flower import FlowerError
from coterie.flower.messages import PLACES, ROUND_TRIPS_MS, Answer
from coterie.flower.roster import Roster
from coterie.network import Network
from coterie.topology import Speed, Topology, assemble
from coterie.topology.matrix import NODE_COLUMNS, read_matrix, speeds

log = logging.getLogger("coterie.flower")
MEASURED = "measured"
LINK = Speed()


def network_of(
    source: Network | Path | str | None, roster: Roster, connected: Sequence[str] = ()
) -> tuple[Network, list[str]]:
    """Return the network to plan with, and the nodes in its order.

    None is a star of equal links: only data count then. `measured` goes by the nodes' round trips;
    a path is a CSV of the nodes' links, with a column `node`, or of MByte/s between every two.
    `connected` are all nodes, where those of the roster are only some.
    """
    names, everyone = roster.names, list(connected) or roster.names
    if source is None:
        return _network(star(len(names))), names
    if isinstance(source, Network):
        n, there = source.topology.n_devices, len(everyone)
        if n != there:
            raise FlowerError(f"the network has {n} nodes, and {there} are connected")
        return _among(source, everyone, names)
    if source == MEASURED:
        return _network(by_round_trips(names, [roster.answers[name] for name in names])), names
    return _read(Path(source), names, everyone)


def _among(network: Network, called: list[str], names: list[str]) -> tuple[Network, list[str]]:
    """Leave out of a network the nodes that are not among some names; their switches stay."""
    keep = np.array([i for i, name in enumerate(called) if name in set(names)], dtype=np.int64)
    top, n = network.topology, len(called)
    if len(keep) == n:
        return network, called
    links = np.concatenate([keep, np.arange(n, n + len(top.links))])
    less = replace(
        top,
        switch_of=top.switch_of[keep],
        bytes_per_s=top.bytes_per_s.reshape(-1, 2)[links].ravel(),
        latency_s=top.latency_s[links],
        names=(*(top.names[i] for i in keep), *top.names[n:]) if top.names else (),
    )
    edge_of = network.edge_of[keep] if len(network.edge_of) else network.edge_of
    return replace(network, topology=less, edge_of=edge_of), [called[i] for i in keep]


def star(n: int) -> Topology:
    """Build a star: every node on one switch, by equal links."""
    none = np.zeros((0, 2), dtype=np.int64)
    return assemble(np.zeros(n, dtype=np.int64), none, (), 1, LINK, LINK)


def by_round_trips(names: Sequence[str], answers: Sequence[Answer]) -> Topology:
    """Build the network that round trips [n, m] to m places describe; the places serve.

    Every node has a link to each place whose latency is half a round trip. Speeds are not measured:
    they are equal.
    """
    rows, places = [], None
    for name, answer in zip(names, answers, strict=True):
        to = answer.config.get(PLACES)
        row = answer.metrics.get(ROUND_TRIPS_MS)
        if not isinstance(to, list) or not isinstance(row, list) or not len(to) == len(row) > 0:
            raise FlowerError(
                f"node {name!r} measured no round trips; name the places in its --node-config, "
                'such as ping="east=10.0.0.1:8000", or give a network file'
            )
        places = places or to
        if to != places:
            raise FlowerError(
                f"node {name!r} measured the way to {', '.join(to)}, and {names[0]!r} that to "
                f"{', '.join(places)}; give every SuperNode the same ping"
            )
        if not all(isinstance(ms, int | float) and math.isfinite(ms) and ms > 0 for ms in row):
            raise FlowerError(f"node {name!r} cannot reach every place: its round trips are {row}")
        rows.append(row)
    assert places is not None
    return _to_places(np.array(rows, dtype=np.float64) / 2e3, places, names)


def _to_places(latency_s: Floats, places: Sequence[str], names: Sequence[str]) -> Topology:
    n, m = latency_s.shape
    node, place = (grid.ravel() for grid in np.indices((n, m)))
    links = np.stack([node, n + place], axis=1)
    seconds = np.concatenate([np.zeros(n), latency_s.ravel()])
    called = (*names, *(f"switch of {name}" for name in names), *places)
    return Topology(
        np.arange(n, dtype=np.int64),
        links.astype(np.int64),
        ("core",) * len(links),
        n + m,
        np.full(2 * (n + len(links)), LINK.bytes_per_s),
        seconds,
        places=tuple(range(n, n + m)),
        names=called,
    )


def _read(path: Path, names: list[str], everyone: list[str]) -> tuple[Network, list[str]]:
    if "node" not in header(path):
        return _matrix(path, names, everyone)
    columns, rows = read_rows(path, FlowerError)
    for column in columns:
        if column not in NODE_COLUMNS:
            raise FlowerError(f"{path}: unknown column {column!r}; use {', '.join(NODE_COLUMNS)}")
    found: dict[str, tuple[float, float, float]] = {}
    for where, cells in rows:
        name = cells["node"].strip()
        if name in found:
            raise FlowerError(f"{where}: node {name!r} is there twice")
        found[name] = speeds(cells, where)
    _check_names(path, names, list(found))
    table = np.array([found[name] for name in names])  # [n, 3]: up, down, latency
    usual = np.array([LINK.bytes_per_s, LINK.bytes_per_s, LINK.latency_s])
    up, down, latency = np.where(np.isnan(table), usual, table).T
    return _network(star(len(names)).with_access(up, down, latency)), names


def _matrix(path: Path, names: list[str], everyone: list[str]) -> tuple[Network, list[str]]:
    topology = read_matrix(path, None, LINK)
    n = topology.n_devices
    called = list(topology.names[:n]) or [str(i) for i in range(n)]
    _check_names(path, everyone, called)
    if len(called) > len(everyone):
        odd = next(name for name in called if name not in set(everyone))
        raise FlowerError(f"{path}: node {odd!r} is not connected; leave it out of the matrix")
    return _among(_network(topology), called, names)


def _check_names(path: Path, names: Sequence[str], found: Sequence[str]) -> None:
    missing = [name for name in names if name not in set(found)]
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise FlowerError(f"{path}: node {missing[0]!r} is missing{more}; every node needs a row")
    idle = [name for name in found if name not in set(names)]
    if idle:
        log.info("%s: %d nodes are not connected, such as %r", path, len(idle), idle[0])


def _network(topology: Topology) -> Network:
    return Network(topology, np.zeros(topology.n_devices, dtype=np.int64))
