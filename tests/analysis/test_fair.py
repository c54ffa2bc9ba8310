"""Who is first at a target, and whether that is noise: cases worked by hand."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.analysis.fair import (
    METHODS,
    Interval,
    Reached,
    Target,
    in_words,
    interval,
    judge,
    quantile,
    ratio,
    seeds_to_tell,
    space_of,
)

HALF = Target("test_accuracy", 0.5)


def at(method: str, *seconds: float | None) -> Reached:
    return Reached(method, dict(enumerate(seconds)), {}, {})


def test_the_interval_of_four_values_is_that_of_the_textbook() -> None:
    """Mean 5, SD sqrt(20 / 3) = 2.582, t(3) = 3.1824: 5 +- 3.1824 * 2.582 / 2 = 5 +- 4.108."""
    found = interval([2.0, 4.0, 6.0, 8.0])
    assert (found.mean, found.low, found.high) == pytest.approx((5, 0.8915, 9.1085), abs=1e-3)


def test_one_value_has_no_end() -> None:
    assert interval([3.0]) == Interval(3.0, -math.inf, math.inf)


def test_a_ratio_goes_seed_by_seed_so_that_hard_seeds_do_not_blur_it() -> None:
    """Seed 1 takes ten times as long with both, and every ratio is exactly 2."""
    found = ratio(at("slow", 2.0, 20.0), at("fast", 1.0, 10.0))
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((2, 2, 2))


def test_a_seed_that_one_does_not_reach_has_no_ratio() -> None:
    found = ratio(at("slow", 6.0, None), at("fast", 2.0, 1.0))
    assert found is not None
    assert found.mean == pytest.approx(3)
    assert ratio(at("slow", None, 1.0), at("fast", 2.0, None)) is None


def test_the_first_has_the_least_geometric_mean_of_those_that_are_always_there() -> None:
    """2 * 8 < 5 * 5, though 2 + 8 = 5 + 5; and 1 s on one seed of two is no first."""
    verdict = judge([at("even", 5.0, 5.0), at("uneven", 2.0, 8.0), at("seldom", 1.0, None)])
    assert verdict.first == "uneven"


def test_a_clear_difference_is_outside_the_noise_and_a_small_one_is_not() -> None:
    fast = at("fast", 10.0, 11.0, 10.5, 9.5, 10.2)
    twice = at("twice", 20.0, 22.1, 20.9, 19.1, 20.3)
    near = at("near", 10.4, 10.6, 10.7, 9.4, 10.5)
    by = {each.method: each for each in judge([twice, near, fast]).others}
    assert by["twice"].outside
    assert by["twice"].times is not None
    assert by["twice"].times.mean == pytest.approx(2, rel=0.01)
    assert not by["near"].outside
    assert by["near"].seeds is not None
    assert by["near"].seeds > 5
    lines = in_words(judge([twice, near, fast]), [twice, near, fast], HALF)
    assert lines[0] == "fast is first, and not told from near"
    assert lines[1].endswith(": outside the noise")
    assert f"no difference beyond noise; {by['near'].seeds} seeds would tell" in lines[2]


def test_more_comparisons_need_more_to_tell() -> None:
    """Bonferroni: beside six others, the same two methods are no longer told apart."""
    a, b = at("a", 1.0, 1.0, 1.0), at("b", 1.15, 1.2, 1.3)
    alone = judge([a, b])
    others = [at(f"c{k}", 9.0, 9.0, 9.0) for k in range(6)]
    beside = judge([a, b, *others])
    assert alone.others[0].outside is not beside.others[0].outside


def test_seeds_that_would_tell_are_the_fewest_whose_interval_leaves_out_no_difference() -> None:
    logs = [0.05, 0.25, -0.02, 0.12]
    n = seeds_to_tell(logs)
    assert n is not None
    sd = math.sqrt(sum((x - 0.1) ** 2 for x in logs) / 3)
    halves = [quantile(0.95, k) * sd / math.sqrt(k) for k in (n - 1, n)]
    assert halves[0] >= 0.1 > halves[1]


def test_no_difference_at_all_is_told_by_no_number_of_seeds() -> None:
    assert seeds_to_tell([0.1, -0.1]) is None
    one, other = at("one", 1.0, 2.0), at("other", 2.0, 1.0)
    (line,) = in_words(judge([one, other]), [one, other], HALF)[1:]
    assert "more than 1,000 seeds would tell" in line


def test_a_target_that_nobody_reaches_is_said() -> None:
    found = [at("fedavg", None, None), at("coterie", 3.0, None)]
    assert in_words(judge(found), found, HALF) == [
        "no method reaches accuracy 50.0% on every seed; lower the target, or raise train.steps"
    ]


def test_who_never_or_seldom_is_there_is_said_so() -> None:
    found = [at("a", 1.0, 1.0, 1.1), at("b", None, None, None), at("c", 2.0, None, 2.0)]
    lines = in_words(judge(found), found, HALF)
    assert "b never reaches accuracy 50.0%" in lines
    assert any(line.endswith("where it is there at all: on 2 of 3 seeds") for line in lines)


def test_one_seed_tells_nothing_from_noise() -> None:
    found = [at("a", 1.0), at("b", 100.0)]
    (line,) = in_words(judge(found), found, HALF)
    assert line == "a is first, and one seed cannot tell that from noise: --seeds 3"


def test_what_the_first_model_has_already_is_no_merit() -> None:
    rows: list[dict[str, Any]] = [
        {"t": 0, "test_accuracy": 0.9, "train_loss": None},
        {"t": 5, "test_accuracy": 0.4, "train_loss": 0.7},
        {"t": 9, "test_accuracy": 0.5, "train_loss": 0.6},
    ]
    assert HALF.first(rows) == rows[2]
    assert Target("train_loss", 0.7).first(rows) == rows[1]
    assert Target("train_loss", 0.5).first(rows) is None


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=6), st.floats(0.01, 100))
def test_another_unit_of_time_changes_no_verdict(seconds: list[float], unit: float) -> None:
    other = [3 * s + k for k, s in enumerate(seconds)]
    now = judge([at("a", *seconds), at("b", *other)])
    then = judge([at("a", *(unit * s for s in seconds)), at("b", *(unit * s for s in other))])
    assert now.first == then.first == "a"
    assert [each.outside for each in now.others] == [each.outside for each in then.others]


def test_all_methods_have_the_same_learning_rates_around_that_of_the_file() -> None:
    rates = {space_of(method, 0.2, 100)[0].values for method in METHODS.values()}
    assert rates == {(0.05, 0.1, 0.2, 0.4, 0.8)}


def test_groups_have_two_nodes_or_more() -> None:
    assert space_of(METHODS["coterie"], 0.1, 12)[-1].values == (2, 5)
