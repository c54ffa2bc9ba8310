import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from coterie.comparison import compare, seconds_to
from coterie.config import Config, make_config
from coterie.errors import RecordError, TrainingError
from coterie.experiment import execute, prepare
from coterie.record import RecordedRun, find_runs, read_run, write_atomically
from coterie.report import write_picture, write_report
from coterie.run import State
from coterie.table import cells

GOLDEN = Path(__file__).parent / "golden.json"


def small(name: str = "fedavg-ic", seed: int = 0, **train: object) -> Config:
    """A real run on the embedded images that takes a moment: 20 nodes, 10 steps."""
    return make_config(
        {
            "seed": seed,
            "partition": {"num_nodes": 20, "num_edges": 10},
            "algorithm": {"name": name, "num_groups": 4},
            "train": {"steps": 10, "lr": 0.1, **train},
        }
    )


def without_wall_times(folder: Path) -> list[str]:
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    return [json.dumps({k: v for k, v in row.items() if k != "wall_s"}) for row in rows]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedRun]:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("fedavg", "fedavg-ic"):
        for seed in (0, 1):
            execute(small(name, seed), folder / f"{name}-{seed}")
    return find_runs([folder])


def test_the_same_seed_gives_byte_identical_rows(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        execute(small(), tmp_path / folder)
    assert without_wall_times(tmp_path / "a") == without_wall_times(tmp_path / "b")
    execute(small(seed=1), tmp_path / "c")
    assert without_wall_times(tmp_path / "a") != without_wall_times(tmp_path / "c")


def test_a_golden_run_stays_as_it_is(tmp_path: Path) -> None:
    """When this moves on purpose, the changelog says so under "Results changed"."""
    execute(small(), tmp_path / "run")
    run = read_run(tmp_path / "run")
    found = {
        "z": run.grouping["z"],
        "sizes": run.summary["group_sizes"],
        "accuracy": run.summary["test_accuracy"],
        "seconds": run.summary["seconds"],
        "train_loss": run.summary["train_loss"],
        "Delta": run.summary["Delta"],
        "bytes": run.summary["bytes_by_tier"],
    }
    golden = json.loads(GOLDEN.read_text())
    assert found["z"] == golden["z"]
    assert found["bytes"] == golden["bytes"]
    assert found["accuracy"] == pytest.approx(golden["accuracy"], abs=2 / 1400)
    for key in ("seconds", "train_loss", "Delta"):
        assert found[key] == pytest.approx(golden[key], rel=1e-4), key


def test_a_run_folder_holds_all_it_should(runs: list[RecordedRun]) -> None:
    run = next(r for r in runs if r.config["algorithm"]["name"] == "fedavg-ic")
    names = {path.name for path in run.folder.iterdir()}
    assert names == {
        "config.toml",
        "meta.json",
        "rows.jsonl",
        "grouping.json",
        "summary.json",
        "model.safetensors",
    }
    assert [row["t"] for row in run.rows] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    keys = {"t", "epoch", "seconds", "wall_s", "event", "train_loss", "test_accuracy", "Delta"}
    assert keys | {"delta", "group_sizes", "bytes_by_tier"} <= set(run.rows[0])
    assert {"python", "torch", "numpy", "coterie"} <= set(run.meta["versions"])
    assert run.meta["seed"] == 0
    weights = load_file(run.folder / "model.safetensors")
    assert {k: v.shape for k, v in weights.items()} == {"1.weight": (10, 784), "1.bias": (10,)}
    assert sum(run.summary["group_sizes"]) == 20


def test_a_diverged_run_keeps_its_rows_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"step \d+"):
        execute(small(lr=1e38, lr_decay=1.0), tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.summary["status"] == "diverged"
    assert len(run.rows) >= 1
    assert not (tmp_path / "run" / "model.safetensors").exists()
    with pytest.raises(RecordError, match="none of these runs is complete"):
        compare([run])


def test_an_interrupted_run_keeps_its_rows_and_says_so(tmp_path: Path) -> None:
    def stop(state: State) -> None:
        if state.t == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(small(), tmp_path / "run", on_state=stop)
    run = read_run(tmp_path / "run")
    assert run.summary["status"] == "interrupted"
    assert [row["t"] for row in run.rows] == [0, 1, 2, 3]


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    execute(small(), tmp_path / "run")
    before = (tmp_path / "run" / "rows.jsonl").read_bytes()
    with pytest.raises(RecordError, match="already holds a run"):
        execute(small(), tmp_path / "run")
    assert (tmp_path / "run" / "rows.jsonl").read_bytes() == before


def test_nothing_is_written_when_a_run_cannot_start(tmp_path: Path) -> None:
    config = small()
    wide = replace(config, partition=replace(config.partition, num_nodes=5000, num_edges=10))
    with pytest.raises(Exception, match="num_nodes must be <= the number of training examples"):
        execute(wide, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "summary.json").unlink(), "not a finished run, summary.json is missing"),
        (lambda f: (f / "summary.json").write_text("{"), "damaged run folder"),
        (lambda f: (f / "rows.jsonl").write_text('{"t": '), "damaged run folder"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, damage: object, says: str) -> None:
    execute(small(), tmp_path / "run")
    damage(tmp_path / "run")  # type: ignore[operator]
    with pytest.raises(RecordError, match=says):
        read_run(tmp_path / "run")


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no run in it"):
        find_runs([tmp_path])
    with pytest.raises(RecordError, match="no such folder"):
        find_runs([tmp_path / "nowhere"])


def test_centralized_needs_no_network_and_fedavg_no_groups(tmp_path: Path) -> None:
    pooled = prepare(small("centralized")).problem
    assert len(pooled.p) == 1
    execute(small("centralized"), tmp_path / "run")
    summary = read_run(tmp_path / "run").summary
    assert summary["global_s"] == 0
    assert summary["seconds"] == pytest.approx(summary["compute_s"])
    assert sum(summary["bytes_by_tier"].values()) == 0


def test_comparing_takes_means_over_seeds_and_pairs_them_with_fedavg(
    runs: list[RecordedRun],
) -> None:
    (block,) = compare(runs)
    assert block.setting == {}
    fedavg, ic = block.lines
    assert (fedavg.algorithm, ic.algorithm) == ("fedavg", "fedavg-ic")
    own = [r for r in runs if r.config["algorithm"]["name"] == "fedavg"]
    finals = [r.summary["test_accuracy"] for r in own]
    assert fedavg.accuracy == pytest.approx(sum(finals) / 2)
    times = [seconds_to(r, a) for r, a in zip(own, finals, strict=True)]
    assert fedavg.target_s == pytest.approx(sum(t for t in times if t is not None) / 2)
    assert fedavg.speed_up == pytest.approx(1)
    assert fedavg.reached == 2
    assert fedavg.d_group is None
    assert ic.d_group is not None


def test_an_unreached_target_is_a_dash(runs: list[RecordedRun]) -> None:
    (block,) = compare(runs, target=1.0)
    assert block.lines[0].target_s is None
    assert cells(block.lines[0])[3:5] == ["-", "-"]


def test_the_report_is_one_file_that_asks_for_nothing(
    runs: list[RecordedRun], tmp_path: Path
) -> None:
    evil = replace(runs[0], meta={**runs[0].meta, "commit": "<script>alert(1)</script>"})
    write_report([evil, *runs[1:]], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "fedavg-ic" in page
    assert "<script" not in page
    assert "http" not in page.replace("data:image", "")
    write_picture(runs, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
