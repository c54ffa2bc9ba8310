"""Choosing groups and schedule on the way: a pilot, a first choice, and others when it pays."""

from dataclasses import dataclass, replace

import numpy as np

from coterie.core.arrays import Ints
from coterie.core.errors import GroupingError
from coterie.grouping import Evidence
from coterie.grouping.objective import Objective
from coterie.network import Transfer
from coterie.simulate.forecast import (
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
from coterie.simulate.problem import Averaging, Problem, plan
from coterie.simulate.progress import Round
from coterie.simulate.schedule import Schedule

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


def choose(problem: Problem, tuned: Tuned, shown: Evidence, spent_bytes: float) -> Choice:
    """Search groups for every number of them, and take what is forecast to be soonest."""
    tuning = _tuning(problem)
    outlook = _outlook(problem, tuned)
    apart = _divergence(shown, np.arange(len(problem.p)))
    found: list[Averaging] = []
    left_out: list[str] = []
    for K in tuning.num_groups:
        groups, why_not = _searched(problem, replace(shown, num_groups=K))
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


def first(tuned: Tuned, choice: Choice, seconds: float) -> Tuned:
    """Return the schedule that was chosen, from now on."""
    c = choice.chosen
    tuned = replace(tuned, ratio=c.option.ratio, expected=expected(choice, seconds))
    return _taken(tuned, c, choice.outlook.t)


def expected(choice: Choice, seconds: float) -> Expected:
    """Return what the chosen one is to reach, and when, after a pilot of so many seconds."""
    c = choice.chosen
    when, low, high = (seconds + after for after in (c.seconds, c.low_s, c.high_s))
    return Expected(when, low, high, c.loss, choice.outlook.accuracy(c))


def again(problem: Problem, tuned: Tuned, groups: Averaging, spent_bytes: float) -> Tuned:
    """Return another schedule where that is forecast to be sooner by some percent."""
    tuning, t = _tuning(problem), tuned.looks[-1].round.stop
    now = tuned.schedule
    assert now is not None  # the pilot is over
    if not tuning.again or t < AGAIN * tuned.looked_at or t >= problem.steps:
        return tuned
    outlook = _outlook(problem, tuned)
    option = _option(problem, groups, tuned.ratio)
    stay = outlook.of(option, now.tau1, now.tau2 if option.num_groups > 1 else 1)
    room = max(tuning.max_bytes - spent_bytes, stay.bytes)
    best = next(f for f in outlook.forecasts([option]) if f.bytes <= room)
    sooner = best.seconds + best.high_s < BETTER * (stay.seconds + stay.high_s)
    same = (best.tau1, best.tau2) == (now.tau1, now.tau2)
    return _taken(tuned, best, t) if sooner and not same else replace(tuned, looked_at=t)


def _taken(tuned: Tuned, forecast: Forecast, t: int) -> Tuned:
    tau1, tau2 = forecast.tau1, forecast.tau2
    changes = (*tuned.changes, (t, tau1, tau2))
    return replace(tuned, schedule=Schedule(tau1, tau2, t), looked_at=t, changes=changes)


def _tuning(problem: Problem) -> Tuning:
    assert problem.tuning is not None  # asked of runs with something open only
    return problem.tuning


def _outlook(problem: Problem, tuned: Tuned) -> Outlook:
    step_s, mean_s, mean_bytes = _costs(problem, problem.everyone)
    return Outlook(_tuning(problem), tuned.looks, tuned.first_loss, step_s, mean_s, mean_bytes)


def _searched(problem: Problem, shown: Evidence) -> tuple[list[Averaging], str]:
    """Return groupings into K groups by every planner that has one, and why another has none."""
    if shown.num_groups == 1:
        return [problem.everyone], ""
    found: list[Averaging] = []
    why_not = ""
    for planner in (problem.planner, *problem.planners):
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
    if problem.attendance.full:
        return problem.step_s, groups.transfer.seconds, _bytes(groups.transfer)
    g, each = groups.grouping, problem.node_step_s
    work_s = np.full(len(g.z), problem.step_s) if each is None else each
    steps, means, sent = [], [], []
    for t in range(1, DRAWS + 1):
        there = problem.attendance.at(t, g.z, work_s, problem.seed)
        transfer = problem.network.part(g.z, g.servers, groups.nbytes, there.asked, there.counted)
        steps.append(there.compute_s)
        means.append(transfer.seconds)
        sent.append(_bytes(transfer))
    return float(np.mean(steps)), float(np.mean(means)), float(np.mean(sent))


def _bytes(transfer: Transfer) -> float:
    return float(sum(transfer.bytes_by_tier.values()))


def _divergence(shown: Evidence, z: Ints) -> float:
    """Return Delta of groups, or what it is for random ones where nodes show nothing."""
    if shown.gram is None and shown.sketch is None and shown.label_counts is None:
        return float(np.sqrt(z.max() / max(len(z) - 1, 1)))
    return Objective(shown).divergence(z)
