"""Sweeps that are begun again, grow, are done in parts, and choose settings."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coterie.analysis.rank import rank
from coterie.config.files import expand, selected_by
from coterie.core.errors import ConfigError, RecordError
from coterie.paper import Table
from coterie.runs.record import RecordedRun, find_runs
from coterie.runs.sweep import only, place_jobs, plan_jobs, sweep_folder
from recorded import recorded
from resuming import coterie, outcome

BASE = (
    "[data]\nsample = 0.1\n[partition]\nnum_nodes = 10\nnum_edges = 10\n"
    "[algorithm]\nname = 'fedavg'\n[train]\nsteps = 5\n"
)


def test_a_sweep_does_what_is_left_and_nothing_twice(tmp_path: Path) -> None:
    file, out = tmp_path / "my.toml", tmp_path / "out"
    file.write_text(BASE + "[sweep]\nseed = [0, 1]\n")
    words = ["sweep", file, "--out", out, "--jobs", 1]
    first = coterie(*words, "--only", "seed=1")
    assert first.exit_code == 0, first.output
    assert {p.parent.name for p in out.rglob("summary.json")} == {"seed1"}
    before = (out / "seed1" / "summary.json").stat().st_mtime_ns
    file.write_text(BASE + "[sweep]\nseed = [0, 1, 2]\n'train.lr' = [0.1, 0.2]\n")
    grown = coterie(*words)
    assert grown.exit_code == 0, grown.output
    assert "1 of 6 runs: complete already" in grown.output
    assert (out / "seed1" / "summary.json").stat().st_mtime_ns == before
    runs, left_out = find_runs([out])
    assert not left_out
    found = sorted((run.config["seed"], run.config["train"]["lr"]) for run in runs)
    assert found == [(seed, lr) for seed in (0, 1, 2) for lr in (0.1, 0.2)]
    told = json.loads((out / "runs.json").read_text())["runs"]
    assert len(told) == len({run["folder"] for run in told}) == 6


def test_a_folders_name_that_is_taken_by_other_settings_gets_a_number(tmp_path: Path) -> None:
    (one,) = expand({})
    jobs = place_jobs([one], tmp_path)
    with sweep_folder(tmp_path, jobs):
        (tmp_path / "fedavg-ic").mkdir()
        (tmp_path / "fedavg-ic" / "rows.jsonl").touch()
    (other,) = expand({"train": {"lr": 0.5}})
    assert place_jobs([one, other], tmp_path)[0].label == "fedavg-ic"
    assert [job.label for job in place_jobs([other], tmp_path)] == ["fedavg-ic-2"]


def test_two_sweeps_cannot_share_a_folder_at_a_time(tmp_path: Path) -> None:
    first, second = place_jobs(expand({"sweep": {"seed": [0, 1]}}), tmp_path)
    with (
        sweep_folder(tmp_path, [first]),
        pytest.raises(RecordError, match="another process is running it"),
        sweep_folder(tmp_path, [second]),
    ):
        pass


AT_ONCE = """
import os, sys, time
from pathlib import Path
from coterie.config.files import expand
from coterie.core.errors import RecordError
from coterie.runs.sweep import place_jobs, sweep_folder

def contend(folder, seed, ready, begin):
    jobs = place_jobs(expand({"seed": seed}), folder)
    refused = folder.with_suffix(".refused")
    os.write(ready, b".")
    os.read(begin, 1)
    try:
        with sweep_folder(folder, jobs):
            alone = os.open(folder / "holder", os.O_CREAT | os.O_EXCL)
            while not refused.exists():  # the first has it until another has come
                time.sleep(0.001)
            os.close(alone)
            os.unlink(folder / "holder")
            if seed % 2:  # the others come to nothing, and leave nothing
                jobs[0].folder.mkdir(exist_ok=True)
                (jobs[0].folder / "rows.jsonl").touch()
    except RecordError as error:
        assert "another process" in str(error) or "give the command again" in str(error), error
        refused.touch()
        return "refused"
    return "held"

for turn in range(20):
    (count, ready), (begin, start) = os.pipe(), os.pipe()
    for seed in range(4):
        if os.fork() == 0:
            os.close(start)
            try:
                said = contend(Path(sys.argv[1]) / str(turn), seed, ready, begin)
            except BaseException as error:
                said = repr(error)
            os.write(1, f"{turn} {seed} {said}\\n".encode())
            os._exit(0)
    for _ in range(4):
        os.read(count, 1)
    os.close(start)  # all four go at once
    for _ in range(4):
        os.wait()
    for end in (count, ready, begin):
        os.close(end)
"""


def test_of_sweeps_begun_in_the_same_instant_one_has_the_folder(tmp_path: Path) -> None:
    words = [sys.executable, "-c", AT_ONCE, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    said = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert len(said) == 80
    assert {what for _, _, what in said} == {"held", "refused"}, done.stdout
    for turn in {turn for turn, _, _ in said}:
        told = tmp_path / turn / "runs.json"
        runs = json.loads(told.read_text())["runs"] if told.exists() else []
        begun = {str(run["config"]["seed"]) for run in runs}
        held = {seed for at, seed, what in said if at == turn and what == "held"}
        assert {seed for seed in held if int(seed) % 2} <= begun <= held


def test_runs_placed_before_another_sweep_began_there_are_not_taken_for_its_own(
    tmp_path: Path,
) -> None:
    late = place_jobs(expand({"train": {"lr": 0.5}}), tmp_path)
    first = place_jobs(expand({}), tmp_path)
    assert first[0].label == late[0].label
    with sweep_folder(tmp_path, first):
        first[0].folder.mkdir()
        (first[0].folder / "rows.jsonl").touch()
    told = (tmp_path / "runs.json").read_bytes()
    with (
        pytest.raises(RecordError, match="just now; give the command again"),
        sweep_folder(tmp_path, late),
    ):
        pass
    assert (tmp_path / "runs.json").read_bytes() == told


def test_a_sweep_that_came_to_nothing_leaves_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with sweep_folder(folder, place_jobs(expand({"sweep": {"seed": [0, 1]}}), folder)):
        assert (folder / "runs.json").exists()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("wanted", "labels"),
    [
        (["algorithm.alpha_comm=1", "seed=0"], ["seed0-alpha_comm1.0"]),
        (["algorithm.alpha_comm=0.50", "seed=1"], ["seed1-alpha_comm0.5"]),
        (
            ["seed=0", "algorithm.alpha_comm=1", "seed=1"],
            ["seed0-alpha_comm1.0", "seed1-alpha_comm1.0"],
        ),
        (["partition.kind=Dtt", "seed=2"], ["seed2-alpha_comm0.5", "seed2-alpha_comm1.0"]),
    ],
)
def test_only_reads_values_and_takes_any_of_one_key_and_all_keys(
    wanted: list[str], labels: list[str]
) -> None:
    axes = {"seed": [0, 1, 2], "algorithm.alpha_comm": [0.5, 1.0]}
    jobs = plan_jobs(expand({"sweep": axes}), Path())
    assert [job.label for job in only(jobs, wanted)] == labels


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (["seed=7"], "--only seed=7: no run has it; seed is 0, 1 here"),
        (["lr=0.1"], "--only: unknown setting 'lr'; did you mean 'train.lr'?"),
        (["train={}"], "--only: 'train' is a section; name one of its settings"),
        (["seed"], "--only takes key=value, got 'seed'"),
        (["seed=x"], "--only: seed must be a whole number, got 'x'"),
        (
            ["seed=0", "train.lr=0.2"],
            "--only seed=0 --only train.lr=0.2: each is had by some run, but all together by none",
        ),
    ],
)
def test_what_only_cannot_mean_is_one_line(wanted: list[str], says: str) -> None:
    tables = [{"seed": 0, "train.lr": 0.1}, {"seed": 1, "train.lr": 0.2}]
    jobs = plan_jobs(expand({"sweep": {"both": tables}}), Path())
    with pytest.raises(ConfigError) as caught:
        only(jobs, wanted)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_only_does_not_find_is_said(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(BASE + "[sweep]\nseed = [0, 1]\n")
    done = coterie("sweep", file, "--only", "seed=7", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "--only seed=7: no run has it; seed is 0, 1 here" in done.output
    done = coterie("sweep", file, "--only", "sed=7", "--out", tmp_path / "out")
    assert "--only: unknown setting 'sed'; did you mean 'seed'?" in done.output
    assert not (tmp_path / "out").exists()


def test_settings_are_chosen_by_the_validation_part(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(
        BASE + "[sweep]\nselect = 'val_accuracy'\n'train.lr' = [0.0001, 0.1]\nseed = [0, 1]\n"
    )
    done = coterie("sweep", file, "--out", tmp_path / "out", "--jobs", 1)
    assert done.exit_code == 0, done.output
    assert f"best: coterie run {file} --set train.lr=0.1\n" in done.output
    head = next(line for line in done.output.splitlines() if "val_accuracy seeds" in line)
    assert head.split() == ["lr", "val_accuracy", "seeds"]  # and nothing of where it ran
    lines = [line.split() for line in done.output.splitlines()]
    assert [line[0] for line in lines if line and line[-1] == "2"] == ["0.1", "0.0001"]


def test_the_search_that_ships_ranks_its_settings_without_any_files(tmp_path: Path) -> None:
    assert "\n  search " in coterie("list", "experiments").output
    quick = ["--set", "train.steps=2", "--set", "data.sample=0.1", "--only", "seed=0"]
    words = ["sweep", "search", "--scale", "small", *quick, "--out", tmp_path / "out"]
    done = coterie(*words, "--jobs", 1)
    assert done.exit_code == 0, done.output
    assert "best val_accuracy first" in done.output
    best = "--set train.steps=2 --set data.sample=0.1 --set seed=0 --set train.batch_size="
    assert f"best: coterie run search {best}" in done.output
    runs, _ = find_runs([tmp_path / "out"])
    assert (
        len({(run.config["train"]["lr"], run.config["train"]["batch_size"]) for run in runs}) == 4
    )


def test_a_candidate_that_lost_a_seed_comes_after_the_others() -> None:
    def run(lr: float, seed: int, val: float) -> RecordedRun:
        return recorded([(0, 0.1), (1, val)], seed, train={"lr": lr})

    runs = [run(0.1, 0, 0.6), run(0.1, 1, 0.8), run(1.0, 0, 0.9)]
    found = rank(runs, "val_accuracy")
    assert [(c.settings, round(c.value, 6), c.seeds) for c in found] == [
        ({"train.lr": 0.1}, 0.7, 2),
        ({"train.lr": 1.0}, 0.9, 1),
    ]


def test_what_candidates_differ_in_is_told_also_of_runs_that_failed() -> None:
    older = recorded([(0, 0.1), (1, 0.6)], train={"lr": 0.1})
    del older.config["train"]["batch_size"]
    newer = recorded([(0, 0.1), (1, 0.7)], train={"lr": 0.1, "batch_size": 8})
    assert [c.settings for c in rank([older, newer], "val_accuracy")] == [
        {"train.batch_size": 8},
        {"train.batch_size": None},
    ]
    failed = recorded([(0, 0.1)], seed=3, train={"lr": 9.0, "batch_size": 8})
    (one,) = rank([newer], "val_accuracy", [{"seed": 3, **failed.settings}])
    assert one.settings == {"train.lr": 0.1}


def test_a_run_without_what_is_chosen_by_is_one_line() -> None:
    run = recorded([(0, 0.1)], summary={"val_accuracy": None})
    with pytest.raises(RecordError, match=r"its summary\.json has no val_accuracy"):
        rank([run], "val_accuracy")


def test_a_sweep_with_a_run_that_cannot_be_read_names_no_best(tmp_path: Path) -> None:
    file, out = tmp_path / "my.toml", tmp_path / "out"
    file.write_text(BASE + "[sweep]\nselect = 'val_accuracy'\n'train.lr' = [0.01, 0.1]\n")
    words = ["sweep", file, "--out", out, "--jobs", 1]
    assert coterie(*words).exit_code == 0
    whole = outcome(out / "lr0.1")
    (out / "lr0.1" / "rows.jsonl").write_text("{\n{\n")
    done = coterie(*words)
    assert done.exit_code == 2
    assert f"left out: {out / 'lr0.1'}: damaged" in done.output
    assert done.output.endswith("coterie: 1 of 2 runs cannot be read\n")
    assert "best: coterie" not in done.output
    (out / "lr0.1" / "rows.jsonl").unlink()
    assert (
        f"{out / 'lr0.1'}: not a finished run, rows.jsonl is missing"
        in coterie("compare", out).output
    )
    done = coterie(*words)  # without rows it is not complete, and is run again
    assert done.exit_code == 0, done.output
    assert "1 of 2 runs: complete already" in done.output
    assert outcome(out / "lr0.1") == whole


def test_complete_runs_are_ranked_and_those_that_failed_told_of_after(tmp_path: Path) -> None:
    file, out = tmp_path / "my.toml", tmp_path / "out"
    axes = "[sweep]\n'train.lr' = [1e38, 1e37, 0.1]\n"
    file.write_text(BASE + "lr_decay = 1.0\n" + axes + "select = 'val_accuracy'\n")
    words = ["sweep", file, "--out", out, "--jobs", 1]
    done = coterie(*words)
    assert done.exit_code == 2
    best = done.output.index(f"best: coterie run {file} --set train.lr=0.1")
    assert done.output.index("best val_accuracy first") < best
    assert best < done.output.index(f"left out: {out / 'lr1e+37'}: diverged after step")
    assert best < done.output.index("failed: lr1e+38: the loss is")
    assert best < done.output.index("coterie: 2 of 3 runs failed; lr1e+38: the loss is")
    assert coterie(*words, "--only", "train.lr=1e38", "--set", "seed=1").exit_code == 2
    file.write_text(BASE + "lr_decay = 1.0\n" + axes + "seed = [2]\n")
    plain = coterie(*words)
    assert plain.exit_code == 2
    assert plain.output.index("all runs") < plain.output.index("coterie: 2 of 3 runs failed")


def test_a_reproduction_shows_its_tables_before_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "speeds.toml"
    file.write_text(
        BASE.replace("fedavg", "fedavg-ic") + "lr_decay = 1.0\n[sweep]\n'train.lr' = [1e38, 0.1]\n"
    )
    monkeypatch.setattr("coterie.cli.sweeps.experiment_path", lambda _: file)
    made = Table("claims", ("run", "figure"), [["a", "1"]])
    monkeypatch.setattr("coterie.paper.judge", lambda name, runs: [made])
    out = tmp_path / "out"
    done = coterie("reproduce", "speeds", "--out", out, "--jobs", 1)
    assert done.exit_code == 2
    said = ["claims", "left out: ", "coterie: 1 of 2 runs failed; lr1e+38: the loss is"]
    assert sorted(said, key=done.output.index) == said
    assert (out / "reproduction.md").exists()


def test_an_algorithm_set_over_a_table_of_algorithms_runs_once() -> None:
    shipped = Path(__file__).parents[2] / "experiments" / "accuracy.toml"
    content = tomllib.loads(shipped.read_text())
    found = expand(content, ["algorithm.name=fedavg", "seed=0"])
    datasets = len(content["sweep"]["work"])
    assert len(found) == datasets
    assert set(found) <= set(expand(content))
    searched = expand(content, ["algorithm.name=fedavg-ic", "seed=0"])
    assert len(searched) == 2 * datasets  # two groupings, which fedavg-ic does read
    tables = [{"name": "fedavg"}, {"name": "hierfavg"}]
    axes = {"algorithm.num_groups": [5, 10], "algorithm": tables}
    groups = expand({"sweep": axes}, ["algorithm.name=fedavg"])
    assert [one.algorithm.num_groups for one in groups] == [5, 10]  # an axis of its own stays


def test_a_complete_run_of_other_settings_is_not_taken_for_this_one(tmp_path: Path) -> None:
    file, out = tmp_path / "my.toml", tmp_path / "out"
    file.write_text(BASE + "[sweep]\nseed = [0, 1]\n")
    assert coterie("sweep", file, "--out", out, "--jobs", 1).exit_code == 0
    (out / "runs.json").unlink()
    done = coterie("sweep", file, "--set", "train.lr=0.5", "--out", out, "--jobs", 1)
    assert done.exit_code == 2
    assert "seed0: its config.toml differs: train.lr is 0.1 and was 0.5; put it back" in done.output


def test_the_test_part_cannot_choose() -> None:
    with pytest.raises(
        ConfigError, match=r"sweep\.select must be one of val_accuracy, val_loss, train_loss"
    ):
        selected_by({"sweep": {"select": ["val_accuracy"]}})
    with pytest.raises(ConfigError, match="what is chosen by the test part cannot be tested"):
        expand({"sweep": {"select": "test_accuracy", "seed": [0]}})


LABELLED = "[sweep]\nseed = [0, 1]\nalgorithm = [{{name = 'fedavg', label = '{}'}}]\n"


def test_a_label_names_no_folder() -> None:
    tables = [{"name": name, "label": name.upper()} for name in ("fedavg", "hierfavg")]
    jobs = plan_jobs(expand({"sweep": {"algorithm": tables}}), Path("r"))
    assert [job.label for job in jobs] == ["fedavg", "hierfavg"]


def test_a_sweep_under_other_labels_renames_its_runs_and_runs_none(tmp_path: Path) -> None:
    file, out = tmp_path / "my.toml", tmp_path / "out"
    words = ["sweep", file, "--out", out, "--jobs", 1]
    file.write_text(BASE + LABELLED.format("old"))
    assert coterie(*words).exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in out.rglob("rows.jsonl")}
    file.write_text(BASE + LABELLED.format("new"))
    again = coterie(*words)
    assert again.exit_code == 0, again.output
    assert "2 of 2 runs: complete already" in again.output
    assert {path: path.stat().st_mtime_ns for path in out.rglob("rows.jsonl")} == before
    assert [run.config["label"] for run in find_runs([out])[0]] == ["new", "new"]
    told = json.loads((out / "runs.json").read_text())["runs"]
    assert [run["config"]["label"] for run in told] == ["new", "new"]
    assert "\nnew " in again.output
