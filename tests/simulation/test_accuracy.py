"""How a target accuracy is forecast: errors that fall with a power of the progress."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.arrays import Floats
from coterie.simulation.accuracy import DEEP, LIKELY_SD, LINEAR, Errors, errors_by
from coterie.simulation.forecast import Look, Option, Outlook, Tuning
from coterie.simulation.progress import Curve, History, Round

RATES: Floats = np.array([0.1 * 0.99**t for t in range(200)])
PILOT = (Round(0, 1, 1), Round(1, 5, 1), Round(6, 1, 1))
ALONE = Option(1, 0.0, 1.0, 1e6)


def test_errors_that_follow_a_power_are_told_with_that_power() -> None:
    u = np.geomspace(0.5, 4.0, 200)
    law = errors_by(u, 0.3 * u**-0.35, 0.22)
    assert law.power == pytest.approx(0.35, rel=0.02)
    assert law.at(8.0) == pytest.approx(0.3 * 8.0**-0.35, rel=0.02)
    assert law.doubt < 0.1  # so many looks are sure


def test_three_looks_of_a_pilot_hardly_move_the_power_that_is_known_beforehand() -> None:
    law = errors_by(np.array([0.1, 0.2, 0.3]), np.array([0.6, 0.3, 0.2]), 0.22)
    assert 0.22 < law.power <= 0.44  # the looks say 1.0
    flat = errors_by(np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.5, 0.5]), 0.22)
    assert 0.11 <= flat.power < 0.22


def test_old_looks_count_less_than_late_ones() -> None:
    u = np.geomspace(0.01, 4.0, 400)
    errors = np.where(u < 0.4, 0.9, 0.5 * u**-0.3)
    assert errors_by(u, errors, 0.22).power == pytest.approx(0.3, rel=0.1)


def test_an_accuracy_that_is_there_takes_no_progress() -> None:
    law = Errors(2.0, 0.3, 0.25)
    assert law.progress(0.4) == law.progress(0.3) == 2.0
    assert law.likely(0.4, 8.0, 20.0) == law
    assert law.progress(0.15) == pytest.approx(2.0 * 2**4)  # half the errors, 16 times the progress


def test_a_law_and_a_likely_target_meet_by_how_sure_they_are() -> None:
    law = Errors(1.0, 0.4, 0.25, doubt=LIKELY_SD / 2)  # far is 2, known to LIKELY_SD: as sure
    wanted = 0.4 * math.exp(-0.5)
    assert law.far(wanted) == pytest.approx(2.0)
    met = law.likely(wanted, math.exp(1.0), 100.0)
    assert met.far(wanted) == pytest.approx(1.5)  # the middle of 2 and 1
    assert met.doubt == pytest.approx(LIKELY_SD / math.sqrt(2) / 1.5)
    assert met.doubted(1).far(wanted) < 1.5 < met.doubted(-1).far(wanted)


def test_what_nobody_can_reach_is_not_made_likely() -> None:
    law = Errors(1.0, 0.4, 0.25)
    assert law.likely(0.004, 3.0, 8.0).progress(0.004) > 1e7


@given(
    st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3),
    st.floats(0.01, 1.0),
    st.floats(0.05, 100.0),
)
def test_whatever_is_seen_there_is_a_law(errors: list[float], power: float, usual: float) -> None:
    law = errors_by(np.array([0.1, 0.2, 0.3]), np.array(errors), power)
    for wanted in (0.0, 0.3, 1.0):
        met = law.likely(wanted, usual, 10.0)
        assert met.progress(wanted) >= 0.3 and math.isfinite(met.doubt) and met.power > 0


def outlook(reach: float = 0.07, slow: bool = False, **tuning: Any) -> Outlook:
    """A pilot of a known problem whose errors fall with 0.3 of the progress, with dear means."""
    curve = Curve(0.3, 2.0, 1.8)
    u = History(RATES, PILOT, ()).progress(reach * 1.6)
    losses = [curve.loss(float(x)) for x in History(RATES, PILOT, ()).progress(reach)]
    if slow:
        losses = [losses[1] + 0.3 * (losses[0] - losses[1]), *losses[1:]]
    looks = [
        Look(r, loss, 1 - float(0.3 * x**-0.3))
        for r, loss, x in zip(PILOT, losses[1:], u[1:], strict=True)
    ]
    return Outlook(Tuning(RATES, **tuning), tuple(looks), losses[0], 0.01, 1.0, 1e6)


def test_local_steps_count_longer_for_accuracy_than_for_the_loss() -> None:
    look = outlook(target_accuracy=0.75)
    assert look.family is LINEAR
    assert look.reaches[0] == pytest.approx(1.6 * look.fits[0].reach)
    by_loss = replace(look, tuning=replace(look.tuning, target_accuracy=0.0))
    assert look.forecasts([ALONE])[0].tau1 >= by_loss.forecasts([ALONE])[0].tau1


def test_models_that_start_slowly_are_deep_and_reach_less() -> None:
    look = outlook(slow=True, target_accuracy=0.75)
    assert look.family is DEEP
    assert look.reaches[0] == pytest.approx(0.2 * look.fits[0].reach, rel=0.01)


def test_a_higher_accuracy_takes_longer_and_the_range_holds_the_guess() -> None:
    seconds = []
    for target in (0.65, 0.7, 0.75):
        f = outlook(target_accuracy=target).of(ALONE, 2, 1)
        assert f.low_s <= f.seconds <= f.high_s
        seconds.append(f.seconds)
    assert seconds == sorted(set(seconds))


def test_a_run_that_reaches_its_accuracy_is_told_to_end_above_it() -> None:
    f = outlook(target_accuracy=0.7).of(ALONE, 1, 1)
    assert math.isfinite(f.seconds)
    assert f.accuracy is not None and f.accuracy >= 0.7
    assert 0.3 < f.loss < 1.0


def test_groups_that_save_less_than_forecasts_err_by_are_not_made() -> None:
    look = outlook(target_accuracy=0.7)
    alone = look.forecasts([ALONE])[0]
    cheap, dear = Option(5, 0.001, 0.05, 1e5), Option(5, 0.001, 0.93, 1e5)
    assert look.forecasts([ALONE, cheap])[0].option is cheap
    kept = look.forecasts([ALONE, dear])[0]
    assert (kept.option, kept.tau1) == (ALONE, alone.tau1)


def test_steps_farther_than_the_pilot_went_are_taken_only_where_nodes_do_not_stray() -> None:
    near, far = outlook(target_accuracy=0.75), outlook(reach=2.0, target_accuracy=0.75)
    assert near.forecasts([ALONE])[0].tau1 <= 5 < far.forecasts([ALONE])[0].tau1
    assert {f.tau1 for f in near.forecasts([ALONE])} == set(near.tuning.tau1)  # told all the same
    given = replace(near, tuning=replace(near.tuning, tau1=(20,)))
    assert given.forecasts([ALONE])[0].tau1 == 20


def test_a_run_aims_beyond_its_accuracy_by_what_chance_makes_of_it() -> None:
    look = outlook(target_accuracy=0.7)
    there = replace(look, tuning=replace(look.tuning, target_accuracy=look.looks[-1].accuracy))
    assert 0.0 < there.of(ALONE, 1, 1).seconds < look.of(ALONE, 1, 1).seconds
