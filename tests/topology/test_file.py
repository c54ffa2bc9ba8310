"""A user's own network, as GraphML, JSON or CSV."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import TopologyError
from coterie.topology.file import read_topology
from coterie.topology.values import Topology
from netfiles import DEFAULT, refusal

# p1 and p2 on bs1, p3 on bs2; p3's link is written from its switch.
CSV = """\
a,b,mbytes_per_s,up_mbytes_per_s,down_mbytes_per_s,latency_ms,tier
p1,bs1,,2,10,5,
p2,bs1,4,,,,
bs2,p3,,8,3,,
bs1,bs2,,50,60,20,metro
"""
EDGES: list[dict[str, Any]] = [
    {"source": "p1", "target": "bs1", "up_mbytes_per_s": 2, "down_mbytes_per_s": 10.0}
    | {"latency_s": 0.005},
    {"source": "p2", "target": "bs1", "mbytes_per_s": 4},
    {"source": "bs2", "target": "p3", "up_mbytes_per_s": 8, "down_mbytes_per_s": 3},
    {"source": "bs1", "target": "bs2", "up_mbytes_per_s": 50, "down_mbytes_per_s": 60}
    | {"latency_ms": 20, "tier": "metro"},
]
NODES: list[dict[str, Any]] = [{"id": name} for name in ("p1", "bs1", "p2", "bs2", "p3")]
ATTRIBUTES = {
    "mbytes_per_s": "double",
    "up_mbytes_per_s": "double",
    "down_mbytes_per_s": "float",
    "latency_s": "double",
    "latency_ms": "int",
    "tier": "string",
}


def graph(nodes: list[dict[str, Any]], edges: list[dict[str, Any]], **more: object) -> str:
    return json.dumps({"nodes": nodes, "edges": edges, **more})


def graphml(edges: list[dict[str, Any]], inside: str = "", directed: str = "undirected") -> str:
    keys = [f'<key id="{k}" attr.name="{k}" attr.type="{t}"/>' for k, t in ATTRIBUTES.items()]
    nodes = [f'<node id="{node["id"]}"/>' for node in NODES]
    lines = []
    for edge in edges:
        data = "".join(f'<data key="{k}">{v}</data>' for k, v in edge.items() if k in ATTRIBUTES)
        lines.append(f'<edge source="{edge["source"]}" target="{edge["target"]}">{data}</edge>')
    return (
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        f'{"".join(keys)}<graph edgedefault="{directed}">{"".join(nodes + lines)}{inside}</graph>'
        "</graphml>"
    )


def read(tmp_path: Path, name: str, content: str | bytes) -> Topology:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_topology(path, DEFAULT, DEFAULT)


def refused(tmp_path: Path, name: str, content: str | bytes) -> str:
    return refusal(tmp_path / name, lambda: read(tmp_path, name, content))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("net.csv", CSV),
        ("net.CSV", "\ufeff" + CSV.replace("\n", "\r\n").replace("a,b", "source,target")),
        ("net.json", graph(NODES, EDGES)),
        ("old.json", graph(NODES, EDGES).replace('"edges"', '"links"')),
        ("net.graphml", graphml(EDGES)),
    ],
)
def test_one_network_is_the_same_in_every_format(tmp_path: Path, name: str, content: str) -> None:
    net = read(tmp_path, name, content)
    assert net.names == ("p1", "p2", "p3", "bs1", "bs2")
    assert net.switch_of.tolist() == [0, 0, 1]
    assert net.ends.tolist() == [[0, 3], [1, 3], [2, 4], [3, 4]]
    assert net.tier_of == ("access", "access", "access", "metro")
    assert (net.bytes_per_s / 1e6).tolist() == [2, 10, 4, 4, 3, 8, 50, 60]
    assert net.latency_s.tolist() == [0.005, 0.001, 0.001, 0.020]
    assert net.hops.tolist() == [[0, 2, 3], [2, 0, 3], [3, 3, 0]]
    assert net.places == ()


@pytest.mark.parametrize("directed", [False, True])
def test_what_networkx_writes_is_read(tmp_path: Path, directed: bool) -> None:
    made = nx.DiGraph() if directed else nx.Graph()
    made.add_node("cloud", server=True)
    made.add_node("phone", device=True, colour="red")
    made.add_edge("phone", "bs", mbytes_per_s=1.5, latency_s=0.25)
    made.add_edge("bs", "cloud", weight=3)
    nx.write_graphml(made, tmp_path / "net.graphml")
    (tmp_path / "net.json").write_text(json.dumps(nx.node_link_data(made)))
    for name in ("net.graphml", "net.json"):
        net = read_topology(tmp_path / name, DEFAULT, DEFAULT)
        assert net.names == ("phone", "cloud", "bs")
        assert np.sort(net.ends).tolist() == [[0, 2], [1, 2]]
        assert net.bytes_per_s.tolist() == [1.5e6, 1.5e6, 1e8, 1e8]
        assert net.latency_s.tolist() == [0.25, 0.001]
        assert net.places == (0,)


@pytest.mark.parametrize("name", ["net.json", "net.graphml"])
def test_two_directed_edges_are_the_two_ways_of_a_link(tmp_path: Path, name: str) -> None:
    edges = [
        {"source": "bs1", "target": "p1", "mbytes_per_s": 9, "latency_s": 0.1},
        {"source": "p1", "target": "bs1", "mbytes_per_s": 2, "latency_s": 0.3},
        *EDGES[1:],
    ]
    is_json = name == "net.json"
    text = graph(NODES, edges, directed=True) if is_json else graphml(edges, directed="directed")
    net = read(tmp_path, name, text)
    assert net.bytes_per_s[:2].tolist() == [2e6, 9e6]
    assert net.latency_s[0] == pytest.approx(0.2)
    text = graph(NODES, edges) if is_json else graphml(edges)
    assert "'bs1' and 'p1' are joined already" in refused(tmp_path, name, text)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"down_mbytes_per_s": 1}, "has down_mbytes_per_s, but the way back is an edge of its own"),
        ({"tier": "wan"}, "is of tier 'metro' one way and 'wan' back"),
    ],
)
def test_two_directed_edges_must_not_contradict(
    tmp_path: Path, extra: dict[str, Any], says: str
) -> None:
    there = {"source": "bs1", "target": "bs2", "tier": "metro"}
    back = {"source": "bs2", "target": "bs1"} | extra
    text = graph(NODES, [*EDGES[:3], there, back], directed=True)
    assert says in refused(tmp_path, "net.json", text)


def test_a_graphml_default_holds_where_nothing_else_is_said(tmp_path: Path) -> None:
    key = '<key id="k" for="edge" attr.name="latency_s" attr.type="double"><default>0.5</default>'
    text = graphml(EDGES).replace(
        '<key id="latency_s" attr.name="latency_s" attr.type="double"/>', ""
    )
    text = text.replace("<graph ", f"{key}</key><graph ").replace('key="latency_s"', 'key="k"')
    text = text.replace('<data key="latency_ms">20</data>', "")
    assert read(tmp_path, "net.graphml", text).latency_s.tolist() == [0.005, 0.5, 0.5, 0.5]


def test_the_first_end_of_a_row_of_tier_access_is_a_device(tmp_path: Path) -> None:
    net = read(tmp_path, "net.csv", "tier,b,a\naccess,s,x\n,s,leaf\n")
    assert net.names == ("x", "s", "leaf")
    assert net.tiers == ("core",)
    assert net.n_devices == 1


def test_the_leaf_end_of_a_link_of_tier_access_is_a_device(tmp_path: Path) -> None:
    edges = [
        {"source": "s", "target": "x", "tier": "access"},
        {"source": "s", "target": "leaf"},
    ]
    net = read(tmp_path, "net.json", graph([{"id": i} for i in ("s", "leaf", "x")], edges))
    assert net.names == ("x", "s", "leaf")


def test_a_server_is_a_place_and_no_device_though_a_leaf(tmp_path: Path) -> None:
    nodes: list[dict[str, Any]] = [{"id": i} for i in (1, 2, 3, 4)]
    nodes[2]["server"], nodes[3]["server"] = True, "false"
    edges = [{"source": i, "target": 2} for i in (1, 3, 4)]
    net = read(tmp_path, "net.json", graph(nodes, edges))
    assert net.names == ("1", "4", "2", "3")
    assert net.places == (1,)
    assert net.place_hops.tolist() == [[2, 2]]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "needs a column a, separated by commas, got none"),
        ("a;b\nx;s\n", "needs a column a, separated by commas, got 'a;b'"),
        ("a,c\nx,s\n", "needs a column b, separated by commas, got 'a', 'c'"),
        ("source,b\nx,s\n", "needs a column target"),
        ("a,b,a\nx,s,x\n", "a column is there twice in 'a', 'b', 'a'"),
        ("a,b,mbyte_per_s\nx,s,1\n", "unknown column 'mbyte_per_s'; did you mean 'mbytes_per_s'?"),
        ("a,b\n", "has no device"),
        ("a,b\nx,s\n\ny\n", "line 4: must have 2 values, got 1"),
        ("a,b\nx, \n", "line 2: b is empty"),
        ("a,b\n,x\n", "line 2: a is empty"),
        ("a,b\nx,x\n", "line 2: joins 'x' to itself"),
        ("a,b\nx,s\ny,s\ns,x\n", "line 4: 'x' and 's' are joined already"),
        ("a,b\nx,y\n", "devices 'x' and 'y' are joined directly; put a switch between them"),
        ("a,b\nx,y\ny,z\nz,x\n", "has no device; a device is a vertex with one link"),
        ("a,b\nx,s\ny,s\nz,t\nw,t\n", "'x' and 'z' cannot reach each other"),
        (
            "a,b,tier\nphone7,bs1,access\nphone7,bs2,access\n",
            "node 'phone7' is attached twice, to 'bs1' and 'bs2'; a device has one link",
        ),
        ("a,b,latency_s,latency_ms\nx,s,1,1\ny,s,,\n", "line 2: has latency_s and latency_ms"),
        ('a,b\nx,"s\n', "not a CSV file"),
        (b"a,b\nx,\xff\n", "not a CSV file"),
    ],
)
def test_a_bad_list_of_links_is_refused(tmp_path: Path, content: str | bytes, says: str) -> None:
    assert says in refused(tmp_path, "net.csv", content)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e400", "1e305", "fast", "1_0", "0x1"])
def test_a_speed_must_be_a_finite_number_above_0(tmp_path: Path, value: str) -> None:
    rule = f"up_mbytes_per_s must be a finite number above 0, got '{value}'"
    content = f"a,b,up_mbytes_per_s\ny,s,1\nx,s,{value}\n"
    assert refused(tmp_path, "net.csv", content) == f"line 3: {rule}"
    edges = [EDGES[0] | {"up_mbytes_per_s": value}, *EDGES[1:]]
    for name, content in [("n.graphml", graphml(edges)), ("n.json", graph(NODES, edges))]:
        assert refused(tmp_path, name, content) == f"link 'p1' - 'bs1': {rule}"


def test_a_latency_may_be_0_and_not_below(tmp_path: Path) -> None:
    assert read(tmp_path, "n.csv", "a,b,latency_ms\nx,s,0\ny,s,\n").latency_s.tolist() == [0, 0.001]
    assert (
        refused(tmp_path, "n.csv", "a,b,latency_ms\nx,s,-1\ny,s,\n")
        == "line 2: latency_ms must be a finite number >= 0, got '-1'"
    )


TWO = [{"source": "x", "target": "s"}, {"source": "y", "target": "s"}]


@pytest.mark.parametrize(
    ("nodes", "edges", "says"),
    [
        (["x", "s"], TWO, "link 'y' - 's': there is no node 'y'"),
        (["x", "y", "s", "x"], TWO, "node 'x' is there twice"),
        ([1, "1"], [], "node '1' is there twice"),
        ([None], [], "a node's id must be text or a whole number, got None"),
        ([1.5], [], "a node's id must be text or a whole number, got 1.5"),
        (["x", "y", "s"], [*TWO, TWO[1]], "link 'y' - 's': 'y' and 's' are joined already"),
        (["x", "y", "s", "alone"], TWO, "'x' and 'alone' cannot reach each other"),
        (["x", "y", "s"], [TWO[0] | {"latency": 3}, TWO[1]], "unknown 'latency'; did you mean"),
        (["x", "y", "s"], [TWO[0] | {"mbytes_per_s": True}, TWO[1]], "above 0, got 'True'"),
        (["x", "y", "s"], [TWO[0] | {"mbytes_per_s": [1]}, TWO[1]], "above 0, got '[1]'"),
        (["x", "y", "s"], [{"source": "x"}], "link 'x' - 'None': there is no node 'None'"),
    ],
)
def test_a_bad_graph_is_refused(
    tmp_path: Path, nodes: list[object], edges: list[dict[str, Any]], says: str
) -> None:
    text = graph([{"id": name} for name in nodes], edges)
    assert says in refused(tmp_path, "net.json", text)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"s": {"device": True}}, "node 's' is attached twice, to 'x' and 'y'"),
        ({"x": {"device": "maybe"}}, "node 'x': device must be yes or no, got 'maybe'"),
        ({"x": {"device": False}, "y": {"device": False}}, "has no device"),
        ({"x": {"device": True, "server": True}}, "node 'x' is a device and a server"),
        ({"alone": {"device": True}}, "node 'alone' has no link"),
        ({"x": {"devices": True}}, "unknown 'devices'; did you mean 'device'?"),
    ],
)
def test_flags_that_cannot_be_so_are_refused(
    tmp_path: Path, flags: dict[str, dict[str, Any]], says: str
) -> None:
    names = dict.fromkeys(["x", "y", "s", *flags])
    text = graph([{"id": name} | flags.get(name, {}) for name in names], TWO)
    assert says in refused(tmp_path, "net.json", text)


def test_a_leaf_that_is_no_device_is_a_switch(tmp_path: Path) -> None:
    nodes: list[dict[str, Any]] = [{"id": "x", "device": False}, {"id": "y"}, {"id": "s"}]
    net = read(tmp_path, "net.json", graph(nodes, TWO))
    assert net.names == ("y", "x", "s")
    assert net.n_devices == 1


def test_a_link_of_tier_access_needs_a_device(tmp_path: Path) -> None:
    edges = [*EDGES[:3], EDGES[3] | {"tier": "access"}, {"source": "p1", "target": "bs2"}]
    nodes = [NODES[0], NODES[1], NODES[2] | {"device": True}, *NODES[3:]]
    assert (
        refused(tmp_path, "net.json", graph(nodes, edges))
        == "link 'bs1' - 'bs2': is of tier access, but no end of it is a device"
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not a JSON file"),
        ("{", "not a JSON file"),
        ("[" * 100_000, "not a JSON file"),
        ("[]", "needs lists nodes and edges"),
        ("{}", "needs lists nodes and edges"),
        ('{"nodes": [1], "edges": []}', "needs lists nodes and edges"),
    ],
)
def test_other_json_is_refused(tmp_path: Path, content: str, says: str) -> None:
    assert says in refused(tmp_path, "net.json", content)


BOMB = '<!DOCTYPE g [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not a GraphML file"),
        ("a,b\nx,s\n", "not a GraphML file"),
        (graphml(EDGES)[:-20], "not a GraphML file"),
        ("<svg/>", "needs one graph"),
        (graphml(EDGES, "<graph/>"), "needs one graph"),
        (graphml(EDGES, "<hyperedge/>"), "needs one graph"),
        (graphml(EDGES, '<edge source="p1" target="p9"/>'), "there is no node 'p9'"),
        (graphml(EDGES, '<node id="p1"/>'), "node 'p1' is there twice"),
        (graphml(EDGES, "<node/>"), "a node's id must be text or a whole number, got None"),
        (graphml(EDGES, '<node id="z"><data key="q&#10;r"/></node>'), "data of key 'q\\nr', which"),
        (BOMB + graphml(EDGES), "it has a DOCTYPE"),
        ((BOMB + graphml(EDGES)).encode("utf-16"), "it has a DOCTYPE"),
        ('<!DOCTYPE g SYSTEM "file:///etc/passwd"><graphml/>', "it has a DOCTYPE"),
        ('<?xml version="1.0" encoding="nonsense"?><graphml/>', "not a GraphML file"),
    ],
)
def test_other_xml_is_refused(tmp_path: Path, content: str | bytes, says: str) -> None:
    assert says in refused(tmp_path, "net.graphml", content)


def test_a_file_must_be_there_and_of_a_kind_that_is_known(tmp_path: Path) -> None:
    for path in (tmp_path / "no.csv", tmp_path / "no.json", tmp_path / "no.graphml"):
        assert "cannot be read (No such" in refusal(
            path, partial(read_topology, path, DEFAULT, DEFAULT)
        )
    assert "a network is a .graphml, .json or .csv file" in refused(tmp_path, "net.xml", "")


FUZZ = settings(max_examples=200, deadline=None)
FORMATS = {"net.csv": CSV, "net.json": graph(NODES, EDGES), "net.graphml": graphml(EDGES)}


@FUZZ
@given(st.data(), st.sampled_from(sorted(FORMATS)))
def test_no_file_does_worse_than_our_error(tmp_path: Path, data: st.DataObject, name: str) -> None:
    content = FORMATS[name].encode()
    at = data.draw(st.integers(0, len(content)))
    length = data.draw(st.integers(0, 30))
    content = content[:at] + data.draw(st.binary(max_size=5)) + content[at + length :]
    (tmp_path / name).write_bytes(content)
    try:
        net = read_topology(tmp_path / name, DEFAULT, DEFAULT)
    except TopologyError as error:
        assert str(error).startswith(f"{tmp_path / name}: ")
        assert "\n" not in str(error)
    else:
        assert net.hops.shape == (net.n_devices, net.n_devices)


@FUZZ
@given(st.data(), st.integers(1, 12))
def test_a_tree_comes_back_with_the_same_hops(
    tmp_path: Path, data: st.DataObject, n_switches: int
) -> None:
    tree = nx.Graph()
    tree.add_node("s0")
    for s in range(1, n_switches):
        tree.add_edge(f"s{s}", f"s{data.draw(st.integers(0, s - 1))}")
    on = data.draw(st.lists(st.integers(0, n_switches - 1), min_size=1, max_size=12))
    rows = [f"{a},{b}," for a, b in tree.edges]
    rows += [f"d{i},s{s},access" for i, s in enumerate(on)]
    tree.add_edges_from((f"d{i}", f"s{s}") for i, s in enumerate(on))
    net = read(tmp_path, "net.csv", "\n".join(["a,b,tier", *data.draw(st.permutations(rows))]))
    apart = dict(nx.all_pairs_shortest_path_length(tree))
    devices = net.names[: net.n_devices]
    assert sorted(devices) == sorted(f"d{i}" for i in range(len(on)))
    assert net.hops.tolist() == [[apart[a][b] for b in devices] for a in devices]


FULL_WIDTH = "\N{FULLWIDTH DIGIT ONE}\N{FULLWIDTH DIGIT ZERO}"


@pytest.mark.parametrize(
    ("rate", "rule"), [("1e-320", "at least 1 byte/s"), (FULL_WIDTH, "a finite number above 0")]
)
def test_a_rate_that_cannot_be_meant_is_refused_with_its_line(
    tmp_path: Path, rate: str, rule: str
) -> None:
    (tmp_path / "net.csv").write_text(
        f"a,b,mbit_per_s\np1,bs1,{rate}\np2,bs1,4\n", encoding="utf-8"
    )
    with pytest.raises(TopologyError, match=f"line 2: mbit_per_s must be {rule}, got '{rate}'"):
        read_topology(tmp_path / "net.csv", DEFAULT, DEFAULT)
