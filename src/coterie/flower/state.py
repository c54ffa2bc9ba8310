"""The state of a run on disk, one file: arrays as safetensors, the rest as its JSON header."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from coterie.core.convert import convert
from coterie.core.errors import short
from coterie.core.types import Json
from coterie.flower import FlowerError
from coterie.flower.groups import Groups
from coterie.flower.memory import Memory
from coterie.flower.messages import KEPT, Array, Arrays
from coterie.flower.tensorfile import MOST, read_about, read_tensors, write_tensors
from coterie.simulation.policies.searched import UNPLANNED
from coterie.simulation.schedule import Schedule
from coterie.simulation.state import Plan

FILE = "state.safetensors"
VERSION = "2"
PER_MEAN = "rows", "short", "weighed"  # fields of a state that are lists in the file
Count = Annotated[int, Meta(ge=0, le=MOST)]
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Number = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class _Row(Struct, frozen=True):
    """What everybody who tells of a row needs of it."""

    t: Count
    round: Count
    counted: Count


class _Header(Struct, frozen=True, forbid_unknown_fields=True):
    """What a file has beside its arrays."""

    version: str
    about: dict[str, Any]
    t: Count
    models: Annotated[int, Meta(ge=1, le=MOST)]
    groups: list[list[str]] | None
    servers: list[str]
    weights: dict[str, Amount]
    rows: list[_Row]
    short: list[Count]
    weighed: list[Amount]
    names: list[str] = []
    kept: list[str] = []


@dataclass(frozen=True, eq=False)
class State:
    """Where a run is after step t: a model for every group, or one for all, and its plan.

    There is no clock, for nodes take the time that they take. `rows` say what every aggregation
    did; `short` counts, for each group, the aggregations in a row that too few of its nodes took
    part in, and `weighed` has the examples that counted in its last mean since the global one, 0 if
    in none. `memory` is what an algorithm keeps; there is none for FedAvg.
    """

    t: int
    models: tuple[Arrays, ...]
    plan: Plan[Groups] = UNPLANNED
    weights: Mapping[str, float] = field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()
    short: tuple[int, ...] = ()
    weighed: tuple[float, ...] = ()
    memory: Memory = field(default_factory=Memory)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...] | None:
        """Names by group, None until they are planned."""
        return self.plan.groups.members if self.plan.groups else None


def save_state(folder: Path, state: State, about: Mapping[str, Any]) -> None:
    """Write a state in place of the one before it, whole or not at all."""
    header = {
        "version": VERSION,
        "about": dict(about),
        "t": state.t,
        "models": len(state.models),
        "groups": state.groups,
        "servers": state.plan.groups.servers if state.plan.groups else (),
        "weights": dict(state.weights),
        **{key: getattr(state, key) for key in PER_MEAN},
    }
    if state.memory.names:
        header |= {"names": state.memory.names, "kept": list(state.memory.arrays)}
    arrays = {f"{k}/{key}": a for k, model in enumerate(state.models) for key, a in model.items()}
    arrays |= {f"{KEPT}/{key}": array for key, array in state.memory.arrays.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / FILE, arrays, header)
    except OSError as error:
        raise FlowerError(f"{folder / FILE}: cannot be written ({error.strerror})") from error


def saved(folder: Path) -> Json:
    """Return what the state in a folder says beside its arrays; empty if there is none yet."""
    path = folder / FILE
    try:
        return _checked(read_about(path, _Any), path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


class _Any(Struct, frozen=True):
    """A header of any version."""

    version: str


def _checked(header: Json, path: Path) -> Json:
    """Return a header of this version, whose parts fit together."""
    if header["version"] != VERSION:
        raise FlowerError(
            f"{path}: is a state of version {short(header['version'])}, not {VERSION!r}; "
            "begin anew in another folder"
        )
    convert(header, _Header, "header")
    for at, row in enumerate(header["rows"]):
        for begins, kind in (("train.", Number), ("test.", Number | None)):
            scores = {key: row[key] for key in row if key.startswith(begins)}
            convert(scores, dict[str, kind], f"header: rows[{at}]")  # type: ignore[valid-type]
    groups: Sequence[Sequence[str]] = header["groups"] or [[]]
    for key, fits in (("models", (1, len(groups))), ("weighed", (0, len(groups)))):
        count = header[key] if key == "models" else len(header[key])
        if count not in fits:
            raise ValueError(f"header: {count} {key} for {len(groups)} groups")
    unweighed = {name for names in groups for name in names} - header["weights"].keys()
    if header["models"] > 1 and unweighed:
        raise ValueError(f"header: weights has no {short(min(unweighed))}")
    return header


def _damaged(path: Path, error: Exception) -> FlowerError:
    if isinstance(error, OSError):
        return FlowerError(f"{path}: cannot be read ({error.strerror})")
    return FlowerError(f"{path}: damaged ({error}); move it away to begin anew")


def _read(path: Path) -> tuple[Json, Arrays]:
    """Read a state whole; one that is not there is a FileNotFoundError."""
    try:
        header, arrays = read_tensors(path, _Any)
        return _checked(header, path), arrays
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def carry_state(old: Path, new: Path, groups: Groups, changes: Mapping[str, Any]) -> int:
    """Put the model and the rows of a state into another folder, for other groups.

    `changes` are the settings that may be others now; a run goes on with the rest unchanged. Return
    the step that it is at.
    """
    header, arrays = _read(old / FILE)
    if header["models"] != 1:
        raise FlowerError(f"{old / FILE}: is not at a global mean; let the round end")
    model = {key.removeprefix("0/"): a for key, a in arrays.items() if key.startswith("0/")}
    state = State(header["t"], (model,), Plan(Schedule(1, 1), groups), rows=tuple(header["rows"]))
    save_state(new, state, {**header["about"], **changes})
    return state.t


def load_state(
    folder: Path | None, about: Mapping[str, Any], first: State, schedule: Schedule
) -> State:
    """Read the state of a run, the first one if it has not begun; refuse that of another run.

    The schedule of groups is not in the file: `about` says what it is, and must be the same.
    """
    if folder is None:
        return first
    path, like, plan = folder / FILE, first.models[0], first.plan
    try:
        header, arrays = _read(path)
    except FileNotFoundError:
        return first
    before, now = header["about"], json.loads(json.dumps(dict(about), default=repr))
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            raise FlowerError(
                f"{path}: is of a run with {key} = {short(before.get(key))}, not "
                f"{short(now.get(key))}; go on with the same, or begin anew in another folder"
            )
    models = tuple(_model(arrays, k, like, path) for k in range(header["models"]))
    if header["groups"] is not None:
        members = tuple(tuple(group) for group in header["groups"])
        plan = Plan(schedule, Groups(members, tuple(header["servers"])))
    lists = {key: tuple(header[key]) for key in PER_MEAN}
    kept = {key: _array(arrays, f"{KEPT}/{key}", path) for key in header.get("kept", ())}
    memory = Memory(tuple(header.get("names", ())), kept)
    return State(header["t"], models, plan, header["weights"], memory=memory, **lists)


def _model(arrays: Arrays, k: int, like: Arrays, path: Path) -> Arrays:
    """Return the model of group k, whose arrays are like those of the first."""
    model = {key: _array(arrays, f"{k}/{key}", path) for key in like}
    for key, first in like.items():
        if (model[key].shape, model[key].dtype) != (first.shape, first.dtype):
            raise FlowerError(f"{path}: is of another model; begin anew in another folder")
    return model


def _array(arrays: Arrays, name: str, path: Path) -> Array:
    if name not in arrays:
        raise _damaged(path, ValueError(f"there is no {short(name)}"))
    return arrays[name]
