import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.simulation.schedule import Event, Schedule


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 200))
def test_events_follow_the_equation(tau1: int, tau2: int, t: int) -> None:
    event = Schedule(tau1, tau2).event(t)
    assert (event is Event.GLOBAL) == (t % (tau1 * tau2) == 0)
    assert (event is Event.LOCAL) == (t % tau1 != 0)


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 60))
def test_jumping_to_the_next_aggregation_misses_none(tau1: int, tau2: int, last: int) -> None:
    schedule = Schedule(tau1, tau2)
    met, t = [], 0
    while t < last:
        t, event = schedule.next_aggregation(t, last)
        met.append((t, event))
    stepwise = [(t, schedule.event(t)) for t in range(1, last) if schedule.event(t) != Event.LOCAL]
    assert met == [*stepwise, (last, Event.GLOBAL)]


@pytest.mark.parametrize(("tau1", "tau2"), [(1, 1), (5, 1), (1, 5)])
def test_no_group_event_without_tau2(tau1: int, tau2: int) -> None:
    events = {Schedule(tau1, tau2).event(t) for t in range(1, 50)}
    assert (Event.GROUP in events) == (tau2 > 1)
