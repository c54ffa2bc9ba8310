"""What an operator's files say besides labels: regions, who may serve, steps, hours, noise."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.core.errors import CoterieError, GroupingError, PartitionError
from coterie.grouping import Delays, Evidence, Limits, with_servers
from coterie.grouping.limits import broken, check_limits
from coterie.grouping.planner import coterie
from coterie.network import Network
from coterie.partition.noise import noised
from coterie.preview.from_labels import hours, plans_by_labels
from coterie.preview.operating import Operating
from coterie.preview.plan import PlanView
from coterie.topology import Speed, Topology, edge_cloud, fat_tree
from resuming import coterie as command

MB = 1_000_000
HEAD = "node,edge,region,step_s,online,cat,dog"
ROWS = [
    "a1,a,north,0.1,20-8,90,10",
    "a2,a,north,200ms,22-6,80,20",
    "b1,b,north,0.1,22-6,10,90",
    "b2,b,south,0.1,22-6,0,80",
    "c1,c,south,0.1,22-6,70,70",
    "c2,c,south,0.1,0-24,5,95",
]


def planned(tmp_path: Path, rows: list[str] = ROWS, *overrides: str, **more: Any) -> PlanView:
    (tmp_path / "nodes.csv").write_text("\n".join([HEAD, *rows, ""]))
    net = ["a,b,mbytes_per_s", *(f"{r.split(',')[0]},switch {r[0]},10" for r in rows)]
    net += [f"switch {s},core,20" for s in sorted({r[0] for r in rows})]
    (tmp_path / "net.csv").write_text("\n".join([*net, ""]))
    files = tmp_path / "nodes.csv", tmp_path / "net.csv"
    told = ("algorithm.num_groups=2", *overrides)
    more = {"methods": ("coterie", "edge"), "budget_s": 0.01, **more}
    return plans_by_labels(*files, MB, told, **more)


def evidence(top: Topology, edge_of: Any, K: int, **more: Any) -> Evidence:
    n = top.n_devices
    rng = np.random.default_rng(0)
    counts = rng.multinomial(30, rng.dirichlet(np.full(4, 0.5)), n)
    delays = Delays(Network(top, edge_of), MB, 5, 1.0)
    told = {"label_counts": counts, "delays": delays, **more}
    return Evidence(K, np.full(n, 1 / n), edge_of, top, **told)


def test_no_group_has_nodes_of_two_regions(tmp_path: Path) -> None:
    view = planned(tmp_path, keep_regions=True)
    assert view.chosen.grouping.z[:3].tolist() == [view.chosen.grouping.z[0]] * 3
    assert len(set(view.chosen.grouping.z[3:].tolist())) == 1
    edge = next(p for p in view.points if p.name == "edge")
    assert edge.breaks == "regions"


@pytest.mark.parametrize("n", [12, 60, 400])
def test_regions_are_kept_apart_among_few_nodes_and_many(n: int) -> None:
    rng = np.random.default_rng(n)
    edge_of = np.sort(np.arange(n) % 4)
    regions = rng.permutation(np.arange(n) % 3)
    e = evidence(fat_tree(edge_of), edge_of, 5, limits=Limits(regions=regions))
    found = coterie()(e, rng)
    assert broken(e, found) == ""
    assert sorted(set(found.z.tolist())) == list(range(5))


def test_regions_need_as_many_groups_and_a_name_each(tmp_path: Path) -> None:
    with pytest.raises(GroupingError, match="2 groups cannot keep 3 regions apart"):
        rows = [ROWS[0].replace("north", "west"), *ROWS[1:]]
        planned(tmp_path, rows, keep_regions=True)
    with pytest.raises(PartitionError, match="node 'a1' has no region; --keep-regions needs one"):
        planned(tmp_path, [ROWS[0].replace("north", ""), *ROWS[1:]], keep_regions=True)
    edge_of = np.arange(6) // 3
    both = Limits(regions=np.arange(6) % 2, max_hops=4)
    with pytest.raises(GroupingError, match="regions do not go with max_hops"):
        check_limits(both, fat_tree(edge_of), 2)


@pytest.mark.parametrize("n", [12, 60, 400])
def test_only_those_serve_who_may(n: int) -> None:
    edge_of = np.sort(np.arange(n) % 4)
    may = np.arange(n) % 3 == 0
    e = evidence(replace(fat_tree(edge_of), may_serve=may), edge_of, 4)
    for found in (coterie()(e, np.random.default_rng(0)), with_servers(edge_of, e)):
        assert may[found.servers].all()
        assert broken(e, found) == ""


def test_a_group_in_which_nobody_may_serve_is_refused() -> None:
    edge_of = np.repeat(np.arange(2), 3)
    may = np.array([True, True, True, False, False, False])
    e = evidence(replace(fat_tree(edge_of), may_serve=may), edge_of, 2)
    with pytest.raises(GroupingError, match="no server can take a group of 3: none may"):
        with_servers(edge_of, e)


@pytest.mark.parametrize("n", [12, 60, 400])
def test_no_place_serves_more_than_it_takes(n: int) -> None:
    edge_of = np.sort(np.arange(n) % 4)
    plain = edge_cloud(edge_of, Speed(1e6, 1e-2), Speed(1e8, 1e-3))
    capacity = np.array([n // 4, n // 2, n // 4, n // 4, n // 4])  # of the cloud, and stations
    top = replace(plain, place_capacity=capacity)
    e = evidence(top, edge_of, 5)
    found = coterie()(e, np.random.default_rng(0))
    load = np.bincount(found.servers, np.bincount(found.z), top.n_vertices)[top.place_vertices]
    assert (load <= capacity).all()
    assert broken(e, found) == ""
    with pytest.raises(GroupingError, match=rf"places have room for {n - 1} of {n} nodes"):
        few = np.array([1, 1, 1, 1, n - 5])
        check_limits(Limits(), replace(plain, place_capacity=few), 5)


def test_the_slowest_node_decides_how_long_a_step_takes(tmp_path: Path) -> None:
    view = planned(tmp_path)
    assert view.fleet.step_s == 0.2 and view.timed
    assert "not timed" not in view.title
    o = Operating(view)
    assert o.round_s == pytest.approx(view.cycle_s(view.chosen) + 5 * 0.2)


def test_a_plan_notes_that_members_serve_where_no_place_does(tmp_path: Path) -> None:
    files = ("--nodes", tmp_path / "nodes.csv", "--network", tmp_path / "net.csv")
    words = ("plan", *files, "--model-bytes", MB, "--methods", "edge", "--budget", "10ms")
    assert planned(tmp_path).notes[0].startswith("no place serves, so a member of each group does")
    done = command(*words, "--set", "algorithm.num_groups=2", "-o", tmp_path / "plan.html")
    assert done.exit_code == 0
    assert done.output.count("note: no place serves, so a member of each group does; say ") == 1
    with (tmp_path / "net.csv").open("a") as file:
        file.write("core,,\n")
    rows = (tmp_path / "net.csv").read_text().splitlines()
    served = [f"{row},{'yes' if row.startswith('core') else ''}" for row in rows[1:]]
    (tmp_path / "net.csv").write_text("\n".join([f"{rows[0]},server", *served, ""]))
    view = plans_by_labels(*files[1::2], MB, ("algorithm.num_groups=1",), methods=("edge",))
    assert view.fleet.network.topology.places and view.notes == ()


@pytest.mark.parametrize("combine", ["none", "all"])
def test_a_plan_says_what_combining_at_edges_would_do(tmp_path: Path, combine: str) -> None:
    sites = [(s, i) for s in "abc" for i in range(8)]
    rows = [f"{s}{i},{s},north,0.1,0-24,{90 - 40 * (s == 'a')},{10 + i}" for s, i in sites]
    view = planned(tmp_path, rows, "algorithm.tau2=5", f"network.combine={combine}")
    o, everyone, nbytes = Operating(view), view.fleet.together(MB), view.model_bytes
    other = replace(view.fleet.network, combine=combine == "none")
    means = replace(
        o.means,
        global_s=other.aggregation(everyone.z, everyone.servers, nbytes).seconds,
        group_s=other.aggregation(
            view.chosen.grouping.z, view.chosen.grouping.servers, nbytes
        ).seconds,
    )
    times = view.rivals.times(means)
    if combine == "none":
        assert o.other_way == times
        assert times.times > o.over_fedavg.times
    else:
        assert o.other_way is None
        assert times.times < o.over_fedavg.times


def test_rounds_follow_one_another_while_all_nodes_are_online(tmp_path: Path) -> None:
    o = Operating(planned(tmp_path))
    assert o.day_s == 8 * 3600
    assert o.rounds_a_day == pytest.approx(8 * 3600 / o.round_s)
    assert o.traffic[0].day_bytes == pytest.approx(o.traffic[0].round_bytes * o.rounds_a_day)


@pytest.mark.parametrize(
    ("text", "quarters"),
    [("", 96), ("0-24", 96), ("22-6", 32), ("8:30-12, 13-17:15", 31), ("6-6", 96)],
)
def test_hours_may_go_past_midnight(text: str, quarters: int) -> None:
    assert sum(hours(text)) == quarters


@pytest.mark.parametrize("text", ["soon", "8", "8-25", "8:10-9", "-3", "8-9-10", "8;9"])
def test_hours_that_are_none_are_refused(text: str, tmp_path: Path) -> None:
    row = ROWS[0].replace("20-8", text)
    with pytest.raises(PartitionError, match=r"nodes\.csv: line 2: online must be hours such as"):
        planned(tmp_path, [row, *ROWS[1:]])


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon", "1e99", "5 parsec"])
def test_steps_that_take_no_time_are_refused(text: str, tmp_path: Path) -> None:
    row = ROWS[0].replace("0.1", text)
    with pytest.raises(PartitionError, match=r"nodes\.csv: line 2: step_s"):
        planned(tmp_path, [row, *ROWS[1:]])


def test_noise_has_the_scale_that_is_stated() -> None:
    counts = np.full((2000, 5), 1000)
    for epsilon in (0.1, 1.0):
        off = noised(counts, epsilon, np.random.default_rng(0)) - counts
        assert np.abs(off).mean() == pytest.approx(1 / epsilon, rel=0.05)
        assert abs(off.mean()) < 0.05 / epsilon
    few = noised(np.ones((500, 3), dtype=np.int64), 0.1, np.random.default_rng(0))
    assert few.min() == 0 and few.sum(axis=1).min() >= 1


def test_the_planner_sees_counts_with_noise_alone(tmp_path: Path) -> None:
    plain, blurred = planned(tmp_path), planned(tmp_path, epsilon=0.05)
    assert not np.array_equal(plain.fleet.class_counts, blurred.fleet.class_counts)
    assert "label counts with noise (epsilon 0.05)" in blurred.title
    with pytest.raises(CoterieError, match="epsilon must be above 0, got 0"):
        planned(tmp_path, epsilon=0.0)


def test_what_belongs_to_files_of_ones_own_needs_them() -> None:
    for words in (("--keep-regions",), ("--epsilon", 1)):
        done = command("plan", "quickstart", *words)
        assert done.exit_code == 2
        assert f"{words[0]} needs --nodes" in done.output


@pytest.mark.parametrize("n", [15, 16, 20])
def test_nodes_with_the_same_shares_have_no_divergence_by_rounding(tmp_path: Path, n: int) -> None:
    rows = [f"{'abc'[i % 3]}{i},{'abc'[i % 3]},north,0.1,0-24,10,30" for i in range(n)]
    view = planned(tmp_path, rows, "algorithm.num_groups=3", "algorithm.alpha_comm=0.5")
    assert {p.Delta for p in view.points} == {0.0}
    assert view.node_delta == 0.0
    chosen = view.chosen
    by_hand = 0.5 * view.cycle_s(chosen) / (view.algorithm.usual[2] * view.global_s)
    assert chosen.cost == pytest.approx(by_hand)


@pytest.mark.parametrize("limit", ["algorithm.max_group_size=3", "algorithm.min_group_size=3"])
def test_numbers_of_groups_that_limits_forbid_are_left_out_of_auto(
    tmp_path: Path, limit: str
) -> None:
    rows = [f"{'abc'[i % 3]}{i},{'abc'[i % 3]},north,0.1,0-24,{5 + i},30" for i in range(12)]
    view = planned(tmp_path, rows, "algorithm.num_groups=auto", limit)
    assert any(" groups: " in line for line in view.left_out)
    sizes = view.chosen.sizes
    assert max(sizes) <= 3 if "max" in limit else min(sizes) >= 3


def test_auto_makes_a_group_of_every_region_at_least(tmp_path: Path) -> None:
    rows = [
        f"{'abc'[i % 3]}{i},{'abc'[i % 3]},{'xyz'[i % 3]},0.1,0-24,{5 + i},30" for i in range(12)
    ]
    view = planned(tmp_path, rows, "algorithm.num_groups=auto", keep_regions=True)
    assert view.num_groups >= 3
    assert not any("cannot keep" in line for line in view.left_out)
