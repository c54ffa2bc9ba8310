"""Algorithm 1: advance to the next aggregation, average, let the clock move, and plan once."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from coterie.clock import Clock
from coterie.costs import Floats, Ints, divergence
from coterie.engine import Engine, Gradients, Models
from coterie.errors import DivergenceError
from coterie.grouping import Evidence, Grouping, Planner, check_grouping
from coterie.grouping.baselines import single
from coterie.network import Network, Transfer
from coterie.schedule import Event, Schedule

# Streams of the seed are (seed, 0, number); a node's batches at step t >= 1 are (seed, t, node).
PLAN_STREAM = 1


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a run is made of; n nodes with shares p [n] under edges edge_of [n]."""

    engine: Engine
    network: Network
    p: Floats
    edge_of: Ints
    planner: Planner
    schedule: Schedule
    steps: int  # T
    num_groups: int  # K
    model_bytes: int
    step_s: float  # simulated seconds of one local step
    epochs_per_step: float
    seed: int
    searched: bool = False  # plan at the first global mean, on the gradients there
    shows_gradients: bool = True  # whether the planner sees them
    charged_bytes: int = 0  # what each node uploads for the planner
    eval_every: int = 1  # measure every so many global means

    @cached_property
    def everyone(self) -> "Averaging":
        """The global aggregation: all nodes, with the global server in their middle."""
        return _averaging(self, single(_evidence(self, None), np.random.default_rng(0)))


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


@dataclass(frozen=True, eq=False)
class Averaging:
    """Who is averaged with whom, and the transfer that takes: models up, their mean down."""

    grouping: Grouping
    transfer: Transfer


@dataclass(frozen=True, eq=False)
class State:
    """Where a run is after step t: enough to go on from, and the row it just earned."""

    t: int
    models: Models
    groups: Averaging | None  # None until planned
    clock: Clock
    row: Row


def rounds(problem: Problem, state: State | None = None) -> Iterator[State]:
    """Run Algorithm 1 from its start, or from a state; yield the state after each aggregation."""
    everyone = problem.everyone
    s = state or _start(problem)
    if state is None:
        yield s
    while s.t < problem.steps:
        schedule = problem.schedule if s.groups else Schedule(1, 1)
        t, event = schedule.next_aggregation(s.t, problem.steps)
        who = s.groups if s.groups and event is Event.GROUP else everyone
        models = problem.engine.advance(s.models, s.t, t, who.grouping.z)  # lines 4-12
        clock = s.clock.after(event, (t - s.t) * problem.step_s, who.transfer)
        groups, found = s.groups, None
        if event is Event.GLOBAL and groups is None:  # lines 13-15
            found = _gradients(problem, models, t)
            groups = _plan(problem, found.gram if problem.shows_gradients else None)
            clock = clock.after("grouping", 0.0, _evidence_upload(problem, everyone.grouping))
        row = _row(problem, t, event, models, groups, clock, found)
        s = State(t, models, groups, clock, row)
        yield s


def _start(problem: Problem) -> State:
    """Lines 1-2: one random model everywhere; groups that need no gradients are planned here."""
    models = problem.engine.initial()
    groups = None if problem.searched else _plan(problem, None)
    row = _row(problem, 0, "start", models, groups, Clock(), None)
    return State(0, models, groups, Clock(), row)


def _plan(problem: Problem, gram: Floats | None) -> Averaging:
    rng = np.random.default_rng([problem.seed, 0, PLAN_STREAM])
    grouping = problem.planner(_evidence(problem, gram), rng)
    places = problem.network.topology.place_vertices
    return _averaging(problem, check_grouping(grouping, len(problem.p), places))


def _averaging(problem: Problem, grouping: Grouping) -> Averaging:
    z, servers = grouping.z, grouping.servers
    return Averaging(grouping, problem.network.aggregation(z, servers, problem.model_bytes))


def _evidence(problem: Problem, gram: Floats | None) -> Evidence:
    num_groups = min(problem.num_groups, len(problem.p))
    return Evidence(num_groups, problem.p, problem.edge_of, problem.network.topology, gram)


def _evidence_upload(problem: Problem, everyone: Grouping) -> Transfer:
    if not problem.charged_bytes:
        return Transfer(0.0, {})
    each = replace(
        problem.network, combine=False
    )  # a mean would not do: the planner compares nodes
    return each.upload(everyone.z, everyone.servers, problem.charged_bytes)


def _gradients(problem: Problem, models: Models, t: int) -> Gradients:
    """Losses and gradients at the global model, which must be numbers to plan or measure with."""
    found = problem.engine.gradients(models.w[0])
    bad = found.losses[~np.isfinite(found.losses)]
    if len(bad) or not np.isfinite(found.gram).all():
        _diverged(f"loss is {bad[0]}" if len(bad) else "gradient is not finite", t)
    return found


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
    found: Gradients | None,
) -> Row:
    """Measure what is due: at the start, at the end, at the planning, and every eval_every."""
    rounds_done = t // (problem.schedule.tau1 * problem.schedule.tau2)
    due = event != Event.GROUP and rounds_done % problem.eval_every == 0
    loss = score = apart = None
    if due or found is not None or t == problem.steps:
        found = found or _gradients(problem, models, t)
        loss = float(problem.p @ found.losses)
        score = problem.engine.evaluate(models.w[0], "test")
        if not math.isfinite(score.loss):
            _diverged(f"loss is {score.loss}", t)
        if groups is not None:
            apart = divergence(found.gram, problem.p, groups.grouping.z)
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
