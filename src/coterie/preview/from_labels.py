"""Planning without gradients: from each node's count of every class, and a network's file.

Nothing is loaded or trained. Nodes are known and numbered by their names, so that the order of
either file decides nothing.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.config.factories import (
    make_fleet,
    make_participation,
    make_shape,
    make_view,
    quick_network,
)
from coterie.config.files import expand, parse_override
from coterie.config.prepare import parts_of
from coterie.config.settings import AlgorithmConfig, Config
from coterie.core.arrays import Floats, Ints
from coterie.core.boundary import reader
from coterie.core.csv_rows import Cells, Rows, each_line, listed, read_rows
from coterie.core.errors import ConfigError, PartitionError, TopologyError
from coterie.core.streams import Stream, generator
from coterie.core.types import Progress
from coterie.core.units import quantity
from coterie.grouping import Evidence
from coterie.grouping.limits import check_limits
from coterie.partition.noise import noised
from coterie.preview.auto_plan import each_number, opened, quickest
from coterie.preview.plan import PlanView, Question, answer, question
from coterie.simulation.clock import LONGEST_S
from coterie.simulation.fleet import Fleet
from coterie.topology import Topology, bare_topology, with_own_links
from coterie.topology.by_name import by_name, in_order
from coterie.topology.file import ATTRIBUTES, link_ends
from coterie.topology.matrix import (
    LATENCIES,
    SPEEDS,
    check_connected,
    is_name,
    is_pairs,
    matrix_names,
)
from coterie.topology.roles import whole
from coterie.topology.sites import unknown_site
from coterie.topology.values import UNLIMITED

NODE, EDGE, SITE, REGION = "node", "edge", "site", "region"
MAY_SERVE, CAPACITY, STEP, ONLINE = "may_serve", "capacity", "step_s", "online"
NAMED = (NODE, EDGE, SITE, REGION, MAY_SERVE, CAPACITY, STEP, ONLINE)
OWN_LINKS = {SITE, MAY_SERVE, *SPEEDS, *LATENCIES}  # what a network is told of its devices
NO_CLASS = {  # columns of other files, and where they go
    "gflops": "nothing is timed but transfers; leave it out",
    "server": "a device has may_serve; say of a place that it serves in the network's file",
}
OF_LINKS = ("mbit", "mbyte", "latency", "per_s", "bandwidth")  # no class is called so
USUAL_GROUPS = AlgorithmConfig().usual[0]  # or half as many as there are nodes
MOST = 10**12  # examples of one class on one node
QUARTERS = 96  # of an hour, in a day
ENDS = ({"a", "b"}, {"source", "target"})
HEEDED = ("seed", "network.", "algorithm.", "participation.", "train.steps")
Kind = Literal["matrix", "file"]


@dataclass(frozen=True, eq=False)
class Histograms:
    """Nodes in the order of their names: examples of every class [n, classes], and their edges.

    `edges`, `sites` and `regions` are empty where the file has no such column, and `capacity` is
    None, as `step_s` and `online` are. A node without a region has "", and one without a capacity
    has UNLIMITED. `own_links` says whether the file has anything to tell a network of its devices.
    """

    names: tuple[str, ...]
    counts: Ints
    edges: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity: Ints | None = None
    own_links: bool = False
    step_s: Floats | None = None  # of a local step, by node
    online: NDArray[np.bool_] | None = None  # whether nodes are there [n, quarters of an hour]


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
    regions: Ints | None = None  # of every node, where groups must keep to them


def plans_by_labels(
    nodes: Path,
    network: Path,
    model_bytes: int,
    overrides: Sequence[str] = (),
    *,
    methods: Sequence[str] = (),
    budget_s: float | None = None,
    keep_regions: bool = False,
    epsilon: float | None = None,
    progress: Progress = lambda what, done, of: None,
) -> PlanView:
    """Group nodes as `plan.plans` does, by their label counts, a network and a model's size.

    A local step counts 0 s unless the nodes' file has a column step_s. With `keep_regions`, nodes
    of unlike regions never share a group. With an `epsilon`, the planner sees label counts to which
    every node has added noise.
    """
    progress("reading files", 0, 0)
    own = read_fleet(nodes, network, overrides)
    config, edges, n = own.config, own.edges, len(own.told.names)
    if keep_regions:
        own = replace(own, regions=_regions(own.told, nodes))
    if epsilon is not None:
        counts = noised(own.told.counts, epsilon, generator(config.seed, Stream.PLAN))
        own = replace(own, told=replace(own.told, counts=counts))
    timed, notes = own.told.step_s is not None, tuple(filter(None, [serving_note(own, network)]))
    open_ = opened(config.algorithm, n, len(edges.names), timed=timed)
    if own.regions is not None and config.algorithm.num_groups == "auto":
        open_ = open_.at_least(int(own.regions.max()) + 1)

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
        title = f"{nodes.name} on {network.name}, seed {config.seed}"
        title += "" if timed else ", local steps not timed (0 s)"
        title += "" if epsilon is None else f", label counts with noise (epsilon {epsilon:g})"
        some = make_participation(config)
        view = answer(q, title, fleet, evidence, budget_s, progress, participation=some)
        said = left_out + view.left_out
        more: dict[str, Any] = {"left_out": said, "online": own.told.online, "notes": notes}
        more["by_choice"] = not config.algorithm.open
        return replace(view, answer=None, **more)  # there is no run

    views = each_number(open_, plan, n, tuple(methods))
    return quickest(views, open_) if config.algorithm.open else views[0]


def serving_note(own: OwnFleet, network: Path) -> str:
    """Say that members serve, and how places would, where no place does; else nothing."""
    if own.topology.places:
        return ""
    links = own.config.network.topology == "file"
    rows = "" if links else ", in rows of from and to,"
    way = f"; say server = yes{rows} of switches in {network.name} to let them serve"
    return (
        f"no place serves, so a member of each group does{way if links or own.told.sites else ''}"
    )


def _regions(told: Histograms, nodes: Path) -> Ints:
    """Number the nodes' regions; every node needs one."""
    if not told.regions:
        raise PartitionError(f"{nodes}: --keep-regions needs a column {REGION}")
    if "" in told.regions:
        name = told.names[told.regions.index("")]
        raise PartitionError(f"{nodes}: node {name!r} has no region; --keep-regions needs one")
    return np.unique(told.regions, return_inverse=True)[1].astype(np.int64)


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
    elif network.suffix.lower() == ".csv":
        _check_links_ahead(told, nodes, network)
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


@reader(PartitionError)
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
        np.array([quantity_of(c, STEP, w) for w, c in rows])[order] if STEP in columns else None,
        np.array([hours(c[ONLINE], w) for w, c in rows])[order] if ONLINE in columns else None,
    )


def quantity_of(cells: Cells, column: str, where: str) -> float:
    """Read the seconds of a local step."""
    try:
        seconds = quantity(cells[column].strip(), "time")
    except ValueError as error:
        raise PartitionError(f"{where}: {column}: {error}") from None
    if not 0 < seconds < LONGEST_S:
        raise PartitionError(f"{where}: {column} must be a time above 0, got {cells[column]!r}")
    return seconds


def hours(text: str, where: str = "online") -> list[bool]:
    """Read when a node is online, as quarters of an hour of a day [96]; nothing is always.

    >>> sum(hours("22-6")), sum(hours("8:30-12:00, 13-17")), all(hours(""))
    (32, 30, True)
    """
    day = [not text.strip()] * QUARTERS
    for part in filter(None, (part.strip() for part in text.split(","))):
        ends = re.fullmatch(r"(\d{1,2})(?::(\d{2}))? *- *(\d{1,2})(?::(\d{2}))?", part)
        found = [] if ends is None else [int(end or 0) for end in ends.groups()]
        if not found or max(found[::2]) > 24 or any(minute % 15 for minute in found[1::2]):
            raise PartitionError(
                f"{where}: online must be hours such as 22-6 or 8:30-12, in quarters, got {part!r}"
            )
        start, stop = 4 * found[0] + found[1] // 15, 4 * found[2] + found[3] // 15
        for at in range(start, stop if stop > start else stop + QUARTERS):
            day[at % QUARTERS] = True
    return day


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

    Of a list of pairs the first row with a name that no node has is enough. Sites may be there
    that have no node; the rows are looked at until all others have been seen.
    """
    known = set(told.names) if is_pairs(network) and not told.sites else None
    found: dict[str, None] = {}
    unseen = set(told.sites)
    for name in matrix_names(network):
        if known is not None and name not in known:
            raise PartitionError(f"{nodes}: has no node {name!r}, which is in {network}")
        found[name] = None
        unseen.discard(name)
        if told.sites and not unseen:
            return
    if found and told.sites:
        _check_sites(nodes, found)
    elif found:
        _check_names(told.names, found, (), nodes, network)


def _check_links_ahead(told: Histograms, nodes: Path, network: Path) -> None:
    """Refuse nodes, or sites, that no link has, and devices that are no nodes, before any speed.

    Any other name may be a switch's, so that all rows are looked at for their names first.
    """
    links = link_ends(network)
    if links is None:
        return
    if told.sites:
        _check_sites(nodes, dict.fromkeys(links.names))
        return
    known, there = set(told.names), set(links.names)
    others = [name for name in links.devices if name not in known]
    if others and known <= there:  # or an end of a piece that is joined to nothing
        check_connected(links.ends, links.names, network)
    _check_names(told.names, [*(known & there), *others], (), nodes, network)


def _check_sites(nodes: Path, found: Collection[str]) -> None:
    """Refuse the first node on a site that a network does not have."""
    for where, cells in read_rows(nodes, PartitionError)[1]:
        if (site := cells[SITE].strip()) not in found:
            raise unknown_site(where, site, found)


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
        if why := _unread(key, files, told, heeded):
            raise ConfigError(f"--set {key} is not read with --nodes: {why}")
    return config


def _unread(key: str, files: Collection[str], told: Histograms, heeded: Sequence[str]) -> str:
    """Say why a setting is not read, and the way out; nothing if it is."""
    if key in files:
        return "the files say that; leave it out"
    if not key.startswith(tuple(heeded)):
        return "nothing is trained; leave it out"
    if key == "participation.deadline_s":
        return "who is late depends on tau1, and FedAvg has its own; leave it out"
    if key == "participation.jitter" and told.step_s is None:
        return "local steps are not timed; add column step_s, or leave it out"
    return ""


def _shown(q: Question, own: OwnFleet, model_bytes: int) -> tuple[Fleet, Evidence]:
    """Return the fleet of two files, and what a planner sees of it: label counts and delays."""
    config, told, edges = q.seen, own.told, own.edges
    parts, (K, _, tau2) = parts_of(config), config.algorithm.usual
    algorithm, places = parts.algorithm, (edges.of, told.names, edges.names)
    fleet = make_fleet(config, algorithm, told.counts, *places, topology=own.topology)
    fleet = replace(fleet, plans_with=quick_network(config, fleet.network))
    if told.step_s is not None:
        fleet = replace(fleet, step_s=float(told.step_s.max()), node_step_s=told.step_s)
    view = make_view(config, parts.needs, fleet, model_bytes // 4)
    if told.capacity is not None:
        view = replace(view, limits=replace(view.limits, capacity=told.capacity))
    if own.regions is not None:
        view = replace(view, limits=replace(view.limits, regions=own.regions))
    check_limits(view.limits, own.topology, K)
    global_s = fleet.averaging(fleet.together(model_bytes), model_bytes).transfer.seconds
    if not global_s < LONGEST_S:
        raise ConfigError("a transfer takes forever; use faster links or a smaller --model-bytes")
    bare = fleet.evidence(K, tau2, model_bytes, global_s)
    return fleet, view.of(bare, fleet.class_counts, None, config.seed, 0)
