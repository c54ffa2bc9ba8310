"""Runs under way are followed as they are, from their start to their end."""

import json
import signal
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import held
from coterie.analysis.lines import read_view
from coterie.cli import main
from coterie.core.errors import ConfigError
from coterie.render.page import page_data
from coterie.render.watch import Live
from coterie.runs.record import RecordedRun, find_runs
from made_runs import made_run, write_run
from resuming import PATIENCE_S, n_rows, start, sweep, wait_for
from watched import data_of, ended, planned, rising, shifted, statuses, under_way, watching

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the folder whenever asked."""
    monkeypatch.setattr("coterie.render.watch.live.LEAST_S", 0.0)
    monkeypatch.setattr("coterie.render.watch.live.SHARE", 1e9)


def told(live: Live) -> Json:
    found: Json = json.loads(live.latest().body)
    return found


def lines_of(data: Json) -> dict[str, Json]:
    return {line["label"]: line for block in data["page"]["blocks"] for line in block["lines"]}


def test_a_sweep_is_followed_from_its_start_to_its_end(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    names = {"s/seed0", "s/seed1"}
    with watching(runs) as (port, watcher):
        assert data_of(port)["runs"] == []
        file = sweep(tmp_path, seeds=2, steps=30, **held.ALGORITHM)
        words = ("--out", runs / "s", "--jobs", 1, "--checkpoint-every", 0)
        run = start("run", file, *words, held=tmp_path)
        looks: list[Json] = []

        def seen(status: str, t: int) -> bool:
            looks.append(data_of(port))
            return ("s/seed0", status, t) in [
                (r["name"], r["status"], r["t"]) for r in looks[-1]["runs"]
            ]

        for number in (2, 3, 4):  # it is held while it is looked at, however long the look takes
            wait_for((tmp_path / f"held-{number}").exists, run)
            wait_for(partial(seen, "running", n_rows(runs / "s" / "seed0") - 1))
            held.let_go(tmp_path, number)
        held.let_go(tmp_path)
        wait_for(lambda: seen("complete", 30) and len(set(statuses(looks[-1]).values())) == 1)
        out, err = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, (out, err)
        wait_for(lambda: len(data_of(port)["page"]["runs"]) == 2)
        last = data_of(port)
        watcher.send_signal(signal.SIGINT)
        said, problem = watcher.communicate(timeout=PATIENCE_S)
    assert (watcher.returncode, problem) == (0, "")
    assert said.strip() == "stopped watching; runs under way go on"
    begun = [statuses(look) for look in looks if look["runs"]]
    assert all(look.keys() == names for look in begun)
    assert {"s/seed0": "running", "s/seed1": "waiting"} in begun
    steps = [{r["name"]: r["t"] for r in look["runs"]} for look in looks if look["runs"]]
    for before, after in pairwise(steps):
        assert all(before[name] <= after[name] for name in names)
    assert len({at["s/seed0"] for at in steps}) > 3
    label = f"fedavg-ic ({held.ALGORITHM['grouping']}) (running)"
    assert {label} in [set(lines_of(look)) for look in looks]
    found, left_out = find_runs([runs])
    assert last["page"] == json.loads(json.dumps(page_data(found, None, left_out)))
    assert all(r["left_s"] is None and r["t"] == r["steps"] == 30 for r in last["runs"])


def test_a_run_under_way_is_a_line_of_its_own(tmp_path: Path) -> None:
    first, second = (rising(tmp_path / f"s{seed}", seed=seed) for seed in (0, 1))
    write_run(first)
    under_way(second, 6)
    data = told(Live(tmp_path))
    lines = lines_of(data)
    assert set(lines) == {"fedavg", "fedavg (running)"}
    assert lines["fedavg"]["curve"]["points"] == 21
    assert lines["fedavg (running)"]["curve"]["x"]["t"] == [0, 1, 2, 3, 4, 5]
    assert lines["fedavg"]["accuracy"] == pytest.approx(0.9)
    assert lines["fedavg (running)"]["accuracy"] == pytest.approx(0.3)
    assert lines["fedavg"]["style"] == lines["fedavg (running)"]["style"]
    row = data["runs"][0]
    assert (row["name"], row["status"], row["t"], row["steps"]) == ("s1", "running", 5, 20)
    assert row["accuracy"] == pytest.approx(0.3)
    assert (row["seconds"], row["wall_s"]) == (5, 0.5)
    assert row["left_s"] == pytest.approx(1.5)
    assert data["page"]["blocks"][0]["notes"] == []


def test_there_is_no_target_before_fedavg_is_complete(tmp_path: Path) -> None:
    base = rising(tmp_path / "base")
    quick = made_run(tmp_path / "quick", "fedavg-ic", accuracies=[0.1, 0.95], settings=steps_of(20))
    under_way(base, 6)
    under_way(quick, 2)
    live = Live(tmp_path)
    data = told(live)
    assert data["page"]["blocks"][0]["target"] is None
    assert lines_of(data)["fedavg-ic (running)"]["hit"] is None
    other = rising(tmp_path / "other", seed=1)
    write_run(other)  # says nothing about the seed whose FedAvg is under way
    assert lines_of(told(live))["fedavg-ic (running)"]["target_s"] is None
    ended(base)
    data = told(live)
    assert data["page"]["blocks"][0]["target"]["mean"] == pytest.approx(90)
    assert lines_of(data)["fedavg-ic (running)"]["target_s"] == 1
    assert lines_of(told(Live(tmp_path, 0.25)))["fedavg"]["target_s"] == 4


def steps_of(steps: int) -> dict[str, dict[str, Any]]:
    return {"train": {"steps": steps}}


def test_a_run_is_drawn_before_its_groups_are_known(tmp_path: Path) -> None:
    folder = under_way(rising(tmp_path / "a", "fedavg-ic"), 3)
    (folder / "grouping.json").unlink()
    line = lines_of(told(Live(tmp_path)))["fedavg-ic (running)"]
    assert (line["groups"], line["network"], line["z"]) == (None, None, None)
    assert line["curve"]["points"] == 3


def test_a_run_of_the_first_second_is_told_of_and_not_drawn(tmp_path: Path) -> None:
    folder = under_way(rising(tmp_path / "a"), 3)
    for name in ("progress.json", "grouping.json"):
        (folder / name).unlink()
    data = told(Live(folder))
    assert [(r["name"], r["status"], r["t"]) for r in data["runs"]] == [("a", "running", 2)]
    assert data["page"]["blocks"] == data["page"]["left_out"] == []
    (folder / "rows.jsonl").write_text("")
    assert told(Live(folder))["runs"][0]["accuracy"] is None


@pytest.mark.parametrize("status", ["failed", "diverged", "interrupted"])
def test_a_run_that_ended_early_is_named_so(tmp_path: Path, status: str) -> None:
    write_run(shifted(rising(tmp_path / "a", rows=5), status))
    write_run(rising(tmp_path / "b"))
    data = told(Live(tmp_path))
    assert statuses(data) == {"a": status, "b": "complete"}
    assert set(lines_of(data)) == {"fedavg", f"fedavg ({status})"}
    way = "" if status == "diverged" else f"coterie run --resume {tmp_path / 'a'}"
    assert data["runs"][0]["way"] == way


def test_runs_that_have_not_begun_wait_in_the_order_of_the_sweep(tmp_path: Path) -> None:
    runs = [rising(tmp_path / name, seed=at) for at, name in enumerate(("c", "a", "b"))]
    planned(tmp_path, *runs)
    live = Live(tmp_path)
    data = told(live)
    assert statuses(data) == dict.fromkeys("cab", "waiting")
    assert [(r["t"], r["steps"], r["news_at"]) for r in data["runs"]] == [(0, 20, None)] * 3
    assert data["left_s"] is None
    under_way(runs[1], 11)
    data = told(live)
    assert list(statuses(data).items()) == [("a", "running"), ("c", "waiting"), ("b", "waiting")]
    assert data["left_s"] == pytest.approx(1 + 2 * 2)  # half of one, and two more
    assert data["runs"][0]["way"] == f"coterie run --resume {tmp_path}"


def test_colours_stay_when_more_runs_begin_or_end(tmp_path: Path) -> None:
    names = ("fedavg-ic", "hierfavg", "fedavg")
    runs = [rising(tmp_path / name, name) for name in names]
    planned(tmp_path, *runs)
    live = Live(tmp_path)
    styles: dict[str, set[int]] = {}
    for run in runs:
        under_way(run, 3)
        for _ in range(2):
            for label, line in lines_of(told(live)).items():
                styles.setdefault(label.split(" ", maxsplit=1)[0], set()).add(line["style"])
            if (run.folder / "progress.json").exists():
                ended(run)
    assert styles == {"fedavg": {0}, "hierfavg": {1}, "fedavg-ic": {4}}


def test_only_what_has_changed_is_read_and_made_again(tmp_path: Path) -> None:
    runs = [
        write_run(made_run(tmp_path / f"{a}-{seed}-{lr}", a, seed, rise, settings=lr_of(lr)))
        for a in ("fedavg", "hierfavg", "fedavg-c", "fedavg-i", "fedavg-ic", "centralized")
        for seed in range(4)
        for lr in (0.1, 0.2, 0.3)
        for rise in [list(np.linspace(0.1, 0.9, 40))]
    ]
    growing = made_run(tmp_path / "last", "fedavg", 9, [0.5] * 40, settings=lr_of(0.1))
    under_way(growing, 10)
    live = Live(tmp_path)
    took, answers, seen = [], [], []
    for rows in (10, 10, 20, 30):
        under_way(growing, rows) if rows > 10 else None
        began = time.perf_counter()
        answers.append(live.latest())
        took.append(time.perf_counter() - began)
        seen.append(dict(live._seen))
    print(f"\n{len(runs)} complete runs of 40 rows and one under way, {len(answers[0].body):,} B")
    for what, s in zip(("first", "nothing new", "news", "news"), took, strict=True):
        print(f"{what}: {1e3 * s:.0f} ms")
    assert answers[0] is answers[1]
    assert len({answer.tag for answer in answers}) == 3
    again = {name for name, each in seen[2].items() if each is not seen[1][name]}
    assert again == {growing.folder}
    assert len(live._kept._before) == 2 * 19 + 2  # curves, nodes, networks
    assert sum(r["t"] for r in json.loads(answers[3].body)["runs"]) == 72 * 39 + 29


def lr_of(lr: float) -> dict[str, dict[str, Any]]:
    return {"train": {"lr": lr, "steps": 39}}


def test_a_run_that_goes_on_is_running_again(tmp_path: Path) -> None:
    run = rising(tmp_path / "a")
    under_way(run, 10)
    ended(run, "interrupted")
    live = Live(tmp_path)
    assert statuses(told(live)) == {"a": "interrupted"}
    (run.folder / "summary.json").unlink()
    under_way(run, 5)  # from a checkpoint before its last row
    row = told(live)["runs"][0]
    assert (row["status"], row["t"]) == ("running", 4)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", "?\n"),
        ("summary.json", "{"),
        ("summary.json", '{"status": "new"}'),
        ("grouping.json", '{"z": 1}'),
        ("config.toml", "="),
    ],
)
def test_a_damaged_run_is_left_out_as_in_the_report(
    tmp_path: Path, name: str, content: str
) -> None:
    write_run(rising(tmp_path / "good"))
    bad = write_run(rising(tmp_path / "bad", "fedavg-ic"))
    (bad / name).write_text(content)
    data = told(Live(tmp_path))
    assert statuses(data) == {"bad": "damaged", "good": "complete"}
    assert data["page"]["left_out"] == find_runs([tmp_path])[1]
    assert set(lines_of(data)) == {"fedavg"}


def test_damage_of_a_run_under_way_and_of_a_sweep_is_told(tmp_path: Path) -> None:
    folder = under_way(rising(tmp_path / "a"), 3)
    (folder / "rows.jsonl").write_text("?\n")
    (tmp_path / "runs.json").write_text("[]")
    sweep, run = told(Live(tmp_path))["page"]["left_out"]
    assert (
        sweep
        == f"{tmp_path}/runs.json: cannot be read (runs.json: must hold a JSON object, got a list)"
    )
    assert run.startswith(f"{folder}: damaged run folder (rows.jsonl line 1: JSON is malformed")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"status": "dreaming"}, "progress.json: unknown status 'dreaming'"),
        ({"status": "complete"}, "progress.json: unknown status 'complete'"),
        ({"d_global": ...}, "progress.json: has no 'd_global'"),
        ({"d_group": [1]}, "progress.json: d_group must be a number, got [1]"),
    ],
)
def test_an_odd_progress_is_damage_and_the_rest_is_shown(
    tmp_path: Path, change: Json, says: str
) -> None:
    write_run(rising(tmp_path / "good"))
    path = under_way(rising(tmp_path / "bad", "fedavg-ic"), 3) / "progress.json"
    content = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}))
    data = told(Live(tmp_path))
    assert statuses(data) == {"bad": "damaged", "good": "complete"}
    assert says in data["page"]["left_out"][0]


def test_odd_settings_of_runs_to_come_are_shown_as_far_as_they_are_known(tmp_path: Path) -> None:
    write_run(rising(tmp_path / "good"))
    configs = [{"algorithm": {"name": ["fedavg"]}}, {"algorithm": 3}, {"train": {"steps": 10**400}}]
    runs = [{"folder": f"r{at}", "config": config} for at, config in enumerate(configs)]
    (tmp_path / "runs.json").write_text(json.dumps({"runs": runs}))
    data = told(Live(tmp_path))
    assert statuses(data) == {"good": "complete", **dict.fromkeys(("r0", "r1", "r2"), "waiting")}
    assert [run["steps"] for run in data["runs"] if run["status"] == "waiting"] == [None] * 3
    said = [
        "algorithm.name must be text, got ['fedavg']",
        "algorithm must be an object, got 3",
        "train: has no 'lr'",
    ]
    assert data["page"]["left_out"] == [
        f"{tmp_path / name}: not planned by this version of coterie (runs.json: {odd})"
        for name, odd in zip(("r0", "r1", "r2"), said, strict=True)
    ]


def test_a_missing_folder_is_one_line_and_an_empty_one_waits(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["watch", str(tmp_path / "none")])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert f"{tmp_path / 'none'}: no such folder" in done.output
    data = told(Live(tmp_path))
    assert (data["runs"], data["page"]["blocks"], data["left_s"]) == ([], [], None)


def test_a_folder_that_vanishes_is_waited_for(tmp_path: Path) -> None:
    folder = write_run(rising(tmp_path / "runs" / "a"))
    live = Live(folder.parent)
    assert len(told(live)["runs"]) == 1
    folder.parent.rename(tmp_path / "elsewhere")
    assert told(live)["runs"] == []


def at_rate(folder: Path, lr: float, best: float) -> RecordedRun:
    run = made_run(folder, accuracies=[0.1, best], settings={"train": {"lr": lr, "steps": 1}})
    return replace(run, config={**run.config, "label": "mine"})


def test_the_watched_page_shows_the_best_of_the_complete_runs(tmp_path: Path) -> None:
    low, high = at_rate(tmp_path / "low", 0.1, 0.5), at_rate(tmp_path / "high", 0.5, 0.7)
    planned(tmp_path, low, high)
    under_way(high, 1)
    live = Live(tmp_path, None, read_view(best="train.lr"))
    live.check()
    assert told(live)["page"]["blocks"] == []
    write_run(low)
    assert lines_of(told(live))["mine"]["cells"][:2] == ["mine", "0.1"]
    ended(high)
    assert lines_of(told(live))["mine"]["cells"][:2] == ["mine", "0.5"]


def test_a_baseline_that_is_not_there_is_refused_at_once_and_later_only_told(
    tmp_path: Path,
) -> None:
    live = Live(tmp_path, None, read_view(baseline="yours"))
    live.check()  # nothing is known yet
    write_run(at_rate(tmp_path / "a", 0.1, 0.5))
    late = Live(tmp_path, None, read_view(baseline="yours"))
    with pytest.raises(ConfigError, match="no line is called 'yours'"):
        late.check()
    (problem,) = told(late)["page"]["left_out"]
    assert problem.startswith("not shown as asked for: --baseline: no line is called 'yours'")
    assert set(lines_of(told(late))) == {"mine"}
