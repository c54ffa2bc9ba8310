"""Environments of the peers, made on demand, and one function that runs a peer in its own.

Usage: python benchmarks/peers/environments.py [--peer pfl ...] [--work 2nn-100 ...] [--rounds 3]
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = ("plain", "pfl", "fedjax", "flower")
NEWER = {"blazefl": (3, 12)}  # the oldest Python of a peer that runs whole cases only
WORKS = ("2nn-100", "2nn-1000", "sr-1000", "cnn-100")
MANY_CORES = ("flower",)  # the others are held to one core
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else 15, so that anything else on the machine comes first
}


def interpreter(peer: str, cache: Path | None = None) -> Path:
    """Return the Python of a peer, after making its environment where there is none.

    The plain loop runs in this interpreter. A stamp with the hash of the pinned versions says that
    an environment is complete; without it, or with another hash, it is made anew.
    """
    if peer not in (*PEERS, *NEWER):
        raise ValueError(f"peer must be one of {', '.join((*PEERS, *NEWER))}, got {peer!r}")
    if peer == "plain":
        return Path(sys.executable)
    base, release = _base(NEWER.get(peer, (3, 0)))
    folder = (cache or HERE / ".venvs") / peer
    pins, stamp = HERE / f"{peer}.txt", folder / ".ready"
    python = folder / "bin" / "python"
    wanted = hashlib.sha256(pins.read_bytes()).hexdigest() + f" {release}\n"
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", pins]
    subprocess.run([str(word) for word in pip], check=True)
    part = stamp.with_suffix(".part")
    part.write_text(wanted)
    part.rename(stamp)
    return python


def _base(oldest: tuple[int, int]) -> tuple[str, str]:
    """Return a Python of that release or a newer one, this one if it is, and its version."""
    if sys.version_info >= oldest:
        return sys.executable, platform.python_version()
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(oldest[1], oldest[1] + 3):
        there = [shutil.which(f"python3.{minor}"), *sorted(root.glob(f"3.{minor}.*/bin/python"))]
        for python in map(str, filter(None, there)):
            words = [python, "-c", "import platform, venv; print(platform.python_version())"]
            told = subprocess.run(words, capture_output=True, text=True, check=False)
            if told.returncode == 0:  # a shim of pyenv may stand for nothing
                return python, told.stdout.strip()
    raise RuntimeError(f"needs Python >= {oldest[0]}.{oldest[1]}, and none is here")


def measure(
    peer: str, work: str, rounds: int = 3, fraction: float = 1.0, cache: Path | None = None
) -> dict[str, Any]:
    """Run a work in a peer and return its line: CPU and wall seconds of a round, and what it did.

    Every process has one thread and, but for Flower, one core. With a fraction below 1 only the
    first nodes are run, and cpu_s and wall_s are scaled by examples (see scaled_by).
    """
    command = [
        *([] if peer in MANY_CORES else one_core()),
        *(str(interpreter(peer, cache)), str(HERE / f"run_{peer}.py")),
        *("--work", work, "--rounds", str(rounds), "--fraction", str(fraction)),
    ]
    done = subprocess.run(
        command, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        tail = "\n".join(done.stderr.splitlines()[-20:])
        raise RuntimeError(f"{peer} could not run {work}, it ended with {done.returncode}:\n{tail}")
    line: dict[str, Any] = json.loads(lines[-1])
    return line


def one_core() -> list[str]:
    """Hold a command to the last core that we may use, where the system can."""
    taskset = shutil.which("taskset")
    return [taskset, "-c", str(max(os.sched_getaffinity(0)))] if taskset else []


def main(words: Sequence[str] | None = None) -> None:
    """Print a line for each peer and work."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--peer", nargs="+", choices=PEERS, default=PEERS)
    ask.add_argument("--work", nargs="+", default=WORKS)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--fraction", type=float, default=1.0)
    args = ask.parse_args(words)
    for work in args.work:
        for peer in args.peer:
            print(json.dumps(measure(peer, work, args.rounds, args.fraction)), flush=True)


if __name__ == "__main__":
    main()
