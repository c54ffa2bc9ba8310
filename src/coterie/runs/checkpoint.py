"""A run half way: all that is needed to go on from a state, to the same result to the last bit.

A checkpoint is one file. Its first line names the format and the SHA-256 of the rest, its second
is JSON, and then come the tensors (safetensors). It is renamed into place after the rows that it
counts are on the disk; the last two are kept. Random numbers have an address (seed, t, node), so
there is no generator whose state would have to be kept.
"""

import hashlib
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.config.files import decides, dotted, flat, one_text, to_identity
from coterie.config.prepare import Prepared
from coterie.config.settings import Config
from coterie.config.toml import read_toml
from coterie.core.errors import RecordError
from coterie.core.files import write_atomically, writing
from coterie.core.regular import read_text
from coterie.core.types import Say
from coterie.engine.contract import Models, NodeScores
from coterie.grouping import Grouping
from coterie.network import Transfer
from coterie.runs.node_scores import LOG, logged, with_nodes
from coterie.runs.record import BEGINS, PROGRESS, ROWS, RunWriter, mended
from coterie.simulation.clock import Clock
from coterie.simulation.fleet import Averaging
from coterie.simulation.forecast import Expected, Look, Tuned
from coterie.simulation.progress import Round
from coterie.simulation.row import Row
from coterie.simulation.schedule import Schedule
from coterie.simulation.state import Plan, Planned, State

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = b"coterie checkpoint 4 "
KEPT = 2
HALF_WRITTEN = r"\.(checkpoint-\d+|\w+\.(toml|json|safetensors|parquet|csv))\.\w{8}"
SHARE = 0.05  # of the time at most goes to checkpoints, unless one after every mean is asked for


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A state, how much of rows.jsonl led to it, and what else the record wants to know."""

    state: State
    n_rows: int
    offset: int  # bytes of rows.jsonl
    wall_s: float
    Delta_first: float | None
    engine: dict[str, str]  # how the engine executes, where it chose
    rows_sum: str = ""  # SHA-256 of those bytes; a checkpoint from before there was one has none


@dataclass(frozen=True)
class Origin:
    """What a checkpoint belongs to: it serves nothing else."""

    config: str  # as TOML, less where it runs and what it is called
    problem: str  # sum of the data shares, classes, edges and the initial model
    versions: dict[str, str]


def origin(config: Config, prepared: Prepared) -> Origin:
    """Return what the checkpoints of a run belong to."""
    problem = prepared.problem
    fleet, w = problem.fleet, problem.first_models.w
    total = hashlib.sha256(f"{w.dtype} ".encode())
    for array in (fleet.p, fleet.edge_of, fleet.class_counts, _bytes_of(w)):
        total.update(f"{array.dtype} {array.shape} ".encode())
        total.update(np.ascontiguousarray(array).data)
    return Origin(to_identity(config), total.hexdigest(), _versions())


# The values that a checkpoint is made of, by the names that files call them: a class can move or be
# renamed without making a checkpoint unreadable, and a file can make nothing else.
TAGS: dict[str, type] = {
    "averaging": Averaging,
    "checkpoint": Checkpoint,
    "clock": Clock,
    "expected": Expected,
    "grouping": Grouping,
    "look": Look,
    "models": Models,
    "node_scores": NodeScores,
    "plan": Plan,
    "planned": Planned,
    "round": Round,
    "row": Row,
    "schedule": Schedule,
    "state": State,
    "transfer": Transfer,
    "tuned": Tuned,
}
_TAG_OF = {kind: tag for tag, kind in TAGS.items()}


class Keeper:
    """Writes checkpoints of a run, when they are due, and removes those no longer needed."""

    def __init__(
        self,
        writer: RunWriter,
        belongs: Origin,
        every_s: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Write one every so many seconds, or after every state if that is 0."""
        self._writer, self._belongs, self._every_s = writer, belongs, every_s
        self._clock, self._last = clock, clock()
        self._took = 0.0

    @property
    def due(self) -> bool:
        """Whether it is time again; dear checkpoints are written less often."""
        wait = max(self._every_s, self._took / SHARE) if self._every_s else 0.0
        return self._clock() - self._last >= wait

    def keep(self, state: State, Delta_first: float | None, engine: dict[str, str]) -> None:
        """Write a checkpoint of the state whose row was the last."""
        start = self._clock()
        writer = self._writer
        writer.sync()
        rows = writer.n_rows, writer.offset
        found = Checkpoint(state, *rows, writer.wall_s, Delta_first, engine, writer.rows_sum)
        path = writer.folder / f"checkpoint-{state.t}"
        with writing(path, mended(writer.folder)):
            write_atomically(path, *pack(found, self._belongs))
            for old in checkpoints(writer.folder)[KEPT:]:
                old.unlink(missing_ok=True)
        self._last = self._clock()
        self._took = self._last - start


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a run folder, newest first."""
    found = {
        int(match[1]): path
        for path in folder.glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name)) and path.is_file()
    }
    return [found[t] for t in sorted(found, reverse=True)]


def tidy(folder: Path, keep: int | None = None) -> None:
    """Remove what a killed process left half written, and checkpoints, but none up to `keep`."""
    for path in _unneeded(folder, keep):
        with writing(path, mended(folder)):
            path.unlink(missing_ok=True)


def _unneeded(folder: Path, keep: int | None) -> Iterator[Path]:
    for path in checkpoints(folder):
        if keep is None or int(path.name.rpartition("-")[2]) > keep:
            yield path
    if keep is None:
        yield from (folder / PROGRESS, folder / LOG)
    for path in folder.glob(".*"):
        half = re.fullmatch(HALF_WRITTEN, path.name)
        if (half or path.name == BEGINS) and not path.is_dir():
            yield path


def last_good(folder: Path, belongs: Origin, say: Say) -> Checkpoint | None:
    """Return the newest checkpoint that is whole; say which are not, refuse those of other runs."""
    for path in checkpoints(folder):
        try:
            found = read_checkpoint(path, belongs)
            _check_rows(folder / ROWS, found)
        except Damaged as error:
            say(f"{path.name} cannot be used: {error}")
        else:
            return found
    return None


def read_checkpoint(path: Path, belongs: Origin) -> Checkpoint:
    """Read a checkpoint; refuse one of another run, config or version."""
    try:
        first, _, rest = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise Damaged(error.strerror) from error
    if re.fullmatch(rb"coterie checkpoint \d+ [0-9a-f]{64}", first) is None:
        raise Damaged("it does not begin as a checkpoint does")
    foreign = RecordError(f"{path}: written by another coterie; {_anew(path.parent)}")
    if not first.startswith(FORMAT):
        raise foreign
    if hashlib.sha256(rest).hexdigest().encode() != first[len(FORMAT) :]:
        raise Damaged("its sum is wrong")
    head, _, body = rest.partition(b"\n")
    try:
        told = json.loads(head)
        _check_origin(path.parent, Origin(**told["origin"]), belongs)
        found = _decoded(told["checkpoint"], body)
    except RecordError:
        raise
    except Exception as error:  # of whatever kind: the sum is right, so another program wrote it
        raise foreign from error
    return found


def pack(checkpoint: Checkpoint, belongs: Origin) -> tuple[bytes, bytes, bytes]:
    """Return the parts of a checkpoint file: format and sum, JSON, tensors."""
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    told = {"origin": asdict(belongs), "checkpoint": _encode(checkpoint, tensors)}
    head, body = json.dumps(told).encode() + b"\n", save(tensors)
    total = hashlib.sha256(head)
    total.update(body)
    return FORMAT + total.hexdigest().encode() + b"\n", head, body


def difference(now: Config, before: Config) -> str | None:
    """Name the first setting in which two configs differ, other than where and under what name.

    >>> from coterie.config.files import make_config
    >>> difference(make_config({"seed": 1}), make_config({}))
    'seed is 1 and was 0'
    """
    return _difference(flat(now), flat(before))


def check_begun(folder: Path, config: Config) -> None:
    """Refuse to go on with a run that was begun with other settings, or with an object for one.

    Settings that only one of the two knows are of another version, which a checkpoint tells.
    """
    try:
        before = _as_written(read_text(folder / "config.toml"))
    except (OSError, ValueError, RecursionError):  # lost, and with it what the run was
        return
    now = {key: value for key, value in _as_written(to_identity(config)).items() if key in before}
    if changed := _difference(now, before):
        raise RecordError(
            f"{folder} holds a run of other settings, {changed}; pass those again, and objects "
            "too, or choose another folder"
        )


def _difference(now: Mapping[str, Any], before: Mapping[str, Any]) -> str | None:
    for key, value in now.items():
        if value != before.get(key) and decides(key):
            return f"{key} is {value} and was {before.get(key, 'not set')}"
    return None


def _as_written(identity: str) -> dict[str, Any]:
    """Return settings as a checkpoint has them; no config is made, which might call their code."""
    return {key: one_text(value) for key, value in dotted(read_toml(identity)).items()}


class Damaged(Exception):  # noqa: N818
    """A checkpoint that is not what was written, or whose rows are gone."""


def _check_origin(folder: Path, found: Origin, belongs: Origin) -> None:
    for name, now in belongs.versions.items():
        if found.versions[name] != now:
            raise RecordError(
                f"{folder} was begun with {name} {found.versions[name]} and this is {name} {now}, "
                f"which may not give the same result; {_anew(folder)}"
            )
    if found.config != belongs.config:
        changed = _difference(_as_written(belongs.config), _as_written(found.config))
        raise RecordError(
            f"{folder}: config.toml was changed, {changed}; put it back, or "
            f"start anew with: {_start_command(folder)}"
        )
    if found.problem != belongs.problem:
        raise RecordError(
            f"{folder}: the data, its partition or the model is not what the run was begun with; "
            f"put it back, or start anew with: {_start_command(folder)}"
        )


def _anew(folder: Path) -> str:
    return f"resume with that one, or start anew with: {_start_command(folder)}"


def _start_command(folder: Path) -> str:
    return f"coterie run {shlex.quote(str(folder / 'config.toml'))}"


def _check_rows(path: Path, checkpoint: Checkpoint) -> None:
    """Find the rows that a checkpoint counts."""
    with path.open("rb") as file:
        rows = file.read(checkpoint.offset)
    if len(rows) < checkpoint.offset or rows.count(b"\n") != checkpoint.n_rows:
        raise Damaged(f"{ROWS} does not hold its {checkpoint.n_rows} rows")
    if checkpoint.rows_sum not in ("", hashlib.sha256(rows).hexdigest()):
        raise Damaged(f"{ROWS} was changed within its {checkpoint.n_rows} rows")
    try:
        lines = with_nodes(rows)
    except (ValueError, AttributeError) as error:
        raise Damaged(f"{ROWS} cannot be read") from error
    if logged(path.parent) < lines:
        raise Damaged(f"{LOG} does not hold its {lines} lines")


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("coterie", "torch", "numpy")}


def _encode(value: Any, tensors: "dict[str, Tensor]") -> Any:
    """Write a value as JSON, its arrays aside; a class by its tag, field by field."""
    import torch

    if type(value) in _TAG_OF:
        parts = {f.name: _encode(getattr(value, f.name), tensors) for f in fields(value)}
        return {"tag": _TAG_OF[type(value)], "fields": parts}
    if isinstance(value, Mapping):
        return {"mapping": [[_encode(k, tensors), _encode(v, tensors)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_encode(v, tensors) for v in value]}
    if isinstance(value, torch.Tensor | np.ndarray):
        name = str(len(tensors))
        if isinstance(value, np.ndarray):
            tensors[name] = torch.from_numpy(np.array(value))
            return {"array": name}
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": name, "device": str(value.device)}
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is not None and type(plain) not in (bool, int, float, str):
        raise TypeError(f"a checkpoint cannot hold a {type(plain).__name__}")
    return plain


def _decoded(told: Any, body: bytes) -> Checkpoint:
    from safetensors.torch import load

    found = _decode(told, load(body))
    if not isinstance(found, Checkpoint):
        raise TypeError(f"not a checkpoint: {found!r}")
    return found


def _decode(told: Any, tensors: "Mapping[str, Tensor]") -> Any:
    """Read back what `_encode` wrote; of classes, those that have a tag."""
    if not isinstance(told, dict):
        return told
    kind, content = next(iter(told.items()))
    match kind:
        case "tag":
            parts = {name: _decode(v, tensors) for name, v in told["fields"].items()}
            value = TAGS[content](**parts)
        case "mapping":
            value = {_decode(k, tensors): _decode(v, tensors) for k, v in content}
        case "list":
            value = [_decode(v, tensors) for v in content]
        case "tuple":
            value = tuple(_decode(v, tensors) for v in content)
        case "array":
            value = tensors[content].numpy()
        case "tensor":
            value = tensors[content].to(told["device"])
        case _:
            raise ValueError(f"unknown kind {kind!r}")
    return value


def _bytes_of(w: "Tensor") -> Any:
    import torch

    return w.detach().cpu().contiguous().view(torch.uint8).numpy()
