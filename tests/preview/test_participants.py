"""Plans of rounds in which some nodes take part: the seconds and bytes of such rounds, by draws."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.config.files import expand
from coterie.config.prepare import prepare
from coterie.core.errors import ConfigError
from coterie.network import Network
from coterie.preview.from_labels import plans_by_labels
from coterie.preview.operating import Operating
from coterie.preview.participants import MOST_DRAWS, Participants
from coterie.preview.plan import FEDAVG, PlanView, plans
from coterie.preview.planfile.writing import plan_of
from coterie.simulation.fleet import Fleet, averaging
from coterie.simulation.pace import costs
from coterie.simulation.participation import Participation
from coterie.topology import fat_tree
from resuming import coterie as command

MB = 1_000_000
SITES = {"a": "90,10", "b": "10,90", "c": "50,50"}
QUICK = ("algorithm.num_groups=2", "algorithm.shakes=0")
FIFTH = "participation.fraction=0.2"
SMALL: dict[str, Any] = {
    "data": {"sample": 0.2},
    "partition": {"num_nodes": 20},
    "algorithm": {"num_groups": 2, "shakes": 0},
}


def write_files(folder: Path, *, step_s: bool = False) -> tuple[Path, Path]:
    """Three sites of ten nodes, whose links are unlike."""
    nodes, net = ["node,edge,cat,dog"], ["a,b,mbytes_per_s"]
    for site, counts in SITES.items():
        nodes += [f"{site}{i},{site},{counts}" for i in range(10)]
        net += [f"{site}{i},switch {site},{1 + i}" for i in range(10)]
        net.append(f"switch {site},core,20")
    if step_s:
        nodes = [f"{row},{'step_s' if not at else 0.1 * at}" for at, row in enumerate(nodes)]
    (folder / "nodes.csv").write_text("\n".join([*nodes, ""]))
    (folder / "net.csv").write_text("\n".join([*net, ""]))
    return folder / "nodes.csv", folder / "net.csv"


def planned(folder: Path, *overrides: str, **more: Any) -> PlanView:
    files = write_files(folder, **more)
    methods = ("coterie", "edge", "random")
    return plans_by_labels(*files, MB, (*QUICK, *overrides), methods=methods)


@pytest.mark.parametrize("sampled", ["group", "all"])
def test_a_plan_has_the_seconds_of_a_runs_means(sampled: str) -> None:
    told = {"fraction": 0.3, "dropout": 0.2, "sampled": sampled}
    (config,) = expand({**SMALL, "participation": told})
    view, problem = plans([config], methods=("coterie", "edge")), prepare(config).problem
    steps = range(1, MOST_DRAWS + 1)
    for p in view.points:
        z = p.grouping.z
        groups = averaging(problem.fleet.network, p.grouping, view.model_bytes)
        group_s = [costs(problem, groups, z, t, 1)[2].seconds for t in steps]
        global_s = [costs(problem, problem.everyone, z, t, 1)[2].seconds for t in steps]
        assert p.group_s == pytest.approx(np.mean(group_s), rel=1e-12)
        assert view.globals_s[p.name] == pytest.approx(np.mean(global_s), rel=1e-12)
    alone = problem.everyone.grouping.z
    drawn = [costs(problem, problem.everyone, alone, t, 1) for t in steps]
    mean_s = np.mean([transfer.seconds for *_, transfer in drawn])
    assert view.rivals.global_s[FEDAVG] == pytest.approx(mean_s, rel=1e-12)
    assert view.step_s == pytest.approx(np.mean([compute_s for _, compute_s, _ in drawn]))


def test_the_same_groups_are_found_and_all_rows_are_priced_anew(tmp_path: Path) -> None:
    whole, some = planned(tmp_path), planned(tmp_path, FIFTH)
    assert [p.name for p in whole.points] == [p.name for p in some.points]
    for one, other in zip(whole.points, some.points, strict=True):
        assert one.grouping.z.tolist() == other.grouping.z.tolist()
        assert one.Delta == other.Delta
        assert other.group_s < one.group_s
        assert some.globals_s[other.name] < whole.globals_s[one.name]
    for (name, one_s, _), (same, other_s, _) in zip(whole.fedavg, some.fedavg, strict=True):
        assert name == same
        assert other_s < one_s
    assert Operating(some).round_s < Operating(whole).round_s


def test_a_point_costs_what_its_parts_and_its_cycle_do(tmp_path: Path) -> None:
    view = planned(tmp_path, FIFTH, "algorithm.alpha_iid=0", "algorithm.alpha_comm=2")
    for p in view.points:
        cycle_s = 4 * p.group_s + view.globals_s[p.name]
        assert p.cost == pytest.approx(2 * cycle_s / (5 * view.rivals.global_s[FEDAVG]))
    assert view.fedavg[0][2] == 2.0
    least = [p for p in view.points if len(p.sizes) == 2]
    assert view.chosen.cost == min(p.cost for p in least)


def test_nothing_goes_up_where_everybody_vanishes(tmp_path: Path) -> None:
    whole = Operating(planned(tmp_path, "algorithm.alpha_comm=0"))
    none = Operating(planned(tmp_path, "algorithm.alpha_comm=0", "participation.dropout=1"))
    assert whole.view.chosen.grouping.z.tolist() == none.view.chosen.grouping.z.tolist()
    both_ways = {each.link: each.round_bytes for each in whole.traffic}
    down = {each.link: each.round_bytes for each in none.traffic}
    assert down == {link: nbytes / 2 for link, nbytes in both_ways.items()}


def test_links_carry_the_models_of_those_who_are_there(tmp_path: Path) -> None:
    whole = Operating(planned(tmp_path, "algorithm.tau2=1"))
    tenth = ("algorithm.tau2=1", "participation.fraction=0.1", "participation.sampled=all")
    some = Operating(planned(tmp_path, *tenth))
    assert sum(each.round_bytes for each in whole.traffic) % MB == 0
    assert some.view.participants is not None
    net, everyone = some.view.fleet.network, some.view.participants.together
    sent = [
        net.part(everyone.z, everyone.servers, MB, there.asked, there.counted).bytes_by_tier
        for there in some.view.participants.present(everyone.z)
    ]
    assert len(sent) == MOST_DRAWS
    inner = np.mean([sum(b for tier, b in each.items() if tier != "access") for each in sent])
    assert sum(each.round_bytes for each in some.traffic) == pytest.approx(inner)
    assert inner < sum(each.round_bytes for each in whole.traffic)


def test_a_step_waits_for_the_slowest_who_takes_part(tmp_path: Path) -> None:
    whole, some = planned(tmp_path, step_s=True), planned(tmp_path, FIFTH, step_s=True)
    assert whole.step_s == whole.fleet.step_s == pytest.approx(3.0)
    assert 1.0 < some.step_s < 3.0
    o = Operating(some)
    cycle_s, (_, tau1, tau2) = some.cycle_s(some.chosen), some.algorithm.usual
    assert o.round_s == pytest.approx(cycle_s + tau1 * tau2 * some.step_s)
    predicted = plan_of(some).predicted
    assert predicted.round_s == pytest.approx(o.round_s)
    assert predicted.global_s == some.globals_s[some.chosen.name]


def test_the_quickest_schedule_is_that_of_rounds_of_some(tmp_path: Path) -> None:
    auto = ("algorithm.num_groups=auto", "algorithm.tau2=auto")
    whole, some = planned(tmp_path, *auto), planned(tmp_path, *auto, FIFTH)
    assert some.global_s == some.globals_s[some.chosen.name] < whole.global_s
    assert some.participants is not None
    assert replace(some, chosen=some.points[0]).global_s == some.globals_s[some.points[0].name]


def test_a_plan_says_who_takes_part_and_what_is_weighed(tmp_path: Path) -> None:
    nodes, net = write_files(tmp_path)
    words = [
        "plan",
        "--nodes",
        nodes,
        "--network",
        net,
        "--model-bytes",
        MB,
        "--methods",
        "coterie",
    ]
    words += ["-o", tmp_path / "plan.html"]
    sets = [part for key in QUICK for part in ("--set", key)]
    plain = command(*words, *sets)
    assert plain.exit_code == 0 and "take part" not in plain.output
    told = ("--set", FIFTH, "--set", "participation.dropout=0.05")
    done = command(*words, *sets, *told)
    assert done.exit_code == 0
    text = " ".join(done.output.split())
    assert "20% of every group, at least one; each vanishes with probability 0.05" in text
    assert f"means over {MOST_DRAWS} draws; groups are searched for as if all took part" in text
    found = json.loads(command(*words, *sets, *told, "--json").stdout)["participation"]
    assert found == {
        "fraction": 0.2,
        "sampled": "group",
        "dropout": 0.05,
        "jitter": 0.0,
        "draws": MOST_DRAWS,
    }


def test_a_plan_of_an_experiment_says_that_a_deadline_is_not_weighed(tmp_path: Path) -> None:
    sets = ["data.sample=0.2", "partition.num_nodes=20", "participation.deadline_s=5", *QUICK]
    words = [part for key in sets for part in ("--set", key)]
    out = tmp_path / "plan.html"
    done = command("plan", "quickstart", *words, "--methods", "coterie", "-o", out)
    assert done.exit_code == 0
    assert "participation.deadline_s is not weighed" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("participation.deadline_s=5", "who is late depends on tau1, and FedAvg has its own"),
        ("participation.jitter=0.5", "local steps are not timed; add column step_s, or leave it"),
    ],
)
def test_what_a_plan_cannot_heed_is_refused(tmp_path: Path, override: str, why: str) -> None:
    key = override.partition("=")[0]
    with pytest.raises(ConfigError, match=f"--set {key} is not read with --nodes: {why}"):
        planned(tmp_path, override)


def test_speeds_that_vary_are_heeded_where_steps_are_timed(tmp_path: Path) -> None:
    even = planned(tmp_path, step_s=True)
    odd = planned(tmp_path, "participation.jitter=1", step_s=True)
    assert odd.step_s > even.step_s
    assert odd.global_s == pytest.approx(even.global_s, rel=1e-12)


@pytest.mark.parametrize(("fraction", "draws"), [(0.001, 20), (0.2, 5), (0.5, 2), (1.0, 2)])
def test_many_nodes_a_round_are_drawn_fewer_times(fraction: float, draws: int) -> None:
    edge_of = np.repeat(np.arange(50), 100)
    counts = np.ones((5000, 1), dtype=np.int64)
    fleet = Fleet(np.full(5000, 1 / 5000), edge_of, Network(fat_tree(edge_of), edge_of), counts)
    some = Participants(Participation(fraction, dropout=0.1), 0, fleet, MB)
    assert some.draws == len(some.present(edge_of)) == draws
