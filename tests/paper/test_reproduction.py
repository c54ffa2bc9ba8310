"""What the paper says beside what was measured: on hand-made runs, and on real small ones."""

import io
import json
import re
import shutil
import tarfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from coterie.analysis.compare import seconds_to
from coterie.analysis.format import number
from coterie.config.files import Scale, load_experiment, make_config, read_experiment
from coterie.config.shipped import experiment_path
from coterie.core.errors import DataError
from coterie.paper import REPRODUCTIONS, Table, judge
from coterie.paper.curves import by_diversity, by_spread, by_time, noises, on_the_way
from coterie.paper.decomposition import decomposed, to_printed, within_reach
from coterie.paper.efficiency import PRINTED, Cell, runs_of, whole_targets
from coterie.paper.runs import (
    CHOSEN,
    OTHER_TAUS,
    OURS,
    PAPER_CLOCK,
    THEIRS,
    Runs,
    Times,
    accuracy_at,
    honest,
    targets,
    times,
    with_group_means_of,
    without_group_means,
)
from coterie.runs.execute import execute
from coterie.runs.record import RecordedRun, find_runs
from coterie.runs.retime import retime
from recorded import recorded
from resuming import coterie

REFERENCE = {"name": "fedavg-ic", "grouping": "reference"}
AUTO = {"name": "fedavg-ic", "num_groups": "auto", "tau1": "auto", "tau2": "auto"}


def trio(
    seed: int, fedavg: float, hierfavg: float, ic: float, **sections: Any
) -> list[RecordedRun]:
    """Three algorithms that end with these accuracies, FedAvg after 4 s and the others after 8."""
    return [
        recorded(
            [(0, 0.1), (2, fedavg / 2), (4, fedavg)], seed, algorithm={"name": "fedavg"}, **sections
        ),
        recorded(
            [(0, 0.1), (4, hierfavg), (8, hierfavg)],
            seed,
            algorithm={"name": "hierfavg"},
            **sections,
        ),
        recorded([(0, 0.1), (1, ic), (8, ic)], seed, algorithm=REFERENCE, **sections),
    ]


def column(table: Table, name: str) -> list[str]:
    return [row[table.columns.index(name)] for row in table.rows]


def test_runs_are_narrowed_down_and_timed_to_each_seeds_target() -> None:
    runs = Runs((*trio(0, 0.8, 0.5, 0.9), *trio(1, 0.6, 0.6, 0.5)))
    assert targets(runs) == {0: 0.8, 1: 0.6}
    assert times(runs, THEIRS, targets(runs)).by_seed == {0: 1, 1: None}
    assert times(runs, "hierfavg", targets(runs)).by_seed == {0: None, 1: 4}
    assert times(runs, "fedavg-i", targets(runs)).by_seed == {}
    assert runs.labels == ["fedavg", "hierfavg", THEIRS]
    assert len(runs.where(algorithm__name="fedavg").members) == 2


def test_a_time_counts_when_more_than_half_of_the_seeds_get_there() -> None:
    half, most = Times({0: 1.0, 1: None}), Times({0: 1.0, 1: 3.0, 2: None})
    assert (half.mean, half.over({0: 4.0, 1: 4.0})) == (None, None)
    assert (most.mean, most.over({0: 4.0, 1: 4.0, 2: 9.0})) == (2.0, 2.0)
    assert most.over({}) is None


def test_only_seeds_that_everybody_has_are_compared() -> None:
    lucky = trio(1, 0.7, 0.6, 0.99)
    runs = Runs((*trio(0, 0.7, 0.6, 0.6), lucky[2]))
    assert {run.config["seed"] for run in runs.level().members} == {0}
    table = by_time(runs, "honest")
    assert (column(table, "n"), column(table, THEIRS)) == (["1"], ["60.0"])
    assert column(table, "verdict") == ["differs: behind by 10.0"]
    assert column(by_time(Runs((*runs.members, *lucky[:2])), ""), "verdict") == ["reproduced"]
    apart = Runs((*trio(0, 0.7, 0.6, 0.6)[:2], lucky[2]))
    assert column(by_time(apart, ""), "verdict") == ["not run"]


def test_who_is_ahead_is_told_while_fedavg_takes_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.paper.curves.CLOCKS", {"honest": honest})
    (row,) = on_the_way(Runs((*trio(0, 0.7, 0.6, 0.8), *trio(1, 0.7, 0.6, 0.6)))).rows
    assert row[0] == "honest"
    assert row[2:] == ["2", "+60.0", "+35.0", "+35.0", "+0.0"]


def test_accuracy_at_a_time_is_the_last_measured_by_then() -> None:
    run = recorded([(0, 0.1), (1, 0.3), (2, 0.2), (4, 0.9)])
    assert [accuracy_at(run, s) for s in (0, 1.5, 2, 3.9, 100)] == [0.1, 0.3, 0.2, 0.2, 0.9]


def test_the_papers_orders_are_judged_by_what_was_measured() -> None:
    good = [
        *trio(0, 0.7, 0.6, 0.8, partition={"kind": "Dtt"}),
        *trio(0, 0.8, 0.6, 0.8, partition={"kind": "Dqq"}),
    ]
    table = by_diversity(Runs(tuple(good)), "honest")
    assert column(table, "verdict") == ["reproduced", "reproduced"]
    bad = trio(0, 0.85, 0.6, 0.8, partition={"kind": "Dtt"})
    table = by_diversity(Runs(tuple(bad)), "honest")
    assert column(table, "verdict") == ["differs: hierfavg behind, fedavg ahead"]
    other = by_diversity(Runs(tuple(trio(0, 0.5, 0.6, 0.8, partition={"kind": "iid"}))), "honest")
    assert column(other, "verdict") == [""]
    table = by_time(Runs(tuple(good[:3])), "honest")
    assert column(table, "FedAvg-IC - FedAvg") == ["+10.0"]
    assert column(table, "verdict") == ["reproduced"]
    assert column(by_time(Runs(tuple(bad)), ""), "verdict") == ["differs: behind by 5.0"]


def test_losing_least_by_more_steps_is_a_claim_about_fedavg_and_hierfavg() -> None:
    few, many = {"tau1": 1}, {"tau1": 5}

    def both(name: str, a: float, b: float, **more: Any) -> list[RecordedRun]:
        return [
            recorded([(0, 0.1), (1, seen)], algorithm={"name": name, **tau, **more})
            for tau, seen in ((few, a), (many, b))
        ]

    ic = both("fedavg-ic", 0.9, 0.88, grouping="reference")
    hier, ours = both("hierfavg", 0.8, 0.75), both("fedavg-ic", 0.9, 0.9)
    table, *_ = judge("learning-steps", [*both("fedavg", 0.8, 0.7), *hier, *ic, *ours])
    assert column(table, "verdict") == ["reproduced", "reproduced", "reproduced", ""]
    assert column(table, "loss in points") == ["+10.0", "+5.0", "+2.0", "+0.0"]
    table, *_ = judge("learning-steps", [*both("fedavg", 0.8, 0.81), *hier, *ic])
    assert column(table, "verdict")[0] == "differs: it loses nothing"
    assert column(table, "verdict")[2] == "differs: fedavg loses less"
    table, *_ = judge("learning-steps", [*both("fedavg", 0.8, 0.7), *ic])
    assert column(table, "verdict") == ["reproduced", "not run"]


def test_unequal_nodes_are_judged_by_who_gets_there_first() -> None:
    def first(*runs: RecordedRun) -> str:
        (said,) = column(by_spread(Runs(runs), "honest"), "FedAvg-IC is first")
        return said

    fedavg, hierfavg, ic = trio(0, 0.7, 0.6, 0.8)
    assert first(fedavg, hierfavg, ic) == "reproduced"
    assert first(fedavg, hierfavg, trio(0, 0.7, 0.6, 0.5)[2]) == "differs: it never gets there"
    slow = recorded([(0, 0.1), (9, 0.8)], algorithm=REFERENCE)
    assert first(fedavg, hierfavg, slow) == "differs: fedavg sooner"
    assert first(fedavg, hierfavg) == "not run"


def test_noise_is_judged_against_the_least_unequal_nodes() -> None:
    def noisy(sd: float, jump: float) -> list[RecordedRun]:
        curve = [(float(t), 0.5 + jump * (t % 2)) for t in range(8)]
        names = ({"name": "fedavg"}, {"name": "hierfavg"}, REFERENCE)
        return [recorded(curve, algorithm=each, partition={"sd": sd}) for each in names]

    calm, rough = noisy(1.0, 0.1), noisy(5.0, 0.2)
    table = noises(Runs((*calm, *rough)))
    assert column(table, "noisier than SD 1") == ["", "reproduced"]
    assert column(table, "fedavg") == ["10.00", "20.00"]
    table = noises(Runs((*calm, *rough[:2], *noisy(5.0, 0.05)[2:])))
    assert column(table, "noisier than SD 1")[1] == f"differs: {THEIRS} not"


def costed(Delta: float, hops_like: list[int], **algorithm: Any) -> RecordedRun:
    """A run on four nodes under two edges, whose groups' servers are these nodes."""
    algorithm = {"num_groups": 2, **algorithm}
    run = recorded([(0, 0.1), (1, 0.2)], summary={"Delta": Delta}, algorithm=algorithm)
    told = {**run.grouping, "edge_of": [0, 0, 1, 1], "servers": hops_like}
    summary = {**run.summary, "n_parameters": 10, "model_bytes": 40, "flops_per_example": 10}
    config = {**run.config, "partition": {"num_nodes": 4, "num_edges": 2}}
    return replace(run, config=config, grouping=told, summary=summary)


def test_costs_are_judged_against_the_network_edges_and_for_a_front() -> None:
    edge = costed(2.0, [0, 2], name="hierfavg")
    (table,) = judge("costs", [edge, costed(0.1, [2, 0], **REFERENCE)])
    assert column(table, "hops") == ["1", "6"]
    assert column(table, "less than edges") == ["", "differs: not in hops"]
    assert column(table, "on the front") == ["differs: it is on it", "reproduced"]
    (table,) = judge("costs", [edge, costed(3.0, [2, 0], **REFERENCE)])
    assert column(table, "less than edges") == ["", "differs: not in Delta and hops"]
    assert column(table, "on the front")[1] == "differs: it is not"


def test_combining_is_judged_by_the_seconds_of_a_mean() -> None:
    def timed(combine: str, d_group: float, d_global: float, **algorithm: Any) -> RecordedRun:
        told = {"d_group": d_group, "d_global": d_global}
        network = {"combine": combine}
        return recorded([(0, 0.1), (1, 0.2)], 0, told, algorithm=algorithm, network=network)

    (table,) = judge(
        "combined", [timed("none", 2, 3, **REFERENCE), timed("all", 1, 0.6, **REFERENCE)]
    )
    assert column(table, "drop") == ["50%", "80%"]
    assert column(table, "verdict") == ["reproduced", "reproduced"]
    (table,) = judge(
        "combined", [timed("none", 2, 3, **REFERENCE), timed("all", 1, 3, **REFERENCE)]
    )
    assert column(table, "verdict") == ["reproduced", "differs: the group mean's drops more"]
    (table,) = judge(
        "combined", [timed("none", 1, 3, name="hierfavg"), timed("all", 1, 1, name="hierfavg")]
    )
    assert column(table, "verdict") == ["", ""]


def test_counts_show_speed_ups_over_the_same_fedavg() -> None:
    runs = [
        recorded([(0, 0.1), (4, 0.8)], algorithm={"name": "fedavg"}),
        recorded([(0, 0.1), (2, 0.8)], algorithm={"name": "fedavg-ic", "num_groups": 5}),
        recorded([(0, 0.1), (1, 0.8)], algorithm={"name": "fedavg-ic", "num_groups": 20}),
    ]
    (table,) = judge("group-counts", runs)
    assert column(table, "speed-up") == ["1.00x", "2.00x", "4.00x"]
    assert column(table, "groups") == ["", "5", "20"]
    (table,) = judge("node-counts", runs[:2])
    assert column(table, "speed-up") == ["1.00x", "2.00x"]


def test_targets_of_the_efficiency_table_are_whole_percents_that_fedavg_has() -> None:
    runs = Runs((*trio(0, 0.848, 0.5, 0.9), *trio(1, 0.849, 0.5, 0.9)))
    assert whole_targets(runs) == {0: 0.84, 1: 0.84}
    assert whole_targets(Runs(tuple(trio(0, 0.29, 0.2, 0.3)))) == {0: 0.29}


def rising(rows: list[tuple[int, float, str, float]], **algorithm: Any) -> RecordedRun:
    """A run of these (step, seconds, event, accuracy), a second of it for every group mean."""
    run = recorded(
        [(0, 0.1)] * len(rows),
        summary={"seconds": rows[-1][1], "test_accuracy": rows[-1][3], "d_group": 1.0},
        algorithm=algorithm,
        data={"name": "mnist-o"},
    )
    names = ("t", "seconds", "event", "test_accuracy")
    return replace(run, rows=[dict(zip(names, row, strict=True)) for row in rows])


def test_group_means_can_be_taken_off_the_clock() -> None:
    run = rising(
        [(0, 0, "start", 0.1), (1, 2, "group", 0.2), (2, 4, "group", 0.3), (3, 7, "global", 0.5)],
        **REFERENCE,
    )
    (free,) = without_group_means(Runs((run,))).members
    assert [row["seconds"] for row in free.rows] == [0, 1, 2, 5]
    assert free.summary["seconds"] == 5
    (same,) = without_group_means(
        Runs((replace(run, summary={**run.summary, "d_group": None}),))
    ).members
    assert same.rows == run.rows


def test_a_speed_up_is_fewer_steps_over_dearer_steps_times_given_time() -> None:
    fedavg = rising(
        [(0, 0, "start", 0.1), (10, 2, "global", 0.805), (20, 4, "global", 0.808)], name="fedavg"
    )
    ic = rising([(0, 0, "start", 0.1), (5, 3, "global", 0.81), (10, 6, "global", 0.9)], **REFERENCE)
    (table,) = decomposed(Runs((fedavg, ic)))
    assert [row[2:4] for row in table.rows[1:4]] == [[name, "not run"] for name in OTHER_TAUS]
    assert table.rows[4][2:] == [THEIRS, "5", "2.00x", "600", "3.00x", "2.00x", "1.33x"]
    never = rising([(0, 0, "start", 0.1), (5, 3, "global", 0.5)], name="hierfavg")
    (table,) = decomposed(Runs((fedavg, never)))
    assert table.rows[4][3:5] == ["never", "-"]


def test_what_other_groups_could_reach_has_their_group_means_at_other_prices() -> None:
    fedavg = rising([(0, 0, "start", 0.1), (4, 12, "global", 0.805)], name="fedavg")
    ours = rising(
        [(0, 0, "start", 0.1), (1, 3, "group", 0.2), (2, 5, "group", 0.3), (3, 7, "global", 0.9)],
        name="fedavg-ic",
    )
    ours = replace(ours, summary={**ours.summary, "grouping_s": 1.0})
    edges = rising([(0, 0, "start", 0.1), (4, 20, "global", 0.2)], name="hierfavg")
    near = replace(edges, summary={**edges.summary, "d_group": 0.5})
    (table,) = within_reach(Runs((fedavg, near, ours)))
    assert table.rows == [["Dtt sr", "1", "8.33x", "1.71x", "2.40x", "3.00x"]]
    (table,) = within_reach(Runs((fedavg, ours)))
    assert table.rows == [["Dtt sr", "1", "8.33x", "1.71x", "-", "3.00x"]]
    assert within_reach(Runs((fedavg,))) == []
    assert within_reach(Runs((ours,))) == []
    nothing = replace(ours, summary={**ours.summary, "d_group": 0.0})
    (charged,) = with_group_means_of(Runs((near, nothing)), "hierfavg").of("fedavg-ic").members
    assert [row["seconds"] for row in charged.rows] == [0, 3.5, 6, 8]


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_reproduction_is_a_sweep_at_two_scales(name: str) -> None:
    path = experiment_path(name)
    full, small = load_experiment(path), load_experiment(path, scale="small")
    assert {config.seed for config in full} == {0, 1, 2, 3, 4}
    assert 0 < len(small) < len(full)
    assert all(config.data.sample <= 0.2 for config in small)


def test_the_medium_scale_is_on_all_data_with_as_many_seeds() -> None:
    there = [n for n in REPRODUCTIONS if "medium" in read_experiment(experiment_path(n))]
    assert len(there) == 7
    for name in there:
        medium = load_experiment(experiment_path(name), scale="medium")
        assert {config.seed for config in medium} == {0, 1, 2, 3, 4}
        assert {(c.data.sample, c.model.name) for c in medium} == {(1, "2nn")}


def test_an_experiment_without_the_scale_is_left_out_of_all(tmp_path: Path) -> None:
    done = coterie("reproduce", "all", "--scale", "medium", "--no-run", "--out", tmp_path / "x")
    assert "left out: efficiency has no medium scale" in done.stderr
    assert "efficiency" not in done.stdout
    alone = coterie("reproduce", "costs", "--scale", "medium")
    assert "costs.toml: has no medium scale, a section [medium]" in alone.stderr


def test_the_efficiency_table_has_all_printed_cells() -> None:
    configs = load_experiment(experiment_path("efficiency"))
    assert {(c.partition.kind, c.model.name) for c in configs} == set(PRINTED)
    assert {c.data.name for c in configs} == {"mnist-o"}


def test_a_table_is_run_judged_and_written_and_not_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.cli.sweeps.experiment_path", lambda _: small_efficiency(tmp_path))
    out = tmp_path / "runs"
    words = ["reproduce", "efficiency", "--out", out, "--jobs", 1]
    done = coterie(*words, "--only", "algorithm.name=fedavg")
    assert done.exit_code == 0, done.output
    alone = (out / "reproduction.md").read_text()
    assert (
        "| Dtt sr | 1 | hierfavg | 29 (1.72x) | not run | not run | not run | not run |  |  |  |  |"
        in alone
    )
    done = coterie(*words)
    assert done.exit_code == 0, done.output
    assert "1 of 5 runs: complete already" in done.output
    assert (out / "report.html").stat().st_size > 10_000
    said = (out / "reproduction.md").read_text()
    assert "| Dtt sr | 1 | fedavg (to 42%) | 50 |" in said
    assert "| Dtt sr | 1 | fedavg-ic (reference) | 6 (8.33x) |" in said
    planned, chosen = (first_row(said, name)[-1] for name in (OURS, CHOSEN))
    assert first_row(said, THEIRS)[-4::2] == [planned, chosen]
    assert planned != chosen
    assert first_row(said, CHOSEN)[-2] == "-"  # not by another clock than it was chosen by
    assert (out / "speed-ups.png").read_bytes().startswith(b"\x89PNG")
    assert "(speed-ups.png)" in said
    runs = {run.config["algorithm"]["name"]: run for run in find_runs([out])[0]}
    mixed = retime(runs["fedavg"], PAPER_CLOCK)
    assert mixed.summary["d_global"] > 2 * runs["fedavg"].summary["d_global"]
    with monkeypatch.context() as patch:
        low = {("Dtt", "sr"): Cell(0.3, 50, 29, 6)}
        patch.setattr(import_module("coterie.paper.efficiency"), "PRINTED", low)
        (table,) = to_printed(Runs(tuple(runs.values())))
    assert table.rows[0][2:5] == ["30%", "fedavg", "50 (1.00x)"]
    first, given = seconds_to(runs["fedavg"], 0.3), runs["fedavg"].summary["seconds"]
    assert first
    assert table.rows[0][-1] == f"{number(first)} ({given / first:.2f}x)"
    stranger = {"data": {"sample": 0.1}, "partition": {"num_nodes": 10, "num_edges": 10}}
    execute(make_config({**stranger, "train": {"steps": 2}}), out / "other")
    again = coterie(*words)
    assert f"left out: {out / 'other'}: not a run of this experiment" in again.output
    assert (out / "reproduction.md").read_text() == said
    assert "5 of 5 runs: complete already" in again.output
    shutil.copytree(next(job.parent for job in out.glob("*hierfavg*/rows.jsonl")), out / "x")
    (out / "x").rename(next(out.glob("*hierfavg*")) / "copy")
    again = coterie(*words)
    assert again.exit_code == 0, again.output
    assert "copy: not a run of this experiment" in again.output
    assert (out / "reproduction.md").read_text() == said


def first_row(said: str, name: str) -> list[str]:
    """The cells of the first row of an algorithm."""
    line = next(line for line in said.splitlines() if f"| {name} |" in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_chosen_schedule_counts_when_it_has_all_seeds_of_the_others() -> None:
    where = {"data": {"name": "mnist-o"}, "model": {"name": "sr"}, "partition": {"kind": "Dtt"}}
    given = [run for seed in (0, 1) for run in trio(seed, 0.8, 0.5, 0.9, **where)]
    chosen = [
        recorded([(0, 0.1), (2, 0.9)], seed, {"tuned": {}}, algorithm=AUTO, **where)
        for seed in (0, 1, 2)
    ]
    some = runs_of(Runs((*given, chosen[0])), "Dtt", "sr")
    assert some.labels == ["fedavg", "hierfavg", THEIRS]
    assert list(targets(some)) == [0, 1]
    every = runs_of(Runs((*given, *chosen)), "Dtt", "sr")
    assert times(every, CHOSEN, targets(every)).by_seed == {0: 2, 1: 2}


def test_fedavg_by_another_tau_counts_when_it_has_all_seeds_and_is_told_apart() -> None:
    where = {"data": {"name": "mnist-o"}, "model": {"name": "sr"}, "partition": {"kind": "Dtt"}}
    given = [run for seed in (0, 1) for run in trio(seed, 0.8, 0.5, 0.9, **where)]

    def every_step(seed: int) -> RecordedRun:
        algorithm = {"name": "fedavg", "tau2": 1}
        run = recorded([(0, 0.1), (1, 0.9)], seed, algorithm=algorithm, **where)
        return replace(run, config={**run.config, "label": OTHER_TAUS[0]})

    one, both = (Runs((*given, *map(every_step, seeds))) for seeds in ([0], [0, 1]))
    for some, members in ((one, 0), (both, 2)):
        found = runs_of(some, "Dtt", "sr")
        assert list(targets(found)) == [0, 1]  # of FedAvg by its own tau, and on all its seeds
        assert len(found.of(OTHER_TAUS[0]).members) == members
        assert times(found, OTHER_TAUS[0], targets(found)).by_seed == dict.fromkeys(
            range(members), 1
        )


def test_the_experiment_labels_fedavg_by_another_tau_as_the_tables_ask_for_it() -> None:
    configs = load_experiment(experiment_path("efficiency"))
    fedavg = {c.label: c.algorithm.usual[1:] for c in configs if c.algorithm.name == "fedavg"}
    assert fedavg == {"": (1, 5), **dict(zip(OTHER_TAUS, [(1, 1), (1, 2), (1, 10)], strict=True))}


def test_what_is_complete_is_shown_without_running_and_without_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.cli.sweeps.experiment_path", lambda _: small_efficiency(tmp_path))
    out = tmp_path / "runs"
    words = ["reproduce", "efficiency", "--out", out, "--jobs", 1]
    assert coterie(*words, "--only", "algorithm.name=fedavg").exit_code == 0

    def gone(*_: object) -> None:
        raise DataError("no such data")

    monkeypatch.setattr("coterie.config.factories.load_dataset", gone)
    for more in (["--no-run"], ["--only", "algorithm.name=fedavg"]):
        (out / "reproduction.md").unlink()
        done = coterie(*words, *more)
        assert done.exit_code == 0, done.output
        assert "| Dtt sr | 1 | fedavg (to 42%) |" in (out / "reproduction.md").read_text()
    assert coterie(*words, "--only", "algorithm.name=hierfavg").exit_code == 2
    assert len(find_runs([out])[0]) == 1


@pytest.mark.parametrize(("kept", "scale"), [("efficiency", "full"), ("medium", "medium")])
def test_the_runs_that_are_kept_are_complete_runs_of_the_experiment(
    kept: str, scale: Scale
) -> None:
    archive = Path(__file__).parents[2] / "docs" / "results" / f"{kept}-runs.tar.xz"
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        for folder in {name.split("/")[0] for name in names}:
            told = json.load(packed.extractfile(f"{folder}/runs.json") or io.BytesIO())["runs"]
            wanted = load_experiment(experiment_path(folder.removesuffix("-medium")), scale=scale)
            assert {make_config(run["config"]) for run in told} <= set(wanted)
            own = {name.split("/")[1] for name in names if name.startswith(f"{folder}/")}
            assert own == {"runs.json", *(run["folder"] for run in told)}
        for name in names:
            if name.endswith("/summary.json"):
                summary = json.load(packed.extractfile(name) or io.BytesIO())
                assert summary["status"] == "complete"


def test_a_reproduction_shows_its_settings_in_the_order_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small_efficiency(tmp_path)
    path.write_text(
        "[data]\nsample = 0.1\n[partition]\nnum_nodes = 10\nnum_edges = 10\n[train]\nsteps = 5\n"
        "[algorithm]\nname = 'fedavg'\n[sweep]\n'partition.kind' = ['Dtt', 'Dhh']\n"
    )
    monkeypatch.setattr("coterie.cli.sweeps.experiment_path", lambda _: path)
    done = coterie("reproduce", "efficiency", "--out", tmp_path / "runs", "--jobs", 1)
    assert done.exit_code == 0, done.output
    page = (tmp_path / "runs" / "report.html").read_text()
    headings = re.findall(r'"heading":"([^"]*)"', page)
    assert headings == ["kind Dtt", "kind Dhh"]


def small_efficiency(folder: Path) -> Path:
    path = folder / "efficiency.toml"
    path.write_text(
        "[data]\nsample = 0.1\n[partition]\nkind = 'Dtt'\nnum_nodes = 10\nnum_edges = 10\n"
        "[train]\nsteps = 10\n[network]\ncombine = 'all'\n[sweep]\nalgorithm = [{name = 'fedavg'}, "
        "{name = 'hierfavg'}, {name = 'fedavg-ic', grouping = 'reference', num_groups = 2}, "
        "{name = 'fedavg-ic', num_groups = 2}, "
        "{name = 'fedavg-ic', num_groups = 'auto', tau1 = 'auto', tau2 = 'auto'}]\n"
    )
    return path


def test_a_dataset_that_is_not_there_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "none"))
    done = coterie("reproduce", "combined", "--scale", "small", "--out", tmp_path / "x")
    assert done.exit_code == 2
    assert "left out: mnist-o: " in done.output
    assert "none of its datasets is on this machine; see 'coterie data'" in done.output
    unknown = coterie("reproduce", "eficiency")
    assert "nothing called 'eficiency' to reproduce; did you mean 'efficiency'?" in unknown.output
