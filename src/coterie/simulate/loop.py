"""Algorithm 1: advance to the next aggregation, average, let the clock move, and plan."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from coterie.core.arrays import Floats
from coterie.core.errors import DivergenceError
from coterie.engine.contract import Gradients, Measured, Models
from coterie.grouping import Evidence, Grouping
from coterie.grouping.objective import Objective
from coterie.network import Transfer
from coterie.simulate.clock import Clock
from coterie.simulate.forecast import Tuned
from coterie.simulate.participation import Present
from coterie.simulate.policies import pilot
from coterie.simulate.policies.view import Planned
from coterie.simulate.problem import Averaging, Problem, evidence, plan
from coterie.simulate.schedule import Event, Schedule


@dataclass(frozen=True)
class Row:
    """What one aggregation did; the measured ones are None where nothing was measured."""

    t: int
    epoch: float
    seconds: float
    event: str
    train_loss: float | None
    test_loss: float | None
    test_accuracy: float | None
    Delta: float | None
    delta: float | None
    group_sizes: list[int]
    bytes_by_tier: dict[str, int]
    counted: int = 0  # nodes whose models were averaged


@dataclass(frozen=True, eq=False)
class State:
    """Where a run is after step t: enough to go on from, and the row it just earned."""

    t: int
    models: Models
    groups: Averaging | None  # None until planned
    clock: Clock
    row: Row
    planned: Planned | None = None
    tuned: Tuned | None = None  # how the schedule was chosen, where it is open


def rounds(
    problem: Problem,
    state: State | None = None,
    on_choice: Callable[[pilot.Choice], None] = lambda choice: None,
) -> Iterator[State]:
    """Run Algorithm 1 from its start, or from a state; yield the state after each aggregation.

    `on_choice` is told what a pilot led to, where groups or schedule are open.
    """
    everyone = problem.everyone
    s = state or _start(problem)
    if state is None:
        yield s
    while s.t < problem.steps:
        schedule = _schedule(problem, s)
        t, event = schedule.next_aggregation(s.t, problem.steps)
        who = s.groups if s.groups and event is Event.GROUP else everyone
        there, transfer = _attendance(problem, who, s.groups or everyone, s.t, t)
        counted = there.counted if there else None
        models = problem.engine.advance(s.models, s.t, t, who.grouping.z, counted)  # lines 4-12
        if event is Event.GLOBAL and (there is None or len(there.counted)):
            models = problem.server.after(models, problem.p)
        compute_s = there.compute_s if there else (t - s.t) * problem.step_s
        clock = s.clock.after(event, compute_s, transfer)
        groups, planned, tuned, found, row = s.groups, s.planned, s.tuned, None, None
        if event is Event.GLOBAL and tuned:
            row = _row(problem, t, event, models, groups, clock)
            tuned = pilot.seen(tuned, schedule, t, row.train_loss, _accuracy(problem, models))
        if event is Event.GLOBAL and _looks(problem, planned, t):  # lines 13-15
            found = _gradients(problem, models, t)
            upload = _evidence_upload(problem, everyone.grouping)
            clock = clock.after("grouping", 0.0, upload)
            shown = evidence(problem, found, t if groups else 0)
            if tuned:
                choice = pilot.choose(problem, tuned, shown, _spent(clock))
                groups, tuned = choice.groups, pilot.first(tuned, choice, clock.seconds)
                on_choice(choice)
            elif groups is None or _drifted(problem, groups, planned, shown, t):
                groups = plan(problem, shown, t if groups else 0)
            if groups is not s.groups:
                planned = Planned(t, Objective(shown).divergence(groups.grouping.z))
        elif event is Event.GLOBAL and tuned and groups:
            tuned = pilot.again(problem, tuned, groups, _spent(clock))
        if row is None or found:
            row = _row(problem, t, event, models, groups, clock, planning=found is not None)
        row = replace(row, counted=len(problem.p) if counted is None else len(counted))
        s = State(t, models, groups, clock, row, planned, tuned)
        yield s


def _schedule(problem: Problem, s: State) -> Schedule:
    """Return when to average next: together until groups are planned, then as set or chosen."""
    if s.tuned:
        return s.tuned.schedule or pilot.in_pilot(s.t)
    return problem.schedule if s.groups else Schedule(1, 1)


def _accuracy(problem: Problem, models: Models) -> float:
    """Return the accuracy that a run is tuned by: on the validation part, if on any."""
    wanted = problem.tuning and problem.tuning.target_accuracy
    return problem.engine.evaluate(models.w[0], "val").accuracy if wanted else 0.0


def _spent(clock: Clock) -> float:
    return float(sum(clock.bytes_by_tier.values()))


def piloted(problem: Problem) -> tuple[State, pilot.Choice]:
    """Run the pilot of a problem with something open; return its last state and what it led to."""
    choices: list[pilot.Choice] = []
    s = next(state for state in rounds(problem, on_choice=choices.append) if state.groups)
    return s, choices[0]


def _attendance(
    problem: Problem, who: Averaging, groups: Averaging, start: int, t: int
) -> tuple[Present | None, Transfer]:
    """Who takes part in steps start+1 .. t, None for everybody, and the transfer that takes."""
    if problem.attendance.full:
        return None, who.transfer
    each = np.full(len(problem.p), problem.step_s)
    work_s = (t - start) * (each if problem.node_step_s is None else problem.node_step_s)
    there = problem.attendance.at(t, groups.grouping.z, work_s, problem.seed)
    z, servers = who.grouping.z, who.grouping.servers
    return there, problem.network.part(z, servers, who.nbytes, there.asked, there.counted)


def _looks(problem: Problem, planned: Planned | None, t: int) -> bool:
    """Whether nodes show their data at the global mean t: before the first plan, or another."""
    if problem.tuning and planned is None:
        return t == pilot.PILOT_STEPS
    if not problem.searched or planned is None:
        return problem.searched
    return t < problem.steps and problem.regroup.looks(_rounds_since(problem, planned, t))


def _drifted(
    problem: Problem, groups: Averaging, planned: Planned | None, shown: Evidence, t: int
) -> bool:
    if planned is None:
        return True
    ago = _rounds_since(problem, planned, t)
    return problem.regroup.now(ago, planned, shown, groups.grouping.z)


def _rounds_since(problem: Problem, planned: Planned, t: int) -> int:
    """Global means since a plan; the first plan is made inside a round, which counts."""
    return -(-(t - planned.t) // (problem.schedule.tau1 * problem.schedule.tau2))


def _start(problem: Problem) -> State:
    """Lines 1-2: one random model everywhere; groups that need no gradients are planned here."""
    models = problem.server.begin(problem.engine.initial())
    groups = None if problem.searched else plan(problem, evidence(problem, None, 0))
    row = _row(problem, 0, "start", models, groups, Clock())
    tuned = Tuned(first_loss=row.train_loss or 0.0) if problem.tuning else None
    return State(0, models, groups, Clock(), row, tuned=tuned)


def first_evidence(problem: Problem) -> Evidence:
    """Return what the planner sees at the first global mean, after one step."""
    everyone = problem.everyone
    there, _ = _attendance(problem, everyone, everyone, 0, 1)
    counted = there.counted if there else None
    models = problem.server.begin(problem.engine.initial())
    models = problem.engine.advance(models, 0, 1, everyone.grouping.z, counted)
    if counted is None or len(counted):
        models = problem.server.after(models, problem.p)
    return evidence(problem, _gradients(problem, models, 1), 0)


def _evidence_upload(problem: Problem, everyone: Grouping) -> Transfer:
    if not problem.view.charged_bytes:
        return Transfer(0.0, {})
    each = replace(
        problem.network, combine=False
    )  # a mean would not do: the planner compares nodes
    return each.upload(everyone.z, everyone.servers, problem.view.charged_bytes)


def _gradients(problem: Problem, models: Models, t: int) -> Gradients:
    """Losses and gradients at the global model, which must be numbers to plan with."""
    found = problem.engine.gradients(models.w[0], problem.view.sketch)
    _check_losses(found.losses, t)
    shown = found.sketches if found.gram is None else found.gram.diagonal()
    assert shown is not None  # an engine gives one or the other
    bad = np.flatnonzero(~np.isfinite(shown).reshape(len(found.losses), -1).all(axis=1))
    if len(bad):
        _diverged(f"gradient is not finite on node {bad[0]}", t)
    return found


def _measure(problem: Problem, models: Models, groups: Averaging | None, t: int) -> Measured:
    """Losses and divergences at the global model, which must be numbers."""
    z = (groups or problem.everyone).grouping.z
    found = problem.engine.measure(models.w[0], z)
    _check_losses(found.losses, t)
    if not math.isfinite(found.delta + found.Delta):
        _diverged("gradient is not finite", t)
    return found


def _check_losses(losses: Floats, t: int) -> None:
    bad = np.flatnonzero(~np.isfinite(losses))
    if len(bad):
        _diverged(f"loss is {losses[bad[0]]} on node {bad[0]}", t)


def _diverged(what: str, t: int) -> None:
    where = f"after step {t}; lower train.lr" if t else "at the start; mend the model's weights"
    raise DivergenceError(f"the {what} {where}")


def _row(
    problem: Problem,
    t: int,
    event: str,
    models: Models,
    groups: Averaging | None,
    clock: Clock,
    *,
    planning: bool = False,
) -> Row:
    """Measure what is due: at the start, at the end, at the planning, and every eval_every."""
    rounds_done = t // (problem.schedule.tau1 * problem.schedule.tau2)
    due = event != Event.GROUP and (problem.tuning or rounds_done % problem.eval_every == 0)
    loss = score = apart = None
    if due or planning or t == problem.steps:
        found = _measure(problem, models, groups, t)
        loss = float(problem.p @ found.losses)
        score = problem.engine.evaluate(models.w[0], "test")
        if not math.isfinite(score.loss):
            _diverged(f"loss is {score.loss}", t)
        apart = found if groups is not None else None
    return Row(
        t=t,
        epoch=t * problem.epochs_per_step,
        seconds=clock.seconds,
        event=str(event),
        train_loss=loss,
        test_loss=score.loss if score else None,
        test_accuracy=score.accuracy if score else None,
        Delta=apart.Delta if apart else None,
        delta=apart.delta if apart else None,
        group_sizes=groups.grouping.sizes if groups else [len(problem.p)],
        bytes_by_tier=clock.bytes_by_tier,
    )
