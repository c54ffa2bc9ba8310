"""Small runs that are stopped, and what they leave."""

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coterie.cli import main
from coterie.config.files import make_config, to_toml
from coterie.config.settings import Config
from coterie.runs.execute import Interrupted, execute
from coterie.simulation.state import State
from held import HELD

HERE = Path(__file__).parent
PATIENCE_S = 1200  # ten times what the slowest machine needed; only a test that fails waits so long
TINY = {"data": {"sample": 0.1}, "partition": {"num_nodes": 10, "num_edges": 10}}


def tiny(name: str = "fedavg-ic", steps: int = 12, **algorithm: object) -> Config:
    chosen = {"name": name, "grouping": "reference", "num_groups": 3, "tau2": 2, **algorithm}
    return make_config({**TINY, "algorithm": chosen, "train": {"steps": steps}})


def outcome(folder: Path) -> dict[str, object]:
    """All that a run leaves behind, less wall times and the commit that was checked out."""
    found: dict[str, object] = {}
    for path in sorted(folder.iterdir()):
        if path.name == "meta.json":
            found[path.name] = {**json.loads(path.read_text()), "commit": None}
        elif path.name in ("summary.json", "rows.jsonl"):
            lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
            found[path.name] = [json.dumps({**json.loads(x), "wall_s": 0}) for x in lines]
        else:
            found[path.name] = path.read_bytes()
    return found


def coterie(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def start(*words: object, held: Path | None = None, **extra: Any) -> subprocess.Popen[str]:
    """Start `coterie` in a process group of its own, as a terminal does.

    With `held`, a run by `held:plan` waits in its middle for what is put there: see held.py.
    """
    command = [sys.executable, "-m", "coterie", *map(str, words)]
    pipe, env = subprocess.PIPE, {**extra.pop("env", os.environ)}
    if held:
        path = os.pathsep.join(filter(None, [str(HERE), env.get("PYTHONPATH")]))
        env |= {HELD: str(held), "PYTHONPATH": path}
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, env=env, **extra
    )


def wait_for(
    condition: Callable[[], object], process: "subprocess.Popen[Any] | None" = None
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        if process and process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode}: {process.communicate()}")
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process still does anything: one that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def children(pid: int) -> list[int]:
    """Processes that another has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in tasks for child in path.read_text().split()]


def n_rows(folder: Path) -> int:
    path = folder / "rows.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def stopped_at(t: int, what: Config, folder: Path) -> None:
    """Leave a run that was stopped after step t."""
    at = [0]

    def see(state: State) -> None:
        at[0] = state.t

    with pytest.raises(Interrupted):
        execute(what, folder, on_state=see, stop=lambda: at[0] >= t, resume=True)


def sweep(tmp_path: Path, seeds: int, steps: int, **algorithm: Any) -> Path:
    file = tmp_path / "sweep.toml"
    what = tiny(steps=steps, **{"name": "hierfavg", **algorithm})
    toml = to_toml(what).replace("seed = 0\n", "")
    file.write_text(f"{toml}\n[sweep]\nseed = {list(range(seeds))}\n")
    return file


def read_config(folder: Path) -> Config:
    return make_config(tomllib.loads((folder / "config.toml").read_text()))
