"""Networks, clocks and speeds as an experiment file names them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.config.settings import Config
from coterie.core.errors import ConfigError, GroupingError, TopologyError
from coterie.grouping import Grouping, check_grouping
from coterie.runs.execute import simulate
from coterie.simulation.clock import draw_speeds
from coterie.simulation.state import State

LINKS = "a,b,mbytes_per_s,latency_ms\n" + "".join(
    f"phone{i},bs{i // 5},{1 + i},20\n" for i in range(10)
)


def small(**sections: dict[str, Any]) -> Config:
    given: dict[str, Any] = {
        "partition": {"num_nodes": 10, "num_edges": 2, "kind": "iid"},
        "algorithm": {"name": "fedavg-ic", "num_groups": 2},
        "train": {"steps": 5},
        "data": {"sample": 0.1},
    }
    return make_config(given | sections)


def last(config: Config) -> State:
    return list(simulate(config))[-1]


def test_base_stations_and_the_cloud_serve() -> None:
    state = last(small(network={"topology": "edge-cloud"}, algorithm={"name": "hierfavg"}))
    assert state.groups is not None
    assert state.groups.grouping.servers.tolist() == [10, 11]  # the base stations
    problem = prepare(small(network={"topology": "edge-cloud"})).problem
    assert problem.everyone.grouping.servers.tolist() == [12]  # the cloud, two links from all


def test_a_planner_may_name_places_and_nothing_else_besides_members() -> None:
    z = np.array([0, 0, 1])
    check_grouping(Grouping(z, np.array([4, 2])), 3, np.array([4, 5]))
    for servers in ([3, 2], [-1, 2], [2, 0], [9, 9]):
        with pytest.raises(GroupingError, match="a planner must name"):
            check_grouping(Grouping(z, np.array(servers)), 3, np.array([4, 5]))
    with pytest.raises(GroupingError, match="a planner must name one of the 3 nodes"):
        check_grouping(Grouping(z, np.array([4, 2])), 3)


def test_combining_changes_bytes_and_time_and_never_the_result() -> None:
    apart, combined = (
        last(small(network={"combine": combine, "link_mbytes_per_s": 1.0}))
        for combine in ("none", "all")
    )
    assert combined.row.test_accuracy == apart.row.test_accuracy
    assert combined.row.train_loss == apart.row.train_loss
    assert sum(combined.row.bytes_by_tier.values()) < sum(apart.row.bytes_by_tier.values())
    assert combined.row.seconds != apart.row.seconds


def test_the_papers_mix_combines_for_searched_algorithms_only() -> None:
    for name, combines in (("fedavg", False), ("hierfavg", False), ("fedavg-ic", True)):
        algorithm = {"name": name, "num_groups": 2}
        config = small(network={"combine": "searched"}, algorithm=algorithm)
        assert prepare(config).problem.fleet.network.combine is combines


def test_the_clock_heeds_its_settings() -> None:
    def seconds(**network: object) -> float:
        return prepare(small(network=network)).problem.everyone.transfer.seconds

    plain = seconds()
    assert seconds(link_mbytes_per_s=1.0) > 2 * plain
    assert seconds(latency_s=0.01) > 5 * plain
    assert seconds(access_mbytes_per_s=1.0) > 2 * plain
    assert seconds(access_latency_s=0.05) > 5 * plain
    assert seconds(tcp="default") > plain
    assert seconds(procedure="reference") > 1.5 * plain
    assert seconds(topology="k-ary-fat-tree", k=6) > 0


def test_a_network_of_your_own_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "net.csv"
    path.write_text(LINKS + "bs0,bs1,50,1\n")
    config = small(network={"topology": "file", "file": str(path)})
    problem = prepare(config).problem
    assert problem.fleet.network.topology.names[:2] == ("phone0", "phone1")
    assert problem.fleet.network.topology.bytes_per_s[0] == 1e6
    assert last(config).row.seconds > 0.2
    with pytest.raises(TopologyError, match=r"10 devices and the partition 8 nodes; .*= 10"):
        prepare(
            small(
                network={"topology": "file", "file": str(path)},
                partition={"num_nodes": 8, "num_edges": 2, "kind": "iid"},
            )
        )
    path.write_text(LINKS)
    with pytest.raises(TopologyError, match=r"net\.csv: .*not connected|cannot reach"):
        prepare(config)


def test_every_node_can_have_its_own_link_and_speed(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(
        "node,gflops,up_mbytes_per_s\n" + "".join(f"{i},{1 + i},{2 + i}\n" for i in range(10))
    )
    network = {"access_file": str(path)}
    problem = prepare(small(network=network, compute={"speeds": "file", "file": str(path)})).problem
    top = problem.fleet.network.topology
    assert top.bytes_per_s[0:20:2].tolist() == [1e6 * (2 + i) for i in range(10)]
    assert (top.bytes_per_s[1:20:2] == 1e8).all()  # not given
    plain = prepare(small(compute={"gflops": 1.0})).problem
    assert problem.fleet.step_s == pytest.approx(
        plain.fleet.step_s
    )  # the slowest node has 1 GFLOPS


def test_edges_that_cut_across_switches_are_noted(tmp_path: Path) -> None:
    net = tmp_path / "net.csv"
    network = {"topology": "file", "file": str(net)}
    joined = "bs0,bs1,50,1\n"
    net.write_text(LINKS + joined)
    assert prepare(small(network=network)).problem.fleet.network.note == ""
    links = "".join(f"phone{i},bs{i % 2},5,20\n" for i in range(10))
    net.write_text(f"a,b,mbytes_per_s,latency_ms\n{links}{joined}")
    note = prepare(small(network=network)).problem.fleet.network.note
    assert note.startswith("note: edge 0 of the partition is on bs0, bs1, which have other edges")


def test_speeds_are_found_by_the_names_of_the_network(tmp_path: Path) -> None:
    net, nodes = tmp_path / "net.csv", tmp_path / "nodes.csv"
    net.write_text(LINKS + "bs0,bs1,50,1\n")
    nodes.write_text("node,gflops\n" + "".join(f"phone{i},{10 - i}\n" for i in range(10)))
    network = {"topology": "file", "file": str(net)}
    made = prepare(small(network=network, compute={"speeds": "file", "file": str(nodes)}))
    sizes = made.problem.fleet.class_counts.sum(axis=1)
    took = sizes * made.size.flops_per_example / (1e9 * (10 - np.arange(10)))
    assert made.problem.fleet.step_s == pytest.approx(took.max())


def test_all_data_on_one_node_needs_no_network(tmp_path: Path) -> None:
    net = tmp_path / "net.csv"
    net.write_text(LINKS + "bs0,bs1,50,1\n")
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("mbytes_per_s,gflops\n" + "1,2\n" * 10)
    for network in (
        {"topology": "file", "file": str(net), "access_file": str(nodes)},
        {"topology": "edge-cloud"},
    ):
        compute = {"speeds": "file", "file": str(nodes)}
        config = small(network=network, compute=compute, algorithm={"name": "centralized"})
        assert prepare(config).problem.everyone.transfer.seconds == 0


def test_gradients_are_not_combined_on_their_way_to_the_planner() -> None:
    grouping_bytes = []
    for combine in ("none", "all"):
        states = list(simulate(small(network={"combine": combine}, train={"steps": 1})))
        everyone = prepare(small(network={"combine": combine})).problem.everyone.transfer
        moved = sum(states[-1].row.bytes_by_tier.values())
        grouping_bytes.append(moved - sum(everyone.bytes_by_tier.values()))
    assert grouping_bytes[0] == grouping_bytes[1] > 0


def test_links_of_a_file_without_speeds_take_the_settings(tmp_path: Path) -> None:
    net = tmp_path / "net.csv"
    net.write_text("a,b\n" + "".join(f"n{i},s\n" for i in range(9)) + "n9,t\ns,t\n")
    network = {"topology": "file", "file": str(net), "access_mbytes_per_s": 2.0, "latency_s": 0.5}
    top = prepare(small(network=network)).problem.fleet.network.topology
    assert top.bytes_per_s.tolist() == [2e6] * 20 + [1e8] * 2
    assert top.latency_s.tolist() == [0.5] * 11


def test_speeds_are_drawn_around_their_mean() -> None:
    rng = np.random.default_rng(0)
    uniform = draw_speeds("uniform", 4000, 5e9, 0.5, rng)
    assert uniform.min() >= 2.5e9
    assert uniform.max() <= 7.5e9
    assert uniform.mean() == pytest.approx(5e9, rel=0.02)
    log = draw_speeds("lognormal", 4000, 5e9, 0.5, rng)
    assert log.mean() == pytest.approx(5e9, rel=0.05)
    assert np.log(log).std() == pytest.approx(0.5, rel=0.05)
    steps = [
        prepare(small(compute={"speeds": kind})).problem.fleet.step_s
        for kind in ("constant", "uniform", "lognormal")
    ]
    assert steps[0] < min(steps[1:])  # the slowest node holds all up


@pytest.mark.parametrize(
    ("section", "content", "says"),
    [
        ("network", {"topology": "file"}, "network.topology = 'file' needs network.file"),
        ("network", {"topology": "matrix"}, "network.topology = 'matrix' needs network.file"),
        (
            "network",
            {"file": "x.csv"},
            "network.file is read with network.topology = 'file' or 'matrix' only",
        ),
        ("network", {"latency_file": "x"}, "network.latency_file is read with .* 'matrix' only"),
        ("network", {"routing": "ecpm"}, "unknown network.routing 'ecpm'; did you mean 'ecmp'"),
        ("network", {"clock": "ns-3"}, "unknown network.clock 'ns-3'; did you mean 'ns3'"),
        ("network", {"tcp": "lossy"}, "unknown network.tcp 'lossy'; did you mean 'lossless'"),
        ("network", {"link_mbytes_per_s": 0}, "network.link_mbytes_per_s must be >= 1e-06, got 0"),
        ("network", {"latency_s": float("nan")}, "network.latency_s must be finite, got nan"),
        ("network", {"time_limit_s": 1e7}, "network.time_limit_s must be <= 1000000"),
        (
            "network",
            {"topology": "matrix", "file": "m.csv", "access_mbytes_per_s": 1.0},
            "are not read with a matrix",
        ),
        ("compute", {"speeds": "file"}, "compute.speeds = 'file' needs compute.file"),
        ("compute", {"file": "x.csv"}, "compute.file is read with compute.speeds = 'file' only"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    section: str, content: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        small(**{section: content})


def test_uniform_speeds_stay_above_nothing() -> None:
    with pytest.raises(ConfigError, match=r"compute\.spread must be < 1 for uniform speeds, got 1"):
        prepare(small(compute={"speeds": "uniform", "spread": 1.0}))
