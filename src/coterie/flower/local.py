"""A deployment on this machine: all its processes on loopback, from start to end."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from coterie.core.types import Say
from coterie.flower import FlowerError
from coterie.flower.deploy import QUIET, Deployment
from coterie.flower.edge import app_log
from coterie.flower.hosts import COORDINATOR

START_S, STOP_S, POLL_S = 120.0, 20.0, 0.3
LOOK_S = 10.0  # between questions how an app is: each starts a process
PR_SET_PDEATHSIG = 1


def run_locally(d: Deployment, say: Say = print) -> dict[str, object]:
    """Start everything, train, stop everything; return what the coordinator wrote at the end."""
    if not d.local:
        raise FlowerError("only a deployment on loopback can be started from here")
    result = d.folder / "result.json"
    result.unlink(missing_ok=True)
    for port in range(d.port, d.port + len(d.places)):
        _check_free(port)
    with started(d, say) as processes:
        for command in d.runs():
            _flwr(d, command)
        say(f"training; the coordinator's words are in {_app_log(d, COORDINATOR)}")
        places, look = cycle(d.places), time.monotonic() + LOOK_S
        while not result.exists():
            for name, process in processes.items():
                if process.poll() is not None:
                    raise FlowerError(
                        f"{name} ended with {process.returncode}; see {_log(d, name)}"
                    )
            if time.monotonic() > look:
                check_app(d, next(places), result)
                look = time.monotonic() + LOOK_S
            time.sleep(POLL_S)
        found: dict[str, object] = json.loads(result.read_text(encoding="utf-8"))
    if found.get("status") != "complete":
        raise FlowerError(str(found.get("error", "the coordinator failed")))
    return found


def check_app(d: Deployment, place: str, result: Path) -> None:
    """Say if the app of a place has ended before its time, whatever of."""
    status = app_status(d, place)
    done = result.exists() if place == COORDINATOR else status == "finished:completed"
    if status.startswith("finished") and not done:
        raise FlowerError(f"the app of {place} ended ({status}); see {_app_log(d, place)}")


def app_status(d: Deployment, place: str) -> str:
    """Ask a SuperLink how the app that was started there last is; empty if it cannot say."""
    try:
        runs = json.loads(_flwr(d, ["flwr", "list", place, "--format", "json"]))["runs"]
        return str(runs[0]["status"])
    except (FlowerError, ValueError, LookupError, TypeError):
        return ""


@contextmanager
def started(d: Deployment, say: Say = print) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start SuperLinks and SuperNodes, register keys; whatever happens, end them all."""
    (d.folder / "logs").mkdir(parents=True, exist_ok=True)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for place in d.places:
            processes[place] = start(d, place, d.superlink(place))
        for k, place in enumerate(d.places):
            _wait_for_port(d.host(place), d.port + k, processes[place], _log(d, place))
        say(f"{len(d.places)} SuperLinks listen on {d.host(COORDINATOR)}")
        for command in d.registrations():
            _flwr(d, command)
        for name, command in d.nodes().items():
            processes[name] = start(d, name, command)
        for place, command in d.bridges().items():
            processes[f"bridge-{place}"] = start(d, f"bridge-{place}", command)
        say(f"{len(d.nodes())} SuperNodes started, and {len(d.bridges())} for the edges")
        yield processes
    finally:
        stop(list(processes.values()))


def start(d: Deployment, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    """Start a process of its own group that ends when this one does; its words go to a log."""
    with _log(d, name).open("ab") as log:
        return subprocess.Popen(
            _here(command),
            cwd=d.folder,
            env=environment(d.folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
        )


def stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """End process groups: ask first, then insist."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + STOP_S
        for process in processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of what is started: Flower's own folder is inside the deployment."""
    found = {**os.environ, **QUIET, "FLWR_HOME": str(folder.absolute() / "home")}
    found["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{found.get('PATH', '')}"
    return found


def _here(command: list[str]) -> list[str]:
    """Name the program of this environment, where it is there."""
    beside = Path(sys.executable).parent / command[0]
    return [str(beside) if beside.exists() else command[0], *command[1:]]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _log(d: Deployment, name: str) -> Path:
    return d.folder / "logs" / f"{name}.log"


def _app_log(d: Deployment, place: str) -> Path:
    return d.folder / "logs" / app_log(place)


def _flwr(d: Deployment, command: list[str]) -> str:
    """Run a command of Flower's, and return what it prints."""
    try:
        done = subprocess.run(
            _here(command),
            cwd=d.folder,
            env=environment(d.folder),
            capture_output=True,
            text=True,
            check=False,
            timeout=START_S,
        )
    except subprocess.TimeoutExpired as error:
        raise FlowerError(f"{' '.join(command[:4])} took more than {START_S:g} s") from error
    if done.returncode:
        said = [line.strip(" │╭╮╰╯─") for line in (done.stdout + done.stderr).splitlines()]
        words = " ".join(line for line in said if line)[-300:]
        raise FlowerError(f"{' '.join(command[:4])} failed: {words}")
    return done.stdout


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise FlowerError(f"port {port} is taken; choose others with --port") from error


def _wait_for_port(host: str, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        if process.poll() is not None:
            raise FlowerError(f"a SuperLink ended with {process.returncode}; see {log}")
        try:
            with socket.create_connection((host, port), timeout=1.0):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise FlowerError(
                    f"a SuperLink does not listen on port {port}; see {log}"
                ) from error
            time.sleep(POLL_S)
