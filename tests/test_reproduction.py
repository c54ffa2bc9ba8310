"""What the paper says beside what was measured: on hand-made runs, and on real small ones."""

from pathlib import Path
from typing import Any

import pytest

from coterie.cli.experiments import experiment_path
from coterie.config import load_experiment, make_config
from coterie.experiment import execute
from coterie.record import RecordedRun, find_runs
from coterie.reproduction import REPRODUCTIONS, Table, judge
from coterie.reproduction.efficiency import PAPER_CLOCK, PRINTED
from coterie.reproduction.runs import Runs, accuracy_at, speed_up, targets, times
from coterie.retime import retime
from recorded import recorded
from resuming import coterie

REFERENCE = {"name": "fedavg-ic", "grouping": "reference"}


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
    assert times(runs, "fedavg-ic (reference)", targets(runs)) == {0: 1, 1: None}
    assert times(runs, "hierfavg", targets(runs)) == {0: None, 1: 4}
    assert speed_up(times(runs, "fedavg", targets(runs)), {0: 1, 1: None}) == 4
    assert speed_up({0: 4.0}, {0: None}) is None
    assert runs.labels == ["fedavg", "hierfavg", "fedavg-ic (reference)"]
    assert len(runs.where(algorithm__name="fedavg").members) == 2


def test_accuracy_at_a_time_is_the_last_measured_by_then() -> None:
    run = recorded([(0, 0.1), (1, 0.3), (2, 0.2), (4, 0.9)])
    assert [accuracy_at(run, s) for s in (0, 1.5, 2, 3.9, 100)] == [0.1, 0.3, 0.2, 0.2, 0.9]


def test_the_papers_orders_are_judged_by_what_was_measured() -> None:
    good = [
        *trio(0, 0.7, 0.6, 0.8, partition={"kind": "Dtt"}),
        *trio(0, 0.8, 0.6, 0.8, partition={"kind": "Dqq"}),
    ]
    (table,) = judge("diversities", good)
    assert column(table, "verdict") == ["reproduced", "reproduced"]
    bad = [*trio(0, 0.85, 0.6, 0.8, partition={"kind": "Dtt"})]
    (table,) = judge("diversities", bad)
    assert column(table, "verdict") == ["differs: hierfavg behind, fedavg ahead"]
    by_time, by_step = judge("accuracy", good[:3])
    assert column(by_time, "FedAvg-IC - FedAvg") == ["+10.0"]
    assert column(by_time, "verdict") == ["reproduced"]
    assert column(by_step, "verdict") == ["reproduced"]
    by_time, _ = judge("accuracy", bad)
    assert column(by_time, "verdict") == ["differs"]


def test_losing_least_by_more_steps_is_a_claim_about_everybody() -> None:
    few, many = {"tau1": 1}, {"tau1": 5}

    def both(name: str, a: float, b: float, **more: Any) -> list[RecordedRun]:
        return [
            recorded([(0, 0.1), (1, seen)], algorithm={"name": name, **tau, **more})
            for tau, seen in ((few, a), (many, b))
        ]

    ic = both("fedavg-ic", 0.9, 0.88, grouping="reference")
    (table,) = judge("learning-steps", [*both("fedavg", 0.8, 0.7), *ic])
    assert column(table, "verdict") == ["reproduced", "reproduced"]
    assert column(table, "loss in points") == ["+10.0", "+2.0"]
    (table,) = judge("learning-steps", [*both("fedavg", 0.8, 0.81), *ic])
    assert column(table, "verdict") == ["differs: it loses nothing", "differs: fedavg loses less"]


def test_costs_are_judged_against_the_network_edges() -> None:
    def planned(Delta: float, d_group: float, **algorithm: Any) -> RecordedRun:
        told = {"Delta_first": Delta, "d_group": d_group}
        return recorded([(0, 0.1), (1, 0.2)], summary=told, algorithm=algorithm)

    edge = planned(2.0, 0.2, name="hierfavg")
    (table,) = judge("costs", [edge, planned(0.1, 0.4, **REFERENCE)])
    assert column(table, "less Delta") == ["", "reproduced"]
    assert column(table, "less d_group") == ["", "differs"]


def test_combining_is_judged_by_the_seconds_of_a_mean() -> None:
    def timed(combine: str, d_global: float) -> RecordedRun:
        told = {"d_group": None, "d_global": d_global}
        network = {"combine": combine}
        return recorded(
            [(0, 0.1), (1, 0.2)], summary=told, algorithm={"name": "fedavg"}, network=network
        )

    (table,) = judge("combined", [timed("none", 3.0), timed("all", 0.6)])
    assert (column(table, "drop"), column(table, "verdict")) == (["80%"], ["reproduced"])
    (table,) = judge("combined", [timed("none", 3.0), timed("all", 3.0)])
    assert column(table, "verdict") == ["differs: it takes as long"]


def test_counts_show_speed_ups_over_the_same_fedavg() -> None:
    runs = [
        recorded([(0, 0.1), (4, 0.8)], algorithm={"name": "fedavg"}),
        recorded([(0, 0.1), (2, 0.8)], algorithm={"name": "fedavg-ic", "num_groups": 5}),
        recorded([(0, 0.1), (1, 0.8)], algorithm={"name": "fedavg-ic", "num_groups": 20}),
    ]
    (table,) = judge("group-counts", runs)
    assert column(table, "speed-up") == ["1.00x", "2.00x", "4.00x"]
    assert column(table, "num_groups") == ["", "5", "20"]


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_reproduction_is_a_sweep_at_two_scales(name: str) -> None:
    path = experiment_path(name)
    full, small = load_experiment(path), load_experiment(path, scale="small")
    assert {config.seed for config in full} == {0, 1, 2, 3, 4}
    assert 0 < len(small) < len(full)
    assert all(config.data.sample <= 0.2 for config in small)


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
    assert "| Dtt sr | hierfavg | 29 | 1.72x | - | - | not run | - | - |" in alone
    assert "| work | algorithm | paper s | speed up |" in alone
    done = coterie(*words)
    assert done.exit_code == 0, done.output
    assert "1 of 3 runs: complete already" in done.output
    assert (out / "report.html").stat().st_size > 10_000
    said = (out / "reproduction.md").read_text()
    assert "| Dtt sr | fedavg | 50 | 1.00x |" in said
    assert "| Dtt sr | fedavg-ic (reference) | 6 | 8.33x |" in said
    runs = {run.config["algorithm"]["name"]: run for run in find_runs([out])[0]}
    mixed = retime(runs["fedavg"], PAPER_CLOCK)
    assert mixed.summary["d_global"] > 2 * runs["fedavg"].summary["d_global"]
    stranger = {"data": {"sample": 0.1}, "partition": {"num_nodes": 10, "num_edges": 10}}
    execute(make_config({**stranger, "train": {"steps": 2}}), out / "other")
    again = coterie(*words)
    assert f"left out: {out / 'other'}: not a run of this experiment" in again.output
    assert (out / "reproduction.md").read_text() == said
    assert "3 of 3 runs: complete already" in again.output


def small_efficiency(folder: Path) -> Path:
    path = folder / "efficiency.toml"
    path.write_text(
        "[data]\nsample = 0.1\n[partition]\nkind = 'Dtt'\nnum_nodes = 10\nnum_edges = 10\n"
        "[train]\nsteps = 10\n[network]\ncombine = 'all'\n[sweep]\nalgorithm = [{name = 'fedavg'}, "
        "{name = 'hierfavg'}, {name = 'fedavg-ic', grouping = 'reference', num_groups = 2}]\n"
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
