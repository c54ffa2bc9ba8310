"""Small runs that are stopped, and what they leave."""

import json
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
from coterie.config import make_config, to_toml
from coterie.experiment import Interrupted, execute
from coterie.run import State
from coterie.sections import Config

PATIENCE_S = 120
TINY = {"data": {"sample": 0.1}, "partition": {"num_nodes": 10, "num_edges": 10}}


def tiny(name: str = "fedavg-ic", steps: int = 12, **algorithm: object) -> Config:
    chosen = {"name": name, "grouping": "reference", "num_groups": 3, "tau2": 2, **algorithm}
    return make_config({**TINY, "algorithm": chosen, "train": {"steps": steps}})


def outcome(folder: Path) -> dict[str, object]:
    """All that a run leaves behind, less wall times."""
    found: dict[str, object] = {}
    for path in sorted(folder.iterdir()):
        if path.name in ("summary.json", "rows.jsonl"):
            lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
            found[path.name] = [json.dumps({**json.loads(x), "wall_s": 0}) for x in lines]
        else:
            found[path.name] = path.read_bytes()
    return found


def coterie(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def start(*words: object, **extra: Any) -> subprocess.Popen[str]:
    """Start `coterie` in a process group of its own, as a terminal does."""
    command = [sys.executable, "-m", "coterie", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, **extra
    )


def wait_for(
    condition: Callable[[], object], process: "subprocess.Popen[str] | None" = None
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        if process and process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode}: {process.communicate()}")
        time.sleep(0.02)


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


def sweep(tmp_path: Path, seeds: int, steps: int) -> Path:
    file = tmp_path / "sweep.toml"
    toml = to_toml(tiny("hierfavg", steps=steps)).replace("seed = 0\n", "")
    file.write_text(f"{toml}\n[sweep]\nseed = {list(range(seeds))}\n")
    return file


def read_config(folder: Path) -> Config:
    return make_config(tomllib.loads((folder / "config.toml").read_text()))
