"""Processes of a deployment on this machine: started, looked at, ended."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from coterie.flower import FlowerError
from coterie.flower.deploy import QUIET, Deployment, real
from coterie.flower.edge import app_log

START_S, STOP_S, POLL_S = 120.0, 20.0, 0.3
PR_SET_PDEATHSIG = 1
HELPER = "flower-superexec"  # that a SuperLink or a SuperNode starts, and starts apps
SERVER_APP, CLIENT_APP = "flwr-serverapp", "flwr-clientapp"


def start(d: Deployment, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    """Start a process of its own group that ends when this one does; its words go to a log.

    A SuperNode is asked to end, for then its SuperLink lets it in again at once. A SuperLink is
    killed, for else it waits for its connections to close, and keeps its port that long.
    """
    ends = signal.SIGKILL if command[0] == "flower-superlink" else signal.SIGTERM
    with starting(command), log_of(d, name).open("ab") as log:
        return subprocess.Popen(
            _here(command),
            cwd=d.folder,
            env=environment(d.folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=(partial(_die_with_parent, ends) if sys.platform == "linux" else None),  # noqa: PLW1509
        )


@contextmanager
def starting(command: list[str]) -> Iterator[None]:
    """Say in one line that a program cannot be started, or where its words cannot go."""
    try:
        yield
    except subprocess.TimeoutExpired as error:
        raise FlowerError(f"{' '.join(command[:4])} took more than {START_S:g} s") from error
    except subprocess.SubprocessError as error:
        raise FlowerError(f"{command[0]}: cannot be started ({error})") from error
    except OSError as error:
        what = error.filename or command[0]
        raise FlowerError(f"{what}: {command[0]} cannot be started ({error.strerror})") from error


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


def end_left(d: Deployment, command: list[str]) -> None:
    """Kill what a SuperLink or SuperNode of that command left: its helper, and apps.

    They end by themselves when they notice, but for those that hang while they do.
    """
    host, port = (command[command.index(word) + 1] for word in ("--host", "--port"))
    address, folder = f"{f'[{host}]' if ':' in host else host}:{port}", real(d.folder)
    for path in Path("/proc").glob("[0-9]*"):
        words = _words(int(path.name)).split("\0")
        ours = any(Path(word).name in (HELPER, SERVER_APP, CLIENT_APP) for word in words[:2])
        try:
            if ours and address in words and (path / "cwd").readlink() == folder:
                os.kill(int(path.name), signal.SIGKILL)
        except OSError:
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


def _die_with_parent(number: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def log_of(d: Deployment, name: str) -> Path:
    """Return the file with what a process prints."""
    return d.folder / "logs" / f"{name}.log"


def app_log_of(d: Deployment, place: str) -> Path:
    """Return the file with what the app of a place says."""
    return d.folder / "logs" / app_log(place)


def flwr(d: Deployment, command: list[str]) -> str:
    """Run a command of Flower's, and return what it prints."""
    with starting(command):
        done = subprocess.run(
            _here(command),
            cwd=d.folder,
            env=environment(d.folder),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=START_S,
        )
    if done.returncode:
        said = [line.strip(" │╭╮╰╯─") for line in (done.stdout + done.stderr).splitlines()]
        words = " ".join(line for line in said if line)[-300:]
        raise FlowerError(f"{' '.join(command[:4])} failed: {words}")
    return done.stdout


def check_free(port: int, option: str = "--port", wait_s: float = 0.0) -> None:
    """Refuse a port that somebody has, and that is not free after a while."""
    until = time.monotonic() + wait_s
    while (error := _taken(port)) is not None:
        if time.monotonic() >= until:
            raise FlowerError(f"port {port} is taken; choose others with {option}") from error
        time.sleep(POLL_S)


def _taken(port: int) -> OSError | None:
    """Say why a port cannot be had; None if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error
    return None


def listens(host: str, port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def wait_for_port(host: str, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a SuperLink that was started listens, or say that it does not."""
    deadline = time.monotonic() + START_S
    while not listens(host, port):
        if process.poll() is not None:
            raise FlowerError(f"a SuperLink ended with {process.returncode}; see {log}")
        if time.monotonic() > deadline:
            raise FlowerError(f"a SuperLink does not listen on port {port}; see {log}")
        time.sleep(POLL_S)


def below(pid: int, program: str) -> list[int] | None:
    """Return the living processes below one that run a program; None where that is not to be seen.

    Only Linux shows it.
    """
    if not Path(f"/proc/{pid}/task").exists():
        return None
    return [child for child in _family(pid) if program in _words(child) and _lives(child)]


def end_older(pid: int, program: str) -> int:
    """Kill all but the newest process below one that run a program; return how many that were.

    Flower starts an app anew that has not begun within 30 s, and lets the first run on, in vain.
    Where the first was slow for want of time, many are slower: none would ever begin.
    """
    found = sorted(below(pid, program) or [], key=_began)
    for older in found[:-1]:
        with suppress(ProcessLookupError):
            os.kill(older, signal.SIGKILL)
    return max(0, len(found) - 1)


def _began(pid: int) -> int:
    """Return when a process began, in ticks since the system did."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def _family(pid: int) -> Iterator[int]:
    """Yield all processes below one; any of them may end meanwhile."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:
        return
    for path in tasks:
        try:
            found = path.read_text().split()
        except OSError:
            continue
        for child in map(int, found):
            yield child
            yield from _family(child)


def _words(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
    return words


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
