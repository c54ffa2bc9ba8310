"""Algorithm 1: advance to the next aggregation, average, let the clock move, and plan."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from coterie.clock import Clock
from coterie.costs import Floats, Ints, divergence
from coterie.engine import Engine, Gradients, Models
from coterie.errors import DivergenceError
from coterie.grouping import Delays, Evidence, Grouping, Planner, check_grouping
from coterie.grouping.baselines import single
from coterie.grouping.objective import Objective
from coterie.network import Network, Transfer
from coterie.planning import Planned, Regroup, View
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
    plans_with: Network | None = None  # a quicker clock to plan by, where the network's is slow
    view: View = field(default_factory=View)  # what the planner sees, and what that costs
    regroup: Regroup = field(default_factory=Regroup)
    eval_every: int = 1  # measure every so many global means

    @cached_property
    def everyone(self) -> "Averaging":
        """The global aggregation: all nodes, with the global server in their middle."""
        bare = Evidence(1, self.p, self.edge_of, self.network.topology)
        return averaging(self, single(bare, np.random.default_rng(0)))


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
    planned: Planned | None = None


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
        groups, planned, found = s.groups, s.planned, None
        if event is Event.GLOBAL and _looks(problem, planned, t):  # lines 13-15
            found = _gradients(problem, models, t)
            upload = _evidence_upload(problem, everyone.grouping)
            clock = clock.after("grouping", 0.0, upload)
            shown = _evidence(problem, found, t if groups else 0)
            if groups is None or _drifted(problem, groups, planned, shown, t):
                groups = _plan(problem, shown, t if groups else 0)
                planned = Planned(t, Objective(shown).divergence(groups.grouping.z))
        row = _row(problem, t, event, models, groups, clock, found)
        s = State(t, models, groups, clock, row, planned)
        yield s


def _looks(problem: Problem, planned: Planned | None, t: int) -> bool:
    """Whether nodes show their data at the global mean t: before the first plan, or another."""
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
    models = problem.engine.initial()
    groups = None if problem.searched else _plan(problem, _evidence(problem, None, 0))
    row = _row(problem, 0, "start", models, groups, Clock(), None)
    return State(0, models, groups, Clock(), row)


def _plan(problem: Problem, evidence: Evidence, t: int = 0) -> Averaging:
    """Ask the planner; its random choices depend on the seed, and later also on when it is."""
    rng = np.random.default_rng([problem.seed, 0, PLAN_STREAM, *([t] if t else [])])
    grouping = check_grouping(problem.planner(evidence, rng), len(problem.p), evidence.places)
    return averaging(problem, grouping)


def first_evidence(problem: Problem) -> Evidence:
    """Return what the planner sees at the first global mean, after one step."""
    everyone = problem.everyone.grouping
    models = problem.engine.advance(problem.engine.initial(), 0, 1, everyone.z)
    return _evidence(problem, _gradients(problem, models, 1), 0)


def _evidence(problem: Problem, found: Gradients | None, t: int) -> Evidence:
    whole, quick = problem.everyone, problem.plans_with
    if quick is not None:
        whole = averaging(replace(problem, network=quick), whole.grouping)
    delays = Delays(
        quick or problem.network,
        problem.model_bytes,
        problem.schedule.tau2,
        whole.transfer.seconds,
    )
    num_groups = min(problem.num_groups, len(problem.p))
    topology = problem.network.topology
    bare = Evidence(num_groups, problem.p, problem.edge_of, topology, delays=delays)
    return problem.view.of(bare, found, problem.seed, t)


def averaging(problem: Problem, grouping: Grouping) -> Averaging:
    """Return a grouping and what its mean costs."""
    z, servers = grouping.z, grouping.servers
    return Averaging(grouping, problem.network.aggregation(z, servers, problem.model_bytes))


def _evidence_upload(problem: Problem, everyone: Grouping) -> Transfer:
    if not problem.view.charged_bytes:
        return Transfer(0.0, {})
    each = replace(
        problem.network, combine=False
    )  # a mean would not do: the planner compares nodes
    return each.upload(everyone.z, everyone.servers, problem.view.charged_bytes)


def _gradients(problem: Problem, models: Models, t: int) -> Gradients:
    """Losses and gradients at the global model, which must be numbers to plan or measure with."""
    found = problem.engine.gradients(models.w[0], problem.view.sketch)
    bad = np.flatnonzero(~np.isfinite(found.losses))
    if len(bad):
        _diverged(f"loss is {found.losses[bad[0]]} on node {bad[0]}", t)
    if not np.isfinite(found.gram).all():
        _diverged("gradient is not finite", t)
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
