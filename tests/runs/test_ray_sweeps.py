"""Sweeps on Ray whose runs are killed, stopped, or end with an error of any kind."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import held
from coterie.config.settings import Config
from coterie.core.errors import ClusterError
from coterie.runs.execute import execute
from coterie.runs.record import read_run
from coterie.runs.sweep.jobs import Job, Stop
from coterie.runs.sweep.on_ray import ASK_S, KNOBS, Home, _Sweep, rows_of, run_on_ray
from resuming import PATIENCE_S, coterie, n_rows, outcome, read_config, start, sweep, tiny, wait_for

pytest.importorskip("ray", reason="Ray is not installed: pip install 'coterie[ray]'")

from clustered import RAYS_OWN, STORE_MBYTES, end_ray, writer_of
from coterie.engine.ray.cluster import Cluster, Lost, Size

pytestmark = RAYS_OWN

BROKEN = """
from torch import nn
class Broken(nn.Linear):
    def forward(self, x):
        if self.training:
            raise ValueError("a bug\\nof this model")
        return super().forward(x)
def make(n_classes):
    return nn.Sequential(nn.Flatten(), Broken(784, n_classes))
"""


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    """One cluster for all tests here, which ends with them."""
    yield
    end_ray()


def small(seed: int, steps: int, model: str | None = None, **algorithm: Any) -> Config:
    """A run of a few seconds, with a store that fits everywhere."""
    what = tiny(**{"name": "hierfavg", "steps": steps, **algorithm})
    chosen = replace(what.model, name=model) if model else what.model
    store = replace(what.ray, object_store_mbytes=STORE_MBYTES)
    return replace(what, seed=seed, model=chosen, ray=store)


def test_a_run_whose_process_is_killed_is_gone_on_with_to_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = held.write_module(tmp_path, "held_killed")
    monkeypatch.syspath_prepend(tmp_path)
    jobs = [
        Job(small(seed, 40, **algorithm), tmp_path / f"seed{seed}", f"seed{seed}")
        for seed in (0, 1)
    ]
    said: list[str] = []
    killed: list[int] = []

    def kill_once(label: str, row: dict[str, Any]) -> None:
        if label == "seed0" and row["t"] > 2 and not killed:
            killed.append(writer_of(tmp_path / "seed0"))
            os.kill(killed[0], signal.SIGKILL)
            held.let_go(tmp_path)

    failed = run_on_ray(jobs, 2, kill_once, 0.0, Stop(), said.append)
    assert failed == {} and len(killed) == 1
    assert said == [f"{tmp_path / 'seed0'}: died (its process is gone), goes on"]
    for job in jobs:
        execute(job.config, tmp_path / "undisturbed" / job.label)
        assert outcome(job.folder) == outcome(tmp_path / "undisturbed" / job.label)


def test_rows_are_shown_once_though_a_run_that_goes_on_cuts_some_off(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    seen = rows_of(path)
    assert next(seen) == []
    for text, shown in (
        ('{"t": 0}\n{"t": 1}\n{"t": 2}\n{"t"', [0, 1, 2]),
        ('{"t": 0}\n', []),
        ('{"t": 0}\n{"t":   1}\n{"t":    2}\n{"t": 3}\n', [3]),
    ):
        path.write_text(text)
        assert [row["t"] for row in next(seen)] == shown


def test_a_machine_lost_under_a_sweep_costs_no_run(tmp_path: Path) -> None:
    script = str(Path(__file__).parents[1] / "clustered.py")
    command = [sys.executable, script, "2", "sweep", str(tmp_path / "out")]
    environment = {**os.environ, held.HELD: str(tmp_path)}
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    about = json.loads(done.stdout.splitlines()[-1])
    assert about["flags"] == [about["here"]] * 4  # they are not lost with a machine
    assert about["failed"] == {}
    assert len(about["said"]) == 1 and "goes on" in about["said"][0]
    for seed in ("seed0", "seed1"):
        execute(read_config(tmp_path / "out" / seed), tmp_path / seed)
        assert outcome(tmp_path / "out" / seed) == outcome(tmp_path / seed)


def test_a_flag_whose_process_is_killed_is_down_until_it_is_set_again() -> None:
    import ray

    flag = Cluster(store_mbytes=STORE_MBYTES).flag()

    def raised() -> bool:  # as a sweep does that is told to stop
        flag.set()
        return flag.is_set()

    wait_for(raised)
    pid = ray.get(flag.pole.__ray_call__.remote(lambda _: os.getpid()))

    def restarted() -> bool:
        try:
            return bool(ray.get(flag.pole.__ray_call__.remote(lambda _: os.getpid())) != pid)
        except ray.exceptions.ActorUnavailableError:  # a call that meets the restart
            return False

    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not flag.is_set())
    wait_for(restarted)
    assert not flag.is_set()
    wait_for(raised)


def test_ctrl_c_leaves_a_sweep_that_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--engine", "ray", "--workers", 1, "--checkpoint-every", 1000, "--out", out)
    file = sweep(tmp_path, 2, 400, **held.ALGORITHM)
    process = start("sweep", file, *words, held=tmp_path)
    wait_for(lambda: n_rows(out / "seed0") == held.ROWS, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: Ray's processes get it, too
    for number in range(2, 60):  # it is let go on little by little, until it has seen that
        with suppress(subprocess.TimeoutExpired):
            process.wait(ASK_S)
        held.let_go(tmp_path, number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    how = f"go on with: coterie sweep {file} --out {out} --engine ray"
    assert said == f"coterie: stopped, 0 of 2 runs are done; {how}\n"
    stopped = read_run(out / "seed0")
    t = stopped.summary["steps"]
    assert stopped.summary["status"] == "interrupted"
    assert stopped.rows[-1]["t"] == t < 400
    assert not (out / "seed1").exists()
    done = coterie("run", "--resume", out, *held.NAMED, "--jobs", 1)
    assert done.exit_code == 0, done.output
    assert f"seed0: goes on from step {t}\n" in done.output
    for seed in ("seed0", "seed1"):
        execute(read_config(out / seed), tmp_path / seed)
        assert outcome(out / seed) == outcome(tmp_path / seed)


def test_a_bug_in_one_run_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    jobs = [
        Job(small(0, 4, "broken_module:make"), tmp_path / "broken", "broken"),
        Job(small(0, 4), tmp_path / "whole", "whole"),
    ]
    said: list[str] = []
    failed = run_on_ray(jobs, 1, lambda *_: None, 0.0, Stop(), said.append)
    why = "code that is not coterie's failed: ValueError: a bug (broken_module.py, line 6)"
    assert said == [] and list(failed) == ["broken"]
    assert str(failed["broken"]) == f"{why}; COTERIE_DEBUG=1 shows where"
    assert read_run(tmp_path / "whole").summary["status"] == "complete"


def test_a_run_out_of_memory_is_told_with_the_knob_to_turn() -> None:
    def eat(text: str) -> None:
        raise MemoryError(text)

    cluster = Cluster(store_mbytes=STORE_MBYTES, knobs=KNOBS)
    for text, way in (("", r"ray\.cpus_per_run"), ("CUDA out of memory", r"ray\.gpus_per_run")):
        answer = cluster.task(eat, Size(0), text)
        with pytest.raises(ClusterError, match=f"^a run is out of memory; raise {way}, so that"):
            cluster.result(answer)


class Deadly:
    """A cluster on which tasks of one run end with an error, and others well."""

    def __init__(self, error: Exception) -> None:
        self.error, self.begun = error, [""]

    def task(self, work: Any, size: Size, job: Job, *given: Any) -> int:
        self.begun.append(job.label)
        return len(self.begun) - 1

    def first(self, waiting: list[int], seconds: float) -> list[int]:
        return waiting[:1]

    def result(self, answer: int) -> tuple[str, None, None]:
        if self.begun[answer] == "bad":
            raise self.error
        return "done", None, None


@pytest.mark.parametrize(
    ("error", "times", "told"),
    [
        (ValueError("a bug\nsomewhere"), 1, r"^ValueError: a bug$"),
        (MemoryError(), 1, r"^MemoryError$"),
        (ClusterError("no room"), 1, r"^no room$"),
        (Lost("its process is gone"), 4, r"^died 4 times \(its process is gone\); go on with: cot"),
        (Lost("out of memory"), 4, r"^died 4 times \(out of memory\); raise ray\.cpus_per_run, so"),
    ],
)
def test_whatever_a_run_ends_with_is_told_at_the_end(
    error: Exception, times: int, told: str, tmp_path: Path
) -> None:
    what, cluster = tiny(), Deadly(error)
    there: Any = cluster
    flag: Any = None
    given = (1.0, lambda *_: None, lambda _: None, {what.data: None})
    going = _Sweep(there, Size(1), flag, Home("", "", ()), *given)
    for label in ("bad", "good"):
        going.begin(Job(what, tmp_path / label, label))
    while going.going:
        going.listen()
    assert list(going.failed) == ["bad"]
    assert re.search(told, str(going.failed["bad"]))
    assert cluster.begun.count("bad") == times and cluster.begun.count("good") == 1
