"""Where the devices are: networks by rule or from a file, and hops between devices."""

from collections.abc import Callable
from dataclasses import dataclass
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
    "edge_cloud",
    "fat_tree",
    "jellyfish",
    "kary_fat_tree",
    "make_topology",
    "waxman",
]

TOPOLOGIES: dict[str, str] = {
    "fat-tree": "pods are the network edges: hops 2 on a switch, 4 in a pod, 6 across",
    "k-ary-fat-tree": "k pods with room for k*k/4 nodes each, filled in order (network.k)",
    "jellyfish": "one switch per network edge, joined at random (network.degree links each)",
    "edge-cloud": "nodes - base station of their edge - cloud; base stations and cloud serve",
    "waxman": "one switch per network edge, joined by chance and distance (network.alpha, beta)",
    "file": "your own: GraphML, node-link JSON or a CSV of links (network.file)",
    "matrix": "measured MByte/s between nodes, a CSV (network.file, and network.latency_file)",
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


def make_topology(
    shape: Shape, edge_of: Ints, names: tuple[str, ...], rng: np.random.Generator
) -> Topology:
    """Build a network for nodes placed under edges."""
    topology = _build(shape, edge_of, rng)
    n = len(edge_of)
    if topology.n_devices != n:
        raise TopologyError(
            f"{shape.file} has {topology.n_devices} devices and the partition {n} nodes; "
            f"set partition.num_nodes = {topology.n_devices}"
        )
    if shape.access_file:
        from coterie.topology.matrix import read_access

        up, down, latency = read_access(Path(shape.access_file), topology.names[:n] or names, n)
        now = topology.bytes_per_s[: 2 * n].reshape(n, 2)
        topology = topology.with_access(
            np.where(np.isnan(up), now[:, 0], up),
            np.where(np.isnan(down), now[:, 1], down),
            np.where(np.isnan(latency), topology.latency_s[:n], latency),
        )
    return topology


def _build(shape: Shape, edge_of: Ints, rng: np.random.Generator) -> Topology:
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
        "file": lambda: read_topology(Path(shape.file), *both),
        "matrix": lambda: read_matrix(Path(shape.file), latency, shape.inner),
    }
    if shape.name not in builders:
        raise TopologyError(unknown("topology", shape.name, TOPOLOGIES))
    return builders[shape.name]()
