"""Run a config in processes that are killed (SIGKILL) on the way, until one gets through.

    python killed.py FOLDER moments SEED     at 20 random moments, each after it has gone on
    python killed.py FOLDER operations       at every file operation in turn, each in a new folder

A process is forked from one that has loaded everything, so that hundreds of deaths take seconds.
What a process says is printed.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from coterie import experiment
from coterie.config import make_config
from coterie.prepare import prepare
from coterie.sections import Config

KILLS, MANY, FEW = 20, 400, 4
TOUCHING = ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "shutil.rmtree")


def config(steps: int) -> Config:
    """10 nodes in 3 groups that are planned anew every other round; a step takes milliseconds."""
    return make_config(
        {
            "data": {"sample": 0.1},
            "partition": {"num_nodes": 10, "num_edges": 10},
            "algorithm": {
                "name": "fedavg-ic",
                "grouping": "reference",
                "num_groups": 3,
                "tau2": 2,
                "regroup_every": 2,
            },
            "train": {"steps": steps, "lr": 0.1},
        }
    )


def attempt(what: Config, folder: Path, every_s: float) -> None:
    """Begin a run, or go on with it if it was begun."""
    experiment.execute(
        what,
        folder,
        resume=True,
        checkpoint_every_s=every_s,
        say=lambda line: print(line, flush=True),
    )


def killed_after(rows: int, seconds: float, what: Config, folder: Path, every_s: float) -> int:
    """Fork an attempt and kill it so many rows and seconds later; return how it ended."""
    path = folder / "rows.jsonl"
    pid, wanted = 0, -1
    while True:
        found = path.read_bytes().count(b"\n") if path.exists() else 0
        if not pid:
            pid, wanted = fork(lambda: attempt(what, folder, every_s)), found + rows
        elif found >= wanted:
            break
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(operation: int, what: Config, folder: Path) -> int:
    """Fork an attempt that dies just before its operation of that number on the folder."""

    def doomed() -> None:
        left = operation

        def watch(event: str, args: tuple[object, ...]) -> None:
            nonlocal left
            if event in TOUCHING and str(folder) in str(args[0]):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        attempt(what, folder, 0.0)

    return os.waitstatus_to_exitcode(os.waitpid(fork(doomed), 0)[1])


def fork(work: Callable[[], None]) -> int:
    """Do some work in a child, and return its number."""
    pid = os.fork()
    if pid == 0:
        work()
        sys.stdout.flush()
        os._exit(0)
    return pid


def prepared_once(what: Config) -> None:
    """Prepare a config here, so that no child has to."""
    ready = prepare(what)
    vars(experiment)["prepare"] = lambda *_: ready


def at_moments(out: Path, seed: int) -> None:
    """Kill one run at random moments; then let it end."""
    what = config(MANY)
    prepared_once(what)
    rng = random.Random(seed)
    for _ in range(KILLS):
        later = rng.randrange(1, 8), rng.uniform(0, 0.01)
        code = killed_after(*later, what, out, rng.choice([0.0, 0.05]))
        assert code == -signal.SIGKILL, f"ended with {code} before it was killed"
    attempt(what, out, 0.05)


def at_operations(out: Path) -> None:
    """Kill a run at its first file operation, another at its second, and so on; each goes on."""
    what = config(FEW)
    prepared_once(what)
    operation, code = 0, -signal.SIGKILL
    while code:
        operation += 1
        folder = out / f"{operation}"
        code = killed_at(operation, what, folder)
        killed_at(operation, what, folder)  # and again, on the way
        attempt(what, folder, 0.0)


if __name__ == "__main__":
    if sys.argv[2] == "moments":
        at_moments(Path(sys.argv[1]), int(sys.argv[3]))
    else:
        at_operations(Path(sys.argv[1]))
