"""Planning from label counts and a network's file: `coterie plan --nodes --network`."""

import csv
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.cli import main
from coterie.config.files import expand
from coterie.core.csv_rows import read_rows
from coterie.core.errors import CoterieError
from coterie.preview.from_labels import kind_of, plans_by_labels, read_histograms
from coterie.preview.plan import PlanView, plans
from coterie.preview.planfile.reading import read_plan
from coterie.topology import Speed
from coterie.topology.matrix import read_matrix

QUICK = ["algorithm.shakes=0", "algorithm.num_groups=3"]
ODD = ["cam 1", 'the "old" one', "gate, north", "ärmel", "<b>", "$x$", "it's", "-", "n9"]
NAMES = [*ODD, *(f"n{i}" for i in range(10, 19))]  # for fewer, the planner takes its time
CLASSES = ["car", "truck", "bicycle"]
Counts = Mapping[str, Sequence[int]]
# Mostly one class each, so that a balanced group has as many nodes of each class.
SKEWED: Counts = {name: [90 if k == i % 3 else 5 for k in range(3)] for i, name in enumerate(NAMES)}


def write_rows(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def write_nodes(
    path: Path, counts: Counts = SKEWED, edges: Mapping[str, str] | None = None
) -> Path:
    head = ["node", *(["edge"] if edges else []), *CLASSES]
    rows = [[n, *([edges[n]] if edges else []), *counts[n]] for n in counts]
    return write_rows(path, [head, *rows])


def write_matrix(path: Path, names: Sequence[str] = NAMES) -> Path:
    """Speeds by the nodes' names, unlike each way, so that the order of rows is only an order."""
    order = sorted(NAMES)

    def speed(a: str, b: str) -> float | str:
        i, j = order.index(a), order.index(b)
        return "" if a == b else 5 + (3 * i + 5 * j) % 11

    return write_rows(path, [["", *names], *([a, *(speed(a, b) for b in names)] for a in names)])


def write_links(path: Path, names: Sequence[str] = NAMES) -> Path:
    """Three switches in a row, nodes in turns."""
    order = sorted(NAMES)
    rows: list[list[object]] = [["a", "b", "mbytes_per_s", "tier"]]
    rows += [[n, f"switch {order.index(n) % 3}", 10 + order.index(n), "access"] for n in names]
    rows += [["switch 0", "switch 1", 50, "core"], ["switch 1", "switch 2", 20, "core"]]
    return write_rows(path, rows)


def view_of(nodes: Path, network: Path, *methods: str, sets: Sequence[str] = QUICK) -> PlanView:
    return plans_by_labels(nodes, network, 31_400, sets, methods=methods or ("coterie",))


def groups_by_name(view: PlanView) -> set[tuple[str, frozenset[str]]]:
    """Every chosen group: its server, and its nodes."""
    chosen = view.chosen.grouping
    return {
        (
            view.node_name(int(server)),
            frozenset(map(view.node_name, np.flatnonzero(chosen.z == k).tolist())),
        )
        for k, server in enumerate(chosen.servers)
    }


def run(*words: object) -> Result:
    sets = [part for key in QUICK for part in ("--set", key)]
    return CliRunner().invoke(main, ["plan", *sets, *map(str, words)])


@pytest.fixture(params=["matrix", "links"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write = write_matrix if request.param == "matrix" else write_links
    return write(tmp_path / "net.csv")


def test_groups_are_balanced_far_beyond_random_ones(tmp_path: Path, network: Path) -> None:
    view = view_of(write_nodes(tmp_path / "nodes.csv"), network, "coterie", "random")
    by = {p.name: p for p in view.points}
    assert view.seen == "label shares"
    assert not view.timed
    assert view.chosen.sizes == [6, 6, 6]
    assert by["random"].Delta > 0.1
    assert view.chosen.Delta < 0.1 * by["random"].Delta
    assert [group.distance for group in view.groups] == pytest.approx([0, 0, 0], abs=1e-12)


def test_the_same_nodes_in_an_experiment_are_planned_alike(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(8)]
    links = [[n, f"s{i % 3}", 10 + i] for i, n in enumerate(names)]
    net = write_rows(
        tmp_path / "net.csv",
        [["a", "b", "mbytes_per_s"], *links, ["s0", "s1", 30], ["s1", "s2", 40]],
    )
    raw = {
        "data": {"sample": 0.2},
        "partition": {"kind": "dirichlet", "num_nodes": 8, "num_edges": 3},
        "network": {"topology": "file", "file": str(net)},
        "algorithm": {"evidence": "labels", "num_groups": 3, "shakes": 0},
    }
    there = plans(expand(raw))
    counts, edge_of = there.fleet.class_counts, there.fleet.edge_of
    head = ["node", "edge", *(f"class {k}" for k in range(counts.shape[1]))]
    rows = [[names[i], edge_of[i], *counts[i]] for i in range(8)]
    nodes = write_rows(tmp_path / "nodes.csv", [head, *rows])
    here = plans_by_labels(nodes, net, there.model_bytes, QUICK)
    assert here.left_out == there.left_out == ()
    assert here.global_s == there.global_s
    assert [p.name for p in here.points] == [p.name for p in there.points]
    for ours, theirs in zip(here.points, there.points, strict=True):
        assert ours.grouping.z.tolist() == theirs.grouping.z.tolist()
        assert ours.grouping.servers.tolist() == theirs.grouping.servers.tolist()
        assert (ours.Delta, ours.group_s) == (theirs.Delta, theirs.group_s)


@settings(max_examples=6, deadline=None)
@given(rows=st.permutations(NAMES), columns=st.permutations(CLASSES), data=st.data())
def test_the_order_of_nodes_and_classes_changes_no_group(
    tmp_path: Path, rows: list[str], columns: list[str], data: st.DataObject
) -> None:
    some = st.lists(st.integers(0, 50), min_size=3, max_size=3).filter(any)
    counts = {name: data.draw(some) for name in NAMES}
    if len({tuple(c) for c in counts.values()}) == 1:
        counts[NAMES[0]] = [1, 2, 60]
    net = write_links(tmp_path / "net.csv")
    first = view_of(write_nodes(tmp_path / "one.csv", counts), net)
    at = [CLASSES.index(name) for name in columns]
    lines: list[list[object]] = [
        ["node", *columns],
        *([name, *(counts[name][k] for k in at)] for name in rows),
    ]
    other = view_of(write_rows(tmp_path / "other.csv", lines), net)
    assert groups_by_name(first) == groups_by_name(other)
    assert first.chosen.cost == other.chosen.cost


@pytest.mark.parametrize("write", [write_matrix, write_links])
def test_the_order_of_the_network_changes_nothing(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    nodes = write_nodes(tmp_path / "nodes.csv")
    turned = random.Random(3).sample(NAMES, len(NAMES))
    one = view_of(nodes, write(tmp_path / "one.csv"), "coterie", "random", "cov")
    other = view_of(nodes, write(tmp_path / "other.csv", turned), "coterie", "random", "cov")
    assert groups_by_name(one) == groups_by_name(other)
    assert one.global_s == other.global_s
    assert [(p.name, p.Delta, p.group_s) for p in one.points] == [
        (p.name, p.Delta, p.group_s) for p in other.points
    ]


def test_counts_and_speeds_stay_with_their_names(tmp_path: Path) -> None:
    nodes, net = write_nodes(tmp_path / "nodes.csv"), write_matrix(tmp_path / "net.csv")
    view = view_of(nodes, net)
    names, counts = view.fleet.names, view.fleet.class_counts
    assert names[-2:] == ('the "old" one', "ärmel")
    in_order = sorted(range(3), key=lambda k: CLASSES[k])
    assert {name: row.tolist() for name, row in zip(names, counts, strict=True)} == {
        name: [SKEWED[name][k] for k in in_order] for name in NAMES
    }
    topology, read = view.fleet.network.topology, read_matrix(net, None, Speed())
    assert topology.names != read.names
    for one, other in ((topology, read), (read, topology)):
        at = {one.link_name(u): float(one.bytes_per_s[u]) for u in range(len(one.bytes_per_s))}
        for u, speed in enumerate(other.bytes_per_s):
            assert at[other.link_name(u)] == speed


def test_edges_are_as_told_or_the_switches(tmp_path: Path) -> None:
    edges = {name: "10" if i < 4 else "9" for i, name in enumerate(NAMES)}
    matrix, links = write_matrix(tmp_path / "matrix.csv"), write_links(tmp_path / "links.csv")
    told, bare = write_nodes(tmp_path / "told.csv", edges=edges), write_nodes(tmp_path / "bare.csv")
    view = view_of(told, matrix, "edge")
    assert view.fleet.edge_names == ("9", "10")
    assert next(p for p in view.points if p.name == "edge").sizes == [14, 4]
    view = view_of(bare, links, "edge")
    assert view.fleet.edge_names == ("switch 0", "switch 1", "switch 2")
    assert next(p for p in view.points if p.name == "edge").sizes == [6, 6, 6]
    view = view_of(bare, matrix, "edge", "random")
    assert view.left_out == (
        f"edge: {bare} has no column edge, and every node is on a switch of its own",
    )
    assert [p.name for p in view.methods] == ["random"]
    assert view_of(bare, matrix, "edge").methods == []


def test_places_that_serve_do_so(tmp_path: Path) -> None:
    nodes = [{"id": name} for name in NAMES]
    places = [{"id": "base 1", "server": True}, {"id": "base 2", "server": True}]
    edges = [{"source": n, "target": f"base {1 + i % 2}"} for i, n in enumerate(NAMES)]
    edges.append({"source": "base 1", "target": "base 2"})
    net = tmp_path / "net.json"
    net.write_text(json.dumps({"nodes": [*places, *nodes], "edges": edges}))
    view = view_of(write_nodes(tmp_path / "nodes.csv"), net)
    assert {server for server, _ in groups_by_name(view)} <= {"base 1", "base 2"}


def test_a_million_examples_a_node_take_no_memory(tmp_path: Path) -> None:
    counts = {name: [10**12, 0, 10**12] for name in NAMES}
    counts[NAMES[0]] = [0, 10**12, 0]
    view = view_of(write_nodes(tmp_path / "nodes.csv", counts), write_links(tmp_path / "net.csv"))
    assert sum(group.examples for group in view.groups) == 35 * 10**12


@pytest.mark.parametrize(
    ("text", "names", "kind"),
    [
        (",a,b\na,,1\nb,1,\n", ["a", "b"], "matrix"),
        ("a,b\n,1\n1,\n", ["a", "b"], "matrix"),
        ("corner,a,b,c\na,,1,1\nb,1,,1\nc,1,1,\n", ["a", "c"], "matrix"),
        ("a,b\nx,switch\ny,switch\n", ["a", "b"], "file"),
        ("a,b,mbytes_per_s\n1,9,5\n2,9,5\n", ["1", "2"], "file"),
        ("source,target\nx,s\ny,s\n", ["x", "y"], "file"),
        ("a,b,mbyte_per_s\nx,switch,3\n", ["x"], "file"),
        ("x,,1,1\ny,1,,1\nz,1,1,\n", ["x"], "matrix"),
        ("", ["x"], "matrix"),
    ],
)
def test_a_matrix_is_told_from_links_by_what_is_in_it(
    tmp_path: Path, text: str, names: list[str], kind: str
) -> None:
    path = tmp_path / "net.csv"
    path.write_text(text)
    assert kind_of(path, names) == kind
    assert kind_of(path.with_suffix(".graphml"), names) == "file"


def test_three_nodes_are_planned_without_a_number_of_groups(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text(",a,b,c\na,,12,3\nb,12,,3\nc,3,3,\n")
    (tmp_path / "nodes.csv").write_text("node,cat,dog\na,90,10\nb,0,80\nc,40,0\n")
    view = plans_by_labels(tmp_path / "nodes.csv", tmp_path / "net.csv", 1000, methods=["coterie"])
    assert len(view.chosen.sizes) == 2


def test_a_matrix_of_nodes_called_a_and_b_is_planned(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text("a,b\n,1\n2,\n")
    (tmp_path / "nodes.csv").write_text("b,node,a\n5, b ,0\n\n1,a,9\n")
    view = view_of(
        tmp_path / "nodes.csv",
        tmp_path / "net.csv",
        sets=["algorithm.num_groups=1", "algorithm.shakes=0"],
    )
    assert view.fleet.names == ("a", "b")
    assert view.fleet.class_counts.tolist() == [[9, 1], [0, 5]]


def test_the_command_prints_draws_saves_and_exports(
    tmp_path: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_nodes(tmp_path / "my nodes.csv")
    words = ["--nodes", "my nodes.csv", "--network", "net.csv", "--model-bytes", 31_400]
    words += ["--set", "algorithm.tau1=2", "--save", "groups.csv", "--export", "plan.json"]
    done = run(*words)
    assert done.exit_code == 0, done.output
    title = "my nodes.csv on net.csv, seed 0, local steps not timed (0 s): 18 nodes by fedavg-ic"
    said = " ".join(done.output.split())
    assert title in said
    assert "times are of transfers; how long a local step takes is not known: 0 s" in said
    assert "Delta: by label shares; cost" in said
    assert "a run" not in said
    page = (tmp_path / "runs" / "plan-my nodes.html").read_text()
    assert title in page
    assert "how long a local step takes is not known: 0 s" in page
    assert (tmp_path / "runs" / "plan-my nodes.png").read_bytes()[:4] == b"\x89PNG"
    plan = read_plan(tmp_path / "plan.json")
    assert plan.title == title
    assert set(plan.names) == set(NAMES)
    assert [node.examples for node in plan.nodes] == [100] * 18
    assert (plan.model_bytes, plan.tau1, plan.tau2, plan.steps) == (31_400, 2, 5, 100)
    assert plan.predicted.step_s == 0
    assert plan.predicted.round_s == pytest.approx(
        4 * plan.predicted.group_s + plan.predicted.global_s
    )
    rows = [cells for _, cells in read_rows(tmp_path / "groups.csv", CoterieError)[1]]
    assert [(r["node"], int(r["group"]), r["server"]) for r in rows] == [
        (node.node, node.group, plan.servers[node.group]) for node in plan.nodes
    ]
    for k in range(3):  # two nodes of each class
        classes = sorted(NAMES.index(node.node) % 3 for node in plan.members(k))
        assert classes == [0, 0, 1, 1, 2, 2]


def test_json_and_a_plan_as_csv_say_the_same(tmp_path: Path) -> None:
    nodes, net = write_nodes(tmp_path / "nodes.csv"), write_links(tmp_path / "net.csv")
    out = tmp_path / "plan.csv"
    words = ["--nodes", nodes, "--network", net, "--model-bytes", 31_400, "--methods", "coterie"]
    done = run(*words, "--json", "--export", out)
    assert done.exit_code == 0, done.output
    said, plan = json.loads(done.stdout), read_plan(out)
    assert said["chosen"]["nodes"] == list(plan.names)
    assert said["chosen"]["z"] == [node.group for node in plan.nodes]
    assert said["chosen"]["used_by_a_run"] is None
    assert said["step_s_known"] is False
    assert said["Delta_by"] == "label shares"


NODES = "node,car,truck\nx,5,1\ny,0,4\n"
NET = "a,b\nx,s\ny,s\n"
BAD = [
    ("", NET, "needs a column node, separated by commas, got none"),
    ("name,car\nx,5\n", NET, "needs a column node, separated by commas, got 'name', 'car'"),
    ("node,edge\nx,n\n", NET, "needs a column for every class, separated by commas, got 'node'"),
    ("node;car\nx;5\n", NET, "needs a column node, separated by commas, got 'node;car'"),
    ("node,car\n", NET, "has no nodes; give each a row"),
    ("node,car,car\nx,5,1\n", NET, "a column is there twice in 'node', 'car', 'car'"),
    ("node,car,\nx,5,1\n", NET, "a column has no name; a class has one"),
    ("node,Edge,car\nx,1,5\n", NET, "unknown column 'Edge'; did you mean 'edge'?"),
    ("node,gflops,car\nx,1,5\n", NET, "column 'gflops' is no class: nothing is timed but trans"),
    ("node,server,car\nx,yes,5\n", NET, "column 'server' is no class: a device has may_serve; s"),
    ("node,up_mbit,car\nx,1,5\n", NET, "column 'up_mbit' is no class; of a node's own link ther"),
    ("node,May Serve,car\nx,1,5\n", NET, "unknown column 'May Serve'; did you mean 'may_serve'?"),
    ("node,capacity,car\nx,0,5\n", NET, "line 2: capacity must be a whole number of members from"),
    ("node,may_serve,car\nx,no,5\ny,perhaps,5\n", NET, "line 3: may_serve must be yes or no, got"),
    ("node,may_serve,car\nx,no,5\ny,no,5\n", NET, "no device may serve and no place does; let one"),
    ("node,latency_ms,car\nx,,5\ny,-1,5\n", NET, "line 3: latency_ms must be a finite number >="),
    ("node,up_mbit_per_s,car\nx,nan,5\ny,,5\n", NET, "line 2: up_mbit_per_s must be a finite num"),
    ("node,car\nx,5\ny\n", NET, "line 3: must have 2 values, got 1"),
    ("node,car\nx,5\nx,6\n", NET, "line 3: node 'x' is there twice"),
    ("node,car\n ,5\n", NET, "line 2: node must be a name, got ''"),
    ('node,car\n"x\ny",5\n', NET, "line 3: node must be a name, got 'x\\ny'"),
    ("node,edge,car\nx,,5\n", NET, "line 2: edge must be a name, got ''"),
    ("node,car\nx,-1\n", NET, "line 2: 'car' must be a whole number of examples from 0 to 1,000,"),
    ("node,car\nx,1.5\n", NET, "got '1.5'"),
    ("node,car\nx,\n", NET, "from 0 to 1,000,000,000,000, got ''"),
    ("node,car\nx,1_0\n", NET, "got '1_0'"),
    ("node,car\nx,1000000000001\n", NET, "got '1000000000001'"),
    ("node,car\nx,5\ny,0\n", NET, "line 3: node 'y' has no example; every node needs one"),
    (NODES + "z,1,1\n", NET, "nodes.csv: node 'z' is not in"),
    (NODES + "s,1,1\n", NET, "net.csv, but a switch"),
    ("node,car\nx,5\n", NET, "nodes.csv: has no node 'y', which is in"),
    (NODES, ",x,z\nx,,1\nz,1,\n", "nodes.csv: node 'y' is not in"),
    (NODES, ",1\n1,\n", "net.csv: does not name its nodes; give the matrix a header of names"),
    (NODES, ",x,y\nx,,0\ny,1,\n", "must be a finite number above 0, got '0'"),
    (NODES, ",x,y\nx,,1\n", "a matrix must have n rows of n values, n >= 2"),
    (NODES, "", "net.csv: has no numbers"),
    (NODES, "a,b,speed\nx,s,1\ny,s,1\n", "net.csv: unknown column 'speed'"),
    (NODES, "a,b\nx,s\ny,s\nv,w\nw,u\n", "cannot reach each other; join all in one network"),
]


@pytest.mark.parametrize(("nodes", "net", "said"), BAD, ids=[said[:40] for *_, said in BAD])
def test_a_bad_file_is_named_in_one_line(tmp_path: Path, nodes: str, net: str, said: str) -> None:
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "net.csv").write_text(net)
    with pytest.raises(CoterieError) as refused:
        view_of(tmp_path / "nodes.csv", tmp_path / "net.csv", sets=["algorithm.shakes=0"])
    assert said in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "net.csv").write_text(NET)
    (tmp_path / "net.txt").write_text(NET)
    (tmp_path / "raw.csv").write_bytes(b"\xff\xfe\x00")
    for nodes, net, said in (
        ("none.csv", "net.csv", "none.csv: cannot be read (No such file or directory)"),
        ("nodes.csv", "none.csv", "none.csv: cannot be read (No such file or directory)"),
        ("nodes.csv", "none.json", "none.json: cannot be read (No such file or directory)"),
        ("nodes.csv", "net.txt", "net.txt: a network is a .graphml, .json or .csv file"),
        ("raw.csv", "net.csv", "raw.csv: not a CSV file"),
        ("nodes.csv", "raw.csv", "raw.csv: not a CSV file"),
    ):
        with pytest.raises(CoterieError, match=r"^/") as refused:
            view_of(tmp_path / nodes, tmp_path / net, sets=["algorithm.shakes=0"])
        assert said in str(refused.value)


def test_what_cannot_be_planned_so_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    nodes, net = write_nodes(tmp_path / "nodes.csv"), write_links(tmp_path / "net.csv")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    all_three = ("--nodes", nodes, "--network", net, "--model-bytes", 31_400)

    def also(key: str) -> tuple[object, ...]:
        return (*all_three, "--set", key)

    none = "needs FILE, or --nodes, --network and --model-bytes; see coterie plan --help"
    for words, said in (
        ((), none),
        (("--nodes", nodes), "without FILE, --network and --model-bytes must be given too"),
        (all_three[:4], "without FILE, --model-bytes must be given too"),
        (("quickstart", *all_three), "FILE says all that --nodes does; leave one of them out"),
        (("quickstart", "--model-bytes", 5), "FILE says all that --model-bytes does; leave one"),
        ((*all_three[:5], 0), "--model-bytes must be a size such as 5MB or 5MiB, above 0 and at"),
        ((*all_three[:5], 10**12 + 1), "at most 1,000,000,000,000 whole bytes, got '100000000000"),
        ((*all_three[:5], "5Mb"), "--model-bytes must be a size such as 5MB or 5MiB, got '5Mb'"),
        (also("network.latency_s=5 km"), "network.latency_s must be a time such as 2s, 500ms, 1m"),
        (also("network.topology=matrix"), "--set network.topology is not read with --nodes: the f"),
        (also("algorithm.evidence=sketch"), "--set algorithm.evidence is not read with --nodes"),
        (also("train.lr=1"), "--set train.lr is not read with --nodes: nothing is trained; leave"),
        (also("compute.gflops=1"), "--set compute.gflops is not read with --nodes: nothing is tr"),
        (also("partition.num_nodes=4"), "--set partition.num_nodes is not read with --nodes"),
        (also("algorithm.num_groups=19"), "must be <= num_nodes, got 19 groups for 18 nodes"),
        (also("algorithm.num_group=3"), "did you mean"),
        (also("algorithm.max_group_size=2"), "3 groups of at most 2 have no room for 18"),
        ((*all_three, "--methods", "astrea"), "unknown grouping 'astrea'; did you mean 'astraea'?"),
        ((*all_three, "--save", nodes), "--save and --nodes must be different files, got"),
        ((*all_three, "--export", net), "--export and --network must be different files, got"),
        ((*all_three, "--export", tmp_path / "x.txt"), "--export must end in .json or .csv"),
    ):
        done = run("-o", tmp_path / "plan.html", *words)
        assert done.exit_code == 2, done.output
        assert done.output.startswith("coterie: ")
        assert said in done.output
        assert done.output.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_settings_of_network_and_search_are_heeded(tmp_path: Path) -> None:
    nodes, net = write_nodes(tmp_path / "nodes.csv"), write_links(tmp_path / "net.csv")
    near = view_of(nodes, net, sets=[*QUICK, "network.latency_s=0.0"])
    far = view_of(nodes, net, sets=[*QUICK, "network.latency_s=0.5", "algorithm.tau2=7", "seed=2"])
    assert far.global_s > near.global_s + 1
    assert far.algorithm.tau2 == 7
    assert "seed 2" in far.title


def test_help_teaches_both_forms() -> None:
    said = CliRunner().invoke(main, ["plan", "--help"]).output
    assert "coterie plan --nodes nodes.csv --network net.csv --model-bytes 5MB" in said
    assert "[FILE]" in said


def test_the_example_of_the_help_is_one(tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["plan", "--help"]).output
    lines = said[said.index("  node,edge,cat,dog") :].splitlines()[:4]
    columns = [[cell.strip() for cell in line.strip().split("  ") if cell] for line in lines]
    files = ["\n".join(column) + "\n" for column in zip(*columns, strict=True)]
    for name, text in zip(("nodes", "matrix", "links"), files, strict=True):
        (tmp_path / f"{name}.csv").write_text(text)
    assert read_histograms(tmp_path / "nodes.csv").edges == ("north", "north", "south")
    for name in ("matrix", "links"):
        two = ["algorithm.num_groups=2", "algorithm.shakes=0"]
        view = view_of(tmp_path / "nodes.csv", tmp_path / f"{name}.csv", sets=two)
        assert sorted(view.chosen.sizes) == [1, 2]
