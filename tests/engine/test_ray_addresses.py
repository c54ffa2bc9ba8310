"""A cluster that somebody else started, with a token: joined as auto, HOST:PORT and ray://."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coterie.config.files import to_toml
from ports import free_blocks
from resuming import PATIENCE_S, coterie, outcome, start, sweep, wait_for

pytest.importorskip("ray", reason="Ray is not installed: pip install 'coterie[ray]'")

from clustered import RAYS_OWN, STORE_MBYTES, config, end_ray

pytestmark = RAYS_OWN
LAST_OF_WORKERS = 19_999  # Ray keeps 10002 to 19999 for its workers, and refuses others there


@dataclass(frozen=True)
class Started:
    """Where a cluster is, and what a process that belongs to it has in its environment."""

    port: int
    client_port: int
    environment: dict[str, str]

    def address(self, kind: str) -> str:
        """Return an address of a kind."""
        ports = {"127.0.0.1": self.port, "ray://127.0.0.1": self.client_port}
        return f"{kind}:{ports[kind]}" if kind in ports else kind


@pytest.fixture(scope="module")
def theirs() -> Iterator[Started]:
    """A cluster of two CPUs that was started with `ray start`, in folders of its own."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # short: sockets are below it
        token = Path(folder) / "token"
        token.write_text(secrets.token_hex(32))
        ours = {
            "RAY_TMPDIR": folder,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            # a server for a ray:// client has 30 s to start, which a busy machine does not keep
            "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": str(int(PATIENCE_S)),
        }
        usual = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
        port = next(port for port in free_blocks(2) if port > LAST_OF_WORKERS)
        found = Started(port, port + 1, {**usual, **ours})
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
        command += ["--node-ip-address", "127.0.0.1", "--port", str(found.port), "--num-cpus", "2"]
        command += ["--ray-client-server-port", str(found.client_port), "--disable-usage-stats"]
        command += [
            "--include-dashboard",
            "false",
            "--object-store-memory",
            str(STORE_MBYTES << 20),
        ]
        with (Path(folder) / "said").open("w") as said:
            process = subprocess.Popen(
                command,
                env=found.environment,
                stdout=said,
                stderr=said,
                text=True,
                start_new_session=True,
            )
            try:
                for port in (found.port, found.client_port):
                    wait_for(lambda port=port: answers(port), process)  # type: ignore[misc]
                yield found
            finally:
                process.terminate()
                process.wait(PATIENCE_S)


def answers(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run on a cluster of our own, and a sweep on none, have left what they leave."""
    folder = tmp_path_factory.mktemp("ours")
    file = folder / "run.toml"
    file.write_text(to_toml(config(actors=2, steps=4)))
    for words in (
        ("run", file, "--out", folder / "run"),
        ("sweep", sweep(folder, 2, 4), "--jobs", 1, "--out", folder / "sweep"),
    ):
        done = coterie(*words)
        assert done.exit_code == 0, done.output
    end_ray()
    return folder


def left(folder: Path) -> dict[str, object]:
    """All that a run leaves behind, less wall times and the address of its cluster."""
    return {name: what for name, what in outcome(folder).items() if name != "config.toml"}


@pytest.mark.parametrize("kind", ["auto", "127.0.0.1", "ray://127.0.0.1"])
def test_runs_and_sweeps_go_to_a_cluster_that_is_there(
    kind: str, theirs: Started, ours: Path, tmp_path: Path
) -> None:
    where = ("--ray-address", theirs.address(kind))
    for words, out in (
        (("run", ours / "run.toml"), tmp_path / "run"),
        (("sweep", ours / "sweep.toml", "--engine", "ray"), tmp_path / "sweep"),
    ):
        process = start(*words, *where, "--out", out, env=theirs.environment)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        assert [line for line in said.splitlines() if " runs done: " not in line] == []
    for run in ("run", "sweep/seed0", "sweep/seed1"):
        assert left(tmp_path / run) == left(ours / run)


def test_without_its_token_a_cluster_is_not_joined(theirs: Started, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(to_toml(config(actors=2, steps=4)))
    wrong = {**theirs.environment, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    words = ("run", file, "--ray-address", theirs.address("127.0.0.1"), "--out", tmp_path / "run")
    process = start(*words, env=wrong)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, said
    assert "coterie: no Ray cluster at" in said
    assert not (tmp_path / "run").exists()
