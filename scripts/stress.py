"""Run the tests of `make test` again and again, each time in another order and in other conditions.

    python scripts/stress.py                      every setting once: six runs
    python scripts/stress.py --only load,plain --rounds 3 -o /tmp/stress

A run has its own seed for the order of files and tests (scripts/shuffle.py) and its own
PYTHONHASHSEED. All that it prints is kept. The table at the end is Markdown. A run with a failure
is had again in the same order with the command in the first line of its output.
"""

import argparse
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUSY = 12
WORK = "import os\nwhile os.getppid() == {parent}:\n    sum(range(1_000_000))"
TESTS = ["-m", "pytest", "-p", "shuffle", "-n", "2", "--dist", "loadfile", "-m", "not long"]
COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)")
EVERY_S = 60


@dataclass(frozen=True)
class Setting:
    """What is different about a run: its environment, and how many processes keep cores busy."""

    env: Mapping[str, str | None]
    busy: int = 0


SETTINGS = {
    "load": Setting({}, BUSY),
    "kernels": Setting({"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "1-thread": Setting({"OMP_NUM_THREADS": "1"}),
    "4-threads": Setting({"OMP_NUM_THREADS": "4"}),
    "abroad": Setting(
        {"LC_ALL": "C", "LANG": None, "TZ": "Pacific/Kiritimati", "HOME": None, "USER": None}
    ),
    "plain": Setting({}),
}


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    setting: str
    seed: int
    code: int
    counts: Mapping[str, int]
    wall_s: float
    cpu_s: float

    @property
    def failed(self) -> int:
        """Tests that failed; at least one if pytest says so without a count."""
        n = self.counts.get("failed", 0) + self.counts.get("error", 0)
        return n or int(self.code != 0)

    @property
    def line(self) -> str:
        """The run as a line of the table."""
        counts = self.counts.get("passed", 0), self.failed, self.counts.get("skipped", 0)
        cells = [self.setting, self.seed, *counts, f"{self.wall_s:.0f}", f"{self.cpu_s:.0f}"]
        return "| " + " | ".join(map(str, cells)) + " |"


def counted(printed: str) -> dict[str, int]:
    """Read the last line of pytest.

    >>> counted("E assert 3 failed\\n== 1 failed, 9 passed, 2 skipped, 1 error in 3.1s ==")
    {'failed': 1, 'passed': 9, 'skipped': 2, 'error': 1}
    """
    last = printed.strip().rsplit("\n", 1)[-1]
    return {what.removesuffix("s"): int(n) for n, what in COUNT.findall(last)}


@contextmanager
def load(busy: int) -> Iterator[None]:
    """Keep so many processes busy; they end with this one, however it ends."""
    code = WORK.format(parent=os.getpid())
    processes = []
    try:
        for _ in range(busy):
            processes.append(
                subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
            )
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def run(name: str, seed: int, path: Path) -> Outcome:
    """Run the tests in a setting, and keep what they print."""
    setting = SETTINGS[name]
    own = {"SHUFFLE_SEED": str(seed), "PYTHONHASHSEED": str(seed), "PYTHONPATH": "scripts"}
    env = {**os.environ, **own}
    for key, value in setting.env.items():
        env.pop(key, None)
        if value is not None:
            env[key] = value
    changes = [word for key, value in setting.env.items() if value is None for word in ("-u", key)]
    given = [f"{key}={value}" for key, value in {**setting.env, **own}.items() if value is not None]
    command = [sys.executable, *TESTS]
    with load(setting.busy), path.open("w+", encoding="utf-8", errors="replace") as printed:
        print(shlex.join(["env", *changes, *given, *command]), file=printed, flush=True)
        start, before = time.monotonic(), _cpu_s()
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=printed, stderr=printed)
        try:
            _wait(process, path, start)
        finally:
            process.terminate()
            process.wait()
        wall_s, cpu_s = time.monotonic() - start, _cpu_s() - before  # before the load is counted
        printed.seek(0)
        return Outcome(name, seed, process.returncode, counted(printed.read()), wall_s, cpu_s)


def _wait(process: "subprocess.Popen[bytes]", path: Path, start: float) -> None:
    """Wait for pytest, and say every minute how far it is."""
    while True:
        try:
            process.wait(EVERY_S)
        except subprocess.TimeoutExpired:
            done = re.findall(r"\[ *(\d+)%\]", path.read_text(encoding="utf-8", errors="replace"))
            told = f"{done[-1]}%" if done else "collecting"
            print(f"    {told} after {time.monotonic() - start:.0f} s", flush=True)
        else:
            return


def _cpu_s() -> float:
    """CPU seconds of processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Run the settings, print the table, and return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default=",".join(SETTINGS), help="settings, with commas between")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each setting [1]")
    parser.add_argument("--seed", type=int, help="seed of the first run; the next has the next")
    parser.add_argument("-o", "--out", type=Path, help="folder for what runs print [a new one]")
    wanted = parser.parse_args()
    names = wanted.only.split(",") * wanted.rounds
    if unknown := [name for name in names if name not in SETTINGS]:
        sys.exit(f"stress: unknown setting {unknown[0]!r}; choose from {', '.join(SETTINGS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = wanted.out or Path(tempfile.mkdtemp(prefix="coterie-stress"))
    folder.mkdir(parents=True, exist_ok=True)
    first = random.SystemRandom().randrange(1_000_000) if wanted.seed is None else wanted.seed
    print(f"{len(names)} runs; what they print: {folder}", flush=True)
    outcomes = []
    for number, name in enumerate(names):
        path = folder / f"{number + 1}-{name}.txt"
        print(f"{number + 1}/{len(names)} {name}, seed {first + number}", flush=True)
        outcomes.append(run(name, first + number, path))
        print(outcomes[-1].line, flush=True)
    print("\n| setting | seed | passed | failed | skipped | wall s | CPU s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(outcome.line for outcome in outcomes))
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
