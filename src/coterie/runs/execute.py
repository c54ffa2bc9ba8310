"""From a config to a run: prepare it, run Algorithm 1, record it, and go on where it stopped."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.config.files import code_of, to_toml
from coterie.config.objects import (
    NOTHING_OWN,
    Experiment,
    Objects,
    OwnAlgorithm,
    OwnDataset,
    OwnGrouping,
    OwnModel,
    configured,
)
from coterie.config.prepare import Prepared, prepare
from coterie.config.settings import Config
from coterie.core.errors import DivergenceError, RecordError
from coterie.core.plugins import source_sum
from coterie.core.regular import read_mapping
from coterie.data import Dataset
from coterie.engine.contract import Engine, Models
from coterie.runs.checkpoint import Keeper, check_begun, last_good, origin, tidy
from coterie.runs.record import RunWriter, ended
from coterie.simulation.fleet import Averaging
from coterie.simulation.forecast import doubt, named_schedules
from coterie.simulation.loop import rounds
from coterie.simulation.measuring import at_step, overall
from coterie.simulation.policies.pilot import Pilot
from coterie.simulation.problem import Problem
from coterie.simulation.row import told_metrics
from coterie.simulation.state import State

if TYPE_CHECKING:
    from torch import Tensor


class Interrupted(KeyboardInterrupt):
    """A run that was asked to stop, and did so after step t."""

    def __init__(self, t: int) -> None:
        """Remember the step."""
        super().__init__(t)
        self.t = t


def simulate(
    config: Experiment,
    algorithm: OwnAlgorithm | str | None = None,
    *,
    dataset: OwnDataset | str | None = None,
    model: "OwnModel | str | None" = None,
    grouping: OwnGrouping | str | None = None,
) -> Iterator[State]:
    """Run a config and yield the state after every aggregation; nothing is written.

    The config may be settings as a mapping, a file, or the name of one that ships. A dataset (or
    arrays x, y), a model (a module, or a function that makes one), an algorithm (or an update) and
    a grouping (a function) take the place of what it names; so do names. Of a module a copy is
    trained.

    >>> small = {"train": {"steps": 2}, "partition": {"kind": "iid", "num_nodes": 4}}
    >>> [state.t for state in simulate(small, "fedavg", dataset="mnist-f-mini")]
    [0, 2]
    """
    chosen, own = configured(
        config, dataset=dataset, model=model, algorithm=algorithm, grouping=grouping
    )
    yield from rounds(prepare(chosen, own=own).problem)


def execute(
    config: Config,
    folder: str | Path,
    *,
    own: Objects = NOTHING_OWN,
    loaded: Dataset | None = None,
    on_state: Callable[[State], None] = lambda state: None,
    resume: bool = False,
    checkpoint_every_s: float = 1.0,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda line: None,
    wait_s: float = 0.0,
    threads: int = 1,
) -> None:
    """Run a config into a folder; with `resume`, go on with the run that the folder holds.

    Nothing is written before the first state is there. A loss that is no longer a number, any
    other error, or Ctrl-C keeps the rows so far and leaves a summary that says so. `stop` is asked
    after every aggregation; a run that stops keeps a checkpoint and raises Interrupted. Otherwise
    checkpoints are that many seconds apart, or after every aggregation if 0. `say` is told how a
    run goes on, and `wait_s` is how long to wait for a process that still writes the folder.
    `threads` are the cores to use where the config leaves that open. `own` are objects in place of
    what the config names, and `loaded` is the dataset that it names, where that is there already.
    """
    folder = Path(folder)
    with RunWriter(folder, resume=resume, wait_s=wait_s) as writer:
        if writer.resumes:
            check_begun(folder, config)
        if writer.resumes and (end := ended(folder)):
            say(end)
            with suppress(RecordError):  # a disk that may only be read: there is nothing to do
                tidy(folder)
            return
        prepared = prepare(config, loaded, threads, say, own)
        run = _begin(config, prepared, writer, checkpoint_every_s, say)
        try:
            _advance(run, prepared, on_state, stop, say)
        except BaseException as error:
            with suppress(RecordError):  # of two, the first error is the one to tell
                _record(run, prepared, _status(error))
            raise
        _record(run, prepared, "complete")


@dataclass
class _Run:
    """A run under way: where it is, what comes, and who writes it down."""

    writer: RunWriter
    keeper: Keeper
    state: State
    coming: Iterator[State]
    Delta_first: float | None = None
    groups: Averaging | None = None  # as they are on the disk


def _begin(
    config: Config,
    prepared: Prepared,
    writer: RunWriter,
    every_s: float,
    say: Callable[[str], None],
) -> _Run:
    """Go to the last state that was kept, or to the first."""
    problem, folder = prepared.problem, writer.folder
    found = last_good(folder, origin(config, prepared), say) if writer.resumes else None
    if found is None:
        states = rounds(problem)
        state = next(states)
        coming: Iterator[State] = chain([state], states)
        if writer.resumes:
            say("no checkpoint to go on from; starts from the beginning")
        about = {"seed": config.seed, "engine": problem.engine.choice()}
        code = own_code(config)
        writer.begin(to_toml(config), {**about, **({"code": code} if code else {})})
        tidy(folder)
    else:
        writer.take_meta()
        state = found.state
        coming = rounds(problem, state)
        say(f"goes on from step {state.t}")
        for line in _changed(folder, config):
            say(line)
        if found.engine:
            problem.engine.choose(found.engine)
        writer.go_on(found.n_rows, found.offset, found.wall_s)
        tidy(folder, state.t)
    keeper = Keeper(writer, origin(config, prepared), every_s)
    return _Run(writer, keeper, state, coming, found.Delta_first if found else None)


def own_code(config: Config) -> dict[str, str]:
    """Return the sums of the files that one's own parts of a run are in, by import path."""
    named = [path for _, paths in sorted(code_of(config)) for path in paths.split(",")]
    return {path: source_sum(path) for path in named if ":" in path}


def _changed(folder: Path, config: Config) -> Iterator[str]:
    """Say which of one's own parts are not what they were when a run began."""
    was = read_mapping(folder / "meta.json").get("code")
    for name, now in own_code(config).items():
        if isinstance(was, dict) and was.get(name) not in (None, "", now):
            yield f"note: the file of {name} has changed since; the steps so far are by the old one"


def _advance(
    run: _Run,
    prepared: Prepared,
    on_state: Callable[[State], None],
    stop: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Write down state after state until the last, or until asked to stop; groups once known."""
    problem = prepared.problem
    for state in run.coming:
        if state.row.scores is not None:
            z = (state.groups or problem.everyone).grouping.z
            run.writer.add_nodes(state.t, z, state.row.scores)
        run.writer.add(state.row)
        if state.groups is not run.groups:
            run.groups = state.groups
            run.writer.write_grouping(_grouping(prepared, state))
            if state.tuned and state.tuned.changes[0][0] == state.t:
                say(chosen(prepared.problem, state))
                for line in filter(None, [doubt(state.tuned.first_loss, state.tuned.looks)]):
                    say(f"note: {line}")
        run.state = state
        run.Delta_first = state.row.Delta if run.Delta_first is None else run.Delta_first
        on_state(state)
        if state.t == problem.steps:
            if state.tuned and len(state.tuned.changes) > 1:
                say(f"went by tau1 and tau2 of {named_schedules(state.tuned.changes)}")
            return
        stops = stop()
        if stops or run.keeper.due:
            run.keeper.keep(state, run.Delta_first, problem.engine.choice())
            run.writer.write_progress(_told(run, prepared, "running"))
        if stops:
            raise Interrupted(state.t)


def chosen(problem: Problem, state: State) -> str:
    """Say what a run that chooses its groups and schedule chose, and what it expects of that."""
    tuned, groups = state.tuned, state.groups
    assert isinstance(problem.policy, Pilot)  # asked of such a run
    assert tuned is not None
    assert tuned.expected is not None
    assert groups is not None
    K, (t, tau1, tau2), e = len(groups.grouping.sizes), tuned.changes[0], tuned.expected
    what = f"chose {K} group{'s' * (K > 1)}, tau1 = {tau1}, tau2 = {tau2} after {t} steps"
    target, ends = problem.policy.tuning.target, f"it would end with {e.ends}"
    if e.seconds <= state.row.seconds:
        return f"{what}; {target} is reached already"
    if math.isinf(e.low_s):
        return f"{what}; {target} is not reached in {problem.steps} steps: {ends}"
    latest = f"{e.high_s:.3g}" if math.isfinite(e.high_s) else "never"
    if math.isinf(e.seconds):
        return f"{what}; {target} may not be reached in {problem.steps} steps: {ends}"
    return f"{what}; {target} expected at {e.seconds:.3g} s ({e.low_s:.3g} to {latest})"


def _status(error: BaseException) -> str:
    if isinstance(error, DivergenceError):
        return "diverged"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def _record(run: _Run, prepared: Prepared, status: str) -> None:
    """Write how a run ended: the summary last, and only then may its checkpoints go."""
    engine, writer = prepared.problem.engine, run.writer
    tensors = _exported(engine, run.state.models) if status == "complete" else None
    known = run.groups is not None and run.groups is run.state.groups
    grouping = None if known else _grouping(prepared, run.state)
    told = _told(run, prepared, status)
    writer.write_nodes(prepared.problem.fleet)
    writer.finish({"engine": engine.choice()}, grouping, told, tensors)
    if status in ("complete", "diverged"):
        tidy(writer.folder)


def _exported(engine: Engine, models: Models) -> "dict[str, Tensor]":
    """Return the model as named tensors; of several, with their numbers before the names."""
    if len(models.w) == 1:
        return engine.export(models.w[0])
    each = [engine.export(w) for w in models.w]
    return {f"{k}.{name}": v for k, tensors in enumerate(each) for name, v in tensors.items()}


def _told(run: _Run, prepared: Prepared, status: str) -> dict[str, Any]:
    about = {
        "n_parameters": prepared.size.n_parameters,
        "flops_per_example": prepared.size.flops_per_example,
        "Delta_first": run.Delta_first,
    }
    scored = status == "complete" and prepared.config.train.validate
    return {**_summary(prepared.problem, run.state, status, scored=scored), **about}


def _grouping(prepared: Prepared, state: State) -> dict[str, Any]:
    problem, fleet = prepared.problem, prepared.problem.fleet
    grouping = (state.groups or problem.everyone).grouping
    return {
        "z": grouping.z.tolist(),
        "servers": grouping.servers.tolist(),
        "cost_trace": list(grouping.cost_trace),
        "edge_of": fleet.edge_of.tolist(),
        "class_counts": fleet.class_counts.tolist(),
        "nodes": list(fleet.names),
        "edges": list(fleet.edge_names),
    }


def _summary(problem: Problem, state: State, status: str, *, scored: bool) -> dict[str, Any]:
    """Sum a run up; `scored` on the validation part, too."""
    row = state.row
    with at_step(state.t):
        val = overall(problem, state.models, "val") if scored else None
    return {
        "status": status,
        "steps": state.t,
        "test_accuracy": row.test_accuracy,
        **told_metrics(row),
        "val_accuracy": val.accuracy if val else None,
        "val_loss": val.loss if val and math.isfinite(val.loss) else None,
        "train_loss": row.train_loss,
        "node_mean": row.node_mean,
        "node_sd": row.node_sd,
        "node_worst": row.node_worst,
        "by_class": row.tested if status == "complete" else row.by_class,
        **timings(problem, state),
        "Delta": row.Delta,
        "delta": row.delta,
        "group_sizes": (state.groups or problem.everyone).grouping.sizes,
        "model_bytes": problem.model_bytes,
        **_tuned(state),
    }


def _tuned(state: State) -> dict[str, Any]:
    """Say what a run that chooses its schedule took up and when, and what it first expected."""
    tuned, groups = state.tuned, state.groups
    if tuned is None or tuned.expected is None or groups is None:
        return {}
    expected = {
        k: v if v is not None and math.isfinite(v) else None
        for k, v in vars(tuned.expected).items()
    }
    schedules = [{"t": t, "tau1": tau1, "tau2": tau2} for t, tau1, tau2 in tuned.changes]
    K = len(groups.grouping.sizes)
    return {"tuned": {"num_groups": K, "schedules": schedules, "expected": expected}}


def timings(problem: Problem, state: State) -> dict[str, Any]:
    """Say what a run's clock says."""
    clock, everyone = state.clock, problem.everyone
    groups = state.groups or everyone
    return {
        "seconds": clock.seconds,
        "compute_s": clock.compute_s,
        "group_s": clock.group_s,
        "global_s": clock.global_s,
        "grouping_s": clock.grouping_s,
        "d_local": problem.fleet.step_s,
        "d_group": groups.transfer.seconds if _averages_groups(problem, state) else None,
        "d_global": everyone.transfer.seconds,
        "bytes_by_tier": clock.bytes_by_tier,
    }


def _averages_groups(problem: Problem, state: State) -> bool:
    """Whether a run has group means, or had some with an earlier schedule."""
    if state.tuned is None:
        return problem.schedule.tau2 > 1
    return any(tau2 > 1 for _, _, tau2 in state.tuned.changes)
