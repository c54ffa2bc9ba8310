"""The same training by another clock: what a run would have taken on another network or device.

Links and processors move the clock and nothing else, so Algorithm 1 runs again with an engine that
does not train and the groups that were planned then.
"""

import json
import shlex
import shutil
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.config.factories import charged_examples, make_fleet, make_update
from coterie.config.files import (
    LABEL,
    Stored,
    StoredCodeError,
    code_set,
    expand,
    flat,
    make_config,
    to_toml,
)
from coterie.config.prepare import ModelSize, make_problem, parts_of
from coterie.config.settings import Config
from coterie.core.arrays import Floats, Ints
from coterie.core.errors import ConfigError, CoterieError, RecordError
from coterie.core.files import write_atomically, write_json, writing
from coterie.core.regular import read_regular
from coterie.core.types import Json
from coterie.divergences.sketch import Sketch
from coterie.engine.contract import Gradients, HeldPart, Measured, Models, NodeScores, Score
from coterie.engine.update import Update
from coterie.grouping import Grouping
from coterie.models import REFERENCE_FLOPS
from coterie.runs.execute import timings
from coterie.runs.node_scores import TABLES
from coterie.runs.record import ROWS, RecordedRun
from coterie.simulation.loop import rounds
from coterie.simulation.problem import Problem
from coterie.simulation.state import State

if TYPE_CHECKING:
    from torch import Tensor

MAY_CHANGE = ("network.", "compute.", "algorithm.charge_grouping", LABEL)


def retime(run: RecordedRun, overrides: Sequence[str]) -> RecordedRun:
    """Return a run as it would have been with other settings of the network or the devices.

    The groups stay those that were planned; a planner that sees transfer times might have chosen
    others.
    """
    config = _changed(run, overrides)
    try:
        problem = problem_of(run, config)
        states = list(rounds(problem))
        flops = _flops(run, config)
        if len(states) != len(run.rows):
            raise RecordError(f"it has {len(run.rows)} rows where {len(states)} belong")
        rows = [_row(old, state) for old, state in zip(run.rows, states, strict=True)]
    except ConfigError as error:
        raise ConfigError(f"{run.folder}: {error}") from error
    except CoterieError as error:
        raise RecordError(f"{run.folder}: cannot be timed so ({error})") from error
    except KeyError as error:
        lacks = f"its record has no {error.args[0]!r}, which timing needs"
        raise RecordError(f"{run.folder}: {lacks}") from error
    except (IndexError, TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"{run.folder}: its record cannot be timed ({error})") from error
    summary = {**run.summary, **timings(problem, states[-1]), "flops_per_example": flops}
    meta = {**run.meta, "retimed": list(overrides)}
    return replace(
        run, config=tomllib.loads(to_toml(config)), meta=meta, rows=rows, summary=summary
    )


def write_all(runs: Mapping[str, RecordedRun], folder: Path) -> None:
    """Write runs that were timed again below a folder: all of them, or none if anything fails.

    They are written beside the folder, and renamed into place when they are whole.
    """
    beside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    with writing(folder):
        try:
            for name, run in runs.items():
                write_retimed(run, beside / name)
            if folder.exists() and any(folder.iterdir()):
                for name in runs:
                    (beside / name).rename(folder / name)
            else:
                beside.rename(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def write_retimed(run: RecordedRun, folder: Path) -> None:
    """Write a run that was timed again, without its model, to a folder of its own."""
    if (folder / ROWS).exists():
        raise RecordError(f"{folder} already holds a run; choose another --out")
    rows = "".join(json.dumps(row, allow_nan=False) + "\n" for row in run.rows)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "config.toml", to_toml(make_config(run.config)).encode())
        write_json(folder / "meta.json", run.meta)
        write_json(folder / "grouping.json", run.grouping)
        write_atomically(folder / ROWS, rows.encode())
        for name in TABLES:
            if (run.folder / name).exists():  # scores of nodes, which no clock changes
                write_atomically(folder / name, read_regular(run.folder / name))
        write_json(folder / "summary.json", run.summary)


def _changed(run: RecordedRun, overrides: Sequence[str]) -> Config:
    """Return the run's config with what may be changed without training again."""
    try:
        before = make_config(Stored(run.config, code_set(overrides)))
    except StoredCodeError as error:
        way = shlex.quote(f"{error.key}={error.path}")
        raise ConfigError(f"{run.folder}: {error}; if you trust it, add --set {way}") from error
    except ConfigError as error:
        raise RecordError(f"{run.folder}: cannot be timed again (config.toml: {error})") from error
    (after,) = expand(run.config, overrides)
    was = flat(before)
    for key, value in flat(after).items():
        if value != was.get(key) and not key.startswith(MAY_CHANGE):
            raise ConfigError(f"{key} changes the training; run it again with coterie run")
    if run.summary["status"] != "complete":
        raise RecordError(f"{run.folder}: {run.summary['status']}; only complete runs are timed")
    if before.participation.deadline_s and before.compute != after.compute:
        raise RecordError(f"{run.folder}: other nodes might meet its deadline; run it again")
    if before.algorithm.regroup_every or before.algorithm.regroup_drift:
        raise RecordError(f"{run.folder}: regrouped on its way, so that it must be run again")
    if before.algorithm.made.policy is not None:
        raise RecordError(f"{run.folder}: regrouped on its way, so that it must be run again")
    if before.algorithm.open:
        raise RecordError(f"{run.folder}: chose its schedule by the clock; run it again")
    return after


def problem_of(run: RecordedRun, config: Config | None = None) -> Problem:
    """Put the run's problem together from its record; nothing is loaded, nothing can be trained."""
    config = config or make_config(run.config)
    told = run.grouping
    counts = np.array(told["class_counts"], dtype=np.int64)
    parts, flops = parts_of(config), _flops(run, config)
    size = ModelSize(run.summary["n_parameters"], run.summary["model_bytes"], flops)
    sizes, update = counts.sum(axis=1), make_update(config, parts.algorithm)
    worked = parts.steps.examples_per_step(sizes)
    charged = charged_examples(config, parts.steps, sizes, worked)
    fleet = make_fleet(
        config,
        parts.algorithm,
        counts,
        np.array(told["edge_of"], dtype=np.int64),
        tuple(told.get("nodes", ())),
        tuple(told.get("edges", ())),
        (charged * flops * update.work).astype(np.float64),
    )
    epochs = float(worked.sum() / sizes.sum())
    z, servers = (np.array(told[key], dtype=np.int64) for key in ("z", "servers"))
    planned, engine = Grouping(z, servers), Replay(fleet.n)
    problem = make_problem(config, parts, fleet, size, update, engine, lambda *_: planned, epochs)
    clocked = Update(extra=update.extra)  # what travels counts; what is done with models does not
    return replace(problem, update=clocked, view=replace(problem.view, needs="nothing"))


def _flops(run: RecordedRun, config: Config) -> int:
    told = run.config["compute"]
    if config.compute.flops_per_example != "auto":
        return config.compute.flops_per_example
    if told.get("flops_per_example", "auto") != "auto":
        raise RecordError("its operations were set by compute.flops_per_example, and not counted")
    before, after = told["flops"], config.compute.flops
    if after == before:
        return int(run.summary["flops_per_example"])
    if after == "reference":
        return REFERENCE_FLOPS[config.model.name]
    raise RecordError("its operations were charged as in the paper's simulator, and not counted")


def _row(old: Json, state: State) -> Json:
    """What was measured then, at the time it is now."""
    new = state.row
    if (old["t"], old["event"], old["counted"]) != (new.t, new.event, new.counted):
        raise RecordError(f"other nodes would take part in step {new.t}")
    return {**old, "seconds": new.seconds, "bytes_by_tier": new.bytes_by_tier}


@dataclass(frozen=True)
class Replay:
    """An engine of n nodes that does not train; what it says about models means nothing."""

    n: int

    def choice(self) -> dict[str, str]:
        """Return that there is nothing to choose."""
        return {}

    def choose(self, choice: dict[str, str]) -> None:
        """Choose nothing."""

    def initial(self) -> Models:
        """Return one model of one number."""
        import torch

        return Models(torch.zeros(1, 1), np.zeros(self.n, dtype=np.int64))

    def advance(
        self, models: Models, start: int, stop: int, z: Ints, present: Ints | None = None
    ) -> Models:
        """Leave the models as they are."""
        return models

    def gradients(self, w: "Tensor", sketch: Sketch | None = None) -> Gradients:
        """Show nothing of the data."""
        return Gradients(np.zeros(self.n), sketches=np.zeros((self.n, 1)))

    def measure(self, w: "Tensor", z: Ints) -> Measured:
        """Measure nothing."""
        return Measured(np.zeros(self.n), 0.0, 0.0)

    def losses(self, ws: "Tensor") -> Floats:
        """Measure nothing."""
        return np.zeros((self.n, len(ws)))

    def own_losses(self, models: Models) -> Floats:
        """Measure nothing."""
        return np.zeros(self.n)

    def evaluate(self, w: "Tensor", part: HeldPart) -> Score:
        """Score nothing."""
        return Score(0.0, 0.0)

    def has_own(self, part: HeldPart) -> bool:
        """Return that there is nothing to hold out."""
        return False

    def score_nodes(self, models: Models, part: HeldPart) -> NodeScores:
        """Score nothing."""
        zeros = np.zeros(self.n, dtype=np.int64)
        return NodeScores(np.zeros(self.n), zeros, zeros + 1)

    def export(self, w: "Tensor") -> "dict[str, Tensor]":
        """Export nothing."""
        return {}
