"""Run a config in processes that die (SIGKILL, SIGALRM) on the way, until one gets through.

    python killed.py FOLDER moments KILLS     at so many random moments, each after it has gone on
    python killed.py FOLDER operations EVERY  at every file operation in turn, or every third, say,
                                              each in a new folder

A process is forked from one that has loaded everything, so that hundreds of deaths take seconds.
What a process says is printed.
"""

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.config.settings import Config
from coterie.runs import execute
from coterie.simulation.state import State

FEW = 4  # steps of a run that is killed at file operations
MOST_ROWS, MORE_ROWS, MORE_S = 7, 4, 0.01  # until a kill
TOUCHING = ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "shutil.rmtree")


def config(steps: int) -> Config:
    """10 nodes in 3 groups that are planned anew every other round; a step takes milliseconds.

    Nodes are scored one by one, and groups after their means.
    """
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
            "train": {
                "steps": steps,
                "lr": 0.1,
                "measure": ["accuracy", "nodes", "Delta/2"],
                "measure_groups": True,
            },
        }
    )


def steps(kills: int) -> int:
    """Steps of a run that so many kills do not see the end of."""
    return (MOST_ROWS + MORE_ROWS + 1) * kills


def attempt(
    what: Config,
    folder: Path,
    every_s: float,
    on_state: Callable[[State], None] = lambda state: None,
) -> None:
    """Begin a run, or go on with it if it was begun."""
    execute.execute(
        what,
        folder,
        resume=True,
        checkpoint_every_s=every_s,
        on_state=on_state,
        say=lambda line: print(line, flush=True),
    )


def killed_after(rows: int, seconds: float, what: Config, folder: Path, every_s: float) -> int:
    """Fork an attempt that dies so many rows and seconds later; return how it ended.

    It dies by a timer of its own, and a few rows later at the latest: nobody has to be in time.
    """

    def doomed() -> None:
        seen = 0

        def count(_: State) -> None:
            nonlocal seen
            seen += 1
            if seen == rows:
                signal.setitimer(signal.ITIMER_REAL, seconds)  # SIGALRM ends it as SIGKILL does
            if seen == rows + MORE_ROWS:
                os.kill(os.getpid(), signal.SIGKILL)

        attempt(what, folder, every_s, count)

    return os.waitstatus_to_exitcode(os.waitpid(fork(doomed), 0)[1])


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
    vars(execute)["prepare"] = lambda *_: ready


def at_moments(out: Path, kills: int) -> None:
    """Kill one run at random moments; then let it end."""
    what = config(steps(kills))
    prepared_once(what)
    rng = random.Random(0)
    for _ in range(kills):
        later = rng.randint(1, MOST_ROWS), rng.uniform(1e-6, MORE_S)
        code = killed_after(*later, what, out, rng.choice([0.0, 0.05]))
        assert code in (-signal.SIGALRM, -signal.SIGKILL), f"ended with {code}, and not by force"
    attempt(what, out, 0.05)


def at_operations(out: Path, every: int) -> None:
    """Kill a run at its first file operation, another at its second, and so on; each goes on."""
    what = config(FEW)
    prepared_once(what)
    operation, code = 1, -signal.SIGKILL
    while code:
        folder = out / f"{operation}"
        code = killed_at(operation, what, folder)
        killed_at(operation, what, folder)  # and again, on the way
        attempt(what, folder, 0.0)
        operation += every


if __name__ == "__main__":
    kill = {"moments": at_moments, "operations": at_operations}[sys.argv[2]]
    kill(Path(sys.argv[1]), int(sys.argv[3]))
