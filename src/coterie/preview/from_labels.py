"""Planning without gradients: from each node's count of every class, and a network's file.

Nothing is loaded or trained. Nodes are known and numbered by their names, so that the order of
either file decides nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from coterie.config.factories import make_fleet, make_shape, make_view, quick_network
from coterie.config.files import expand, parse_override
from coterie.config.prepare import parts_of
from coterie.config.settings import AlgorithmConfig, Config
from coterie.core.arrays import Ints
from coterie.core.csv_rows import Cells, Rows, each_line, listed, read_rows
from coterie.core.errors import ConfigError, PartitionError, TopologyError
from coterie.core.types import Progress
from coterie.grouping import Evidence
from coterie.grouping.limits import check_limits
from coterie.preview.auto_plan import each_number, opened, quickest
from coterie.preview.plan import PlanView, Question, answer, question
from coterie.simulation.clock import LONGEST_S
from coterie.simulation.fleet import Fleet
from coterie.topology import Topology, bare_topology, with_own_links
from coterie.topology.by_name import by_name, in_order
from coterie.topology.file import ATTRIBUTES
from coterie.topology.matrix import LATENCIES, SPEEDS, is_name, is_pairs, matrix_names
from coterie.topology.roles import whole
from coterie.topology.sites import unknown_site
from coterie.topology.values import UNLIMITED

NODE, EDGE, SITE, REGION = "node", "edge", "site", "region"
MAY_SERVE, CAPACITY = "may_serve", "capacity"
NAMED = (NODE, EDGE, SITE, REGION, MAY_SERVE, CAPACITY)
OWN_LINKS = {SITE, MAY_SERVE, *SPEEDS, *LATENCIES}  # what a network is told of its devices
NO_CLASS = {  # columns of other files, and where they go
    "gflops": "nothing is timed but transfers; leave it out",
    "server": "a device has may_serve; say of a place that it serves in the network's file",
}
OF_LINKS = ("mbit", "mbyte", "latency", "per_s", "bandwidth")  # no class is called so
USUAL_GROUPS = AlgorithmConfig().usual[0]  # or half as many as there are nodes
MOST = 10**12  # examples of one class on one node
ENDS = ({"a", "b"}, {"source", "target"})
HEEDED = ("seed", "network.", "algorithm.", "train.steps")
Kind = Literal["matrix", "file"]


@dataclass(frozen=True, eq=False)
class Histograms:
    """Nodes in the order of their names: examples of every class [n, classes], and their edges.

    `edges`, `sites` and `regions` are empty where the file has no such column, and `capacity` is
    None. A node without a region has "", and one without a capacity has UNLIMITED. `own_links`
    says whether the file has anything to tell a network of its devices.
    """

    names: tuple[str, ...]
    counts: Ints
    edges: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity: Ints | None = None
    own_links: bool = False


@dataclass(frozen=True, eq=False)
class Edges:
    """The edge of every node [n], the edges' names, and whether the files say anything of them."""

    of: Ints
    names: tuple[str, ...]
    known: bool


@dataclass(frozen=True, eq=False)
class OwnFleet:
    """What two files of one's own say: a config, the nodes, their edges and their network."""

    config: Config
    told: Histograms
    edges: Edges
    topology: Topology


def plans_by_labels(
    nodes: Path,
    network: Path,
    model_bytes: int,
    overrides: Sequence[str] = (),
    *,
    methods: Sequence[str] = (),
    budget_s: float | None = None,
    progress: Progress = lambda what, done, of: None,
) -> PlanView:
    """Group nodes as `plan.plans` does, by their label counts, a network and a model's size.

    Times are those of transfers: it is not known how long a local step takes, so it counts 0 s.
    """
    progress("reading files", 0, 0)
    own = read_fleet(nodes, network, overrides)
    config, edges, n = own.config, own.edges, len(own.told.names)
    open_ = opened(config.algorithm, n, len(edges.names), timed=False)

    def plan(num_groups: int, methods: Sequence[str]) -> PlanView:
        _, tau1, tau2 = config.algorithm.usual
        told_all = replace(config.algorithm, num_groups=num_groups, tau1=tau1, tau2=tau2)
        q = question([replace(config, algorithm=told_all)], methods)
        left_out: tuple[str, ...] = ()
        if not edges.known:
            asked = tuple(ask for ask in q.asked if ask.method != "edge")
            why = f"edge: {nodes} has no column edge, and every node is on a switch of its own"
            q, left_out = replace(q, asked=asked), (why,) * (len(q.asked) - len(asked))
        fleet, evidence = _shown(q, own, model_bytes)
        q.check(evidence.limits)
        title = f"{nodes.name} on {network.name}, seed {config.seed}, local steps not timed (0 s)"
        view = answer(q, title, fleet, evidence, budget_s, progress)
        return replace(view, answer=None, left_out=left_out + view.left_out)  # there is no run

    views = each_number(open_, plan, n, tuple(methods))
    return quickest(views, open_) if config.algorithm.open else views[0]


def read_fleet(
    nodes: Path,
    network: Path,
    overrides: Sequence[str] = (),
    *,
    heeded: Sequence[str] = HEEDED,
    counted: bool = True,
) -> OwnFleet:
    """Read nodes and their network; names are held against each other before speeds are read.

    Only settings that are `heeded` may be changed. With `counted`, every node needs examples.
    """
    told = read_histograms(nodes, counted=counted)
    kind = kind_of(network, told.sites or told.names)
    if kind == "matrix":
        _check_ahead(told, nodes, network)
    n = len(told.names)
    own = {
        "partition": {"kind": "file", "file": str(nodes), "num_nodes": n, "num_edges": 1},
        "network": {"topology": kind, "file": str(network)},
        "algorithm": {"evidence": "labels", "num_groups": min(USUAL_GROUPS, -(-n // 2))},
    }
    config = _config(own, overrides, told, nodes, heeded)
    topology = _read_network(config, told, nodes, network)
    edges = _edges(told, topology)
    part = replace(config.partition, num_edges=len(edges.names))
    return OwnFleet(replace(config, partition=part), told, edges, topology)


def read_histograms(path: Path, *, counted: bool = True) -> Histograms:
    """Read a CSV of nodes: `node`, perhaps the others that are NAMED, and counts of every class.

    A node's own link may be told, too. Unless nodes are `counted`, classes may be left out.
    """
    columns, rows = read_rows(path, PartitionError)
    classes = in_order(set(columns) - {*NAMED, *OWN_LINKS})
    _check_columns(columns, classes, path, counted=counted)
    if not rows:
        raise PartitionError(f"{path}: has no nodes; give each a row")
    names = _named(rows, NODE)
    seen: set[str] = set()
    for name, (where, _) in zip(names, rows, strict=True):
        if name in seen:
            raise PartitionError(f"{where}: node {name!r} is there twice")
        seen.add(name)
    counts = np.array(
        [[_count(cells, name, where) for name in classes] or [1] for where, cells in rows],
        dtype=np.int64,
    )
    if counted and (empty := np.flatnonzero(counts.sum(axis=1) == 0)).size:
        where, name = rows[empty[0]][0], names[empty[0]]
        raise PartitionError(f"{where}: node {name!r} has no example; every node needs one")
    row_of = {name: i for i, name in enumerate(names)}
    order = [row_of[name] for name in in_order(names)]

    def told(column: str, *, empty: bool = False) -> tuple[str, ...]:
        found = _named(rows, column, empty=empty) if column in columns else ()
        return tuple(found[i] for i in order) if found else ()

    return Histograms(
        tuple(names[i] for i in order),
        counts[order],
        told(EDGE),
        told(SITE),
        told(REGION, empty=True),
        _capacities(rows)[order] if CAPACITY in columns else None,
        bool(OWN_LINKS & set(columns)),
    )


def _capacities(rows: Rows) -> Ints:
    """Read the most members of every node as a server [n]."""
    return np.array(
        [whole(cells, CAPACITY, where) or UNLIMITED for where, cells in rows], dtype=np.int64
    )


def kind_of(path: Path, names: Collection[str]) -> Kind:
    """Tell a matrix of speeds from a graph, which is all that is no CSV, by what is in it.

    A CSV of links has the columns a and b, or source and target, with names under them. A matrix
    of nodes that are called so has speeds there.
    """
    if path.suffix.lower() != ".csv":
        return "file"
    if is_pairs(path):
        return "matrix"
    lines = each_line(path, TopologyError)
    columns = [cell.strip() for cell in next(lines, (0, []))[1]]
    for ends in ENDS:
        if ends <= set(columns):
            at = [columns.index(end) for end in ends]
            if any(is_name(line[k]) for _, line in lines for k in at if k < len(line)):
                return "file"
            named_so = ends <= set(names) or set(columns) - {*ends, *ATTRIBUTES}
            return "matrix" if named_so else "file"
    return "matrix"


def _check_columns(
    columns: Sequence[str], classes: Sequence[str], path: Path, *, counted: bool
) -> None:
    for name in classes:
        if not name:
            raise PartitionError(f"{path}: a column has no name; a class has one")
        for known in NAMED:
            if name.lower().replace(" ", "_") in (known, f"{known}s"):
                raise PartitionError(f"{path}: unknown column {name!r}; did you mean {known!r}?")
        if name.lower() in NO_CLASS:
            raise PartitionError(f"{path}: column {name!r} is no class: {NO_CLASS[name.lower()]}")
        if any(word in name.lower() for word in OF_LINKS):
            raise PartitionError(
                f"{path}: column {name!r} is no class; of a node's own link there are "
                f"{', '.join((*SPEEDS, *LATENCIES))}"
            )
    if NODE not in columns or not (classes or not counted):
        lacks = "a column for every class" if NODE in columns else f"a column {NODE}"
        raise PartitionError(f"{path}: needs {lacks}, separated by commas, got {listed(columns)}")


def _named(rows: Rows, column: str, *, empty: bool = False) -> tuple[str, ...]:
    for where, cells in rows:
        name = cells[column].strip()
        if not ((name or empty) and name.isprintable()):
            raise PartitionError(f"{where}: {column} must be a name, got {name[:40]!r}")
    return tuple(cells[column].strip() for _, cells in rows)


def _count(cells: Cells, column: str, where: str) -> int:
    text = cells[column].strip()
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= MOST):
        raise PartitionError(
            f"{where}: {column!r} must be a whole number of examples from 0 to {MOST:,}, got "
            f"{text[:40]!r}"
        )
    return int(text)


def _read_network(config: Config, told: Histograms, nodes: Path, network: Path) -> Topology:
    """Read a network as the settings say, numbered by its names, which are those of the nodes."""
    n, rng = len(told.names), np.random.default_rng(0)  # no file is drawn by chance
    shape = replace(make_shape(config), others=told.own_links)
    topology = bare_topology(shape, np.zeros(n, dtype=np.int64), rng)
    if not topology.names:
        raise TopologyError(
            f"{network}: does not name its nodes; give the matrix a header of names"
        )
    devices = topology.names[: topology.n_devices]
    _check_names(told.names, devices, topology.names, nodes, network)
    return by_name(with_own_links(topology, shape, told.names))


def _check_ahead(told: Histograms, nodes: Path, network: Path) -> None:
    """Refuse nodes, or sites, that a matrix does not have, by its names, which come before speeds.

    Of a list of pairs the first row with a name that no node has is enough.
    """
    known = set(told.names) if is_pairs(network) and not told.sites else None
    found: dict[str, None] = {}
    for name in matrix_names(network):
        if known is not None and name not in known:
            raise PartitionError(f"{nodes}: has no node {name!r}, which is in {network}")
        found[name] = None
    if found and told.sites:
        for where, cells in read_rows(nodes, PartitionError)[1]:
            if (site := cells[SITE].strip()) not in found:
                raise unknown_site(where, site, found)
    elif found:
        _check_names(told.names, found, (), nodes, network)


def _check_names(
    names: Sequence[str], devices: Iterable[str], vertices: Collection[str], *files: Path
) -> None:
    """Refuse nodes of one file that the other does not have; some vertices are no devices."""
    nodes, network = files
    there = dict.fromkeys(devices)
    for name in names:
        if name not in there:
            odd = name in vertices
            why = f"is no device in {network}, but a switch" if odd else f"is not in {network}"
            raise PartitionError(f"{nodes}: node {name!r} {why}")
    known = set(names)
    for name in there:
        if name not in known:
            raise PartitionError(f"{nodes}: has no node {name!r}, which is in {network}")


def _edges(told: Histograms, topology: Topology) -> Edges:
    """Find the nodes' edges: as told, or else their sites or switches.

    Where every node has a switch of its own, as in a matrix, all are under one edge.
    """
    of = told.edges or tuple(topology.name(topology.n_devices + s) for s in topology.switch_of)
    known = bool(told.edges or told.sites) or len(set(of)) < len(of)
    of = of if known else ("the network",) * len(of)
    names = tuple(in_order(set(of)))
    number = {name: i for i, name in enumerate(names)}
    return Edges(np.array([number[name] for name in of], dtype=np.int64), names, known)


def _config(
    own: dict[str, Any],
    overrides: Sequence[str],
    told: Histograms,
    nodes: Path,
    heeded: Sequence[str],
) -> Config:
    """Make the config of what the files say and the settings add; refuse what would not be read."""
    if told.own_links:
        own["network"] |= {"access_file": str(nodes)}
    (config,) = expand(own, overrides)
    files = {"network.topology", "network.file", "algorithm.evidence"}
    files |= {"network.access_file"} if told.own_links else set()
    files |= {"algorithm.capacity_file"} if told.capacity is not None else set()
    for key, _ in map(parse_override, overrides):
        if key in files or not key.startswith(tuple(heeded)):
            why = "the files say that" if key in files else "nothing is trained"
            raise ConfigError(f"--set {key} is not read with --nodes: {why}; leave it out")
    return config


def _shown(q: Question, own: OwnFleet, model_bytes: int) -> tuple[Fleet, Evidence]:
    """Return the fleet of two files, and what a planner sees of it: label counts and delays."""
    config, told, edges = q.seen, own.told, own.edges
    parts, (K, _, tau2) = parts_of(config), config.algorithm.usual
    algorithm, places = parts.algorithm, (edges.of, told.names, edges.names)
    fleet = make_fleet(config, algorithm, told.counts, *places, topology=own.topology)
    fleet = replace(fleet, plans_with=quick_network(config, fleet.network))
    view = make_view(config, parts.needs, fleet, model_bytes // 4)
    if told.capacity is not None:
        view = replace(view, limits=replace(view.limits, capacity=told.capacity))
    check_limits(view.limits, own.topology, K)
    global_s = fleet.averaging(fleet.together(model_bytes), model_bytes).transfer.seconds
    if not global_s < LONGEST_S:
        raise ConfigError("a transfer takes forever; use faster links or a smaller --model-bytes")
    bare = fleet.evidence(K, tau2, model_bytes, global_s)
    return fleet, view.of(bare, fleet.class_counts, None, config.seed, 0)
