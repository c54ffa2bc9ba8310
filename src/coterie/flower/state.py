"""The state of a run on disk, one file: arrays as safetensors, the rest as its JSON header."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.files import write_atomically
from coterie.core.types import Json
from coterie.flower import FlowerError
from coterie.flower.groups import Groups
from coterie.flower.memory import Memory
from coterie.flower.messages import KEPT, Arrays
from coterie.simulation.policies.searched import UNPLANNED
from coterie.simulation.schedule import Schedule
from coterie.simulation.state import Plan

FILE = "state.safetensors"
VERSION = "2"
PER_MEAN = "rows", "short", "weighed"  # fields of a state that are lists in the file


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
    from safetensors.numpy import save

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
    arrays = {
        f"{k}/{key}": np.asarray(array, order="C")
        for k, model in enumerate(state.models)
        for key, array in model.items()
    }
    arrays |= {f"{KEPT}/{k}": np.asarray(a, order="C") for k, a in state.memory.arrays.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, save(arrays, {"coterie": json.dumps(header, default=repr)}))
    except OSError as error:
        raise FlowerError(f"{folder / FILE}: cannot be written ({error.strerror})") from error


def saved(folder: Path) -> Json:
    """Return what the state in a folder says beside its arrays; empty if there is none yet."""
    from safetensors import SafetensorError, safe_open

    path = folder / FILE
    if not path.exists():
        return {}
    try:
        with safe_open(path, "np") as file:
            header: Json = json.loads((file.metadata() or {})["coterie"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise FlowerError(f"{path}: damaged ({error}); move it away to begin anew") from error
    _check_version(header, path)
    return header


def carry_state(old: Path, new: Path, groups: Groups, changes: Mapping[str, Any]) -> int:
    """Put the model and the rows of a state into another folder, for other groups.

    `changes` are the settings that may be others now; a run goes on with the rest unchanged. Return
    the step that it is at.
    """
    from safetensors import safe_open

    header = saved(old)
    with safe_open(old / FILE, "np") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if header["models"] != 1:
        raise FlowerError(f"{old / FILE}: is not at a global mean; let the round end")
    model = {key.removeprefix("0/"): a for key, a in arrays.items() if key.startswith("0/")}
    state = State(header["t"], (model,), Plan(Schedule(1, 1), groups), rows=tuple(header["rows"]))
    save_state(new, state, {**header["about"], **changes})
    return state.t


def _check_version(header: Json, path: Path) -> None:
    if header["version"] != VERSION:
        raise FlowerError(
            f"{path}: is a state of version {header['version']!r}, not {VERSION!r}; "
            "begin anew in another folder"
        )


def load_state(
    folder: Path | None, about: Mapping[str, Any], first: State, schedule: Schedule
) -> State:
    """Read the state of a run, the first one if it has not begun; refuse that of another run.

    The schedule of groups is not in the file: `about` says what it is, and must be the same.
    """
    from safetensors import SafetensorError, safe_open

    if folder is None or not (path := folder / FILE).exists():
        return first
    like, plan = first.models[0], first.plan
    try:
        with safe_open(path, "np") as file:
            header = json.loads((file.metadata() or {})["coterie"])
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        _check_version(header, path)
        models = tuple({key: arrays[f"{k}/{key}"] for key in like} for k in range(header["models"]))
        if header["groups"] is not None:
            members = tuple(tuple(group) for group in header["groups"])
            plan = Plan(schedule, Groups(members, tuple(header["servers"])))
        lists = {key: tuple(header[key]) for key in PER_MEAN}
        kept = {key: arrays[f"{KEPT}/{key}"] for key in header.get("kept", ())}
        memory = Memory(tuple(header.get("names", ())), kept)
        state = State(header["t"], models, plan, header["weights"], memory=memory, **lists)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise FlowerError(f"{path}: damaged ({error}); move it away to begin anew") from error
    before, now = header["about"], json.loads(json.dumps(dict(about), default=repr))
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            raise FlowerError(
                f"{path}: is of a run with {key} = {before.get(key)!r}, not {now.get(key)!r}; "
                "go on with the same, or begin anew in another folder"
            )
    if any(model[key].shape != like[key].shape for model in models for key in like):
        raise FlowerError(f"{path}: is of another model; begin anew in another folder")
    return state
