"""What a row of a run says of its models, and when that is measured."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from coterie.core.arrays import Floats
from coterie.core.errors import DivergenceError, MetricError, TrainingError
from coterie.engine.contract import (
    Figures,
    Gradients,
    HeldPart,
    Measured,
    Models,
    NodeScores,
    Score,
)
from coterie.engine.own_models import distinct, own_models, sharing
from coterie.simulation.clock import Clock
from coterie.simulation.fleet import Averaging
from coterie.simulation.measures import ALWAYS
from coterie.simulation.problem import Problem
from coterie.simulation.row import Row
from coterie.simulation.schedule import NEVER, Event
from coterie.simulation.state import Plan, State, Turn

NOTHING: frozenset[str] = frozenset()
WORST = 10  # the worst tenth of the nodes


def first_row(
    problem: Problem, models: Models, plan: Plan[Averaging], *, loss: bool = False
) -> Row:
    """Return the row of the start, at which everything in the list is measured.

    With `loss`, the training loss is measured anyhow.
    """
    what = problem.measures.all | ALWAYS | ({"loss"} if loss else NOTHING)
    return _row(problem, "start", 0, models, plan.groups, Clock(), counted=0, what=what)


def row_after(
    problem: Problem, s: State, turn: Turn, *, due: bool = False, loss: bool = False
) -> Row:
    """Return the row of a mean, measured every eval_every global means, at the end, or if due.

    At the end and if due, everything in the list is measured, whatever its interval. With `loss`,
    the training loss is measured anyhow.
    """
    what = {"loss"} if loss else NOTHING
    evaluation, left = divmod(s.t // problem.schedule.round, problem.eval_every)
    if s.t == problem.steps:
        what |= problem.measures.all | ALWAYS
    elif due:
        what |= problem.measures.all
    elif turn.scope is Event.GROUP and problem.schedule.tau2 != NEVER:
        what |= problem.measures.of_groups
    elif left == 0:
        what |= problem.measures.at(evaluation)
    counted = problem.fleet.n if turn.counted is None else len(turn.counted)
    event = str(turn.scope)
    return _row(problem, event, s.t, s.models, s.groups, s.clock, counted=counted, what=what)


def _row(
    problem: Problem,
    event: str,
    t: int,
    models: Models,
    groups: Averaging | None,
    clock: Clock,
    *,
    counted: int,
    what: frozenset[str] | set[str],
) -> Row:
    apart = None
    grouped = groups if groups is not None and len(groups.grouping.sizes) > 1 else None
    if "Delta" in what and grouped is not None and len(models.w) == 1:
        apart = _measure(problem, models, grouped, t)
    loss = None
    if "loss" in what or apart is not None:
        loss = _train_loss(problem, models, apart, t)
    return Row(
        t=t,
        epoch=t * problem.epochs_per_step,
        seconds=clock.seconds,
        event=event,
        train_loss=loss,
        Delta=apart.Delta if apart else None,
        delta=apart.delta if apart else None,
        group_sizes=(groups or problem.everyone).grouping.sizes,
        bytes_by_tier=clock.bytes_by_tier,
        counted=counted,
        **_scored(problem, models, what, t),
    )


def _one(models: Models) -> bool:
    """Whether all nodes have the same model."""
    own = sharing(models)
    return bool((own == own[0]).all())


def _measure(problem: Problem, models: Models, groups: Averaging, t: int) -> Measured:
    """Losses and divergences at the global model, which must be numbers."""
    found = problem.engine.measure(models.w[0], groups.grouping.z)
    _check_losses(found.losses, t)
    if not math.isfinite(found.delta + found.Delta):
        _diverged("gradient is not finite", t)
    return found


def _train_loss(problem: Problem, models: Models, apart: Measured | None, t: int) -> float:
    """Training loss over all nodes' data, each node by its own model; gradients bring it along."""
    if apart is not None and _one(models):
        losses = apart.losses
    elif _one(models):
        losses = problem.engine.losses(own_models(models, np.array([0])))[:, 0]
    else:
        losses = problem.engine.own_losses(models)
    _check_losses(losses, t)
    return float(problem.fleet.p @ losses)


def _scored(
    problem: Problem, models: Models, what: frozenset[str] | set[str], t: int
) -> dict[str, Any]:
    """Score models on the test part, once: accuracy and loss, node by node, by class, as asked for.

    Nodes are told apart wherever that comes with the accuracy: they have a test part or a model of
    their own.
    """
    if what.isdisjoint({"accuracy", "nodes", "classes"}):
        return {"test_loss": None, "test_accuracy": None}
    with at_step(t):
        return _test_scores(problem, models, what, t)


@contextmanager
def at_step(t: int) -> Iterator[None]:
    """Say after which step a metric of one's own fails."""
    try:
        yield
    except MetricError as error:
        raise TrainingError(f"{error} {f'after step {t}' if t else 'at the start'}") from error


def _test_scores(
    problem: Problem, models: Models, what: frozenset[str] | set[str], t: int
) -> dict[str, Any]:
    apart = _told_apart(problem, models, "test")
    scores = problem.engine.score_nodes(models, "test") if apart or "nodes" in what else None
    if scores is None:
        whole = overall(problem, models, "test")
    else:
        whole = _whole(problem, models, "test", scores)
    if not math.isfinite(whole.loss):
        _diverged(f"loss is {whole.loss}", t)
    shown = whole if "accuracy" in what else None
    nodes = scores if "nodes" in what or shown else None
    by_class = _by_class(problem, models, whole if scores is None else scores)
    return {
        "test_loss": shown.loss if shown else None,
        "test_accuracy": shown.accuracy if shown else None,
        "metrics": shown.metrics if shown else None,
        "by_class": by_class if "classes" in what else None,
        "tested": by_class,
        "scores": nodes,
        **(node_spread(nodes) if nodes is not None else {}),
    }


def _told_apart(problem: Problem, models: Models, part: HeldPart) -> bool:
    """Whether nodes have a part, or a model, of their own."""
    return problem.engine.has_own(part) or not _one(models)


def overall(problem: Problem, models: Models, part: HeldPart) -> Score:
    """Score the models in use on a part, each on its nodes' examples, or by their data."""
    if _told_apart(problem, models, part):
        return _whole(problem, models, part, problem.engine.score_nodes(models, part))
    return problem.engine.evaluate(own_models(models, np.array([0]))[0], part)


def _whole(problem: Problem, models: Models, part: HeldPart, scores: NodeScores) -> Score:
    """Score of all: over the nodes' examples or, where these are pooled, nodes by their data."""
    if problem.engine.has_own(part):
        sizes = scores.count if scores.examples is None else scores.examples
        there = sizes > 0
        loss = float(scores.loss[there] @ sizes[there]) / int(sizes.sum())
        accuracy = int(scores.right.sum()) / int(scores.count.sum())
        return _score(scores, loss, accuracy, scores.overall)
    each = scores.right / scores.count
    if _one(models):
        first = {name: values[0] for name, values in (scores.metrics or {}).items()}
        return _score(scores, float(scores.loss[0]), float(each[0]), first)
    p = problem.fleet.p
    means = {name: _mean(p, values) for name, values in (scores.metrics or {}).items()}
    return _score(scores, float(p @ scores.loss), float(p @ each), means)


def _score(scores: NodeScores, loss: float, accuracy: float, metrics: Figures | None) -> Score:
    """Return a score with an accuracy and metrics where there are any."""
    shown = metrics if scores.metrics is not None else None
    return Score(loss, accuracy if scores.has_accuracy else None, metrics=shown)


def _mean(p: Floats, values: Sequence[float | None]) -> float | None:
    """Mean of nodes' numbers by their data; None unless all have one.

    >>> _mean(np.array([0.75, 0.25]), [1.0, 3.0]), _mean(np.ones(2) / 2, [1.0, None])
    (1.5, None)
    """
    known = [value for value in values if value is not None]
    return float(p @ np.array(known)) if len(known) == len(values) else None


def node_spread(scores: NodeScores) -> dict[str, float]:
    """Mean, standard deviation and worst tenth of the accuracies of nodes with test examples.

    Of a task without an accuracy it is the mean of their losses.

    >>> scores = NodeScores(np.zeros(3), np.array([1, 0, 2]), np.array([2, 0, 2]))
    >>> node_spread(scores)
    {'node_mean': 0.75, 'node_sd': 0.25, 'node_worst': 0.5}
    """
    there = scores.count > 0
    if not scores.has_accuracy:
        return {"node_loss": float(scores.loss[there].mean())}
    found = np.sort(scores.right[there] / scores.count[there])
    spread = (found - found[0]).std()  # 0 where all are equal, whatever their mean rounds to
    figures = {"node_mean": found.mean(), "node_sd": spread, "node_worst": worst_of(found)}
    return {name: float(value) for name, value in figures.items()}


def worst_of(found: Floats) -> float:
    """Mean of the worst tenth of accuracies, which rise; of one at least.

    >>> worst_of(np.arange(20) / 20)
    0.025
    """
    return float(found[: max(1, len(found) // WORST)].mean())


def _by_class(
    problem: Problem, models: Models, scores: Score | NodeScores
) -> list[float | None] | None:
    """Test accuracy of every class, None of one that is not tested; None if nobody counted.

    Of several models: over all nodes' test examples or, where these are pooled, nodes by their
    data.
    """
    if scores.class_right is None or scores.class_count is None:
        return None
    right = scores.class_right.astype(np.float64)
    if right.ndim > 1:  # [models, classes]
        mass = np.bincount(distinct(models)[1], weights=problem.fleet.p)
        right = (mass / mass.sum() if len(mass) > 1 else np.ones(1)) @ right
    return [float(r / c) if c else None for r, c in zip(right, scores.class_count, strict=True)]


def gradients_at(problem: Problem, models: Models, t: int) -> Gradients | None:
    """Losses and gradients at the global model, which must be numbers to plan with.

    None where the planner is shown no gradients: products of every two of 100,000 take 80 GB.
    """
    if problem.view.needs != "gradients":
        _check_losses(problem.engine.losses(models.w[:1])[:, 0], t)
        return None
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
