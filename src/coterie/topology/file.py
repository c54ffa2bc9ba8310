"""A user's own network: GraphML, networkx's node-link JSON, or a CSV list of links.

Speed "up" is from a to b, or from source to target. networkx is not used to read the first two:
it forgets which end of an undirected edge is its source, and merges edges that are there twice.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import numpy as np

from coterie.core.arrays import Ints
from coterie.core.boundary import reader
from coterie.core.csv_rows import Cells, each_line, listed, read_rows
from coterie.core.errors import TopologyError, unknown
from coterie.core.inputs import with_an_end
from coterie.topology.matrix import LATENCIES, SPEEDS, check_connected, check_spelling, speeds
from coterie.topology.roles import ROLES, Role, add_said, read_role, serving, truth
from coterie.topology.values import Speed, Topology

ATTRIBUTES = (*SPEEDS, *LATENCIES, "tier")
FLAGS = ("device", *ROLES)
DOWN = tuple(column for column in SPEEDS if column.startswith("down_"))


@dataclass(frozen=True)
class _Edge:
    a: str
    b: str
    cells: Cells
    where: str


@dataclass(frozen=True)
class _Link:
    """Bytes/s from a to b and back and seconds, NaN where the file does not say."""

    a: str
    b: str
    up: float
    down: float
    latency_s: float
    tier: str
    where: str

    def turned(self) -> "_Link":
        """Swap the ends."""
        return _Link(self.b, self.a, self.down, self.up, self.latency_s, self.tier, self.where)


@dataclass(frozen=True)
class _Graph:
    vertices: dict[str, Cells]  # in the order of the file
    edges: list[_Edge]
    directed: bool
    said_at: dict[str, str] = field(default_factory=dict)  # where a vertex is told of, by its name


@reader(TopologyError)
def read_topology(path: Path, access: Speed, inner: Speed, *, sites: bool = False) -> Topology:
    """Read a network from a .graphml, .json or .csv file.

    Where it gives no speed or latency, `access` holds for the devices' links, `inner` for others.

    Devices are the vertices whose `device` is true; if none says, the ends with one link of links
    in tier "access"; if there are none, all vertices with one link that are not a `server`.
    Devices and switches are numbered in the order of the file. A network of `sites` has none: all
    of its vertices are switches, on which devices are put by another file.
    """
    graph = _read(path)
    links = _links(graph)
    roles = {
        name: read_role(name, cells, graph.said_at.get(name, str(path)))
        for name, cells in graph.vertices.items()
    }
    devices = _no_devices(graph, links, path) if sites else _devices(graph, links, roles, path)
    n = len(devices)
    names = tuple(dict.fromkeys([*devices, *graph.vertices]))
    number_of = {name: i for i, name in enumerate(names)}
    links = [link.turned() if number_of[link.b] < n else link for link in links]
    links.sort(key=lambda link: min(number_of[link.a], n))  # access links first, by device
    if odd := next((link for link in links[n:] if link.tier == "access"), None):
        raise TopologyError(f"{odd.where}: is of tier access, but no end of it is a device")
    ends = np.array([(number_of[link.a], number_of[link.b]) for link in links], dtype=np.int64)
    ends = ends.reshape(-1, 2)
    check_connected(ends, names, path)
    bytes_per_s = np.array([(link.up, link.down) for link in links]).ravel()
    latency_s = np.array([link.latency_s for link in links])
    own = np.arange(len(links))[:, None] < n
    kind = np.where(
        own, (access.bytes_per_s, access.latency_s), (inner.bytes_per_s, inner.latency_s)
    )
    places, capacity, may_serve = serving(names, n, roles, path)
    return Topology(
        ends[:n, 1] - n,
        ends[n:] - n,
        tuple(link.tier or "core" for link in links[n:]),
        len(names) - n,
        np.where(np.isnan(bytes_per_s), np.repeat(kind[:, 0], 2), bytes_per_s),
        np.where(np.isnan(latency_s), kind[:, 1], latency_s),
        places,
        names,
        place_capacity=capacity,
        may_serve=may_serve,
    )


def _read(path: Path) -> _Graph:
    readers: dict[str, Callable[[Path], _Graph]] = {
        ".csv": _read_csv,
        ".graphml": _read_graphml,
        ".json": _read_json,
    }
    if path.suffix.lower() not in readers:
        raise TopologyError(f"{path}: a network is a .graphml, .json or .csv file")
    return readers[path.suffix.lower()](path)


def _read_csv(path: Path) -> _Graph:
    """Read links, one in a row: columns a, b (or source, target), perhaps ATTRIBUTES and ROLES.

    "Up" is from a to b. In a row of tier "access", a is the device. What a row says of serving is
    said of a; such a row may have no b, and then is no link.
    """
    columns, rows = read_rows(path, TopologyError)
    ends = ("source", "target") if "source" in columns else ("a", "b")
    if missing := [name for name in ends if name not in columns]:
        raise TopologyError(
            f"{path}: needs a column {missing[0]}, separated by commas, got {listed(columns)}"
        )
    known = (*ends, *ATTRIBUTES, *ROLES)
    for name in columns:
        if name not in known:
            raise TopologyError(f"{path}: {unknown('column', name, known)}")
    said: dict[str, dict[str, str]] = {}
    said_at: dict[str, str] = {}
    edges = []
    for where, cells in rows:
        a, b = (cells[end].strip() for end in ends)
        tells = bool(a) and add_said(said, a, cells, where)
        if tells:
            said_at[a] = where
        if not a or not (b or (tells and not _of_link(cells))):
            raise TopologyError(f"{where}: {ends[bool(a)]} is empty; a link has two ends")
        if not b:
            continue
        said.setdefault(b, {})
        if cells.get("tier", "").strip().lower() == "access":
            said[a]["device"] = "true"
        edges.append(_Edge(a, b, cells, where))
    return _Graph(dict(said), edges, directed=False, said_at=said_at)


@dataclass(frozen=True, eq=False)
class LinkEnds:
    """The vertices of a CSV of links, both ends of every link [L, 2], and whether these tell all.

    Where a file says more of vertices than their links, one link alone makes no device.
    """

    names: tuple[str, ...]
    ends: Ints
    tells_devices: bool

    @property
    def devices(self) -> list[str]:
        """Vertices that are devices for sure."""
        if not self.tells_devices:
            return []
        links = np.bincount(self.ends.ravel(), minlength=len(self.names))
        return [self.names[at] for at in np.flatnonzero(links == 1)]


@reader(TopologyError)
def link_ends(path: Path) -> LinkEnds | None:
    """Read who is joined with whom in a CSV of links, and no speeds, which are most of the work.

    None where a line is not as it must be, which is said when all is read.
    """
    lines = each_line(path, TopologyError)
    columns = [cell.strip() for cell in next(lines, (0, []))[1]]
    ends = ("source", "target") if "source" in columns else ("a", "b")
    known = (*ends, *ATTRIBUTES, *ROLES)
    if not set(ends) <= set(columns) <= set(known):
        return None
    (i, j), width = map(columns.index, ends), len(columns)
    number_of: dict[str, int] = {}
    found = list[int]()
    for _, line in lines:
        if len(line) != width or not (a := line[i].strip()):
            return None
        number = number_of.setdefault(a, len(number_of))
        if b := line[j].strip():
            found += (number, number_of.setdefault(b, len(number_of)))
    both = np.array(found, dtype=np.int64).reshape(-1, 2)
    return LinkEnds(tuple(number_of), both, not {"tier", *ROLES} & set(columns))


def _of_link(cells: Cells) -> bool:
    """Whether a row says anything that only a link has."""
    return any(cells.get(name, "").strip() for name in ATTRIBUTES)


def _read_json(path: Path) -> _Graph:
    """Read what networkx's node_link_data gives, whose edges were called links before its 3.4."""
    try:
        data = json.loads(_content(path))
    except (ValueError, RecursionError) as error:
        raise TopologyError(f"{path}: not a JSON file ({error})") from error
    data = data if isinstance(data, dict) else {}
    parts: list[list[dict[str, Any]]] = []
    for part in (data.get("nodes"), data.get("edges", data.get("links"))):
        if not isinstance(part, list) or not all(isinstance(item, dict) for item in part):
            raise TopologyError(
                f"{path}: needs lists nodes and edges, as networkx.node_link_data gives them"
            )
        parts.append(part)
    return _graph(
        path,
        [(node.get("id"), node) for node in parts[0]],
        [(edge.get("source"), edge.get("target"), edge) for edge in parts[1]],
        data.get("directed") is True,
    )


class _NoDoctype(ElementTree.TreeBuilder):
    """Refuses the declarations by which a small XML file can unfold to a huge one."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> NoReturn:
        raise ValueError("it has a DOCTYPE, which no network needs")


def _read_graphml(path: Path) -> _Graph:
    """Read one graph, not nested, whose `data` are named by `attr.name` of their `key`."""
    try:
        root = ElementTree.fromstring(_content(path), ElementTree.XMLParser(target=_NoDoctype()))
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise TopologyError(f"{path}: not a GraphML file ({error})") from error
    graphs = root.findall(".//{*}graph")
    if len(graphs) != 1 or root.findall(".//{*}hyperedge"):
        raise TopologyError(f"{path}: needs one graph, with none in it and no hyperedges")
    keys = {key.get("id"): key for key in root.findall("{*}key")}

    def attributes(element: ElementTree.Element, kind: str) -> dict[str, Any]:
        found = {
            key: key.findtext("{*}default")
            for key in keys.values()
            if key.get("for", "all") in (kind, "all")
        }
        for data in element.findall("{*}data"):
            if data.get("key") not in keys:
                raise TopologyError(f"{path}: data of key {data.get('key')!r}, which is not there")
            found[keys[data.get("key")]] = data.text
        return {key.get("attr.name") or str(key.get("id")): text for key, text in found.items()}

    return _graph(
        path,
        [(node.get("id"), attributes(node, "node")) for node in graphs[0].findall("{*}node")],
        [
            (edge.get("source"), edge.get("target"), attributes(edge, "edge"))
            for edge in graphs[0].findall("{*}edge")
        ],
        graphs[0].get("edgedefault") == "directed",
    )


def _content(path: Path) -> bytes:
    try:
        return with_an_end(path).read_bytes()
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read ({error.strerror})") from error


def _graph(
    path: Path,
    nodes: list[tuple[object, dict[str, Any]]],
    edges: list[tuple[object, object, dict[str, Any]]],
    directed: bool,
) -> _Graph:
    """Check what a file has by name: every vertex once, and both ends of every edge."""
    check_spelling((key for _, attributes in nodes for key in attributes), FLAGS, path)
    check_spelling((key for _, _, attributes in edges for key in attributes), ATTRIBUTES, path)
    vertices: dict[str, Cells] = {}
    for name, attributes in nodes:
        if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
            raise TopologyError(f"{path}: a node's id must be text or a whole number, got {name!r}")
        where = f"{path}: node {str(name)!r}"
        if str(name) in vertices:
            raise TopologyError(f"{where} is there twice")
        vertices[str(name)] = _as_text(attributes)
    checked = []
    for a, b, attributes in edges:
        where = f"{path}: link {str(a)!r} - {str(b)!r}"
        for end in (a, b):
            if str(end) not in vertices:
                raise TopologyError(f"{where}: there is no node {str(end)!r}")
        checked.append(_Edge(str(a), str(b), _as_text(attributes), where))
    return _Graph(vertices, checked, directed)


def _as_text(attributes: dict[str, Any]) -> Cells:
    return {name: "" if value is None else str(value) for name, value in attributes.items()}


def _links(graph: _Graph) -> list[_Link]:
    """Join the two edges of a directed graph that are the two directions of one link."""
    between: dict[frozenset[str], list[_Edge]] = {}
    for edge in graph.edges:
        if edge.a == edge.b:
            raise TopologyError(f"{edge.where}: joins {edge.a!r} to itself")
        between.setdefault(frozenset((edge.a, edge.b)), []).append(edge)
    links = []
    for first, *others in between.values():
        if others and not (graph.directed and len(others) == 1 and others[0].b == first.a):
            raise TopologyError(
                f"{others[-1].where}: {first.a!r} and {first.b!r} are joined already; "
                "two vertices have one link"
            )
        links.append(_link(first, others[0] if others else None))
    return links


def _link(edge: _Edge, back: _Edge | None) -> _Link:
    """Read a link, up and down; with an edge of its own for the way back, each says its way."""
    up, down, latency_s = speeds(edge.cells, edge.where)
    tier = _tier(edge)
    if back is None:
        return _Link(edge.a, edge.b, up, down, latency_s, tier, edge.where)
    for way in (edge, back):
        for name in DOWN:
            if way.cells.get(name, "").strip():
                raise TopologyError(
                    f"{way.where}: has {name}, but the way back is an edge of its own"
                )
    down, _, latency_back = speeds(back.cells, back.where)
    tier_back = _tier(back)
    if tier and tier_back and tier != tier_back:
        raise TopologyError(f"{edge.where}: is of tier {tier!r} one way and {tier_back!r} back")
    there = [s for s in (latency_s, latency_back) if not np.isnan(s)]
    mean = sum(there) / len(there) if there else np.nan
    return _Link(edge.a, edge.b, up, down, mean, tier or tier_back, edge.where)


def _tier(edge: _Edge) -> str:
    tier = edge.cells.get("tier", "").strip()
    return "access" if tier.lower() == "access" else tier


def _flagged(graph: _Graph, attribute: str, path: Path) -> set[str]:
    """Vertices where an attribute is true."""
    return {
        name
        for name, cells in graph.vertices.items()
        if truth(cells, attribute, f"{graph.said_at.get(name, path)}: node {name!r}")
    }


def _no_devices(graph: _Graph, links: list[_Link], path: Path) -> list[str]:
    """Refuse a device in a network of sites, which is attached in another file."""
    flagged = sorted(_flagged(graph, "device", path))
    flagged += [link.a for link in links if link.tier == "access"]
    if flagged:
        raise TopologyError(
            f"{path}: {flagged[0]!r} is a device, but the nodes' file puts devices "
            "on sites; leave it out here, or the column site there"
        )
    if not graph.vertices:
        raise TopologyError(f"{path}: has no site; list links between sites")
    return []


def _devices(graph: _Graph, links: list[_Link], roles: dict[str, Role], path: Path) -> list[str]:
    """Find the vertices that train, and refuse one without its one link to a switch."""
    near: dict[str, list[str]] = {name: [] for name in graph.vertices}
    for link in links:
        near[link.a].append(link.b)
        near[link.b].append(link.a)
    found = _flagged(graph, "device", path)
    if not found:
        said = {name: cells.get("device", "").strip() for name, cells in graph.vertices.items()}
        # Who is a server, or says that it is none, is no device.
        other = {name for name, text in said.items() if text or roles[name].server}
        found = {name for name, to in near.items() if len(to) == 1 and name not in other}
        if access := [link for link in links if link.tier == "access"]:
            found &= {end for link in access for end in (link.a, link.b)}
    devices = [name for name in graph.vertices if name in found]
    if not devices:
        raise TopologyError(f"{path}: has no device; a device is a vertex with one link")
    for name in devices:
        if not near[name]:
            raise TopologyError(f"{path}: node {name!r} has no link; a device has one")
        if len(near[name]) > 1:
            raise TopologyError(
                f"{path}: node {name!r} is attached twice, to {near[name][0]!r} and "
                f"{near[name][1]!r}; a device has one link"
            )
        if near[name][0] in found:
            raise TopologyError(
                f"{path}: devices {name!r} and {near[name][0]!r} are joined directly; put a switch "
                "between them"
            )
    return devices
