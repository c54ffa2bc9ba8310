"""The paper's relations, tested on pairs of seeds: worked by hand, and never of what differs."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from coterie.config.files import load_experiment, make_config
from coterie.config.settings import Config
from coterie.config.shipped import experiment_path
from coterie.core.errors import RecordError
from coterie.paper import Table, not_run
from coterie.paper.paired import Claim, Paired, flipped, judged, paired
from coterie.paper.relations import (
    by_seed,
    cells,
    learning_steps,
    named,
    of_curves,
    of_printed_cells,
    topologies,
)
from coterie.paper.runs import FEDAVG, HIERFAVG, THEIRS, Runs, accuracy
from coterie.runs.record import RecordedRun
from recorded import recorded
from resuming import coterie

SR = {"data": {"name": "mnist-o"}, "model": {"name": "sr"}}
NAMED: dict[str, dict[str, Any]] = {
    FEDAVG: {"name": "fedavg"},
    HIERFAVG: {"name": "hierfavg"},
    "fedavg-c (reference)": {"name": "fedavg-c", "grouping": "reference"},
    "fedavg-i (reference)": {"name": "fedavg-i", "grouping": "reference"},
    THEIRS: {"name": "fedavg-ic", "grouping": "reference"},
}


def ended(name: str, seed: int, seen: float, **sections: Any) -> RecordedRun:
    """A run that ends with an accuracy, after four seconds."""
    algorithm = {**NAMED[name], **sections.pop("algorithm", {})}
    return recorded([(0, 0.1), (4, seen)], seed, algorithm=algorithm, **{**SR, **sections})


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hand-made runs have the clock that they were made with, and no other."""
    monkeypatch.setattr("coterie.paper.relations.CLOCKS", {"honest": lambda runs: runs})


def row_of(table: Table, relation: str) -> list[str]:
    (found,) = (row for row in table.rows if row[0] == relation)
    return found


def test_a_paired_test_is_of_the_seeds_that_both_have() -> None:
    found = paired({0: 5.0, 1: 7.0, 2: 9.0, 3: 0.0}, {0: 4.0, 1: 5.0, 2: 6.0, 4: 100.0})
    assert found is not None
    assert found.by_seed == {0: 1.0, 1: 2.0, 2: 3.0}
    # mean 2, SD 1: 2 +- 4.3027 / sqrt(3)
    assert (found.mean, found.low, found.high) == pytest.approx((2, -0.48414, 4.48414), abs=1e-5)
    assert found.p == 2 / 8  # of eight choices of signs only +++ and --- are as far from 0
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_the_p_value_counts_all_choices_of_signs() -> None:
    differences = [0.5, -0.2, 0.9, 0.4, 0.1]
    far = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= 1.7 - 1e-9
        for signs in product((1, -1), repeat=5)
    ]
    assert flipped(differences) == sum(far) / 32 == 6 / 32
    assert flipped([0.1, 0.2, 0.3, 0.4, 0.5]) == 2 / 32
    assert flipped([0.1] * 3 + [-0.3]) == 1.0  # a sum that is 0 but for rounding


def test_one_seed_and_very_many_tell_no_more_than_they_can() -> None:
    one = paired({0: 2.0}, {0: 1.0})
    assert one is not None
    assert (one.low, one.high, one.p) == (-float("inf"), float("inf"), 1.0)
    assert {judged(one, claim, 0.5) for claim in ("more", "not less", "level")} == {
        "not told apart"
    }
    many = paired(dict.fromkeys(range(17), 1.0), dict.fromkeys(range(17), 0.0))
    assert many is not None
    assert (many.low, many.high, many.p) == (1.0, 1.0, None)


@pytest.mark.parametrize(
    ("low", "high", "more", "not_less", "level"),
    [
        (0.1, 0.9, "holds", "holds", "not told apart"),
        (0.6, 0.9, "holds", "holds", "does not hold"),
        (-0.4, 0.4, "not told apart", "holds", "holds"),
        (-0.4, -0.1, "does not hold", "holds", "holds"),
        (-0.9, 0.4, "not told apart", "not told apart", "not told apart"),
        (-0.9, -0.6, "does not hold", "does not hold", "does not hold"),
    ],
)
def test_a_claim_is_judged_by_where_the_interval_lies(
    low: float, high: float, more: str, not_less: str, level: str
) -> None:
    found = Paired({}, (low + high) / 2, low, high, None)
    expected: dict[Claim, str] = {"more": more, "not less": not_less, "level": level}
    assert {claim: judged(found, claim, 0.5) for claim in expected} == expected
    assert judged(None, "more") == "not run"


def test_the_chain_on_dtt_and_the_levels_on_dhh_are_tested_seed_by_seed() -> None:
    ends = {FEDAVG: 0.80, HIERFAVG: 0.81, "fedavg-i (reference)": 0.85, THEIRS: 0.86}
    worse = {"fedavg-c (reference)": 0.70}
    runs = [
        ended(name, seed, seen + seed / 1000, partition={"kind": kind})
        for (name, seen), seed, kind in product((ends | worse).items(), (0, 1, 2), ("Dtt", "Dhh"))
    ]
    table, *by_time = of_printed_cells(Runs(tuple(runs)))
    assert table.rows[0][1:] == [
        *("Dtt sr", "3", "+6.0, +6.0, +6.0 (seeds 0-2)", "+6.0", "+6.0 to +6.0", "0.25", "holds")
    ]
    dtt = [row for row in table.rows if row[1] == "Dtt sr"]
    assert [(row[0], row[4], row[7]) for row in dtt] == [
        (f"{THEIRS} > {FEDAVG}", "+6.0", "holds"),
        (f"{THEIRS} > {HIERFAVG}", "+5.0", "holds"),
        (f"{THEIRS} >= fedavg-i (reference)", "+1.0", "holds"),
        (f"fedavg-i (reference) >= {HIERFAVG}", "+4.0", "holds"),
        (f"{HIERFAVG} >= {FEDAVG}", "+1.0", "holds"),
        ("fedavg-c (reference) > fedavg-i (reference)", "-15.0", "does not hold"),
    ]
    dhh = [row for row in table.rows if row[1] == "Dhh sr"]
    assert [(row[0], row[7]) for row in dhh] == [
        (f"{name} = {FEDAVG}", "does not hold") for name in list(ends)[1:]
    ]
    assert [each.title.rpartition(", ")[2] for each in by_time] == ["honest"]
    assert by_time[0].rows == table.rows  # all take four seconds


def test_cells_without_runs_are_told_as_not_run() -> None:
    runs = Runs((ended(FEDAVG, 0, 0.8, partition={"kind": "Dtt"}),))
    table = of_printed_cells(runs)[0]
    assert {row[1] for row in table.rows} == {
        f"{kind} {model}" for kind, model in product(("Dtt", "Dhh"), ("sr", "2nn", "cnn"))
    }
    assert {(row[2], row[7]) for row in table.rows} == {("0", "not run")}


def test_other_seeds_are_never_paired() -> None:
    runs = [ended(FEDAVG, seed, 0.8, partition={"kind": "Dtt"}) for seed in (0, 1, 2)]
    runs += [ended(THEIRS, seed, 0.9, partition={"kind": "Dtt"}) for seed in (2, 3)]
    row = row_of(of_curves(Runs(tuple(runs)))[0], f"{THEIRS} > {FEDAVG}")
    assert row[1:4] == ["Dtt sr", "1", "+10.0 (seeds 2)"]
    assert row[-1] == "not told apart"


def test_other_scales_and_clocks_are_never_paired() -> None:
    where = {"partition": {"kind": "Dtt"}}
    full = [ended(FEDAVG, seed, 0.8, **where) for seed in (0, 1)]
    other = {**SR["data"], "sample": 0.1}
    small = [ended(THEIRS, seed, 0.9, data=other, **where) for seed in (0, 1)]
    slow = [ended(THEIRS, s, 0.9, network={"link_mbytes_per_s": 10.0}, **where) for s in (0, 1)]
    free = [ended(THEIRS, s, 0.9, algorithm={"charge_grouping": False}, **where) for s in (0, 1)]
    for apart, key in ((small, "data.sample"), (slow, "link_mbytes"), (free, "charge_grouping")):
        runs = Runs((*full, *apart))
        assert [len(cell.members) for cell in cells(runs)] == [2, 2]
        table = of_curves(runs)[0]
        told = [row for row in table.rows if row[0] == f"{THEIRS} > {FEDAVG}"]
        assert [row[2] for row in told] == ["0", "0"]
        assert {row[-1] for row in told} == {"not run"}
        assert all(key in row[1] for row in told)  # namesakes are told apart
    both = Runs((*full, *(ended(THEIRS, seed, 0.9, **where) for seed in (0, 1)), *small))
    (_, main), (_, rest) = named(cells(both))
    assert (len(main.members), len(rest.members)) == (4, 2)


def test_a_seed_that_is_there_twice_is_refused() -> None:
    run = ended(FEDAVG, 0, 0.8)
    with pytest.raises(RecordError, match="seed 0 must be there once, got it twice"):
        by_seed(Runs((run, replace(run, folder=Path("again")))), accuracy)


def test_the_loss_by_more_learning_steps_is_compared_seed_by_seed() -> None:
    losses = {FEDAVG: 0.3, HIERFAVG: 0.3, THEIRS: 0.1}
    runs = [
        ended(name, seed, 0.9 + seed / 100 - loss * (tau1 == 5), algorithm={"tau1": tau1})
        for (name, loss), seed, tau1 in product(losses.items(), (0, 1, 2), (1, 5))
    ]
    (table,) = learning_steps(Runs(tuple(runs)))
    told = {row[0]: (row[2], row[4], row[7]) for row in table.rows}
    assert told[f"loss of {THEIRS} > 0"] == ("3", "+10.0", "holds")
    assert told[f"loss of {FEDAVG} > {THEIRS}"] == ("3", "+20.0", "holds")
    assert told[f"loss of {FEDAVG} > {HIERFAVG}"][1:] == ("0.0", "not told apart")
    partial = [r for r in runs if r.config["seed"] or r.config["algorithm"]["name"] != "fedavg"]
    (table,) = learning_steps(Runs(tuple(partial)))
    assert row_of(table, f"loss of {FEDAVG} > {THEIRS}")[2] == "2"
    (table,) = learning_steps(Runs(tuple(run for run in runs[:6])))
    assert row_of(table, f"loss of {FEDAVG} > {THEIRS}")[-1] == "not run"


def placed(topology: str, seed: int, took: float, name: str = FEDAVG) -> RecordedRun:
    """A run on a network that has 0.5 after some seconds, and FedAvg's 0.8 after twice of them."""
    run = costed_network(topology, name)
    rows = [{**row} for row in run.rows]
    for row, seconds in zip(rows, (0.0, took, 2 * took), strict=True):
        row["seconds"] = seconds
    return replace(run, config={**run.config, "seed": seed}, rows=rows)


def costed_network(topology: str, name: str) -> RecordedRun:
    sections: dict[str, Any] = {**SR, "network": {"topology": topology}}
    return recorded([(0, 0.1), (1, 0.5), (2, 0.8)], algorithm=NAMED[name], **sections)


def test_topologies_are_compared_by_the_seconds_of_each_seed() -> None:
    runs = [placed("fat-tree", s, 5.0 + s) for s in (0, 1, 2)]
    runs += [placed("jellyfish", s, 4.0) for s in (0, 1, 2)]
    (table,) = topologies(Runs(tuple(runs)))
    row = row_of(table, f"{FEDAVG}: fat tree > jellyfish, honest")
    assert row[2:5] == ["3", "+2, +4, +6 (seeds 0-2)", "+4"]
    assert row[-1] == "not told apart"  # 4 +- 4.97
    assert row_of(table, f"{THEIRS}: fat tree > jellyfish, honest")[-1] == "not run"
    runs += [placed("fat-tree", s, 5.0, THEIRS) for s in (0, 1, 2)]
    late = [placed("jellyfish", s, 4.0, THEIRS) for s in (0, 1, 2)]
    never = [replace(run, rows=run.rows[:2]) for run in late[1:]]
    (table,) = topologies(Runs((*runs, late[0], *never)))
    row = row_of(table, f"{THEIRS}: fat tree > jellyfish, honest")
    assert (row[2], row[-1]) == ("1/3", "not told apart")
    (table,) = topologies(Runs((*runs, *late)))
    assert row_of(table, f"{THEIRS}: fat tree > jellyfish, honest")[-1] == "holds"


def some_configs() -> list[Config]:
    return [
        make_config({"seed": seed, "partition": {"kind": kind}, "algorithm": algorithm})
        for kind in ("Dtt", "Dhh")
        for algorithm in NAMED.values()
        for seed in (0, 1, 2)
    ]


def test_what_was_not_run_is_told_cell_by_cell() -> None:
    every = some_configs()
    assert not_run(every, every) == []
    (table,) = not_run(every, every[:14])
    assert table.rows == [
        ["Dtt", "15", "14", f"{THEIRS}: seeds 2"],
        ["Dhh", "15", "0", "all"],
    ]
    stranger = make_config({"seed": 0, "data": {"sample": 0.1}})
    assert not_run(every, [*every, stranger]) == []


def test_settings_of_an_algorithm_tell_what_was_not_run() -> None:
    every = load_experiment(experiment_path("group-counts"))
    there = [c for c in every if (c.algorithm.num_groups, c.seed) != (20, 3)]
    (table,) = not_run(every, there)
    (row,) = table.rows
    assert row[3] == "fedavg-ic num_groups=20: seeds 3"


def test_a_run_of_other_settings_under_a_runs_name_is_in_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "efficiency.toml"
    path.write_text(
        "[data]\nsample = 0.1\n[partition]\nnum_nodes = 10\nnum_edges = 10\n[train]\nsteps = 5\n"
        "[algorithm]\nname = 'fedavg'\n[sweep]\nseed = [0, 1]\n"
    )
    monkeypatch.setattr("coterie.cli.sweeps.experiment_path", lambda _: path)
    out = tmp_path / "runs"
    words = ["reproduce", "efficiency", "--out", out, "--jobs", 1]
    done = coterie(*words, "--only", "seed=0")
    assert done.exit_code == 0, done.output
    said = (out / "reproduction.md").read_text()
    assert "| all | 2 | 1 | fedavg: seeds 1 |" in said
    (config,) = out.glob("*/config.toml")
    config.write_text(config.read_text().replace("sample = 0.1", "sample = 0.2"))
    done = coterie(*words, "--no-run")
    assert done.exit_code == 0, done.output
    assert f"left out: {config.parent}: has other settings than the run of that name" in done.output
    assert "fedavg (to" not in (out / "reproduction.md").read_text()


def test_a_folder_of_runs_does_not_hide_the_experiment_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = experiment_path("efficiency")
    (tmp_path / "efficiency").mkdir()
    assert experiment_path("efficiency") == shipped
    (tmp_path / "efficiency").rmdir()
    (tmp_path / "efficiency").write_text("seed = 1\n")
    assert experiment_path("efficiency") == Path("efficiency")


def test_an_experiment_without_fedavg_i_says_nothing_of_it() -> None:
    names = (FEDAVG, HIERFAVG, THEIRS)
    runs = Runs(tuple(ended(name, 0, 0.8, partition={"kind": "Dtt"}) for name in names))
    assert [row[0] for row in of_curves(runs)[0].rows] == [
        f"{THEIRS} > {FEDAVG}",
        f"{THEIRS} > {HIERFAVG}",
        f"{HIERFAVG} >= {FEDAVG}",
    ]
