"""Planning without gradients: from each node's count of every class, and a network's file.

Nothing is loaded or trained. Nodes are known and numbered by their names, so that the order of
either file decides nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from coterie.config.factories import make_fleet, make_view, quick_network
from coterie.config.files import expand, parse_override
from coterie.config.prepare import parts_of
from coterie.config.settings import AlgorithmConfig, Config
from coterie.core.arrays import Ints
from coterie.core.csv_rows import Cells, Rows, header, listed, read_rows
from coterie.core.errors import ConfigError, PartitionError, TopologyError
from coterie.core.types import Progress
from coterie.grouping import Evidence
from coterie.grouping.limits import check_limits
from coterie.preview.auto_plan import each_number, opened, quickest
from coterie.preview.plan import PlanView, Question, answer, question
from coterie.simulation.clock import LONGEST_S
from coterie.simulation.fleet import Fleet
from coterie.topology import Speed, Topology
from coterie.topology.by_name import by_name, in_order
from coterie.topology.file import ATTRIBUTES, read_topology
from coterie.topology.matrix import NODE_COLUMNS, is_name, read_matrix

NODE, EDGE = "node", "edge"
NO_CLASS = set(NODE_COLUMNS) - {NODE}  # other files of nodes have such columns
USUAL_GROUPS = AlgorithmConfig().usual[0]  # or half as many as there are nodes
MOST = 10**12  # examples of one class on one node
ENDS = ({"a", "b"}, {"source", "target"})
HEEDED = ("seed", "network.", "algorithm.", "train.steps")
Kind = Literal["matrix", "file"]


@dataclass(frozen=True, eq=False)
class Histograms:
    """Nodes in the order of their names: examples of every class [n, classes], and their edges.

    `edges` is empty where the file has no such column.
    """

    names: tuple[str, ...]
    counts: Ints
    edges: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Edges:
    """The edge of every node [n], the edges' names, and whether the files say anything of them."""

    of: Ints
    names: tuple[str, ...]
    known: bool


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
    told = read_histograms(nodes)
    kind = kind_of(network, told.names)
    topology = _read_network(kind, network)
    _check_names(told.names, topology, nodes, network)
    edges = _edges(told, by_name(topology))
    n = len(told.names)
    own = {
        "partition": {
            "kind": "file",
            "file": str(nodes),
            "num_nodes": n,
            "num_edges": len(edges.names),
        },
        "network": {"topology": kind, "file": str(network)},
        "algorithm": {"evidence": "labels", "num_groups": min(USUAL_GROUPS, -(-n // 2))},
    }
    config = _config(own, overrides)
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
        fleet, evidence = _shown(q, told, edges, model_bytes)
        q.check(evidence.limits)
        title = f"{nodes.name} on {network.name}, seed {config.seed}, local steps not timed (0 s)"
        view = answer(q, title, fleet, evidence, budget_s, progress)
        return replace(view, answer=None, left_out=left_out + view.left_out)  # there is no run

    views = each_number(open_, plan, n, tuple(methods))
    return quickest(views, open_) if config.algorithm.open else views[0]


def read_histograms(path: Path) -> Histograms:
    """Read a CSV of nodes: `node`, perhaps `edge`, and a column of counts for every class."""
    columns, rows = read_rows(path, PartitionError)
    classes = in_order(set(columns) - {NODE, EDGE})
    _check_columns(columns, classes, path)
    if not rows:
        raise PartitionError(f"{path}: has no nodes; give each a row")
    names = _named(rows, NODE)
    seen: set[str] = set()
    for name, (where, _) in zip(names, rows, strict=True):
        if name in seen:
            raise PartitionError(f"{where}: node {name!r} is there twice")
        seen.add(name)
    counts = np.array(
        [[_count(cells, name, where) for name in classes] for where, cells in rows], dtype=np.int64
    )
    if (empty := np.flatnonzero(counts.sum(axis=1) == 0)).size:
        where, name = rows[empty[0]][0], names[empty[0]]
        raise PartitionError(f"{where}: node {name!r} has no example; every node needs one")
    edges = dict(zip(names, _named(rows, EDGE), strict=True)) if EDGE in columns else {}
    row_of = {name: i for i, name in enumerate(names)}
    ordered = in_order(names)
    return Histograms(
        tuple(ordered),
        counts[[row_of[name] for name in ordered]],
        tuple(edges[name] for name in ordered if edges),
    )


def kind_of(path: Path, names: Collection[str]) -> Kind:
    """Tell a matrix of speeds from a graph, which is all that is no CSV, by what is in it.

    A CSV of links has the columns a and b, or source and target, with names under them. A matrix
    of nodes that are called so has speeds there.
    """
    if path.suffix.lower() != ".csv":
        return "file"
    for ends in ENDS:
        if ends <= header(path):
            columns, rows = read_rows(path, TopologyError)
            if any(is_name(cells[end]) for _, cells in rows for end in ends):
                return "file"
            named_so = ends <= set(names) or set(columns) - {*ends, *ATTRIBUTES}
            return "matrix" if named_so else "file"
    return "matrix"


def _check_columns(columns: Sequence[str], classes: Sequence[str], path: Path) -> None:
    for name in classes:
        if not name:
            raise PartitionError(f"{path}: a column has no name; a class has one")
        for known in (NODE, EDGE):
            if name.lower() in (known, f"{known}s"):
                raise PartitionError(f"{path}: unknown column {name!r}; did you mean {known!r}?")
        if name in NO_CLASS:
            raise PartitionError(
                f"{path}: column {name!r} is no class; give it in a file of its own, such as "
                "--set network.access_file=... or algorithm.capacity_file=..."
            )
    if NODE not in columns or not classes:
        lacks = "a column for every class" if NODE in columns else f"a column {NODE}"
        raise PartitionError(f"{path}: needs {lacks}, separated by commas, got {listed(columns)}")


def _named(rows: Rows, column: str) -> tuple[str, ...]:
    for where, cells in rows:
        name = cells[column].strip()
        if not (name and name.isprintable()):
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


def _read_network(kind: Kind, path: Path) -> Topology:
    """Read a network for its names; its speeds are read again as the settings say."""
    if kind == "file":
        return read_topology(path, Speed(), Speed())
    topology = read_matrix(path, None, Speed())
    if not topology.names:
        raise TopologyError(f"{path}: does not name its nodes; give the matrix a header of names")
    return topology


def _check_names(names: Sequence[str], topology: Topology, nodes: Path, network: Path) -> None:
    """Refuse nodes of one file that the other does not have."""
    devices = dict.fromkeys(topology.names[: topology.n_devices])
    for name in names:
        if name not in devices:
            odd = name in topology.names
            why = f"is no device in {network}, but a switch" if odd else f"is not in {network}"
            raise PartitionError(f"{nodes}: node {name!r} {why}")
    known = set(names)
    for name in devices:
        if name not in known:
            raise PartitionError(f"{nodes}: has no node {name!r}, which is in {network}")


def _edges(told: Histograms, topology: Topology) -> Edges:
    """Find the nodes' edges: as told, or else their switches.

    Where every node has a switch of its own, as in a matrix, all are under one edge.
    """
    of = told.edges or tuple(topology.name(topology.n_devices + s) for s in topology.switch_of)
    known = bool(told.edges) or len(set(of)) < len(of)
    of = of if known else ("the network",) * len(of)
    names = tuple(in_order(set(of)))
    number = {name: i for i, name in enumerate(names)}
    return Edges(np.array([number[name] for name in of], dtype=np.int64), names, known)


def _config(own: dict[str, Any], overrides: Sequence[str]) -> Config:
    """Make the config of what the files say and the settings add; refuse what would not be read."""
    (config,) = expand(own, overrides)
    files = {"network.topology", "network.file", "algorithm.evidence"}
    for key, _ in map(parse_override, overrides):
        if key in files or not key.startswith(HEEDED):
            why = "the files say that" if key in files else "nothing is trained"
            raise ConfigError(f"--set {key} is not read with --nodes: {why}; leave it out")
    return config


def _shown(q: Question, told: Histograms, edges: Edges, model_bytes: int) -> tuple[Fleet, Evidence]:
    """Return the fleet of two files, and what a planner sees of it: label counts and delays."""
    config = q.seen
    parts, (K, _, tau2) = parts_of(config), config.algorithm.usual
    algorithm, places = parts.algorithm, (edges.of, told.names, edges.names)
    fleet = make_fleet(config, algorithm, told.counts, *places)
    network = replace(fleet.network, topology=by_name(fleet.network.topology))
    fleet = replace(fleet, network=network, plans_with=quick_network(config, network))
    view = make_view(config, parts.needs, fleet, model_bytes // 4)
    check_limits(view.limits, network.topology, K)
    global_s = fleet.averaging(fleet.together(model_bytes), model_bytes).transfer.seconds
    if not global_s < LONGEST_S:
        raise ConfigError("a transfer takes forever; use faster links or a smaller --model-bytes")
    bare = fleet.evidence(K, tau2, model_bytes, global_s)
    return fleet, view.of(bare, fleet.class_counts, None, config.seed, 0)
