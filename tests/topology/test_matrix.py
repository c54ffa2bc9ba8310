"""A network from measured matrices, and speeds node by node."""

from pathlib import Path

import numpy as np
import pytest

from coterie.topology.matrix import read_access, read_column, read_matrix
from coterie.topology.values import Topology
from netfiles import DEFAULT, refusal

SPEED = ",x,y,z\nx,,2,4\ny,3,,\nz,5,,\n"  # y and z were not measured


def matrices(tmp_path: Path, speed: str, latency: str | None = None) -> Topology:
    (tmp_path / "mb.csv").write_text(speed)
    if latency is not None:
        (tmp_path / "s.csv").write_text(latency)
    return read_matrix(
        tmp_path / "mb.csv", None if latency is None else tmp_path / "s.csv", DEFAULT
    )


@pytest.mark.parametrize(
    ("speed", "named"),
    [
        (SPEED, True),
        ("x,y,z\n,2,4\n3,9,nan\n5,nan,-1\n", True),
        ("x,,2,4\ny,3,,\nz,5,,\n", True),
        ("0,2,4\n3,0,\n5,,0\n", False),
    ],
)
def test_every_measured_pair_has_its_own_link(tmp_path: Path, speed: str, named: bool) -> None:
    net = matrices(tmp_path, speed)
    assert net.switch_of.tolist() == [0, 1, 2]
    assert net.links.tolist() == [[0, 1], [0, 2]]
    assert (net.bytes_per_s / 1e6).tolist() == [4, 5, 3, 2, 5, 4, 2, 3, 4, 5]
    assert net.latency_s.tolist() == [0, 0, 0, 0.001, 0.001]
    assert net.hops.tolist() == [[0, 3, 3], [3, 0, 4], [3, 4, 0]]
    assert net.names == (
        ("x", "y", "z", "switch of x", "switch of y", "switch of z") if named else ()
    )


def test_the_latency_of_a_pair_is_the_mean_of_what_is_measured(tmp_path: Path) -> None:
    net = matrices(tmp_path, "0,2,4\n3,0,6\n5,7,0\n", "0,0.1,0.4\n0.2,0,\n,,0\n")
    assert net.latency_s.tolist() == pytest.approx([0, 0, 0, 0.15, 0.4, 0.001])


@pytest.mark.parametrize(
    ("speed", "says"),
    [
        ("", "has no numbers"),
        ("x,y\n", "has no numbers"),
        ("1\n", "line 1: a matrix must have n rows of n values, n >= 2"),
        ("0,2\n3,0\n4,5\n", "line 1: a matrix must have n rows of n values"),
        ("0,2,3\n3,0\n4,5,0\n", "line 2: a matrix must have n rows of n values, n >= 2, got 2 val"),
        ("0,2\n0,0\n", "line 2, value 1: mbytes_per_s must be a finite number above 0, got '0'"),
        ("0,fast,1\n1,0,1\n1,1,0\n", "line 1, value 2: mbytes_per_s must be a finite number abo"),
        ("0,2\n,0\n", "'node 0' to 'node 1' has a speed, but the way back has none"),
        ("0,2,\n3,0,\n,,0\n", "'node 0' and 'node 2' cannot reach each other"),
        (",x,y\nx,,1\nz,1,\n", "the names of the rows and of the columns must be the same"),
        (",x,x\nx,,1\nx,1,\n", "each of 2 devices needs its own name, got 'x', 'x'"),
        ("x,y,z\n,1\n1,\n", "each of 2 devices needs its own name"),
        (",0,1\n0,,5\n1,5,\n", "names that are numbers cannot be told from speeds"),
    ],
)
def test_bad_matrices_are_refused(tmp_path: Path, speed: str, says: str) -> None:
    assert says in refusal(tmp_path / "mb.csv", lambda: matrices(tmp_path, speed))


@pytest.mark.parametrize(
    ("latency", "says"),
    [
        ("0,1\n1,0\n", "must be of the same 3 devices as the speeds, in that order"),
        (",y,x,z\ny,,1,1\nx,1,,1\nz,1,1,\n", "must be of the same 3 devices"),
        ("0,-1,1\n1,0,1\n1,1,0\n", "line 1, value 2: latency_s must be a finite number >= 0"),
    ],
)
def test_bad_latencies_are_refused(tmp_path: Path, latency: str, says: str) -> None:
    assert says in refusal(tmp_path / "s.csv", lambda: matrices(tmp_path, SPEED, latency))


NAMES = ("p1", "p2", "p3", "bs1")  # three devices and a switch


def test_access_speeds_are_given_by_name_number_or_row(tmp_path: Path) -> None:
    path = tmp_path / "access.csv"
    path.write_text("gflops,node,mbytes_per_s,up_mbytes_per_s,latency_ms\n7,2,5,1,\n7,p1,8,,4\n")
    up, down, latency_s = read_access(path, NAMES, 3)
    assert np.array_equal(up, [8e6, np.nan, 1e6], equal_nan=True)
    assert np.array_equal(down, [8e6, np.nan, 5e6], equal_nan=True)
    assert np.array_equal(latency_s, [0.004, np.nan, np.nan], equal_nan=True)
    path.write_text("down_mbytes_per_s\n1\n2\n3\n")
    up, down, _ = read_access(path, (), 3)
    assert np.isnan(up).all()
    assert down.tolist() == [1e6, 2e6, 3e6]


def test_a_node_whose_name_is_a_number_is_called_by_it(tmp_path: Path) -> None:
    path = tmp_path / "access.csv"
    path.write_text("node,gflops\n1,10\n2,20\n")
    assert read_column(path, ("2", "1"), 2, "gflops").tolist() == [20, 10]
    path.write_text("node,gflops\n0,10\n1,20\n")
    assert "unknown node '0'; there is '2', '1'" in refusal(
        path, lambda: read_column(path, ("2", "1"), 2, "gflops")
    )
    path.write_text("node,gflops\nx,10\n")
    said = refusal(path, lambda: read_column(path, (), 5, "gflops"))
    assert said == "line 2: unknown node 'x'; there is '0', '1', '2' and 2 more"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "needs a column of mbytes_per_s"),
        ("node,gflops\np1,3\n", "latency_s, latency_ms, got 'node', 'gflops'"),
        (
            "node,mbytes_per_sec\np1,3\n",
            "unknown column 'mbytes_per_sec'; did you mean 'mbytes_per_s'?",
        ),
        ("mbytes_per_s\n3\n", "has 1 rows for 3 nodes; give each a row, or a column node"),
        ("node,mbytes_per_s\np9,3\n", "line 2: unknown node 'p9'; there is 'p1', 'p2', 'p3'"),
        ("node,mbytes_per_s\nbs1,3\n", "line 2: unknown node 'bs1'"),
        ("node,mbytes_per_s\n3,3\n", "line 2: unknown node '3'"),
        ("node,mbytes_per_s\np1,3\n0,3\n", "line 3: node '0' is there twice"),
        ("node,latency_s\np1,-3\n", "line 2: latency_s must be a finite number >= 0, got '-3'"),
    ],
)
def test_bad_access_speeds_are_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "access.csv"
    path.write_text(content)
    assert says in refusal(path, lambda: read_access(path, NAMES, 3))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("node,mbytes_per_s\np1,3\n", "needs a column gflops, got 'node', 'mbytes_per_s'"),
        ("node,gflops\np1,1\np3,1\n", "node 'p2' has no gflops; every node needs one"),
        ("gflops\n1\n0\n1\n", "line 3: gflops must be a finite number above 0, got '0'"),
    ],
)
def test_every_node_needs_its_gflops(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(content)
    assert says in refusal(path, lambda: read_column(path, NAMES, 3, "gflops"))
