"""Run a command and say what it and all its descendants took, as one line of JSON.

CPU seconds are those of every process that descends from it: orphans, such as Ray's daemons, become
ours (PR_SET_CHILD_SUBREAPER), and are waited for. Ray's raylet does not wait for its workers, so
that the kernel forgets what they took; so the sum of what each process was last seen to have taken
counts where it is more. Memory is the most that all of them had at one
time, shared pages counted once (PSS, sampled), or the most that one of them ever had (the kernel's
figure) if that is more.

Usage: python benchmarks/peers/meter.py [--every 0.25] -- command ...
"""

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LINGER_S = 20.0  # that processes may outlive the command


def descendants(of: int) -> dict[tuple[int, int], float]:
    """Return all processes that descend from one, by number and time of birth: CPU seconds."""
    children: dict[int, list[tuple[int, int]]] = {}
    spent: dict[tuple[int, int], float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has just ended
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                who = int(folder.name), int(fields[19])
                children.setdefault(int(fields[1]), []).append(who)
                spent[who] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found: dict[tuple[int, int], float] = {}
    todo = [of]
    while todo:
        below = children.get(todo.pop(), [])
        found |= {who: spent[who] for who in below}
        todo += [pid for pid, _ in below]
    return found


def memory(pids: Iterable[int]) -> int:
    """Sum the memory of processes in bytes, shared pages counted once."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += 1024 * int(line.split()[1])
    return total


@dataclass
class Seen:
    """The most memory that our descendants had at one time, and what each took so far."""

    most: int = 0
    cpu_s: dict[tuple[int, int], float] = field(default_factory=dict)

    def watch(self, every_s: float, ended: Event) -> None:
        """Look every so often, until told to stop."""
        while not ended.wait(every_s):
            now = descendants(os.getpid())
            self.cpu_s |= now
            self.most = max(self.most, memory(pid for pid, _ in now))


def end_all() -> None:
    """End our descendants, one by one."""
    for pid, _ in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def leave(*_: object) -> NoReturn:
    """Leave nothing behind when we are told to end, or when who started us has ended."""
    end_all()
    os._exit(1)


def reap_all() -> None:
    """Wait for orphans; end those that linger."""
    until = time.monotonic() + LINGER_S
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > until:
                end_all()
            time.sleep(0.05)


def main() -> None:
    """Run the command and print the line; end as the command ended."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--every", type=float, default=0.25, metavar="SECONDS")
    ask.add_argument("command", nargs=argparse.REMAINDER)
    args = ask.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    signal.signal(signal.SIGTERM, leave)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    seen, ended = Seen(), Event()
    watcher = Thread(target=seen.watch, args=(args.every, ended), daemon=True)
    begun, start = time.time(), time.perf_counter()
    child = subprocess.Popen(command, stdout=sys.stderr)
    watcher.start()
    code = child.wait()
    wall = time.perf_counter() - start
    reap_all()
    ended.set()
    watcher.join()
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = {
        "code": code,
        "begun": begun,
        "wall_s": round(wall, 3),
        "cpu_s": round(max(use.ru_utime + use.ru_stime, sum(seen.cpu_s.values())), 3),
        "peak_bytes": max(seen.most, use.ru_maxrss * 1024),
        "load": [round(n, 2) for n in os.getloadavg()],
    }
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
