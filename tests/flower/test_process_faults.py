"""Flower for real, and what happens to `flower up`: signals, full disks. `make test-flower`."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("flwr") is None:
    pytest.skip("flwr is not installed: pip install 'coterie[flower]'", allow_module_level=True)
if os.environ.get("COTERIE_FLOWER") != "1":
    pytest.skip("takes minutes: make test-flower", allow_module_level=True)

from coterie import make_config
from coterie.preview.planfile import Plan, PlannedNode, Predicted
from coterie.preview.planfile.writing import contents
from fleets import LIGHT, cut
from ports import free_blocks
from resuming import PATIENCE_S, alive, children, wait_for

N, TAU2, ROUNDS = 2, 1, 2
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """First of a hundred free ports, others for every test."""
    return free_blocks(100)


def command(tmp_path: Path, port: int) -> list[str]:
    """Words that deploy two nodes in a group each, and train two rounds."""
    config = make_config(
        {
            "data": {"sample": 0.1},
            "partition": {"kind": "dirichlet", "num_nodes": N, "num_edges": 2},
            "algorithm": {"num_groups": 2},
        }
    )
    cut(config, tmp_path / "parts")
    nodes = tuple(PlannedNode(str(i), i, 5, 0.0) for i in range(N))
    times = Predicted(0, 0, 0, 0)
    plan = Plan("two nodes", "given", 1, TAU2, ROUNDS, 31_400, 0.0, times, ("0", "1"), nodes)
    (tmp_path / "plan.json").write_bytes(contents(plan, ".json"))
    return [
        *(sys.executable, "-m", "coterie", "flower", "up", str(tmp_path / "plan.json")),
        *("--app", str(LIGHT), "-o", str(tmp_path / "deploy"), "--timeout", "120"),
        *("--port", str(port), "--node-port", str(port + 20)),
        *("--run-config", f'parts="{tmp_path / "parts"}"', "--run-config", "lr=0.5"),
    ]


def family(pid: int) -> list[int]:
    """All processes below one."""
    return [other for child in children(pid) for other in (child, *family(child))]


def _hears() -> None:
    """Take SIGHUP also where the tests were started by nohup, which ignores it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_everything_and_the_same_command_goes_on(
    tmp_path: Path, port: Any, number: signal.Signals
) -> None:
    words = command(tmp_path, next(port))
    held = [*words, "--run-config", 'faulty="hold:1"']
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        held,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
        preexec_fn=_hears,  # noqa: PLW1509
    )
    try:
        wait_for((tmp_path / "deploy" / "state" / "state.safetensors").exists, process)
        below = family(process.pid)
        assert len(below) >= 7, "three SuperLinks, two nodes, two edges"
        second = subprocess.run(words, capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert "another process is running it" in second.stderr
        assert second.stderr.count("\n") == 1
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert said.endswith("coterie: stopped\n")
    (tmp_path / "parts" / "go").touch()
    wait_for(lambda: not any(map(alive, below)))
    done = subprocess.run(held, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    log = (tmp_path / "deploy" / "logs" / "coordinator-app.log").read_text()
    assert log.count("step 1 of 2: ") == 1, "what was done is not done again"
    assert log.count("step 2 of 2: ") == 1


def mounts() -> bool:
    """Whether a file system can be mounted in a namespace of one's own."""
    if shutil.which("unshare") is None:
        return False
    words = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not mounts(), reason="no file system can be mounted in a namespace here")
@pytest.mark.parametrize(
    ("option", "said", "begun"),
    [
        ("size=48k", "No space left on device", 1),  # there is room for one state, not for two
        ("ro", "Read-only file system", 0),
    ],
)
def test_a_disk_that_is_full_ends_training_and_the_same_command_goes_on(
    tmp_path: Path, port: Any, option: str, said: str, begun: int
) -> None:
    words, state = command(tmp_path, next(port)), tmp_path / "deploy" / "state"
    again = "rw" if option == "ro" else "size=10m"
    script = f"""
mount -t tmpfs -o {option} tmpfs {shlex.quote(str(state))} || exit 70
{shlex.join(words)}
test $? -eq 2 || exit 71
mount -o remount,{again} {shlex.quote(str(state))} || exit 72
{shlex.join(words)}
"""
    state.mkdir(parents=True)
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"state.safetensors: cannot be written ({said})" in done.stderr
    assert done.stderr.count("\n") == 1
    log = (tmp_path / "deploy" / "logs" / "coordinator-app.log").read_text()
    assert ("goes on from step 1 of 2" in log) == bool(begun)
    assert "round 2 of 2: 2 edges" in done.stdout
