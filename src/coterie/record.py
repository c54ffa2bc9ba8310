"""What happened: a run folder of plain files, written so that a crash loses nothing already there.

config.toml as resolved, meta.json (versions, seed, commit), rows.jsonl (one aggregation a line),
grouping.json, and at the end summary.json and model.safetensors.
"""

import json
import os
import platform
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.errors import RecordError
from coterie.run import Row

if TYPE_CHECKING:
    from torch import Tensor

ROWS = "rows.jsonl"
Json = dict[str, Any]


class RunWriter:
    """Writes one run folder; rows are appended as they come, whole files are renamed into place."""

    def __init__(self, folder: Path, config_toml: str, seed: int) -> None:
        """Create the folder, which must not hold a run already, and what is known at the start."""
        if (folder / ROWS).exists():
            raise RecordError(f"{folder} already holds a run; choose another --out")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "config.toml", config_toml.encode())
            write_json(folder / "meta.json", {"seed": seed, **versions()})
            self._rows = (folder / ROWS).open("x", encoding="utf-8")
        except OSError as error:
            raise RecordError(f"{folder}: cannot be written ({error.strerror})") from error
        self.folder = folder
        self._started = time.perf_counter()

    @property
    def wall_s(self) -> float:
        """Real seconds since the run began."""
        return time.perf_counter() - self._started

    def add(self, row: Row) -> None:
        """Append one row."""
        line = {**asdict(row), "wall_s": round(self.wall_s, 4)}
        self._rows.write(json.dumps(line, allow_nan=False) + "\n")
        self._rows.flush()

    def finish(self, summary: Json, tensors: "Mapping[str, Tensor] | None") -> None:
        """Write the summary, and the model if the run got that far."""
        self._rows.close()
        if tensors is not None:
            from safetensors.torch import save

            write_atomically(self.folder / "model.safetensors", save(dict(tensors)))
        write_json(self.folder / "summary.json", {**summary, "wall_s": round(self.wall_s, 4)})


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A run folder read back."""

    folder: Path
    config: Json
    meta: Json
    rows: list[Json]
    summary: Json
    grouping: Json

    @property
    def settings(self) -> Json:
        """The config as one level of dotted keys, without the seed."""
        sections = {name: part for name, part in self.config.items() if isinstance(part, dict)}
        return {f"{name}.{k}": v for name, part in sections.items() for k, v in part.items()}


SUMMARY_KEYS = {"status", "steps", "test_accuracy", "seconds", "d_local", "d_group", "d_global"}
ROW_KEYS = {"t", "seconds", "test_accuracy"}


def read_run(folder: Path) -> RecordedRun:
    """Read a run folder; one without a summary (still running, or killed) is an error."""
    try:
        config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
        meta, summary, grouping = (
            json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            for name in ("meta", "summary", "grouping")
        )
        lines = (folder / ROWS).read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        known = (
            SUMMARY_KEYS <= summary.keys()
            and all(ROW_KEYS <= row.keys() for row in rows)
            and {"z", "class_counts"} <= grouping.keys()
            and "versions" in meta
            and isinstance(config["algorithm"]["name"], str)
            and isinstance(config["seed"], int)
        )
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name
        raise RecordError(f"{folder}: not a finished run, {missing} is missing") from error
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise RecordError(f"{folder}: damaged run folder ({error})") from error
    if not known:
        raise RecordError(f"{folder}: not written by this version of coterie")
    return RecordedRun(folder, config, meta, rows, summary, grouping)


def find_runs(paths: list[Path]) -> tuple[list[RecordedRun], list[str]]:
    """Read the complete runs among the given folders and those below them.

    Also returns a line about each run left out: unfinished, diverged, interrupted or failed.
    """
    folders: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise RecordError(f"{path}: no such folder")
        found = [p.parent for p in path.rglob(ROWS)]
        if not found:
            raise RecordError(f"{path}: no run in it (a run folder has {ROWS})")
        folders += found
    runs, left_out = [], []
    for folder in sorted(set(folders)):
        if not (folder / "summary.json").exists():
            left_out.append(f"{folder}: unfinished")
            continue
        run = read_run(folder)
        if run.summary["status"] == "complete":
            runs.append(run)
        else:
            left_out.append(f"{folder}: {run.summary['status']} after step {run.summary['steps']}")
    if not runs:
        raise RecordError(f"no complete run; {left_out[0]}")
    return runs, left_out


def write_json(path: Path, content: object) -> None:
    """Write JSON under a temporary name and rename it into place."""
    write_atomically(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see all of it or none."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def versions() -> Json:
    """Versions of what the figures depend on, and the commit of a source checkout."""
    packages = {name: version(name) for name in ("coterie", "numpy", "scipy", "torch")}
    return {
        "versions": {"python": platform.python_version(), **packages},
        "platform": platform.platform(),
        "commit": _commit(),
    }


def _commit() -> str | None:
    """Commit of the checkout that this package is in, with + if it was changed; None elsewhere."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) / "src" / "coterie" != here:
            return None
        head, dirty = git("rev-parse", "HEAD"), git("status", "--porcelain", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+" if dirty else head
