"""Where the devices are: networks by rule or from a file, and hops between devices."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import TopologyError, unknown
from coterie.topology.graphs import LINK, edge_cloud, fat_tree, jellyfish, kary_fat_tree, waxman
from coterie.topology.values import Speed, Topology, assemble

__all__ = [
    "TOPOLOGIES",
    "Floats",
    "Ints",
    "Shape",
    "Speed",
    "Topology",
    "assemble",
    "bare_topology",
    "edge_cloud",
    "fat_tree",
    "jellyfish",
    "kary_fat_tree",
    "make_topology",
    "waxman",
    "with_own_links",
]

OF_FILES = ("file", "matrix")
TOPOLOGIES: dict[str, str] = {
    "fat-tree": "pods are the network edges: hops 2 on a switch, 4 in a pod, 6 across",
    "k-ary-fat-tree": "k pods with room for k*k/4 nodes each, filled in order (network.k)",
    "jellyfish": "one switch per network edge, joined at random (network.degree links each)",
    "edge-cloud": "nodes - base station of their edge - cloud; base stations and cloud serve",
    "waxman": "one switch per network edge, joined by chance and distance (network.alpha, beta)",
    "file": "your own: GraphML, node-link JSON or a CSV of links (network.file)",
    "matrix": "measured MByte/s between nodes or sites, a CSV (network.file, latency_file)",
}


@dataclass(frozen=True)
class Shape:
    """Which network to build, and how fast its links are."""

    name: str = "fat-tree"
    access: Speed = LINK
    inner: Speed = LINK
    degree: int = 4
    k: int | None = None
    alpha: float = 0.4
    beta: float = 0.2
    file: str = ""
    latency_file: str = ""
    access_file: str = ""
    others: bool = False  # whether the access file may have other columns, such as label counts


def make_topology(
    shape: Shape, edge_of: Ints, names: tuple[str, ...], rng: np.random.Generator
) -> Topology:
    """Build a network for nodes placed under edges."""
    topology = bare_topology(shape, edge_of, rng)
    n = len(edge_of)
    if topology.n_devices != n:
        file = shape.access_file if _on_sites(shape) else shape.file
        raise TopologyError(
            f"{file} has {topology.n_devices} devices and the partition {n} nodes; "
            f"set partition.num_nodes = {topology.n_devices}"
        )
    return with_own_links(topology, shape, names)


def bare_topology(shape: Shape, edge_of: Ints, rng: np.random.Generator) -> Topology:
    """Build a network without what the access file says of its devices' own links.

    A file of links, or of pairs, says how many devices there are; if the access file puts devices
    on sites, it is that, and the network is of sites.
    """
    if not _on_sites(shape):
        return _build(shape, edge_of, rng)
    from coterie.topology.sites import attach

    if shape.name not in OF_FILES:
        raise TopologyError(
            f"{shape.access_file}: has a column site, which is read with network.topology = "
            f"{' or '.join(map(repr, OF_FILES))} only, got {shape.name!r}"
        )
    return attach(_build(shape, edge_of, rng, sites=True), Path(shape.access_file), shape.access)


def with_own_links(topology: Topology, shape: Shape, names: tuple[str, ...]) -> Topology:
    """Give devices what the access file says of each: its own link, and whether it may serve."""
    if not shape.access_file:
        return topology
    from coterie.core.csv_rows import header
    from coterie.topology.matrix import LATENCIES, SPEEDS, check_columns, read_access
    from coterie.topology.sites import MAY_SERVE, may_serve

    path, n = Path(shape.access_file), topology.n_devices
    columns, called = header(path), topology.names[:n] or names
    if not shape.others:
        check_columns(sorted(columns), path)
    if not _on_sites(shape) and (columns & {*SPEEDS, *LATENCIES} or MAY_SERVE not in columns):
        up, down, latency = read_access(path, called, n, others=shape.others)
        now = topology.bytes_per_s[: 2 * n].reshape(n, 2)
        topology = topology.with_access(
            np.where(np.isnan(up), now[:, 0], up),
            np.where(np.isnan(down), now[:, 1], down),
            np.where(np.isnan(latency), topology.latency_s[:n], latency),
        )
    if MAY_SERVE in columns:
        topology = replace(topology, may_serve=may_serve(topology, path, called))
    return topology


def _on_sites(shape: Shape) -> bool:
    from coterie.topology.sites import has_sites

    return bool(shape.access_file) and has_sites(Path(shape.access_file))


def _build(
    shape: Shape, edge_of: Ints, rng: np.random.Generator, *, sites: bool = False
) -> Topology:
    from coterie.topology.file import read_topology
    from coterie.topology.matrix import read_matrix

    both = shape.access, shape.inner
    latency = Path(shape.latency_file) if shape.latency_file else None
    builders: dict[str, Callable[[], Topology]] = {
        "fat-tree": lambda: fat_tree(edge_of, *both),
        "k-ary-fat-tree": lambda: kary_fat_tree(len(edge_of), shape.k, *both),
        "jellyfish": lambda: jellyfish(edge_of, shape.degree, rng, *both),
        "edge-cloud": lambda: edge_cloud(edge_of, *both),
        "waxman": lambda: waxman(edge_of, shape.alpha, shape.beta, rng, *both),
        "file": lambda: read_topology(Path(shape.file), *both, sites=sites),
        "matrix": lambda: read_matrix(Path(shape.file), latency, shape.inner, sites=sites),
    }
    if shape.name not in builders:
        raise TopologyError(unknown("topology", shape.name, TOPOLOGIES))
    return builders[shape.name]()
