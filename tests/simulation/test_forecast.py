"""Groups and schedule that a run chooses itself: forecasts, the pilot, and what is refused."""

import json
import math
import re
import shutil
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.analysis.compare import compare
from coterie.analysis.lines import arrange
from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.core.arrays import Floats
from coterie.core.errors import ConfigError, CoterieError
from coterie.render.page.pagedata import page_data
from coterie.runs.execute import execute
from coterie.runs.record import read_run
from coterie.runs.retime import retime
from coterie.simulation.forecast import Look, Option, Outlook, Tuned, Tuning
from coterie.simulation.loop import first_evidence, piloted, rounds
from coterie.simulation.policies.pilot import PILOT_STEPS, Pilot, again, choose, seen
from coterie.simulation.progress import Curve, History, Round, worth
from coterie.simulation.schedule import Schedule
from coterie.simulation.state import Plan, State
from recorded import recorded
from resuming import TINY, outcome, stopped_at

ALONE = Option(1, 0.0, 1.0, 1e6)
AUTO = {"name": "fedavg-ic", "num_groups": "auto", "tau1": "auto", "tau2": "auto"}
RATES: Floats = np.array([0.1 * 0.99**t for t in range(200)])


def auto(steps: int = 40, **algorithm: object) -> Any:
    return make_config(
        {**TINY, "algorithm": {**AUTO, "shakes": 0, **algorithm}, "train": {"steps": steps}}
    )


def states_of(config: Any) -> list[State]:
    return list(rounds(prepare(config).problem))


@dataclass(frozen=True)
class Ran:
    folder: Path
    states: list[State]
    said: list[str]


def ran(config: Any, folder: Path) -> Ran:
    states: list[State] = []
    said: list[str] = []
    execute(config, folder, on_state=states.append, say=said.append)
    return Ran(folder, states, said)


@pytest.fixture(scope="module")
def chose(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(auto(), tmp_path_factory.mktemp("chose") / "run")


@pytest.fixture(scope="module")
def out_of_reach(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(auto(target_loss=0.001), tmp_path_factory.mktemp("never") / "run")


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=20), st.floats(0.01, 10.0))
def test_steps_are_worth_at_most_their_rates_and_the_first_is_worth_all(
    rates: list[float], reach: float
) -> None:
    made = [float(worth(rates[: n + 1], reach)) for n in range(len(rates))]
    assert made[0] == pytest.approx(rates[0])
    assert all(
        0 <= b - a <= rate + 1e-12 for (a, b), rate in zip(pairwise(made), rates[1:], strict=True)
    )
    assert float(worth(rates, math.inf)) == pytest.approx(sum(rates))


def test_groups_that_are_alike_lose_nothing_and_others_do() -> None:
    local = float(Round(0, 2, 1).worth(RATES, 0.07))
    next_local = float(Round(2, 2, 1).worth(RATES, 0.07))
    assert float(Round(0, 2, 2, 0.0).worth(RATES, 0.07)) == pytest.approx(local + next_local)
    assert float(Round(0, 2, 2, 1.0).worth(RATES, 0.07)) < local + 0.9 * next_local


@pytest.mark.parametrize("reach", [0.04, 0.07, 0.2])
@pytest.mark.parametrize("curve", [Curve(0.3, 2.0, 1.8), Curve(0.1, 2.2, 4.0)])
def test_a_pilot_is_enough_to_find_the_reach_that_made_it(reach: float, curve: Curve) -> None:
    made = (Round(0, 1, 1), Round(1, 5, 1), Round(6, 1, 1))
    u = History(RATES, made, ()).progress(reach)
    found = History(RATES, made, tuple(curve.loss(float(x)) for x in u)).fits[0]
    for tau in (2, 5, 10):
        told, true = (float(Round(7, tau, 1).worth(RATES, r)) for r in (found.reach, reach))
        assert abs(told - true) < 0.05 * RATES[7 : 7 + tau].sum()
    assert found.curve.loss(0.5) == pytest.approx(curve.loss(0.5), rel=0.02)


@pytest.mark.parametrize(
    "losses",
    [(2.3, 2.4, 2.5, 2.6), (2.3, 2.3, 2.3, 2.3), (0.0,) * 4, (2.3, 0.0, 0.0, 0.0), (1e6, 9, 5, 4)],
)
@pytest.mark.parametrize("target", [{}, {"target_loss": 0.5}, {"target_accuracy": 1.0}])
def test_whatever_a_pilot_shows_there_is_a_schedule(
    losses: tuple[float, ...], target: dict[str, Any]
) -> None:
    made = (Round(0, 1, 1), Round(1, 5, 1), Round(6, 1, 1))
    looks = tuple(Look(r, x, 1.0 - min(x, 5) / 5) for r, x in zip(made, losses[1:], strict=True))
    seen_so = Outlook(Tuning(RATES, **target), looks, losses[0], 0.01, 1.0, 1e6)
    best = seen_so.forecasts([ALONE, Option(5, 0.1, 0.1, 1e5)])[0]
    assert best.tau1 >= 1 and best.seconds >= 0


def outlook(reach: float = 0.07, **tuning: Any) -> Outlook:
    """A pilot of a known problem, whose global mean takes 1 s and a step 0.01."""
    curve, made = Curve(0.3, 2.0, 1.8), (Round(0, 1, 1), Round(1, 5, 1), Round(6, 1, 1))
    u = History(RATES, made, ()).progress(reach)
    losses = [curve.loss(float(x)) for x in u]
    looks = tuple(Look(r, loss, 1 - loss / 5) for r, loss in zip(made, losses[1:], strict=True))
    return Outlook(Tuning(RATES, **tuning), looks, losses[0], 0.01, 1.0, 1e6)


def test_where_means_cost_nothing_they_are_taken_after_every_step() -> None:
    free = replace(outlook(), global_s=0.0)
    assert (free.forecasts([ALONE])[0].tau1, free.forecasts([ALONE])[0].tau2) == (1, 1)


def test_dear_means_are_taken_seldom_and_cheap_groups_are_used() -> None:
    best = outlook().forecasts([ALONE])[0]
    assert best.tau1 > 1
    near = Option(5, 0.02, 0.05, 1e5)
    grouped = outlook().forecasts([ALONE, near])[0]
    assert grouped.option is near and grouped.tau2 > 1
    assert grouped.seconds < best.seconds
    apart = replace(near, ratio=1.0)  # as unlike as nodes are
    assert outlook().forecasts([apart])[0].seconds > grouped.seconds


def test_a_forecast_agrees_with_the_problem_that_it_was_made_of() -> None:
    look = outlook(target_loss=1.2)
    forecast = look.of(ALONE, 2, 1)
    u, t, n = look.so_far(look.fits[0].reach), 7, 0
    while Curve(0.3, 2.0, 1.8).loss(u) > 1.2:
        u += float(Round(t, 2, 1).worth(RATES, 0.07))
        t, n = t + 2, n + 1
    assert forecast.seconds == pytest.approx(n * 1.02, rel=0.15)
    assert forecast.low_s <= forecast.seconds <= forecast.high_s


def test_a_loss_that_no_schedule_reaches_is_never_forecast() -> None:
    best = outlook(target_loss=0.31).forecasts([ALONE])[0]
    assert best.seconds == math.inf
    assert 0.31 < best.loss < 1.0  # where it ends instead


def test_the_last_round_may_be_cut_short() -> None:
    tuned = Tuned(first_loss=2.0)
    tuned = seen(tuned, Schedule(3, 2, 0), 6, 1.9, 0.2)
    tuned = seen(tuned, Schedule(3, 2, 6), 10, 1.8, 0.3)
    assert [(r.round.start, r.round.tau1, r.round.tau2) for r in tuned.looks] == [
        (0, 3, 2),
        (6, 4, 1),
    ]


def taus(state: State) -> tuple[int, int]:
    return state.plan.schedule.tau1, state.plan.schedule.tau2


def test_a_run_has_a_pilot_then_groups_and_a_schedule(chose: Ran) -> None:
    states = chose.states
    ends = [s.t for s in states if s.row.event == "global"]
    assert ends[:3] == [1, 6, PILOT_STEPS]
    assert [s.t for s in states if s.groups is None] == [0, 1, 6]
    chosen = next(s for s in states if s.groups)
    assert chosen.tuned is not None and chosen.tuned.changes == ((7, *taus(chosen)),)
    assert chosen.clock.grouping_s > 0  # what nodes showed is charged, after the pilot's rounds
    assert states[-1].t == 40
    means = [s.row for s in states if s.row.event == "global"]
    assert all(row.train_loss is not None for row in means)


def test_what_is_given_is_kept_and_what_is_open_is_chosen() -> None:
    for state in states_of(auto(tau1=2, num_groups=3, retune=False))[4:]:
        assert state.plan.schedule.tau1 == 2
        assert len(state.groups.grouping.sizes) == 3  # type: ignore[union-attr]


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    config = auto(steps=25, num_groups=3, tau1="auto", tau2=3)
    execute(config, tmp_path / "whole")
    events = {row["t"]: row["event"] for row in read_run(tmp_path / "whole").rows}
    inside = max(t for t, event in events.items() if event == "group")
    for t in (6, 7, inside):
        said: list[str] = []
        stopped_at(t, config, tmp_path / f"at{t}")
        execute(config, tmp_path / f"at{t}", resume=True, say=said.append)
        assert outcome(tmp_path / f"at{t}") == outcome(tmp_path / "whole")
        assert said[0] == f"goes on from step {t}"
        assert sum(line.startswith("chose") for line in said) == (t < PILOT_STEPS)


def test_the_record_says_what_was_chosen_and_forecast(chose: Ran) -> None:
    said, run = chose.said, read_run(chose.folder)
    told = run.summary["tuned"]
    first, expected = told["schedules"][0], told["expected"]
    assert first["t"] == PILOT_STEPS
    assert expected["low_s"] <= expected["seconds"]
    assert len(said) == 1
    assert f"tau1 = {first['tau1']}, tau2 = {first['tau2']} after 7 steps" in said[0]
    with pytest.raises(CoterieError, match="chose its schedule by the clock"):
        retime(run, ["network.link_mbytes_per_s=1"])


def test_a_run_ends_with_the_schedules_it_went_by(tmp_path: Path) -> None:
    said: list[str] = []
    execute(auto(120), tmp_path, say=said.append)
    first, second = read_run(tmp_path).summary["tuned"]["schedules"]
    assert first != second
    steps = [f"({s['tau1']}, {s['tau2']}) from step {s['t']}" for s in (first, second)]
    assert said[-1] == f"went by tau1 and tau2 of {', '.join(steps)}"


def test_a_first_step_that_gains_little_does_not_spoil_the_curve() -> None:
    rounds = (Round(0, 1, 1), Round(1, 5, 1), Round(6, 1, 1))
    true, reach = Curve(0.3, 2.0, 8.0), 0.07
    u = History(RATES, rounds, (2.3,) * 4).progress(reach)
    plain = [true.loss(float(x)) for x in u]
    slow = [plain[1] + 0.4 * (plain[0] - plain[1]), *plain[1:]]
    assert not History(RATES, rounds, tuple(plain)).starts_slowly
    found = History(RATES, rounds, tuple(slow))
    assert found.starts_slowly
    assert found.fits[0].reach == pytest.approx(reach, rel=0.2)
    assert found.fits[0].curve.scale == pytest.approx(true.scale, rel=0.2)


def test_an_accuracy_out_of_reach_leads_to_what_is_soon_by_loss() -> None:
    losses, accuracies = (2.2, 2.1, 2.06), (0.12, 0.15, 0.16)
    rounds = (Round(0, 1, 1), Round(1, 5, 1), Round(6, 1, 1))
    looks = tuple(Look(*row) for row in zip(rounds, losses, accuracies, strict=True))
    options = [ALONE, Option(5, 0.01, 0.2, 1e6, 1)]
    wants = Tuning(RATES, target_accuracy=0.99)
    by_accuracy = Outlook(wants, looks, 2.3, 0.001, 1.0, 1e6).forecasts(options)
    by_loss = Outlook(replace(wants, target_accuracy=0.0), looks, 2.3, 0.001, 1.0, 1e6)
    assert all(math.isinf(f.seconds) for f in by_accuracy)
    first, expected = by_accuracy[0], by_loss.forecasts(options)[0]
    assert (first.option, first.tau1, first.tau2) == (expected.option, expected.tau1, expected.tau2)


def test_a_forecast_is_near_what_happens_and_its_range_is_no_point() -> None:
    config = auto(steps=80, target_loss=1.3, retune=False)
    states = states_of(config)
    expected = states[-1].tuned.expected  # type: ignore[union-attr]
    assert expected is not None
    assert expected.low_s < 0.98 * expected.seconds < expected.high_s
    true = next(s.row.seconds for s in states if (s.row.train_loss or 9.0) <= 1.3)
    assert expected.low_s <= true <= expected.high_s


def test_as_rates_fall_steps_between_means_become_more() -> None:
    config = auto(steps=120, num_groups=1)
    state = states_of(replace(config, train=replace(config.train, lr_decay=0.96)))[-1]
    assert state.tuned is not None
    taus = [tau1 for _, tau1, _ in state.tuned.changes]
    assert taus[-1] > taus[0]
    assert [t for t, _, _ in state.tuned.changes] == sorted({t for t, _, _ in state.tuned.changes})


def test_another_schedule_keeps_to_the_bytes_too() -> None:
    problem = prepare(auto(steps=80)).problem
    state = next(s for s in rounds(problem) if s.t >= 9 and s.row.event == "global")
    assert state.tuned is not None and isinstance(problem.policy, Pilot)
    rare = Plan(Schedule(10, 1, 7), state.groups, replace(state.tuned, looked_at=1))
    tuning = problem.policy.tuning
    assert again(problem, tuning, rare, 0.0).schedule.tau1 < 10
    spent = 1e6
    tight = replace(tuning, max_bytes=spent + 1)
    assert again(problem, tight, rare, spent).schedule.tau1 >= 10


def test_means_of_some_are_priced_as_they_are_charged() -> None:
    some = make_config(
        {
            **TINY,
            "algorithm": {**AUTO, "shakes": 0},
            "train": {"steps": 40},
            "participation": {"fraction": 0.3},
        }
    )
    problem = prepare(some).problem
    state, choice = piloted(problem)
    assert choice.outlook.global_s < problem.everyone.transfer.seconds
    charged = state.clock.global_s / len(choice.outlook.looks)
    assert choice.outlook.global_s == pytest.approx(charged, rel=0.25)


def test_a_run_that_chooses_is_compared_with_fedavg(chose: Ran, tmp_path: Path) -> None:
    settings = {**TINY, "algorithm": {"name": "fedavg", "shakes": 0}, "train": {"steps": 40}}
    execute(make_config(settings), tmp_path / "f")
    (block,) = compare([read_run(folder) for folder in (chose.folder, tmp_path / "f")])
    assert [line.algorithm for line in block.lines] == ["fedavg", "fedavg-ic (auto)"]


def test_a_run_that_chooses_is_shown_beside_runs_of_several_numbers_of_groups() -> None:
    given = [recorded([(0, 0.1), (1, 0.5)], algorithm={"num_groups": k}) for k in (2, 5)]
    chose = recorded([(0, 0.1), (1, 0.6)], algorithm=AUTO)
    runs = [*given, chose]
    shown = [block.members for block in arrange(runs)]
    assert shown == [[given[0]], [given[1], chose]]


def test_a_target_out_of_reach_is_said_with_what_is_reached(out_of_reach: Ran) -> None:
    assert any("not reached" in line and "0.001" in line for line in out_of_reach.said)


def test_an_accuracy_out_of_reach_is_answered_with_an_accuracy(tmp_path: Path) -> None:
    said: list[str] = []
    execute(auto(target_accuracy=0.999, retune=False), tmp_path / "run", say=said.append)
    (line,) = [line for line in said if "not reached in 40 steps" in line]
    told = read_run(tmp_path / "run")
    guess = told.summary["tuned"]["expected"]["accuracy"]
    assert f"would end with an accuracy of about {guess:.3g} and a loss of" in line
    assert 0.5 < guess < 0.999


def test_a_pilot_whose_loss_rises_is_not_trusted(tmp_path: Path) -> None:
    said: list[str] = []
    config = auto()
    execute(replace(config, train=replace(config.train, lr=3.0)), tmp_path, say=said.append)
    assert any(line.startswith("note: the loss rose in the pilot, from ") for line in said)


def test_the_page_says_what_was_chosen(out_of_reach: Ran, tmp_path: Path) -> None:
    execute(auto(target_loss=1.7, num_groups=1), tmp_path / "soon")
    runs = [read_run(folder) for folder in (out_of_reach.folder, tmp_path / "soon")]
    notes = [note for block in page_data(runs)["blocks"] for note in block["notes"]]
    soon, never = notes  # as in the table
    assert "its target, a loss of 0.001, was not expected to be reached, but a loss of " in never
    assert "its target, a loss of 1.7, was expected at" in soon
    assert never.startswith("fedavg-ic (auto, target_loss = 0.001), seed 0, chose ")
    assert soon.startswith("fedavg-ic (auto, num_groups = 1, target_loss = 1.7), seed 0, chose ")
    first = runs[0].summary["tuned"]["schedules"][0]
    assert f"tau1 and tau2 ({first['tau1']}, {first['tau2']}) from step 7" in never


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schedules": []}, "tuned.schedules must be of length >= 1, got []"),
        ({"schedules": [3]}, "tuned.schedules[0] must be an object, got 3"),
        ({"schedules": 3}, "tuned.schedules must be a list, got 3"),
        ({"num_groups": "5"}, "tuned.num_groups must be a whole number, got '5'"),
        ({"num_groups": -5}, "tuned.num_groups must be >= 1, got -5"),
        ({"expected": {"seconds": "soon"}}, "tuned.expected.seconds must be a number, got 'soon'"),
        ({"expected": {"seconds": 1.0}}, "tuned.expected: has no 'low_s'"),
        (
            {"expected": {"seconds": 1.0, "low_s": None, "high_s": 2.0, "loss": 1.0}},
            "tuned.expected: seconds must come with low_s",
        ),
        ({"more": 1}, "tuned: unknown 'more'"),
    ],
)
def test_a_choice_that_makes_no_sense_is_named(
    chose: Ran, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    shutil.copytree(chose.folder, tmp_path / "run")
    path = tmp_path / "run" / "summary.json"
    summary = json.loads(path.read_text())
    summary["tuned"] |= change
    path.write_text(json.dumps(summary))
    with pytest.raises(CoterieError, match=re.escape(f"summary.json: {says}")):
        read_run(tmp_path / "run")


WRONG = [
    ({"name": "fedavg"}, "needs an algorithm that searches for groups"),
    ({"regroup_every": 2}, "leave one out"),
    ({"target_loss": 0.5, "target_accuracy": 0.5}, "exclude each other"),
    ({"num_groups": 2, "tau1": 1, "tau2": 2, "target_loss": 0.5}, "'auto' only"),
]


@pytest.mark.parametrize(("algorithm", "message"), WRONG)
def test_what_cannot_be_is_refused(algorithm: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        auto(**algorithm)


def test_too_few_steps_for_a_pilot_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"a pilot of 7 steps; raise train\.steps"):
        prepare(auto(steps=7))


def test_limits_that_exclude_every_plan_are_named() -> None:
    with pytest.raises(CoterieError, match="5 groups of at most 1 have no room for 10 nodes"):
        states_of(auto(max_group_size=1, num_groups=5))
    sizes = {len(s.groups.grouping.sizes) for s in states_of(auto(max_group_size=1)) if s.groups}
    assert sizes <= {1, 10}  # all together, or each alone


def test_bytes_that_no_plan_keeps_to_are_named() -> None:
    with pytest.raises(CoterieError, match=r"no plan keeps to algorithm.max_gbytes = 1e-06"):
        states_of(auto(max_gbytes=1e-6))


def test_fewer_bytes_lead_to_fewer_means() -> None:
    config = auto(steps=80)
    problem = prepare(config).problem
    state = next(s for s in rounds(problem) if s.groups)
    assert state.tuned is not None and isinstance(problem.policy, Pilot)
    shown = first_evidence(problem)
    free = choose(problem, problem.policy, state.tuned, shown, 0.0)
    tuning = replace(problem.policy.tuning, max_bytes=0.7 * free.chosen.bytes)
    kept = choose(problem, Pilot(tuning), state.tuned, shown, 0.0).chosen
    assert kept.bytes <= 0.7 * free.chosen.bytes
    assert kept.seconds >= free.chosen.seconds
