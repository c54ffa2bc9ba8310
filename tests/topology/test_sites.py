"""A network of sites, and devices that another file puts on them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import TopologyError
from coterie.topology import Shape, Topology, make_topology
from coterie.topology.matrix import matrix_names, read_matrix
from netfiles import DEFAULT, refusal

WAN = """\
from,to,mbit_per_s,latency_ms
rome,oslo,800,20
oslo,rome,400,40
rome,kyiv,80,
kyiv,oslo,,
"""
MATRIX = ",rome,oslo,kyiv\nrome,,100,10\noslo,50,,\nkyiv,10,,\n"
SECONDS = ",rome,oslo,kyiv\nrome,,20ms,\noslo,0.04,,\nkyiv,,,\n"
LINKS = (
    "a,b,up_mbit_per_s,down_mbytes_per_s,latency_s\nrome,oslo,800,50,30ms\nkyiv,rome,80,10,0.001\n"
)
NODES = """\
node,site,up_mbit_per_s,down_mbytes_per_s,latency_ms,may_serve,region
cam 2,oslo,8,10,5,no,north
cam 1,rome,,100Mbit,,,
cam 3,rome,16,,0.5,yes,south
"""


def built(
    tmp_path: Path, net: str, nodes: str = NODES, kind: str = "matrix", n: int = 3
) -> Topology:
    (tmp_path / "net.csv").write_text(net)
    (tmp_path / "nodes.csv").write_text(nodes)
    shape = Shape(
        kind,
        DEFAULT,
        DEFAULT,
        file=str(tmp_path / "net.csv"),
        access_file=str(tmp_path / "nodes.csv"),
    )
    return make_topology(shape, np.zeros(n, dtype=np.int64), (), np.random.default_rng(0))


def seen(net: Topology) -> tuple[dict[str, float], dict[str, float]]:
    """Speeds in MByte/s by direction, and latencies in ms by link, both ways named."""
    speeds = {net.link_name(u): float(v) / 1e6 for u, v in enumerate(net.bytes_per_s)}
    return speeds, {net.link_name(2 * u): float(s) * 1e3 for u, s in enumerate(net.latency_s)}


@pytest.mark.parametrize("form", ["pairs", "links", "matrix"])
def test_devices_are_on_their_sites_by_their_own_links(tmp_path: Path, form: str) -> None:
    content = {"pairs": WAN, "links": LINKS, "matrix": MATRIX}[form]
    net = built(tmp_path, content, kind="file" if form == "links" else "matrix")
    assert net.names[:3] == ("cam 2", "cam 1", "cam 3")
    assert set(net.names[3:]) == {"rome", "oslo", "kyiv"}
    speeds, _ = seen(net)
    assert speeds["cam 2 -> oslo"] == 1.0
    assert speeds["oslo -> cam 2"] == 10.0
    assert speeds["cam 1 -> rome"] == DEFAULT.bytes_per_s / 1e6
    assert speeds["rome -> cam 1"] == 12.5
    assert speeds["rome -> oslo"] == 100.0
    assert speeds["oslo -> rome"] == 50.0
    assert speeds["rome -> kyiv"] == speeds["kyiv -> rome"] == 10.0
    assert "kyiv -> oslo" not in speeds
    assert net.latency_s[:3].tolist() == [0.005, DEFAULT.latency_s, 0.0005]
    assert net.may_serve is not None
    assert net.may_serve.tolist() == [False, True, True]
    assert net.hops.tolist() == [[0, 3, 3], [3, 0, 2], [3, 2, 0]]


def test_the_latency_of_sites_is_the_mean_of_both_ways(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(SECONDS)
    (tmp_path / "net.csv").write_text(MATRIX)
    wide = read_matrix(tmp_path / "net.csv", tmp_path / "s.csv", DEFAULT, sites=True)
    assert wide.latency_s.tolist() == pytest.approx([0.03, 0.001])
    (tmp_path / "net.csv").write_text(WAN)
    long = read_matrix(tmp_path / "net.csv", None, DEFAULT, sites=True)
    assert long.latency_s.tolist() == pytest.approx([0.03, 0.001])
    assert seen(wide) == seen(long)
    assert "is not read beside" in refusal(
        tmp_path / "s.csv", lambda: read_matrix(tmp_path / "net.csv", tmp_path / "s.csv", DEFAULT)
    )


def test_pairs_of_devices_are_the_matrix_of_them(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(MATRIX)
    (tmp_path / "long.csv").write_text(WAN)
    wide = read_matrix(tmp_path / "wide.csv", None, DEFAULT)
    long = read_matrix(tmp_path / "long.csv", None, DEFAULT)
    assert wide.names == long.names
    assert wide.links.tolist() == long.links.tolist()
    assert wide.bytes_per_s.tolist() == long.bytes_per_s.tolist()


HEAD = "from,to,mbytes_per_s,latency_ms\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (HEAD, "has no pair; give a row to every two"),
        ("from,to\nx,y\n", "needs a column of mbytes_per_s or mbit_per_s, got 'from', 'to'"),
        ("from,to,mbytes\nx,y,1\n", "unknown column 'mbytes'; did you mean"),
        ("from,to,to,mbytes_per_s\nx,y,y,1\n", "a column is there twice in"),
        (HEAD + "x,y,1\n", "line 2: must have 4 values, got 3"),
        (HEAD + "x,y,1,\nx,,1,\n", "line 3: to is empty; a pair has two ends"),
        (HEAD + ",y,1,\n", "line 2: from is empty; a pair has two ends"),
        (HEAD + "x,y,1,\nx,y,2,\n", "line 3: 'x' to 'y' is there twice"),
        (HEAD + "x,y,1,\ny,z,1,\n", "'x' and 'z' have no row; give one to every pair, without a"),
        (HEAD + "x,y,1,\ny,x,,\n", "'x' to 'y' has a speed, but the way back has none"),
        (HEAD + "x,y,,\n", "'x' and 'y' cannot reach each other"),
        (HEAD + "x,y,-1,\n", "line 2: mbytes_per_s must be a finite number above 0, got '-1'"),
        (HEAD + "x,y,0,\n", "line 2: mbytes_per_s must be a finite number above 0, got '0'"),
        (HEAD + "x,y,inf,\n", "above 0, got 'inf'"),
        (HEAD + "x,y,1_0,\n", "above 0, got '1_0'"),
        (HEAD + "x,y,1,nan\n", "line 2: latency_ms must be a finite number >= 0, got 'nan'"),
        (HEAD + "x,y,1,-2\n", "line 2: latency_ms must be a finite number >= 0, got '-2'"),
        (
            HEAD + "x,y,5Mb,\n",
            "line 2: mbytes_per_s must be a rate such as 100Mbit or 12.5MB, got '5",
        ),
        (
            HEAD + "x,y,1,5MB\n",
            "line 2: latency_ms must be a time such as 2s, 500ms, 1m or 1.5h, got",
        ),
        (
            "from,to,mbytes_per_s,mbit_per_s\nx,y,1,8\n",
            "line 2: has mbytes_per_s and mbit_per_s; ke",
        ),
    ],
)
def test_a_bad_list_of_pairs_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "wan.csv").write_text(content)
    path = tmp_path / "wan.csv"
    assert says in refusal(path, lambda: read_matrix(path, None, DEFAULT, sites=True))


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ("node,site\nx,paris\n", "line 2: unknown site 'paris'; there is 'rome', 'oslo', 'kyiv'"),
        ("node,site\nx,\n", "line 2: unknown site ''"),
        ("node,site\nx,rome\nx,oslo\n", "line 3: node 'x' is there twice; give every node a name"),
        ("node,site\n,rome\n", "line 2: node '' is no name; give every node a name of its own"),
        ("node,site\nrome,oslo\n", "line 2: node 'rome' is a site, too; give every node a name"),
        ("node,site\n", "has no nodes; give each a row"),
        ("site\nrome\n", "needs a column node, separated by commas, got 'site'"),
        ("node,site,latency_ms\nx,rome,nan\n", "line 2: latency_ms must be a finite number >= 0"),
        ("node,site,up_mbit_per_s\nx,rome,-8\n", "line 2: up_mbit_per_s must be a finite number a"),
        (
            "node,site,up_mbit_per_s\nx,rome,8km\n",
            "line 2: up_mbit_per_s must be a rate such as 10",
        ),
        ("node,site,speed\nx,rome,8\n", "unknown column 'speed'"),
        ("node,site,may_serve\nx,rome,no\n", "no device may serve and no place does"),
    ],
)
def test_bad_devices_of_sites_are_refused(tmp_path: Path, nodes: str, says: str) -> None:
    assert says in refusal(tmp_path / "nodes.csv", lambda: built(tmp_path, WAN, nodes, n=1))


def test_sites_must_be_named_and_be_no_devices(tmp_path: Path) -> None:
    net = tmp_path / "net.csv"
    assert "does not name its sites" in refusal(net, lambda: built(tmp_path, "0,1\n1,0\n"))
    said = refusal(net, lambda: built(tmp_path, "a,b,tier\nrome,oslo,access\n", kind="file"))
    assert "'rome' is a device, but the nodes' file puts devices on sites" in said
    assert "has no site" in refusal(net, lambda: built(tmp_path, "a,b\n", kind="file"))


def test_one_site_is_a_network(tmp_path: Path) -> None:
    nodes = "node,site\nx,hq\ny,hq\n"
    net = built(tmp_path, "a,b,server,capacity\nhq,,yes,5\n", nodes, kind="file", n=2)
    assert net.hops.tolist() == [[0, 2], [2, 0]]
    assert net.place_capacity is not None
    assert net.place_capacity.tolist() == [5]


def test_sites_need_a_network_file_and_as_many_nodes_as_the_partition(tmp_path: Path) -> None:
    with pytest.raises(
        TopologyError, match=r"read with network.topology = 'file' or 'matrix' only"
    ):
        built(tmp_path, WAN, kind="fat-tree")
    with pytest.raises(TopologyError, match=r"nodes.csv has 3 devices and the partition 4 nodes"):
        built(tmp_path, WAN, n=4)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (",x,y\nx,,1\ny,1,\n", ["x", "y"]),
        ("x,y\n,1\n1,\n", ["x", "y"]),
        ("corner,x,y\nx,,1\ny,1,\n", ["x", "y"]),
        ("x,,1,1\ny,1,,1\nz,1,1,\n", ["x", "y", "z"]),
        ("0,1\n1,0\n", []),
        ("", []),
        (HEAD + "x,y,1,\nx,z,oops\ny,z\n", ["x", "y", "x", "z", "y", "z"]),
    ],
)
def test_names_are_known_without_reading_a_speed(
    tmp_path: Path, content: str, names: list[str]
) -> None:
    (tmp_path / "net.csv").write_text(content)
    assert list(matrix_names(tmp_path / "net.csv")) == names


def test_a_header_of_names_is_all_that_is_read_of_a_matrix(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_bytes(b",x,y\nx,,1\n" + b"y,1,\n" * 20_000 + b"\xff")
    assert list(matrix_names(tmp_path / "net.csv")) == ["x", "y"]


FUZZED = {
    "pairs": "from,to,mbit_per_s,latency_ms,server\nrome,oslo,8,9,\noslo,rome,4,,yes\nrome,,,,no\n",
    "links": "a,b,mbit_per_s,latency_ms,capacity,server\nrome,oslo,80,9,5,yes\noslo,,,,,no\n",
}


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(sorted(FUZZED)), st.booleans())
def test_no_files_do_worse_than_our_error(
    tmp_path: Path, data: st.DataObject, form: str, of_nodes: bool
) -> None:
    files = [FUZZED[form].encode(), NODES.encode()]
    (tmp_path / "whole").mkdir(exist_ok=True)
    kind = "file" if form == "links" else "matrix"
    assert built(tmp_path / "whole", FUZZED[form], kind=kind).n_devices == 3
    content = files[of_nodes]
    at, length = data.draw(st.integers(0, len(content))), data.draw(st.integers(0, 30))
    files[of_nodes] = content[:at] + data.draw(st.binary(max_size=5)) + content[at + length :]
    for name, content in zip(("net.csv", "nodes.csv"), files, strict=True):
        (tmp_path / name).write_bytes(content)
    net_file, nodes = str(tmp_path / "net.csv"), str(tmp_path / "nodes.csv")
    shape = Shape(kind, DEFAULT, DEFAULT, file=net_file, access_file=nodes)
    try:
        net = make_topology(shape, np.zeros(3, dtype=np.int64), (), np.random.default_rng(0))
    except TopologyError as error:
        assert str(error).startswith(str(tmp_path))
        assert "\n" not in str(error)
    else:
        assert net.hops.shape == (3, 3)
