"""Who may serve, and how many, as files of links, graphs and pairs say it."""

import json
from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import TopologyError
from coterie.topology import Topology
from coterie.topology.by_name import by_name
from coterie.topology.file import read_topology
from coterie.topology.matrix import read_matrix
from coterie.topology.values import UNLIMITED
from netfiles import DEFAULT, refusal

STATIONS = """\
a,b,mbytes_per_s,tier,server,may_serve,capacity
phone 2,west,2,access,,no,
phone 1,east,2,access,,,
west,core,50,metro,yes,,40
east,core,50,metro,,Yes,
core,,,,no,,
"""


def read(tmp_path: Path, content: str, name: str = "net.csv") -> Topology:
    (tmp_path / name).write_text(content)
    return read_topology(tmp_path / name, DEFAULT, DEFAULT)


def refused(tmp_path: Path, content: str, name: str = "net.csv") -> str:
    return refusal(tmp_path / name, lambda: read(tmp_path, content, name))


def serves(net: Topology) -> dict[str, int]:
    assert net.place_capacity is not None
    names = [net.name(int(v)) for v in net.place_vertices]
    return dict(zip(names, net.place_capacity.tolist(), strict=True))


def test_a_row_of_links_says_who_serves_and_how_many(tmp_path: Path) -> None:
    net = read(tmp_path, STATIONS)
    assert net.names == ("phone 2", "phone 1", "west", "east", "core")
    assert net.ends.tolist() == [[0, 2], [1, 3], [2, 4], [3, 4]]
    assert net.places == (0, 1)
    assert serves(net) == {"west": 40, "east": UNLIMITED}
    assert net.may_serve is not None
    assert net.may_serve.tolist() == [False, True]


def test_capacities_and_permissions_stay_with_their_names_in_any_order(tmp_path: Path) -> None:
    net = by_name(read(tmp_path, STATIONS))
    assert net.names == ("phone 1", "phone 2", "core", "east", "west")
    assert serves(net) == {"east": UNLIMITED, "west": 40}
    assert net.may_serve is not None
    assert net.may_serve.tolist() == [True, False]


def test_a_graph_says_the_same(tmp_path: Path) -> None:
    nodes = [
        {"id": "phone 2", "may_serve": False},
        {"id": "phone 1"},
        {"id": "west", "server": True, "capacity": 40},
        {"id": "east", "may_serve": "yes"},
        {"id": "core", "server": False},
    ]
    ends = [("phone 2", "west"), ("phone 1", "east"), ("west", "core"), ("east", "core")]
    edges = [{"source": a, "target": b, "tier": "access" if "p" in a else ""} for a, b in ends]
    net = read(tmp_path, json.dumps({"nodes": nodes, "edges": edges}), "net.json")
    assert serves(net) == {"west": 40, "east": UNLIMITED}
    assert net.may_serve is not None
    assert net.may_serve.tolist() == [False, True]


def test_nothing_said_is_no_place_no_limit_and_all_devices(tmp_path: Path) -> None:
    net = read(tmp_path, "a,b,server,may_serve,capacity\nx,s,,,\ny,s,,,\n")
    assert (net.places, net.place_capacity, net.may_serve) == ((), None, None)
    net = read(tmp_path, "a,b,server\nx,s,\ny,s,\ns,,yes\n")
    assert (net.places, net.place_capacity, net.may_serve) == ((0,), None, None)


def test_a_leaf_that_may_serve_is_still_a_device(tmp_path: Path) -> None:
    net = read(tmp_path, "a,b,may_serve\nx,s,yes\ny,s,no\n")
    assert net.n_devices == 2
    assert net.places == ()
    assert net.may_serve is not None
    assert net.may_serve.tolist() == [True, False]


HEAD = "a,b,mbytes_per_s,server,may_serve,capacity\n"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("x,s,1,,,\ns,,,maybe,,\n", "line 3: node 's': server must be yes or no, got 'maybe'"),
        ("x,s,1,,2,\n", "line 2: node 'x': may_serve must be yes or no, got '2'"),
        ("x,s,1,,,\ns,,,yes,,0\n", "line 3: node 's': capacity must be a whole number of members"),
        ("x,s,1,,,\ns,,,yes,,1.5\n", "members from 1 to 1,000,000,000, got '1.5'"),
        ("x,s,1,,,\ns,,,yes,,nan\n", "got 'nan'"),
        ("x,s,1,,,\ns,,,yes,,-4\n", "got '-4'"),
        ("x,s,1,,,\ns,,,yes,no,\n", "line 3: node 's': server and may_serve say different things"),
        (
            "x,s,1,,,\ny,s,1,,,\ns,,,,,4\n",
            "line 4: node 's' has a capacity and does not serve; add server",
        ),
        ("x,s,1,,,\ny,s,1,,,\ns,,,no,,4\n", "line 4: node 's' has a capacity and does not serve"),
        (
            "x,s,1,,,\ny,s,1,,,\nx,,,,,4\n",
            "line 4: node 'x' is a device, and capacity is of places here",
        ),
        ("x,s,1,,,\ns,t,,yes,,\ns,,,no,,\n", "line 4: server of 's' is 'no' here, and 'yes' in a"),
        ("x,s,1,,,\ns,,3,yes,,\n", "line 3: b is empty; a link has two ends"),
        ("x,s,1,,,\n,s,3,yes,,\n", "line 3: a is empty; a link has two ends"),
        ("x,s,1,,no,\ny,s,1,,no,\n", "no device may serve and no place does; let one of them"),
        ("x,s,1,,,\ny,s,1,,,\nlonely,,,yes,,\n", "'x' and 'lonely' cannot reach each other"),
    ],
)
def test_what_cannot_be_so_is_refused_with_its_line(tmp_path: Path, rows: str, says: str) -> None:
    assert says in refused(tmp_path, HEAD + rows)


def test_a_misspelt_column_is_named(tmp_path: Path) -> None:
    said = refused(tmp_path, "a,b,servers\nx,s,\n")
    assert "unknown column 'servers'; did you mean 'server'?" in said


def test_pairs_say_who_serves_too(tmp_path: Path) -> None:
    (tmp_path / "wan.csv").write_text(
        "from,to,mbit_per_s,server,capacity\nx,y,80,yes,\ny,,,yes,9\n"
    )
    net = read_matrix(tmp_path / "wan.csv", None, DEFAULT, sites=True)
    assert (net.n_devices, net.names) == (0, ("x", "y"))
    assert serves(net) == {"x": UNLIMITED, "y": 9}
    assert net.bytes_per_s.tolist() == [10e6, 10e6]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"place_capacity": np.array([3])}, "0 places need a capacity each, got 1"),
        ({"places": (0,), "place_capacity": np.array([0])}, "a place must be >= 1, got 0"),
        ({"may_serve": np.array([True])}, "may_serve must be said of all 2 devices, got 1"),
        ({"may_serve": np.zeros(2, dtype=bool)}, "no device may serve and no place does"),
    ],
)
def test_a_network_is_not_made_of_contradictions(more: dict[str, object], says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        Topology(
            np.array([0, 0]),
            np.zeros((0, 2), dtype=np.int64),
            (),
            1,
            np.ones(4),
            np.zeros(2),
            **more,  # type: ignore[arg-type]
        )
