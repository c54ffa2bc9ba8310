"""How long the planner looks, and what ends it."""

from collections.abc import Callable

import numpy as np
import pytest

from clocks import stopped, ticking
from coterie.core.arrays import Ints
from coterie.grouping import check_grouping
from coterie.grouping.objective import Objective, price
from coterie.grouping.planner import Effort, _Search, coterie, search
from problems import random_evidence


def test_more_shakes_never_cost_more() -> None:
    e = random_evidence(30, 3, 4)
    o = Objective(e)
    costs = [
        price(o, coterie(effort=Effort(shakes=s))(e, np.random.default_rng(0))).cost
        for s in (0, 20, 60)
    ]
    assert costs == sorted(costs, reverse=True)


def test_a_budget_of_time_ends_and_gives_groups() -> None:
    e = random_evidence(30, 3, 4)
    effort, clock = Effort(budget_s=6.0, anneal=True), ticking(0.01)
    found = coterie(effort=effort, clock=clock)(e, np.random.default_rng(0))
    check_grouping(found, 30)
    assert len(found.cost_trace) > 2
    assert clock() >= 6.0


def test_a_search_says_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    e = random_evidence(30, 3, 4)

    def ended(effort: Effort, clock: Callable[[], float]) -> str:
        return search(e, Objective(e), effort, np.random.default_rng(0), clock).ended

    assert ended(Effort(shakes=2, budget_s=1.0), stopped) == "done"
    assert ended(Effort(shakes=10**9, budget_s=6.0), ticking(0.01)) == "out of time"
    monkeypatch.setattr(_Search, "shaken", _stop)
    assert ended(Effort(budget_s=1.0, keep=True), stopped) == "interrupted"


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("budget_s", [None, 1.0])
def test_ctrl_c_goes_through_a_planner(
    monkeypatch: pytest.MonkeyPatch, budget_s: float | None
) -> None:
    monkeypatch.setattr(_Search, "shaken", _stop)
    with pytest.raises(KeyboardInterrupt):
        coterie(effort=Effort(shakes=3, budget_s=budget_s), clock=stopped)(
            random_evidence(30, 3, 4), np.random.default_rng(0)
        )


@pytest.mark.parametrize("n", [30, 700])
def test_without_time_the_first_deal_is_the_answer(n: int) -> None:
    e = random_evidence(n, 3, 4)
    effort = Effort(budget_s=0.5)
    found = coterie(effort=effort, clock=ticking(1.0))(e, np.random.default_rng(0))
    check_grouping(found, n)
    assert len(found.cost_trace) == 1


def test_a_search_with_a_budget_cools_down_as_its_time_runs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heats: list[float] = []
    shaken = _Search.shaken

    def spy(state: _Search, heat: float) -> tuple[Ints, Ints | None]:
        heats.append(heat)
        return shaken(state, heat)

    monkeypatch.setattr(_Search, "shaken", spy)
    coterie(effort=Effort(budget_s=6.0, anneal=True), clock=ticking(0.01))(
        random_evidence(30, 3, 4), np.random.default_rng(0)
    )
    assert heats == sorted(heats, reverse=True)
    assert 0 < heats[-1] < 0.1 * heats[0]
