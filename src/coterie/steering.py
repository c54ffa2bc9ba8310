"""Choosing groups and schedule on the way: a pilot, a first choice, and others when it pays."""

from dataclasses import dataclass, replace

import numpy as np

from coterie.costs import Ints
from coterie.errors import GroupingError
from coterie.grouping import Evidence
from coterie.grouping.objective import Objective
from coterie.network import Transfer
from coterie.problem import Averaging, Problem, plan
from coterie.schedule import Schedule
from coterie.theory.progress import Round
from coterie.tuning import (
    AGAIN,
    BETTER,
    PILOT,
    Forecast,
    Look,
    Option,
    Outlook,
    Tuned,
    Tuning,
    affordable,
)

PILOT_STEPS = sum(PILOT)


@dataclass(frozen=True, eq=False)
class Choice:
    """What a pilot led to: all forecasts, the soonest first, the chosen one and its groups."""

    outlook: Outlook
    forecasts: list[Forecast]
    chosen: Forecast  # with its range
    groups: Averaging
    left_out: tuple[str, ...]  # numbers of groups that limits exclude, and why


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


def seen(
    tuned: Tuned, schedule: Schedule, t: int, loss: float | None, accuracy: float | None
) -> Tuned:
    """Add what was measured at a global mean, step t."""
    assert loss is not None  # every global mean of such a run is measured
    assert accuracy is not None
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
    options: list[Option] = []
    found: list[Averaging] = []
    left_out: list[str] = []
    for K in tuning.num_groups:
        try:
            groups = _searched(problem, replace(shown, num_groups=K))
        except GroupingError as error:
            left_out.append(f"{K} groups: {error}")
            continue
        for one in groups:
            ratio = _divergence(shown, one.grouping.z) / apart if apart else 0.0
            options.append(_option(one, ratio, len(found)))
            found.append(one)
    if not options:
        raise GroupingError(f"no number of groups can be had; {'; '.join(left_out)}")
    forecasts = outlook.forecasts(options)
    best = affordable(forecasts, tuning.max_bytes, spent_bytes)[0]
    chosen = outlook.of(best.option, best.tau1, best.tau2)
    return Choice(outlook, forecasts, chosen, found[best.option.at], tuple(left_out))


def first(tuned: Tuned, choice: Choice, seconds: float) -> Tuned:
    """Return the schedule that was chosen, from now on."""
    t = choice.outlook.t
    return _going(replace(tuned, ratio=choice.chosen.option.ratio), choice.chosen, t, seconds)


def again(problem: Problem, tuned: Tuned, groups: Averaging, seconds: float) -> Tuned:
    """Return another schedule where that is forecast to be sooner by some percent."""
    tuning, t = _tuning(problem), tuned.looks[-1].round.stop
    now = tuned.schedule
    assert now is not None  # the pilot is over
    if not tuning.again or t < AGAIN * tuned.chosen_at or t >= problem.steps:
        return tuned
    outlook = _outlook(problem, tuned)
    option = _option(groups, tuned.ratio)
    best = outlook.forecasts([option])[0]
    stay = outlook.of(option, now.tau1, now.tau2 if option.num_groups > 1 else 1)
    if best.seconds + best.high_s >= BETTER * (stay.seconds + stay.high_s):
        return replace(_going(tuned, stay, t, seconds), schedule=now)
    return _going(tuned, outlook.of(option, best.tau1, best.tau2), t, seconds)


def _going(tuned: Tuned, forecast: Forecast, t: int, seconds: float) -> Tuned:
    never = None if np.isfinite(forecast.seconds) else forecast.loss
    return replace(
        tuned,
        schedule=Schedule(forecast.tau1, forecast.tau2, t),
        chosen_at=t,
        forecast_s=None if never else seconds + forecast.seconds,
        range_s=None if never else (seconds + forecast.low_s, seconds + forecast.high_s),
        never=never,
    )


def _tuning(problem: Problem) -> Tuning:
    assert problem.tuning is not None  # asked of runs with something open only
    return problem.tuning


def _outlook(problem: Problem, tuned: Tuned) -> Outlook:
    whole = problem.everyone.transfer
    return Outlook(
        _tuning(problem),
        tuned.looks,
        tuned.first_loss,
        problem.step_s,
        whole.seconds,
        _bytes(whole),
    )


def _searched(problem: Problem, shown: Evidence) -> list[Averaging]:
    """Return groupings into K groups by every planner, each once."""
    if shown.num_groups == 1:
        return [problem.everyone]
    found: list[Averaging] = []
    for planner in (problem.planner, *problem.planners):
        one = plan(problem, shown, planner=planner)
        if not any(np.array_equal(one.grouping.z, other.grouping.z) for other in found):
            found.append(one)
    return found


def _option(groups: Averaging, ratio: float, at: int = 0) -> Option:
    transfer = groups.transfer
    return Option(len(groups.grouping.sizes), ratio, transfer.seconds, _bytes(transfer), at)


def _bytes(transfer: Transfer) -> float:
    return float(sum(transfer.bytes_by_tier.values()))


def _divergence(shown: Evidence, z: Ints) -> float:
    """Return Delta of groups, or what it is for random ones where nodes show nothing."""
    if shown.gram is None and shown.sketch is None and shown.label_counts is None:
        return float(np.sqrt(z.max() / max(len(z) - 1, 1)))
    return Objective(shown).divergence(z)
