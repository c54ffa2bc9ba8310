"""A process that has loaded everything, and forks a `coterie` whenever it is told to.

    python zygote.py < requests > answers

A request is a line of JSON: {"words": [...], "cwd": ..., "env": {...}, "said": FILE} is answered
with the number of the new process, {"wait": PID} with its exit code when it ends. So hundreds of
commands take seconds that would each load PyTorch first. A command is the leader of a session of
its own, as one that a terminal starts.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
PATIENCE_S = 600.0  # a hundred times what a command takes; it hangs, and is killed
DELETED = "FAULTS_DELETED"  # in the environment: the current folder goes before the command begins
WARM = "warm.toml"
TOML = """
[data]
sample = 0.1
[partition]
num_nodes = 10
num_edges = 10
[algorithm]
name = "fedavg-ic"
grouping = "reference"
num_groups = 3
[train]
steps = 2
measure = ["accuracy", "nodes"]
"""
ONCE = (
    ("run", WARM, "--out", "out", "--checkpoint-every", "0"),
    ("run", WARM, "--out", "own", "--set", "algorithm.name=ditto"),
    ("plan", WARM, "--methods", "reference", "--out", "plan.html", "--export", "plan.json"),
    ("report", "out", "-o", "report.html"),
    ("figures", "out", "-o", "figures", "--format", "png"),
    ("export", "out", "-o", "rows.csv"),
)
LOADED = (
    "coterie.cli",
    "coterie.config.prepare",
    "coterie.paper",
    "coterie.render.figures",
    "coterie.render.page",
    "coterie.render.watch",
    "coterie.runs.sweep",
    "coterie.trackers",
    "safetensors.torch",
)


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said on stderr and stdout."""

    code: int
    err: str
    out: str
    hung: bool = False


class Zygote:
    """Our side of the pipe."""

    def __init__(self, env: Mapping[str, str], said: Path) -> None:
        """Start it; what commands say goes to files in a folder."""
        command = [sys.executable, str(HERE / "zygote.py")]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env={**env}, start_new_session=True
        )
        self._said, self._number = said, 0
        said.mkdir(parents=True, exist_ok=True)
        assert self._ask({}) == 0

    def start(
        self, words: list[str], cwd: Path, env: Mapping[str, str] | None = None
    ) -> "tuple[int, Path]":
        """Start a command; return its process, and the beginning of the names of what it says."""
        self._number += 1
        said = self._said / str(self._number)
        for name in ("err", "out"):
            Path(f"{said}.{name}").touch()
        asked = {"words": words, "cwd": str(cwd), "env": {**(env or {})}, "said": str(said)}
        return self._ask(asked), said

    def end(self, started: "tuple[int, Path]") -> Ended:
        """Wait for a command to end."""
        pid, said = started
        hung = threading.Event()

        def give_up() -> None:
            hung.set()
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)

        timer = threading.Timer(PATIENCE_S, give_up)
        timer.start()
        code = self._ask({"wait": pid})
        timer.cancel()
        err, out = (Path(f"{said}.{name}").read_text(errors="replace") for name in ("err", "out"))
        return Ended(code, err, out, hung.is_set())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, what: Mapping[str, object]) -> int:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def _command(asked: dict[str, object], ready: int) -> None:
    """Become a command: its folder, its environment, its streams, its signals; then run it."""
    from coterie.__main__ import main

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(str(asked["cwd"]))
    env = asked["env"]
    assert isinstance(env, dict)
    os.environ.update(env)
    if DELETED in env:
        os.rmdir(str(asked["cwd"]))  # noqa: PTH106
    for stream, name in ((0, None), (1, "out"), (2, "err")):
        path = f"{asked['said']}.{name}" if name else os.devnull
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, stream)
        os.close(handle)
    words = asked["words"]
    assert isinstance(words, list)
    sys.argv = ["coterie", *words]
    try:
        os.close(ready)
        main()
    except KeyboardInterrupt as stop:
        files = {Path(frame.filename) for frame in traceback.extract_tb(stop.__traceback__)}
        if any(SOURCE in file.parents and file.name != "__main__.py" for file in files):
            raise
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # before main listens it is the system's
        os.kill(os.getpid(), signal.SIGINT)


def _serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        answer = 0
        if "wait" in asked:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])
        elif "words" in asked:
            begun, ready = os.pipe()
            answer = os.fork()
            if answer == 0:
                sys.stdin.close()
                os.close(begun)
                _command(asked, ready)
                raise AssertionError("a command ends by itself")
            os.close(ready)
            os.read(begun, 1)  # nobody is told of a command that is still this process's copy
            os.close(begun)
        print(answer, flush=True)


def _warm_up() -> None:
    """Do each kind of thing once: what is imported late or made once is then there for all."""
    import tempfile

    from coterie.cli import main

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path(WARM).write_text(TOML)
        for words in ONCE:
            with suppress(SystemExit), open(os.devnull, "w") as nothing, redirect_stdout(nothing):  # noqa: PTH123
                main([*words])
        os.chdir(here)


if __name__ == "__main__":
    from importlib import import_module

    for name in LOADED:
        import_module(name)
    _warm_up()
    _serve()
