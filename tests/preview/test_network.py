"""What `coterie network` says and draws."""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from coterie.cli import main
from coterie.config.files import expand, make_config
from coterie.config.prepare import prepare
from coterie.core.errors import ConfigError
from coterie.network import ns3
from coterie.network.flows import flow_seconds
from coterie.network.ns3 import Measured
from coterie.network.values import Flows
from coterie.preview.network import NetworkView, views
from coterie.render.page.html import png
from coterie.render.page.network import layout, view_figure
from coterie.topology import Shape, Topology, make_topology
from needed import needs_ns3

SMALL: dict[str, Any] = {
    "partition": {"kind": "iid", "num_nodes": 8, "num_edges": 4},
    "algorithm": {"name": "hierfavg"},
}
SETS = ["partition.kind=iid", "partition.num_nodes=8", "partition.num_edges=4"]
RULES = ["fat-tree", "k-ary-fat-tree", "jellyfish", "edge-cloud", "waxman"]
NET = """\
a,b,mbytes_per_s,tier
phone$a$,station 1,2,access
phone b,station 1,4,access
<c>,station 2,8,access
station 1,station 2,50,metro
station 2,exchange,50,core
"""


def views_of(content: dict[str, Any], *, against: bool = False) -> list[NetworkView]:
    return list(views(expand(content), against=against, progress=lambda what, done, of: None))


def view_of(network: dict[str, object] | None = None, *, against: bool = False) -> NetworkView:
    (view,) = views_of({**SMALL, "network": network or {}}, against=against)
    return view


def run(folder: Path, *words: str, name: str = "hierfavg") -> Result:
    sets = [part for key in (*SETS, f"algorithm.name={name}") for part in ("--set", key)]
    out = ["-o", str(folder / "net.html")] if "-o" not in words and "--json" not in words else []
    return CliRunner().invoke(main, ["network", "quickstart", *sets, *out, *words])


@pytest.mark.parametrize(
    "network",
    [
        {},
        {"topology": "jellyfish", "tcp": "default", "routing": "single"},
        {"combine": "all"},
        {"procedure": "reference"},
    ],
    ids=str,
)
def test_the_figures_are_those_of_a_run(network: dict[str, object]) -> None:
    (member,) = view_of(network).members
    problem = prepare(make_config({**SMALL, "network": network})).problem
    assert member.step_s == problem.fleet.step_s
    for mean in (member.group, member.everyone):
        assert mean is not None
        z, servers = mean.grouping.z, mean.grouping.servers
        run_takes = problem.fleet.network.aggregation(z, servers, problem.model_bytes)
        up, down = mean.transfers
        assert (up + down).seconds == pytest.approx(run_takes.seconds, rel=1e-12)
        assert (up + down).bytes_by_tier == run_takes.bytes_by_tier
        assert up.seconds == problem.fleet.network.upload(z, servers, problem.model_bytes).seconds
        assert mean.load.sum() == sum(run_takes.bytes_by_tier.values())


def test_the_busiest_link_of_all_to_one_is_the_server_s_own() -> None:
    view = view_of()
    mean = view.members[0].everyone
    (server,) = mean.grouping.servers
    up, down = mean.busiest(2)
    switch = view.topology.switch_of[server]
    assert (up.link, up.way) == (f"switch {switch} -> node {server}", "up")
    assert (down.link, down.way) == (f"node {server} -> switch {switch}", "down")
    assert up.nbytes == 7 * view.nbytes
    packets = 7 * -(-view.nbytes // 1448)  # of 54 bytes of headers each
    assert up.busy_s == pytest.approx((up.nbytes + 54 * packets) / up.bytes_per_s)
    assert up.share == pytest.approx(up.busy_s / mean.transfers[0].seconds)
    assert all(0 < busy.share <= 1 for busy in mean.busiest(1000))


def test_the_slowest_flow_is_the_last_to_arrive(tmp_path: Path) -> None:
    speeds = "".join(f"{i},{0.1 if i == 6 else 10}\n" for i in range(8))
    (tmp_path / "access.csv").write_text(f"node,mbytes_per_s\n{speeds}")
    view = view_of({"access_file": str(tmp_path / "access.csv")})
    for mean in view.means:
        late = mean.slowest(1000)
        assert late[0].seconds == max(phase.seconds for _, phase in mean.phases)
        assert "node 6" in late[0].flow
        assert [each.seconds for each in late] == sorted((e.seconds for e in late), reverse=True)
        assert len(late) == sum(len(phase.flows) for _, phase in mean.phases)
        assert mean.slowest(3) == late[:3]
    assert view.members[0].everyone.slowest(1)[0].over_median > 2


def test_the_phases_of_combined_means_are_told_apart() -> None:
    mean = view_of({"topology": "edge-cloud", "combine": "all"}).members[0].everyone
    assert [name for name, _ in mean.phases] == ["up 1", "up 2", "down 1", "down 2"]
    assert mean.label == "global, combined"
    once = view_of({"procedure": "reference"}).members[0].everyone  # it times the way up only
    assert [name for name, _ in once.phases] == ["up"]


def test_a_sweep_is_shown_once_for_each_network_and_each_way_to_group() -> None:
    names = ["fedavg", "hierfavg", "fedavg-c", "centralized"]
    sweep = {"seed": [3, 4], "network.latency_s": [0.001, 0.1], "algorithm.name": names}
    sweep |= {"algorithm.tau1": [1, 2], "algorithm.num_groups": [2, 3]}
    near, far = views_of({**SMALL, "sweep": sweep})
    assert near.title == "fat-tree, mnist-f-mini, iid, seed 3, latency_s 0.001"
    labels = ["fedavg", "hierfavg", "fedavg-c, num_groups 2", "fedavg-c, num_groups 3"]
    assert [member.label for member in near.members] == labels
    assert [len(member.grouping.sizes) for member in near.members] == [1, 4, 2, 3]
    assert near.members[0].group is None
    assert len({id(member.everyone) for member in near.members}) == 1
    assert [mean.label for mean in near.means] == [
        *(f"{name} group" for name in labels[1:]),
        "global",
    ]
    assert near.means[-1].transfers[0].seconds < far.means[-1].transfers[0].seconds


def test_the_page_and_the_picture_need_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = [part for key in (*SETS, "algorithm.num_groups=3") for part in ("--set", key)]
    done = CliRunner().invoke(main, ["network", "quickstart", *sets, "--top", "2"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "8 devices, 20 switches, 40 links of 100 MByte/s and 1 ms; routing ecmp" in said
    assert "clock flow, TCP lossless, combine none; model sr, 31,400 bytes" in said
    names = ["network-quickstart.html", "network-quickstart.png"]
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == names
    assert all(f"wrote {Path('runs') / name}" in done.output for name in names)
    page, picture = (tmp_path / "runs" / name for name in names)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    text = page.read_text()
    assert "://" not in text
    assert "data:image/png;base64," in text
    for words in ("d_group", "Busiest links", "Slowest flows", "fedavg-ic group"):
        assert words in text
        assert words in done.output


def test_json_is_json_and_writes_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(tmp_path, "--json", "--top", "3")
    (view,) = json.loads(done.stdout)
    assert view["devices"] == 8
    assert view["network"]["tcp"] == "lossless"
    (row,) = view["algorithms"]
    (member,) = view_of().members
    assert member.group is not None
    up, down = member.group.transfers
    assert row["d_group"]["seconds"] == (up + down).seconds
    assert row["d_group"]["group_sizes"] == [2, 2, 2, 2]
    assert len(row["d_global"]["slowest"]) == len(row["d_global"]["busiest"]) == 3
    assert row["d_global"]["against_ns3"] == []
    assert list(tmp_path.iterdir()) == []
    done = run(tmp_path, "--json", "-o", "deep/net.html")
    assert json.loads(done.stdout)
    assert (tmp_path / "deep" / "net.png").is_file()
    assert "wrote deep" in done.stderr


def test_what_cannot_be_shown_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "taken").touch()
    for done, message in (
        (run(inside, "-o", str(inside)), "--out must name a file, such as network.html, got"),
        (run(inside, "-o", str(tmp_path / "taken" / "net.html")), "a folder that can be written"),
        (run(inside, name="fedavg-ci"), "did you mean 'fedavg-ic'?"),
        (run(inside, name="centralized"), "centralized has one node and no network"),
        (run(inside, "--set", "network.topology=star"), "star"),
        (run(inside, "--against", "ns2"), "'ns2' is not 'ns3'"),
        (run(inside, "--top", "0"), "0 is not in the range"),
    ):
        assert done.exit_code == 2, done.output
        assert done.output.startswith("coterie: ")
        assert message in done.output
        assert done.output.count("\n") == 1
    assert list(inside.iterdir()) == []


def test_without_ns3_nothing_is_said_but_the_way_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    for words in (("--against", "ns3"), ("--set", "network.clock=ns3")):
        done = run(tmp_path, *words)
        assert done.exit_code == 2
        assert done.output == "coterie: ns-3 is not installed; pip install 'coterie[ns3]'\n"
    assert list(tmp_path.iterdir()) == []


def twice_as_long(topology: Topology, flows: Flows, **options: object) -> Measured:
    return Measured(2 * flow_seconds(topology, flows), 3, 5.0, "lossless", "3.0", "TcpCubic")


@pytest.mark.parametrize("clock", ["flow", "ns3"])
def test_every_pattern_is_timed_once_by_each_clock(
    clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measure(topology: Topology, flows: Flows, **options: object) -> Measured:
        asked.append(options)
        return twice_as_long(topology, flows)

    monkeypatch.setattr(ns3, "driver_path", Path)
    monkeypatch.setattr(ns3, "measure", measure)
    view = view_of({"clock": clock, "time_limit_s": 7.0}, against=True)
    assert asked == 4 * [{"profile": "lossless", "time_limit_s": 7.0}]
    patterns = [f"{mean} {way}" for mean in ("hierfavg group", "global") for way in ("up", "down")]
    assert [each.pattern for each in view.compared] == patterns
    shown = [way.seconds for mean in view.means for way in mean.transfers]
    for each, seconds in zip(view.compared, shown, strict=True):
        assert each.ns3_s == pytest.approx(2 * each.flow_s)
        assert each.error == pytest.approx(-0.5)
        assert each.arrival_error == pytest.approx(0.5)
        assert (each.drops, each.ns3_cpu_s) == (3, 5.0)
        assert seconds == (each.flow_s if clock == "flow" else each.ns3_s)


@needs_ns3
def test_the_flow_clock_is_held_against_ns3(tmp_path: Path) -> None:
    done = run(tmp_path, "--against", "ns3", "--set", "network.topology=edge-cloud")
    assert done.exit_code == 0, done.output
    assert "The flow clock against ns-3" in done.output
    assert "hierfavg group down" in (tmp_path / "net.html").read_text()
    line = next(line for line in done.output.splitlines() if line.startswith("global up"))
    flow_ms, ns3_ms = map(float, line.split()[2:4])
    assert flow_ms == pytest.approx(ns3_ms, rel=0.1)


def test_ctrl_c_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ns3, "driver_path", Path)
    monkeypatch.setattr(ns3, "measure", stop)
    done = run(tmp_path, "--against", "ns3")
    assert done.exit_code == 130
    assert done.output == "coterie: stopped; nothing was written\n"
    monkeypatch.setattr("coterie.render.page.html.png", stop)
    assert run(tmp_path).output == "coterie: stopped; nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def apart(at: Any, topology: Topology) -> bool:
    """Whether every vertex has a place of its own."""
    return bool(
        len(np.unique(at.round(6), axis=0)) == topology.n_vertices and np.isfinite(at).all()
    )


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize(("n", "edges"), [(1, 1), (2, 2), (100, 10), (1200, 24), (60, 60)])
def test_every_vertex_has_a_place_of_its_own(kind: str, n: int, edges: int) -> None:
    if kind == "fat-tree" and edges == 60:
        edges = 30  # it grows with the cube
    edge_of = np.arange(n) % edges
    topology = make_topology(Shape(kind), edge_of, (), np.random.default_rng(0))
    at = layout(kind, topology)
    assert at.shape == (topology.n_vertices, 2)
    assert apart(at, topology)


@pytest.mark.parametrize("kind", RULES)
def test_every_network_by_rule_is_drawn(kind: str) -> None:
    view = view_of({"topology": kind})
    assert png(view_figure(view))[:4] == b"\x89PNG"


def test_a_network_of_one_device_is_drawn_and_sends_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "--set", "partition.num_nodes=1", "--set", "partition.num_edges=1")
    assert done.exit_code == 0, done.output
    assert "1 devices" in done.output
    assert "Busiest" not in done.output
    assert (tmp_path / "net.png").is_file()


def test_a_file_names_what_is_shown(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text(NET)
    words = ["network.topology=file", f"network.file={tmp_path / 'net.csv'}"]
    words += ["partition.num_nodes=3", "partition.num_edges=2"]
    done = run(tmp_path, *(part for word in words for part in ("--set", word)))
    assert done.exit_code == 0, done.output
    assert "links of 2 to 50 MByte/s" in done.output
    assert "phone$a$ -> " in done.output
    text = (tmp_path / "net.html").read_text()
    assert "&lt;c&gt;" in text
    assert "<c>" not in text


def test_measured_speeds_between_nodes_are_drawn(tmp_path: Path) -> None:
    rows = [["" if i == j else str(1 + i + j) for j in range(8)] for i in range(8)]
    (tmp_path / "speeds.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    view = view_of({"topology": "matrix", "file": str(tmp_path / "speeds.csv")})
    assert apart(layout("matrix", view.topology), view.topology)
    assert png(view_figure(view))[:4] == b"\x89PNG"


def test_more_groups_than_colours_and_more_links_than_can_be_seen_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coterie.render.page.network.MOST_UNUSED", 10)
    content = {**SMALL, "partition": {"kind": "iid", "num_nodes": 40, "num_edges": 20}}
    (view,) = views_of({**content, "network": {"topology": "jellyfish"}})
    assert len(view.members[0].grouping.sizes) == 20
    assert png(view_figure(view))[:4] == b"\x89PNG"


def test_only_centralized_has_no_network_to_show() -> None:
    with pytest.raises(ConfigError, match="no network; set another algorithm"):
        views_of({"algorithm": {"name": "centralized"}})


@pytest.mark.parametrize("key", ["num_groups", "tau1", "tau2"])
def test_what_a_pilot_chooses_is_chosen_before_it_is_shown(key: str) -> None:
    content = {**SMALL, "train": {"steps": 15}, "algorithm": {"num_groups": 2, key: "auto"}}
    (view,) = views_of(content)
    assert view.members[0].everyone.up[0].seconds > 0
