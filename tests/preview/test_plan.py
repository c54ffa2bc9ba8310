"""What `coterie plan` says, draws and saves."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coterie.cli import main
from coterie.config.files import expand, make_config
from coterie.config.prepare import prepare
from coterie.core.csv_rows import read_rows
from coterie.core.errors import GroupingError, RecordError
from coterie.divergences.gram import divergence
from coterie.preview.data import groups_of
from coterie.preview.plan import PlanView, plans
from coterie.render.page.html import png
from coterie.render.page.plan import plan_figure
from coterie.simulation.loop import first_evidence
from coterie.simulation.search import METHODS

SMALL: dict[str, Any] = {
    "data": {"sample": 0.2},
    "partition": {"num_nodes": 20},
    "algorithm": {"num_groups": 2, "shakes": 2},
    "train": {"lr": 0.5},
}
SETS = [
    "data.sample=0.2",
    "partition.num_nodes=20",
    "algorithm.num_groups=2",
    "algorithm.shakes=2",
]
QUICK = ("coterie", "edge", "random")
NET = """\
a,b,tier
phone$a$,station 1,access
phone b,station 1,access
"<c>, new",station 2,access
station 1,station 2,metro
"""

ASKED = [name for name, method in METHODS.items() if method.asked]  # fl-sim is by name alone


def small(**sections: dict[str, Any]) -> dict[str, Any]:
    return {**SMALL, **{key: {**SMALL.get(key, {}), **sections[key]} for key in sections}}


def view_of(*methods: str, **sections: dict[str, Any]) -> PlanView:
    return plans(expand(small(**sections)), methods=methods)


def run(folder: Path, *words: str) -> Result:
    sets = [part for key in SETS for part in ("--set", key)]
    out = ["-o", str(folder / "plan.html")] if "-o" not in words and "--json" not in words else []
    return CliRunner().invoke(main, ["plan", "quickstart", *sets, *out, *words])


@pytest.fixture(scope="module")
def view() -> PlanView:
    return plans(expand(SMALL))


def test_nothing_beats_a_point_of_the_front(view: PlanView) -> None:
    assert set(ASKED) <= {p.name for p in view.points}
    assert len({p.name for p in view.points}) == len(view.points)
    for p in view.points:
        better = [
            q
            for q in view.points
            if (q.Delta <= p.Delta and q.group_s < p.group_s)
            or (q.Delta < p.Delta and q.group_s <= p.group_s)
        ]
        assert p.on_front == (not better)
    least = [min(getattr(p, key) for p in view.points) for key in ("Delta", "group_s")]
    front = view.front
    assert [front[0].Delta, front[-1].group_s] == least
    assert [p.Delta for p in front] == sorted({p.Delta for p in front})
    assert [p.group_s for p in front] == sorted({p.group_s for p in front}, reverse=True)


def test_the_chosen_groups_cost_least(view: PlanView) -> None:
    assert view.chosen.cost == min(p.cost for p in view.points if len(p.sizes) == 2)
    assert len(view.chosen.sizes) == 2
    assert view.cheaper is None
    for p in view.points:  # by both costs, so a front's point is the cheapest of all
        assert p.cost >= min(q.cost for q in view.front)
    searched = view_of("random")
    assert searched.chosen.name != "random"
    assert searched.chosen.cost == min(p.cost for p in searched.points)
    assert searched.answer is None


def test_prices_are_those_of_the_gradients_and_the_network(view: PlanView) -> None:
    problem = prepare(make_config(SMALL)).problem
    evidence = first_evidence(problem)
    assert evidence.gram is not None
    for p in view.points:
        z, servers = p.grouping.z, p.grouping.servers
        assert p.Delta == pytest.approx(divergence(evidence.gram, problem.fleet.p, z).Delta)
        took = problem.fleet.network.aggregation(z, servers, problem.model_bytes)
        assert p.group_s == took.seconds
        assert view.cycle_s(p) == pytest.approx(4 * p.group_s + view.global_s)
    assert view.global_s == problem.everyone.transfer.seconds


def test_edges_are_quicker_and_farther_from_the_whole_than_planned_groups(view: PlanView) -> None:
    by = {p.name: p for p in view.points}
    assert by["edge"].Delta > 3 * by["coterie"].Delta  # an edge holds one class
    assert by["edge"].group_s < by["coterie"].group_s
    assert by["edge"].on_front
    assert by["similar"].Delta > by["label-ilp"].Delta


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedavg-ic"},
        {"name": "fedavg-c"},
        {"name": "fedavg-i", "evidence": "sketch"},
        {"evidence": "labels"},
        {"alpha_iid": 0.0},
        {"grouping": "cov"},
        {"grouping": "shapefl", "alpha_comm": 3.0},
        {"grouping": "own_parts:odd_and_even"},
        {"name": "fedavg-i", "max_group_size": 12},
    ],
    ids=str,
)
def test_the_answer_is_what_a_run_uses(algorithm: dict[str, Any]) -> None:
    name = algorithm.get("grouping", "coterie")
    answer = view_of(name, algorithm=algorithm).answer
    assert answer is not None
    assert answer.name == name
    used = groups_of(prepare(make_config(small(algorithm=algorithm))).problem)
    assert answer.grouping.z.tolist() == used.z.tolist()
    assert answer.grouping.servers.tolist() == used.servers.tolist()


def test_delta_is_shown_although_only_seconds_are_weighed() -> None:
    found = view_of(*QUICK, algorithm={"name": "fedavg-c"})
    assert found.weights == (0.0, 1.0)
    assert min(p.Delta for p in found.points) > 0
    assert found.chosen.group_s == min(p.group_s for p in found.points if len(p.sizes) == 2)
    assert found.cheaper is not None
    assert found.cheaper.name == "edge"


def test_of_a_sweep_the_run_that_weighs_both_costs_is_planned() -> None:
    names = ["fedavg", "fedavg-c", "fedavg-ic"]
    sweep = {"seed": [3, 4], "algorithm.name": names, "algorithm.tau2": [2, 3]}
    both = plans(expand({**SMALL, "sweep": sweep}), methods=["edge"])
    assert both.title == "fat-tree, mnist-f-mini, Dtt, seed 3: 20 nodes by fedavg-ic"
    assert both.algorithm.tau2 == 2
    near = plans(expand({**SMALL, "sweep": {**sweep, "algorithm.name": names[:2]}}), methods=QUICK)
    assert near.algorithm.name == "fedavg-c"


@pytest.mark.parametrize(
    ("name", "used", "says"),
    [
        ("fedavg-ic", "coterie", "; a run uses it too"),
        ("hierfavg", "edge", "; a run uses edge, which costs "),
        ("fedavg", None, "; a run by fedavg does not search (no groups: a global mean"),
        ("centralized", None, "; a run by centralized does not search (all data on one node"),
    ],
)
def test_what_a_run_uses_is_said_of_algorithms_that_do_not_search_too(
    tmp_path: Path, name: str, used: str | None, says: str
) -> None:
    words = ("--set", f"algorithm.name={name}", "--methods", "coterie,edge")
    said = json.loads(run(tmp_path, *words, "--json").stdout)
    assert said["chosen"]["used_by_a_run"] == used
    assert said["title"].endswith("20 nodes by fedavg-ic")
    assert says in " ".join(run(tmp_path, *words).output.split())


def test_groups_that_break_a_limit_are_neither_chosen_nor_on_the_front() -> None:
    found = view_of("paper", "edge", "random", algorithm={"max_group_size": 10})
    paper = found.points[0]
    assert paper.breaks == f"max_group_size: {max(paper.sizes)}"
    assert not paper.on_front
    assert not found.chosen.breaks
    assert found.chosen.sizes == [10, 10]
    assert png(plan_figure(found))[:4] == b"\x89PNG"


def test_a_method_that_cannot_group_is_left_out_with_its_reason() -> None:
    found = view_of("edge", "own_parts:no_planner")
    assert [p.name for p in found.methods] == ["edge"]
    assert found.left_out == (
        "own_parts:no_planner: a planner must return a coterie.Grouping, got str",
    )
    assert found.answer is None


def test_where_every_grouping_costs_the_same_there_is_nothing_to_plan() -> None:
    with pytest.raises(GroupingError, match="every grouping costs the same with weights 1:1, 1 gr"):
        view_of(algorithm={"num_groups": 1, "tau2": 1})
    with pytest.raises(GroupingError, match="weights 0:0"):
        view_of(algorithm={"alpha_iid": 0.0, "alpha_comm": 0.0})
    one = view_of(*QUICK, algorithm={"num_groups": 1})
    assert one.chosen.sizes == [20]
    assert png(plan_figure(one))[:4] == b"\x89PNG"


def test_the_page_and_the_picture_say_it_all_and_need_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(tmp_path, "-o", "plan-quickstart.html")
    assert done.exit_code == 0, done.output
    names = ["plan-quickstart.html", "plan-quickstart.png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert all(f"wrote {name}" in done.output for name in names)
    assert (tmp_path / names[1]).read_bytes()[:4] == b"\x89PNG"
    text = (tmp_path / names[0]).read_text()
    assert "://" not in text
    assert "data:image/png;base64," in text
    schedule = "2 groups, tau1 1, tau2 5"
    for words in (*ASKED, "The front", "Chosen: ", schedule, "Delta: by gradients"):
        assert words in text
        assert words in done.output


def test_every_name_is_on_the_picture(view: PlanView) -> None:
    figure = plan_figure(view)
    drawn = {text.get_text() for text in figure.axes[0].texts}
    assert set(ASKED) | {p.name for p in view.front} | {view.chosen.name} == drawn
    assert figure.axes[0].get_xscale() == "log"


def test_what_is_saved_is_what_json_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(tmp_path, "--json", "--save", "deep/groups.csv", "--methods", "coterie, edge")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert done.stderr == "wrote deep/groups.csv\n"
    assert [path.name for path in tmp_path.rglob("*.*")] == ["groups.csv"]
    with (tmp_path / "deep" / "groups.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = said["chosen"]
    assert [row["node"] for row in rows] == chosen["nodes"] == [str(i) for i in range(20)]
    assert [int(row["group"]) for row in rows] == chosen["z"]
    assert [row["server"] for row in rows] == [chosen["servers"][k] for k in chosen["z"]]
    points = {point["name"]: point for point in said["points"]}
    assert points["edge"]["group_sizes"] == 10 * [2]
    assert points["edge"]["cycle_s"] == pytest.approx(
        4 * points["edge"]["d_group"] + said["d_global"]
    )
    assert points[chosen["name"]]["front"]
    assert chosen["name"] in said["front"]
    assert chosen["used_by_a_run"] == "coterie"


def test_a_name_that_a_spreadsheet_would_evaluate_is_saved_as_text(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text(NET.replace("phone b", "=cmd|x!A1"))
    words = ["network.topology=file", f"network.file={tmp_path / 'net.csv'}", "partition.kind=iid"]
    words += ["partition.num_nodes=3", "partition.num_edges=2", "algorithm.num_groups=2"]
    sets = [part for word in words for part in ("--set", word)]
    path = tmp_path / "groups.csv"
    done = run(tmp_path, *sets, "--json", "--methods", "coterie", "--save", str(path))
    assert done.exit_code == 0, done.output
    assert "\n'=cmd|x!A1," in path.read_text()
    assert "=cmd|x!A1" in [cells["node"] for _, cells in read_rows(path, RecordError)[1]]


def test_files_name_the_nodes_and_places_that_are_saved(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text(NET)
    words = ["network.topology=file", f"network.file={tmp_path / 'net.csv'}"]
    words += [
        "partition.kind=iid",
        "partition.num_nodes=3",
        "partition.num_edges=2",
        "algorithm.num_groups=2",
    ]
    sets = [part for word in words for part in ("--set", word)]
    done = run(tmp_path, *sets, "--save", str(tmp_path / "groups.csv"))
    assert done.exit_code == 0, done.output
    rows = list(csv.reader((tmp_path / "groups.csv").read_text().splitlines()))
    assert [row[0] for row in rows] == ["node", "phone$a$", "phone b", "<c>, new"]
    assert {row[2] for row in rows[1:]} <= {row[0] for row in rows[1:]}
    text = (tmp_path / "plan.html").read_text()
    assert "&lt;c&gt;" in text
    assert "<c>" not in text
    done = run(tmp_path, "--set", "network.topology=edge-cloud", "--json", "--methods", "coterie")
    servers = json.loads(done.stdout)["chosen"]["servers"]
    assert all(name.startswith(("cloud", "base station")) for name in servers)


def test_what_cannot_be_planned_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "taken").touch()
    for words, message in (
        (("--methods", "coterie,astrea"), "unknown grouping 'astrea'; did you mean 'astraea'?"),
        (("--methods", " , "), "--methods must be names such as coterie,edge, got ' , '"),
        (("--budget", "2MB"), "--budget must be a time such as 2s, 500ms, 1m or 1.5h, got '2MB'"),
        (("-o", str(inside)), "--out must name a file, such as plan.html, got"),
        (("--save", str(inside)), "--save must name a file, such as groups.csv, got"),
        (("--save", str(tmp_path / "taken" / "x.csv")), "a folder that can be written, got"),
        (("--save", str(inside / "plan.png")), "--save and --out must be different files"),
        (("--set", "algorithm.num_groups=21"), "num_groups must be <= num_nodes, got 21"),
        (("--set", "algorithm.max_group_size=9"), "2 groups of at most 9 have no room for 20"),
        (("--set", "algorithm.name=fedavg-ci"), "did you mean 'fedavg-ic'?"),
        (
            ("--set", "algorithm.max_group_size=12", "--set", "algorithm.grouping=cov"),
            "algorithm.grouping 'cov' does not keep to max_group_size; use 'coterie' or 'label-il",
        ),
    ):
        done = run(inside, *words)
        assert done.exit_code == 2, done.output
        assert done.output.startswith("coterie: ")
        assert message in done.output
        assert done.output.count("\n") == 1
    assert list(inside.iterdir()) == []
