"""What a row of a run says of the global model, and when it is measured."""

import math

import numpy as np

from coterie.core.arrays import Floats
from coterie.core.errors import DivergenceError
from coterie.engine.contract import Gradients, Measured, Models
from coterie.simulation.clock import Clock
from coterie.simulation.fleet import Averaging
from coterie.simulation.problem import Problem
from coterie.simulation.row import Row
from coterie.simulation.schedule import Event
from coterie.simulation.state import Plan, State, Turn


def first_row(problem: Problem, models: Models, plan: Plan[Averaging]) -> Row:
    """Return the row of the start, which is always measured."""
    return _row(problem, "start", 0, models, plan.groups, Clock(), counted=0, due=True)


def row_after(problem: Problem, s: State, turn: Turn, *, due: bool = False) -> Row:
    """Return the row of a mean; measured every eval_every global means, at the end, or if due."""
    rounds_done = s.t // problem.schedule.cycle
    due |= turn.scope is not Event.GROUP and rounds_done % problem.eval_every == 0
    due |= s.t == problem.steps
    counted = problem.fleet.n if turn.counted is None else len(turn.counted)
    event = str(turn.scope)
    return _row(problem, event, s.t, s.models, s.groups, s.clock, counted=counted, due=due)


def _row(
    problem: Problem,
    event: str,
    t: int,
    models: Models,
    groups: Averaging | None,
    clock: Clock,
    *,
    counted: int,
    due: bool,
) -> Row:
    loss = score = apart = None
    if due:
        found = _measure(problem, models, groups, t)
        loss = float(problem.fleet.p @ found.losses)
        score = problem.engine.evaluate(models.w[0], "test")
        if not math.isfinite(score.loss):
            _diverged(f"loss is {score.loss}", t)
        apart = found if groups is not None else None
    return Row(
        t=t,
        epoch=t * problem.epochs_per_step,
        seconds=clock.seconds,
        event=event,
        train_loss=loss,
        test_loss=score.loss if score else None,
        test_accuracy=score.accuracy if score else None,
        Delta=apart.Delta if apart else None,
        delta=apart.delta if apart else None,
        group_sizes=groups.grouping.sizes if groups else [problem.fleet.n],
        bytes_by_tier=clock.bytes_by_tier,
        counted=counted,
    )


def _measure(problem: Problem, models: Models, groups: Averaging | None, t: int) -> Measured:
    """Losses and divergences at the global model, which must be numbers."""
    z = (groups or problem.everyone).grouping.z
    found = problem.engine.measure(models.w[0], z)
    _check_losses(found.losses, t)
    if not math.isfinite(found.delta + found.Delta):
        _diverged("gradient is not finite", t)
    return found


def gradients_at(problem: Problem, models: Models, t: int) -> Gradients:
    """Losses and gradients at the global model, which must be numbers to plan with."""
    found = problem.engine.gradients(models.w[0], problem.view.sketch)
    _check_losses(found.losses, t)
    shown = found.sketches if found.gram is None else found.gram.diagonal()
    assert shown is not None  # an engine gives one or the other
    bad = np.flatnonzero(~np.isfinite(shown).reshape(len(found.losses), -1).all(axis=1))
    if len(bad):
        _diverged(f"gradient is not finite on node {bad[0]}", t)
    return found


def _check_losses(losses: Floats, t: int) -> None:
    bad = np.flatnonzero(~np.isfinite(losses))
    if len(bad):
        _diverged(f"loss is {losses[bad[0]]} on node {bad[0]}", t)


def _diverged(what: str, t: int) -> None:
    where = f"after step {t}; lower train.lr" if t else "at the start; mend the model's weights"
    raise DivergenceError(f"the {what} {where}")
