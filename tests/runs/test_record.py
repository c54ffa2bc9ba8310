import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from coterie.analysis.compare import compare, seconds_to
from coterie.analysis.format import cells
from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.config.settings import (
    AlgorithmConfig,
    ComputeConfig,
    Config,
    DataConfig,
    ModelConfig,
    NetworkConfig,
)
from coterie.core.errors import ConfigError, RecordError, TrainingError
from coterie.runs import record
from coterie.runs.execute import execute, simulate
from coterie.runs.record import RecordedRun, RunWriter, find_runs, read_run
from coterie.simulation.state import State

GOLDEN = Path(__file__).parents[1] / "golden.json"


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
    return find_runs([folder])[0]


@pytest.fixture
def whole(runs: list[RecordedRun], tmp_path: Path) -> Path:
    """A run by `small()` to do with what one likes."""
    first = next(run for run in runs if run.folder.name == "fedavg-ic-0")
    return Path(shutil.copytree(first.folder, tmp_path / "whole"))


@pytest.mark.parametrize(
    ("model", "batch_size"), [("sr", "full"), ("2nn", 64), ("awkward_dropout:make", 64)]
)
def test_the_same_seed_gives_byte_identical_rows(
    model: str, batch_size: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "awkward_dropout.py").write_text(
        "from torch import nn\n"
        "def make(): return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(784, 10))\n"
    )
    monkeypatch.chdir(tmp_path)
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        config = small(seed=seed, batch_size=batch_size, steps=6)
        few = replace(config, model=ModelConfig(model), data=DataConfig(sample=0.2))
        execute(few, tmp_path / folder)
    assert without_wall_times(tmp_path / "a") == without_wall_times(tmp_path / "b")
    assert without_wall_times(tmp_path / "a") != without_wall_times(tmp_path / "c")


def test_a_golden_run_stays_as_it_is(whole: Path) -> None:
    """When this moves on purpose, the changelog says so under "Results changed"."""
    run = read_run(whole)
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
    assert isinstance(run.meta["engine"], dict)
    weights = load_file(run.folder / "model.safetensors")
    assert {k: v.shape for k, v in weights.items()} == {"1.weight": (10, 784), "1.bias": (10,)}
    assert sum(run.summary["group_sizes"]) == 20


def test_a_diverged_run_keeps_its_rows_and_says_so(runs: list[RecordedRun], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"step \d+"):
        execute(small(lr=1e38, lr_decay=1.0), tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.summary["status"] == "diverged"
    assert len(run.rows) >= 1
    assert not (tmp_path / "run" / "model.safetensors").exists()
    with pytest.raises(RecordError, match=r"no complete run; .*run: diverged after step 0"):
        find_runs([tmp_path])
    shutil.copytree(runs[0].folder, tmp_path / "good")
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "rows.jsonl").write_text("")
    found, left_out = find_runs([tmp_path])
    assert [run.folder.name for run in found] == ["good"]
    assert [Path(line.split(":")[0]).name for line in left_out] == ["killed", "run"]
    assert left_out[0].endswith(
        f"unfinished; go on with: coterie run --resume {tmp_path / 'killed'}"
    )
    assert left_out[1].endswith("diverged after step 0")


def test_an_interrupted_run_keeps_its_rows_and_says_so(tmp_path: Path) -> None:
    def stop(state: State) -> None:
        if state.t == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(small(), tmp_path / "run", on_state=stop)
    run = read_run(tmp_path / "run")
    assert run.summary["status"] == "interrupted"
    assert [row["t"] for row in run.rows] == [0, 1, 2, 3]
    with pytest.raises(RecordError, match=r"interrupted after step 3; go on with: coterie run --r"):
        find_runs([tmp_path])


def test_a_run_is_never_written_over(whole: Path) -> None:
    before = (whole / "rows.jsonl").read_bytes()
    with pytest.raises(RecordError, match="already holds a run"):
        execute(small(), whole)
    assert (whole / "rows.jsonl").read_bytes() == before


def test_nothing_is_written_when_a_run_cannot_start(tmp_path: Path) -> None:
    config = small()
    wide = replace(config, partition=replace(config.partition, num_nodes=5000, num_edges=10))
    with pytest.raises(Exception, match="num_nodes must be <= the number of examples to deal"):
        execute(wide, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "summary.json").unlink(), "not a finished run, summary.json is missing"),
        (lambda f: (f / "summary.json").write_text("{"), "damaged run folder"),
        (lambda f: (f / "summary.json").write_text("{}"), "not written by this version"),
        (lambda f: (f / "summary.json").write_text("[]"), "damaged run folder"),
        (lambda f: (f / "config.toml").write_text(""), "config.toml: has no 'seed'"),
        (lambda f: (f / "rows.jsonl").write_text('{"t": '), "damaged run folder"),
    ],
)
def test_a_damaged_folder_is_refused(whole: Path, damage: object, says: str) -> None:
    damage(whole)  # type: ignore[operator]
    with pytest.raises(RecordError, match=says):
        read_run(whole)


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no run in it"):
        find_runs([tmp_path])
    with pytest.raises(RecordError, match="no such folder"):
        find_runs([tmp_path / "nowhere"])


def test_a_run_that_fails_at_once_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nan_model.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    m = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n"
        "    nn.init.constant_(m[1].bias, float('nan'))\n"
        "    return m\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TrainingError, match="the loss is nan on node 0 at the start"):
        execute(replace(small(), model=ModelConfig("nan_model:make")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_clock_that_would_never_end_is_refused(tmp_path: Path) -> None:
    for part in (
        {"network": NetworkConfig(link_mbytes_per_s=1e-100)},
        {"compute": ComputeConfig(gflops=1e-320)},
    ):
        with pytest.raises(ConfigError, match="simulated times are beyond 1e\\+90 s"):
            execute(replace(small(), **part), tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_reference_operations_make_the_clock_of_the_papers_simulator() -> None:
    true, reference = (
        prepare(replace(small(), compute=ComputeConfig(flops=flops))).problem.fleet.step_s
        for flops in ("analytic", "reference")
    )
    assert true / reference == pytest.approx(47_040 / 7)


def test_gradients_are_charged_only_where_they_are_used() -> None:
    charged = {
        (name, grouping): prepare(
            replace(small(name), algorithm=AlgorithmConfig(name=name, grouping=grouping))
        ).problem.view.charged_bytes
        for name in ("fedavg", "hierfavg", "fedavg-c", "fedavg-i", "fedavg-ic")
        for grouping in ("reference", "random")
    }
    assert {key for key, cost in charged.items() if cost} == {
        ("fedavg-i", "reference"),
        ("fedavg-ic", "reference"),
    }
    assert set(charged.values()) == {0, 31_400}


def test_fedavg_averages_every_tau1_times_tau2_steps() -> None:
    config = replace(small("fedavg"), algorithm=AlgorithmConfig(name="fedavg", tau1=2, tau2=3))
    log = [(s.t, s.row.event) for s in simulate(config)]
    assert log == [(0, "start"), (6, "global"), (10, "global")]


def test_centralized_is_fedavg_with_a_mean_after_every_full_batch_step() -> None:
    every_step = AlgorithmConfig(name="fedavg", tau1=1, tau2=1)
    fedavg = list(simulate(replace(small("fedavg"), algorithm=every_step)))
    central = list(simulate(small("centralized")))
    for a, b in zip(fedavg, central, strict=True):
        assert a.models.w[0].numpy() == pytest.approx(b.models.w[0].numpy(), abs=1e-5)


def test_centralized_needs_no_network_and_fedavg_no_groups(tmp_path: Path) -> None:
    pooled = prepare(small("centralized")).problem
    assert pooled.fleet.n == 1
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
    others = [r for r in runs if r.config["algorithm"]["name"] == "fedavg-ic"]
    hits = [seconds_to(r, a) for r, a in zip(others, finals, strict=True)]
    assert None not in hits
    assert ic.speed_up == pytest.approx(sum(times) / sum(hits))  # type: ignore[arg-type]
    assert fedavg.reached == 2
    assert fedavg.d_group is None
    assert ic.d_group is not None


def test_a_repeated_run_counts_once(runs: list[RecordedRun]) -> None:
    (once,), (twice,) = compare(runs), compare([*runs, *runs])
    assert twice.repeated == len(runs)
    assert replace(twice, repeated=0) == once


def test_another_grouping_is_a_line_of_its_own_beside_the_same_fedavg(
    runs: list[RecordedRun], tmp_path: Path
) -> None:
    for name in ("fedavg", "fedavg-ic"):
        config = small(name)
        other = replace(config.algorithm, grouping="random")
        execute(replace(config, algorithm=other), tmp_path / name)
    (block,) = compare([*runs, *find_runs([tmp_path])[0]])
    lines = {line.algorithm: line.seeds for line in block.lines}
    assert lines == {"fedavg": 2, "fedavg-ic": 2, "fedavg-ic (random)": 1}


def test_an_unreached_target_is_a_dash(runs: list[RecordedRun]) -> None:
    (block,) = compare(runs, target=1.0)
    assert block.lines[0].target_s is None
    assert cells(block.lines)[0][3:5] == ["-", "-"]


def test_of_two_that_begin_in_one_folder_the_second_leaves_it_as_it_is(tmp_path: Path) -> None:
    with RunWriter(tmp_path) as first, RunWriter(tmp_path) as second:
        first.begin("seed = 1\n", {})
        with pytest.raises(RecordError, match="already holds a run; choose another --out"):
            second.begin("seed = 2\n", {})
    assert (tmp_path / "config.toml").read_text() == "seed = 1\n"
    assert {path.name for path in tmp_path.iterdir()} == {"config.toml", "meta.json", "rows.jsonl"}


def test_a_run_that_is_stopped_as_it_begins_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(record, "lock", lock)
    with RunWriter(tmp_path) as writer, pytest.raises(KeyboardInterrupt):
        writer.begin("seed = 1\n", {})
    assert {path.name for path in tmp_path.iterdir()} == {"config.toml", "meta.json", "rows.jsonl"}
