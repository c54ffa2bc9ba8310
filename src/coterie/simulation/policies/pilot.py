"""Choosing groups and schedule on the way: a pilot, a first choice, and others when it pays."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from coterie.core.arrays import Ints
from coterie.core.errors import GroupingError
from coterie.engine.contract import Models
from coterie.grouping import Evidence, Planner
from coterie.grouping.objective import Objective
from coterie.simulation.fleet import Averaging
from coterie.simulation.forecast import (
    AGAIN,
    BETTER,
    PILOT,
    Expected,
    Forecast,
    Look,
    Option,
    Outlook,
    Tuned,
    Tuning,
    affordable,
)
from coterie.simulation.measuring import gradients_at, row_after
from coterie.simulation.pace import costs
from coterie.simulation.planning import evidence_for, evidence_upload, plan
from coterie.simulation.policies.given import begun
from coterie.simulation.problem import Problem
from coterie.simulation.progress import Round
from coterie.simulation.schedule import Event, Schedule
from coterie.simulation.state import Plan, State, Turn

PILOT_STEPS = sum(PILOT)
DRAWS = 5  # of who takes part, to price means by


@dataclass(frozen=True, eq=False)
class Choice:
    """What a pilot led to: all forecasts, the soonest first, the chosen one and its groups."""

    outlook: Outlook
    forecasts: list[Forecast]
    chosen: Forecast  # with its range
    groups: Averaging
    left_out: tuple[str, ...]  # numbers of groups that limits exclude, and why
    spent_bytes: float  # by the pilot


@dataclass(frozen=True)
class Pilot:
    """After a few rounds of several lengths, take what is forecast to reach the target soonest."""

    tuning: Tuning
    planners: tuple[Planner, ...] = ()  # to try besides the problem's own
    told: Callable[[Choice], None] = lambda choice: None  # what the pilot led to
    searches: bool = True

    def begin(self, problem: Problem, models: Models) -> State:
        """Begin the pilot."""
        s = begun(problem, models, Plan(in_pilot(0)), loss=True)
        assert s.row.train_loss is not None  # asked for
        return replace(s, plan=Plan(in_pilot(0), None, Tuned(first_loss=s.row.train_loss)))

    def after(self, problem: Problem, s: State, turn: Turn) -> State:
        """Look at every global mean: in the pilot for the first choice, then for a better one."""
        if turn.scope is not Event.GLOBAL:
            return s
        s = replace(s, row=row_after(problem, s, turn, due=True, loss=True))
        assert s.tuned is not None  # from the beginning
        tuned = seen(s.tuned, s.plan.schedule, s.t, s.row.train_loss, self._accuracy(problem, s))
        if s.groups is not None:
            now = Plan(s.plan.schedule, s.groups, tuned)
            return replace(s, plan=again(problem, self.tuning, now, s.clock.bytes))
        if s.t < PILOT_STEPS:
            return replace(s, plan=Plan(in_pilot(s.t), None, tuned))
        shown = evidence_for(problem, gradients_at(problem, s.models, s.t), 0)
        s = replace(s, clock=s.clock.after("grouping", 0.0, evidence_upload(problem)))
        choice = choose(problem, self, tuned, shown, s.clock.bytes)
        self.told(choice)
        s = replace(s, plan=first(tuned, choice, s.clock.seconds))
        return replace(s, row=row_after(problem, s, turn, due=True, loss=True))

    def _accuracy(self, problem: Problem, s: State) -> float:
        """Return the accuracy that a run is tuned by: on the validation part, if on any."""
        if not self.tuning.target_accuracy:
            return 0.0
        return problem.engine.evaluate(s.models.w[0], "val").accuracy or 0.0


def in_pilot(t: int) -> Schedule:
    """Return the schedule of the pilot's round after step t.

    >>> [in_pilot(t).next_aggregation(t, 99)[0] for t in (0, 1, 6)]
    [1, 6, 7]
    """
    start = 0
    for steps in PILOT:
        if t < start + steps:
            break
        start += steps
    return Schedule(steps, 1, start)


def seen(tuned: Tuned, schedule: Schedule, t: int, loss: float | None, accuracy: float) -> Tuned:
    """Add what was measured at a global mean, step t."""
    assert loss is not None  # every global mean of such a run is measured
    start = tuned.looks[-1].round.stop if tuned.looks else 0
    tau1 = min(schedule.tau1, t - start)
    tau2 = (t - start) // tau1
    if tau1 * tau2 != t - start:  # the last round of all may be cut short
        tau1, tau2 = t - start, 1
    look = Look(Round(start, tau1, tau2, tuned.ratio), loss, accuracy)
    return replace(tuned, looks=(*tuned.looks, look))


def choose(
    problem: Problem, pilot: Pilot, tuned: Tuned, shown: Evidence, spent_bytes: float
) -> Choice:
    """Search groups for every number of them, and take what is forecast to be soonest."""
    tuning = pilot.tuning
    outlook = _outlook(problem, tuning, tuned)
    apart = _divergence(shown, np.arange(problem.fleet.n))
    found: list[Averaging] = []
    left_out: list[str] = []
    for K in tuning.num_groups:
        groups, why_not = _searched(problem, pilot, replace(shown, num_groups=K))
        found += [one for one in groups if not any(_same(one, other) for other in found)]
        left_out += [f"{K} groups: {why_not}"] if not groups else []
    if not found:
        raise GroupingError(f"no number of groups can be had; {'; '.join(left_out)}")
    ratios = [_divergence(shown, one.grouping.z) / apart if apart else 0.0 for one in found]
    options = [
        _option(problem, one, ratio, at)
        for at, (one, ratio) in enumerate(zip(found, ratios, strict=True))
    ]
    forecasts = outlook.forecasts(options)
    best = affordable(forecasts, tuning.max_bytes, spent_bytes)[0]
    chosen = outlook.of(best.option, best.tau1, best.tau2)
    return Choice(outlook, forecasts, chosen, found[best.option.at], tuple(left_out), spent_bytes)


def first(tuned: Tuned, choice: Choice, seconds: float) -> Plan[Averaging]:
    """Return the plan that was chosen, from now on."""
    c = choice.chosen
    tuned = replace(tuned, ratio=c.option.ratio, expected=expected(choice, seconds))
    return _taken(choice.groups, tuned, c, choice.outlook.t)


def expected(choice: Choice, seconds: float) -> Expected:
    """Return what the chosen one is to reach, and when, after a pilot of so many seconds."""
    c = choice.chosen
    when, low, high = (seconds + after for after in (c.seconds, c.low_s, c.high_s))
    return Expected(when, low, high, c.loss, c.accuracy)


def again(
    problem: Problem, tuning: Tuning, plan: Plan[Averaging], spent_bytes: float
) -> Plan[Averaging]:
    """Return a plan with another schedule where that is forecast to be sooner by some percent."""
    now, groups, tuned = plan.schedule, plan.groups, plan.memory
    assert groups is not None and isinstance(tuned, Tuned)  # the pilot is over
    t = tuned.looks[-1].round.stop
    if not tuning.again or t < AGAIN * tuned.looked_at or t >= problem.steps:
        return plan
    outlook = _outlook(problem, tuning, tuned)
    option = _option(problem, groups, tuned.ratio)
    stay = outlook.of(option, now.tau1, now.tau2 if option.num_groups > 1 else 1)
    room = max(tuning.max_bytes - spent_bytes, stay.bytes)
    best = next(f for f in outlook.forecasts([option]) if f.bytes <= room)
    sooner = best.seconds + best.high_s < BETTER * (stay.seconds + stay.high_s)
    same = (best.tau1, best.tau2) == (now.tau1, now.tau2)
    if sooner and not same:
        return _taken(groups, tuned, best, t)
    return replace(plan, memory=replace(tuned, looked_at=t))


def _taken(groups: Averaging, tuned: Tuned, forecast: Forecast, t: int) -> Plan[Averaging]:
    tau1, tau2 = forecast.tau1, forecast.tau2
    changes = (*tuned.changes, (t, tau1, tau2))
    return Plan(Schedule(tau1, tau2, t), groups, replace(tuned, looked_at=t, changes=changes))


def _outlook(problem: Problem, tuning: Tuning, tuned: Tuned) -> Outlook:
    step_s, mean_s, mean_bytes = _costs(problem, problem.everyone)
    return Outlook(tuning, tuned.looks, tuned.first_loss, step_s, mean_s, mean_bytes)


def _searched(problem: Problem, pilot: Pilot, shown: Evidence) -> tuple[list[Averaging], str]:
    """Return groupings into K groups by every planner that has one, and why another has none."""
    if shown.num_groups == 1:
        return [problem.everyone], ""
    found: list[Averaging] = []
    why_not = ""
    for planner in (problem.planner, *pilot.planners):
        try:
            found.append(plan(problem, shown, planner=planner))
        except GroupingError as error:
            why_not = str(error)
    return found, why_not


def _same(one: Averaging, other: Averaging) -> bool:
    a, b = one.grouping, other.grouping
    return np.array_equal(a.z, b.z) and np.array_equal(a.servers, b.servers)


def _option(problem: Problem, groups: Averaging, ratio: float, at: int = 0) -> Option:
    _, mean_s, mean_bytes = _costs(problem, groups)
    return Option(len(groups.grouping.sizes), ratio, mean_s, mean_bytes, at)


def _costs(problem: Problem, groups: Averaging) -> tuple[float, float, float]:
    """Seconds of a step and of a mean, and bytes of a mean; on average where some are missing."""
    draws = 1 if problem.participation.full else DRAWS
    drawn = [costs(problem, groups, groups.grouping.z, t, 1) for t in range(1, draws + 1)]
    step_s = float(np.mean([compute_s for _, compute_s, _ in drawn]))
    mean_s = float(np.mean([transfer.seconds for *_, transfer in drawn]))
    sent = [float(sum(transfer.bytes_by_tier.values())) for *_, transfer in drawn]
    return step_s, mean_s, float(np.mean(sent))


def _divergence(shown: Evidence, z: Ints) -> float:
    """Return Delta of groups, or what it is for random ones where nodes show nothing."""
    if shown.gram is None and shown.sketch is None and shown.label_counts is None:
        return float(np.sqrt(z.max() / max(len(z) - 1, 1)))
    return Objective(shown).divergence(z)
