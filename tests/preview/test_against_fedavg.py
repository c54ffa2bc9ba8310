"""What a plan is worth against FedAvg: by hand, and as it must be whatever the numbers are."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.amounts import duration, size
from coterie.preview.against_fedavg import Means, Rivals, assumed_reach
from coterie.preview.auto_plan import soonest
from coterie.preview.from_labels import plans_by_labels
from coterie.preview.operating import WORTH_IT, Operating
from coterie.simulation.forecast import TAU2
from coterie.simulation.progress import Round
from resuming import coterie as command

SECONDS = st.floats(0.01, 100.0)
QUICKLY_S = 0.01
REACH = st.floats(0.05, 50.0)
NODES = """node,edge,car,truck
a1,a,90,10
a2,a,80,20
a3,a,70,0
a4,a,60,5
b1,b,10,90
b2,b,0,80
b3,b,20,70
b4,b,5,95
"""


def links(uplink: float, access: float = 10.0) -> str:
    """Two sites of four devices, and their uplinks."""
    rows = [f"{s}{i},switch {s},{access}" for s in "ab" for i in (1, 2, 3, 4)]
    rows += [f"switch {s},core,{uplink}" for s in "ab"]
    return "\n".join(["a,b,mbytes_per_s", *rows, ""])


def planned(
    tmp_path: Path, network: str, *overrides: str, methods: tuple[str, ...] = ()
) -> Operating:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "net.csv").write_text(network)
    files = tmp_path / "nodes.csv", tmp_path / "net.csv"
    view = plans_by_labels(*files, 1_000_000, overrides, methods=methods, budget_s=QUICKLY_S)
    return Operating(view)


def test_groups_that_are_the_whole_lose_nothing_by_being_groups() -> None:
    alone = Means(4.0, tau1=1)
    grouped = Means(4.0, 1.0, 0.0, 1, 4)
    rivals = Rivals({"fedavg": 4.0}, 0.0, 1.0, (1,))
    found = rivals.times(grouped, alone)
    assert found.times == found.low == found.high == pytest.approx(4 * 4 / (4 + 3))


@given(REACH, st.integers(1, 6), st.integers(1, 6), st.floats(0.05, 1.0))
def test_a_round_counts_as_much_as_in_a_forecast(
    reach: float, tau1: int, tau2: int, ratio: float
) -> None:
    rates = np.ones(tau1 * tau2)
    told = Round(0, tau1, tau2, ratio).worth(rates, reach)
    assert Means(1.0, 1.0, ratio, tau1, tau2).gained(reach) == pytest.approx(float(told))


@given(SECONDS, SECONDS, REACH)
def test_fedavg_is_as_fast_as_itself(global_s: float, step_s: float, reach: float) -> None:
    rivals = Rivals({"fedavg": global_s, "other": 2 * global_s}, step_s, reach)
    name, best = rivals.best()
    assert name == "fedavg"
    assert rivals.times(best).high == pytest.approx(1.0)


@given(SECONDS, st.floats(1.0, 3.0), st.floats(0.0, 1.0), REACH)
def test_groups_that_are_slower_than_everyone_never_pay(
    global_s: float, more: float, ratio: float, reach: float
) -> None:
    rivals = Rivals({"fedavg": global_s}, 0.0, reach, (1,))
    assert rivals.times(Means(global_s, more * global_s, ratio, 1, 5)).high <= 1 + 1e-12


def test_the_more_unlike_nodes_are_the_less_they_reach() -> None:
    reaches = [assumed_reach(delta) for delta in (0.0, 0.2, 0.5, 1.0)]
    assert reaches == sorted(reaches, reverse=True)


def test_times_and_sizes_have_the_unit_that_people_use() -> None:
    assert [duration(s) for s in (0.0, 1.0, 3600.0, 100_000.0, 172_800.0)] == [
        "0 ms",
        "1 s",
        "1 h",
        "27.8 h",
        "2 days",
    ]
    assert [size(b) for b in (0.0, 999.0, 1e3, 1.5e9)] == ["0 bytes", "999 bytes", "1 kB", "1.5 GB"]


def test_every_table_has_fedavg_and_says_what_a_plan_is_worth(tmp_path: Path) -> None:
    o = planned(tmp_path, links(1.0), "algorithm.num_groups=2", methods=("coterie", "edge"))
    names = [name for name, *_ in o.view.fedavg]
    assert names == ["fedavg", "fedavg, combined"]
    (_, plain, cost), (_, combined, _) = o.view.fedavg
    assert plain == o.view.global_s and cost == pytest.approx(1.0)
    assert combined < plain  # one model over an uplink in place of four
    assert o.fedavg[0] == "fedavg, combined"
    everything = {name: o.view.rivals.times(Means(s)).times for name, s, _ in o.view.fedavg}
    assert everything["fedavg, combined"] == pytest.approx(1.0)
    assert everything["fedavg"] == pytest.approx(combined / plain)


def test_groups_are_not_recommended_where_fedavg_is_faster(tmp_path: Path) -> None:
    o = planned(tmp_path, links(1.0), "algorithm.num_groups=2", methods=("coterie",))
    assert not o.pays and o.over_fedavg.times < 1


def test_groups_are_recommended_where_they_are_faster(tmp_path: Path) -> None:
    o = planned(
        tmp_path,
        links(1000.0),
        "algorithm.num_groups=4",
        "network.combine=none",
        methods=("coterie",),
    )
    assert o.pays and o.over_fedavg.times > 1


def by_edges(o: Operating) -> Operating:
    """The same with the network edges as groups."""
    return Operating(replace(o.view, chosen=next(p for p in o.view.points if p.name == "edge")))


def test_a_link_carries_what_its_models_weigh(tmp_path: Path) -> None:
    o = planned(
        tmp_path, links(1.0), "algorithm.num_groups=2", "algorithm.tau2=3", methods=("edge",)
    )
    o = by_edges(o)
    carried = {t.link: t.round_bytes for t in o.traffic}
    # site groups stay at their site: only the global mean crosses, four models each way
    assert carried == {"core - switch a": 8e6, "core - switch b": 8e6}
    assert o.traffic[0].day_bytes == pytest.approx(8e6 * 86_400 / o.round_s)


def test_what_a_mean_waits_for_is_named_and_what_twice_its_speed_would_do(tmp_path: Path) -> None:
    o = by_edges(planned(tmp_path, links(0.5), "algorithm.num_groups=2", methods=("edge",)))
    found = {b.mean: b for b in o.bottlenecks}
    assert found["global mean"].link in ("core - switch a", "core - switch b")
    assert 0.9 < found["global mean"].busy <= 1.0
    assert found["global mean"].twice > 1.0


def test_auto_takes_what_is_soonest_at_the_same_loss(tmp_path: Path) -> None:
    auto = [f"algorithm.{key}=auto" for key in ("num_groups", "tau1", "tau2")]
    o = planned(tmp_path, links(20.0), *auto, methods=("edge", "random"))
    assert o.view.by == "time" and o.means.tau1 == 1
    reach, best = o.view.rivals.reach, o.means.speed(0.0, o.view.rivals.reach)
    fit = [p for p in o.view.points if len(p.sizes) == o.view.num_groups]
    every = [o.view.means_with(p, (1, tau2)).speed(0.0, reach) for p in fit for tau2 in TAU2[1:]]
    assert best == max(every)


def test_without_seconds_there_is_no_end_to_speed() -> None:
    assert math.isinf(Means(0.0).speed(0.0, 1.0))


@pytest.mark.parametrize("weights", ["1:0", "1:1", "0:1"])
def test_what_is_soonest_is_told_and_taken_by_time(tmp_path: Path, weights: str) -> None:
    iid, comm = weights.split(":")
    told = (f"algorithm.alpha_iid={iid}.0", f"algorithm.alpha_comm={comm}.0")
    o = planned(tmp_path, links(2.0), "algorithm.num_groups=2", *told)
    every = [o.view.times(p).times for p in o.view.points if len(p.sizes) == 2]
    best = Operating(soonest(o.view))
    assert best.over_fedavg.times == max(every)
    assert best.soonest is None
    assert best.view.by == "time"
    sooner = max(every) > WORTH_IT * o.over_fedavg.times
    assert (o.soonest is not None) is sooner
    if o.soonest is not None:
        assert o.soonest[1].times == max(every)


def test_groups_may_be_chosen_by_time_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "net.csv").write_text(links(2.0))
    words = ["plan", "--nodes", tmp_path / "nodes.csv", "--network", tmp_path / "net.csv"]
    words += ["--model-bytes", "1MB", "--methods", "coterie,edge,random", "--budget", "10ms"]
    words += ["--set", "algorithm.num_groups=2", "--json"]
    by_time = json.loads(command(*words, "--by", "time").stdout)
    fit = [p["over_fedavg"] for p in by_time["points"] if len(p["group_sizes"]) == 2]
    assert by_time["worth"]["over_fedavg"]["times"] == max(fit)
    assert by_time["worth"]["sooner"] is None
