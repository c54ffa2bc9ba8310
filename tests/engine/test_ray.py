"""Ray itself: real processes that train, die and are followed, and what is said if they cannot."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import held
from coterie.config.files import to_toml
from coterie.config.prepare import prepare
from coterie.core.errors import ClusterError, ConfigError, CoterieError
from coterie.runs.execute import execute
from resuming import PATIENCE_S, coterie, n_rows, outcome, start, sweep, tiny, wait_for

pytest.importorskip("ray", reason="Ray is not installed: pip install 'coterie[ray]'")

from clustered import RAYS_OWN, config, crew_of, in_the_middle, rows

pytestmark = [*RAYS_OWN, pytest.mark.usefixtures("first_as_it_was", "ended")]

OWN = """
from torch import nn
def make(n_classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(),
        nn.Linear(16, n_classes),
    )
"""
LISTENS = "0A"  # the state of a socket in /proc/net/tcp


@pytest.fixture(scope="module")
def undisturbed() -> list[dict[str, Any]]:
    """Rows of a run on two actors that live."""
    return rows(prepare(config(actors=2)))


def agree(found: list[dict[str, Any]], plain: list[dict[str, Any]]) -> None:
    """Assert the same events, groups and seconds, and losses to 1e-5."""
    assert found[-1] == plain[-1]
    assert len(found) == len(plain)
    for a, b in zip(found[:-1], plain[:-1], strict=True):
        for key in ("t", "event", "seconds", "group_sizes", "bytes_by_tier", "counted"):
            assert a[key] == b[key]
        for key in ("train_loss", "test_loss"):
            assert a[key] == (b[key] if b[key] is None else pytest.approx(b[key], rel=1e-5))


@pytest.mark.parametrize(("model", "actors"), [("2nn", 3), ("own_module:make", 2)])
def test_runs_on_ray_are_those_of_the_sequential_engine(
    model: str, actors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    prepared = prepare(config("ray", model, actors=actors))
    agree(rows(prepared), rows(prepare(config("sequential", model))))
    assert len(set(crew_of(prepared).pids) - {os.getpid()}) == actors


def test_an_actor_killed_in_the_middle_of_a_round_changes_no_digit(
    undisturbed: list[dict[str, Any]],
) -> None:
    said: list[str] = []
    prepared = prepare(config(actors=2), None, 1, said.append)
    crew = crew_of(prepared)
    before = list(crew.pids)
    in_the_middle(lambda: os.kill(crew.pids[1], signal.SIGKILL))
    assert rows(prepared) == undisturbed
    assert crew.deaths == 1
    assert crew.pids[0] == before[0] and crew.pids[1] != before[1]
    assert said == [
        "an actor died (its process is gone); its nodes go to another, and the round is repeated"
    ]


def test_an_actor_that_dies_again_and_again_is_an_error() -> None:
    from coterie.engine.ray.cluster import Cluster

    prepared = prepare(config(actors=2))
    crew = crew_of(prepared)
    first = Cluster.first

    def deadly(self: Cluster, waiting: Any, seconds: float | None = None) -> list[Any]:
        if seconds is None:
            os.kill(crew.pids[0], signal.SIGKILL)
        return first(self, waiting, seconds)

    Cluster.first = deadly  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="an actor died 4 times in one round"):
        rows(prepared)


def test_a_machine_lost_in_the_middle_of_a_round_changes_no_digit(
    undisturbed: list[dict[str, Any]],
) -> None:
    def told(*words: str) -> list[Any]:
        command = [sys.executable, str(Path(__file__).parents[1] / "clustered.py"), "2", *words]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=3 * PATIENCE_S
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    *found, about = told("kill")
    assert about["deaths"] >= 1  # more, if the next is put where Ray does not yet know it is dead
    assert found == undisturbed


def test_a_driver_killed_on_the_way_is_gone_on_with(tmp_path: Path) -> None:
    what = config(steps=40, actors=2)
    what = replace(what, algorithm=replace(what.algorithm, **held.ALGORITHM))
    file, folder = tmp_path / "long.toml", tmp_path / "killed"
    file.write_text(to_toml(what))
    words = ("run", file, "--out", folder, "--checkpoint-every", 0)
    process = start(*words, held=tmp_path)
    wait_for((tmp_path / "held-2").exists, process)
    process.kill()
    process.communicate()
    rows_before = n_rows(folder)
    assert 3 < rows_before < 40
    done = coterie("run", "--resume", folder, *held.NAMED)
    assert done.exit_code == 0, done.output
    assert f"goes on from step {rows_before - 1}" in done.output
    execute(what, tmp_path / "whole", threads=1)
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_a_run_goes_on_with_the_actors_it_was_begun_with(tmp_path: Path) -> None:
    from resuming import stopped_at

    what = config(actors=3)
    execute(what, tmp_path / "whole")
    stopped_at(3, what, tmp_path / "run")
    elsewhere = replace(what, ray=replace(what.ray, actors=1))
    execute(elsewhere, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_sweep_on_ray_leaves_what_a_sweep_leaves(tmp_path: Path) -> None:
    file = sweep(tmp_path, seeds=2, steps=6)
    on_ray, here = tmp_path / "ray", tmp_path / "here"
    done = coterie("sweep", file, "--engine", "ray", "--out", on_ray)
    assert done.exit_code == 0, done.output
    assert coterie("sweep", file, "--out", here, "--jobs", 1).exit_code == 0
    for name in ("seed0", "seed1"):
        assert outcome(on_ray / name) == outcome(here / name)
    again = coterie("sweep", file, "--engine", "ray", "--out", on_ray)
    assert "2 of 2 runs" in again.output


def test_a_run_that_does_not_see_the_folder_sends_its_files(tmp_path: Path) -> None:
    from coterie.config.factories import load_dataset
    from coterie.runs.sweep.jobs import Job
    from coterie.runs.sweep.on_ray import Home, bring_back, run_there

    class Down:
        def is_set(self) -> bool:
            return False

    what = tiny(steps=4)
    job = Job(what, tmp_path / "not_here" / "run", "run")
    home = Home("another machine", "", ())
    done, error, files = run_there(job, load_dataset(what), 1.0, Down(), home, {})  # type: ignore[arg-type]
    assert (done, error) == ("done", None)
    assert files is not None and not job.folder.exists()
    bring_back(job.folder, files)
    execute(what, tmp_path / "here")
    assert outcome(job.folder) == outcome(tmp_path / "here")


def test_nothing_listens_beyond_the_loopback_address() -> None:
    crew_of(prepare(config(actors=2)))
    listening = [address for pid in family(os.getpid()) for address in sockets(pid)]
    assert len(listening) >= 3
    assert [a for a in listening if not a.endswith("0100007F")] == []


def test_a_cluster_of_our_own_answers_nobody_without_its_token() -> None:
    import ray
    from ray.core.generated import gcs_service_pb2 as asked
    from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub

    grpc = pytest.importorskip("grpc")
    crew_of(prepare(config(actors=2)))
    address = ray.get_runtime_context().gcs_address
    token = ray._raylet.AuthenticationTokenLoader.instance().get_raw_token()
    with grpc.insecure_channel(address) as channel:
        ask = NodeInfoGcsServiceStub(channel).GetAllNodeInfo
        for wrong in ((), (("authorization", f"Bearer {token[::-1]}"),)):
            with pytest.raises(grpc.RpcError) as refused:
                ask(asked.GetAllNodeInfoRequest(), metadata=wrong, timeout=PATIENCE_S)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        found = ask(asked.GetAllNodeInfoRequest(), metadata=(("authorization", f"Bearer {token}"),))
    assert len(found.node_info_list) == 1
    assert "RAY_AUTH_TOKEN" not in os.environ


def family(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, at = [pid], 0
    while at < len(found):
        found += children.get(found[at], [])
        at += 1
    return found


def sockets(pid: int) -> list[str]:
    """Addresses, in hexadecimal, on which a process listens by TCP."""
    inodes = set()
    for handle in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            inodes.add(str(handle.readlink()))
        except OSError:
            continue
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and f"socket:[{fields[9]}]" in inodes:
                found.append(fields[1].partition(":")[0])
    return found


def test_a_missing_gpu_is_told_with_the_knob_to_turn() -> None:
    with pytest.raises(ClusterError, match=r"ray\.gpus_per_actor is 1 and the cluster has no GPU"):
        prepare(config(actors=2, gpus_per_actor=1.0))
    what = tiny()
    given = to_toml(what).replace("gpus_per_run = 0.0", "gpus_per_run = 1.0")
    with pytest.raises(CoterieError, match=r"ray\.gpus_per_run is 1 and the cluster has no GPU"):
        import tomllib

        from coterie.config.files import make_config
        from coterie.runs.sweep.jobs import Job, Stop
        from coterie.runs.sweep.on_ray import run_on_ray

        job = Job(make_config(tomllib.loads(given)), Path("nowhere"), "run")
        run_on_ray([job], 1, lambda *_: None, 1.0, Stop(), lambda _: None)


def test_actors_that_run_out_of_memory_are_told_with_the_knob_to_turn(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(to_toml(config(actors=2)))
    little = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "100"}
    process = start("run", file, "--out", tmp_path / "out", env={**os.environ, **little})
    _, said = process.communicate(timeout=3 * PATIENCE_S)
    assert process.returncode == 2, said
    assert "coterie: actors run out of memory, again and again; lower ray.actors" in said
    assert "Traceback" not in said


def test_an_error_of_an_actor_is_told_in_one_line() -> None:
    from coterie.engine.ray.actors import Actors
    from coterie.engine.ray.cluster import Cluster, Size

    class Hungry:
        def __init__(self, part: str) -> None:
            pass

        def eat(self) -> None:
            raise MemoryError

        def refuse(self) -> None:
            raise ConfigError("no")

    crew = Actors(Cluster(), Size(1)).crew(Hungry, ["part"])
    with pytest.raises(ClusterError, match=r"out of memory; lower ray\.actors"):
        crew.ask("eat")
    with pytest.raises(ConfigError, match=r"^no$"):
        crew.ask("refuse")
