"""A search that gives every method as many trials, and goes on where it stopped."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from coterie.analysis.tuning import Axis, Point, Score, best, next_points, open_ends, score, size

SQUARE = (Axis("train.lr", (1, 2, 3, 4, 5)), Axis("algorithm.tau1", (1, 2, 5)))


def search(
    space: tuple[Axis, ...], trials: int, rate: Callable[[Point], Score]
) -> dict[Point, Score]:
    tried: dict[Point, Score] = {}
    while points := next_points(space, tried, trials):
        tried |= {point: rate(point) for point in points}
    return tried


def bowl(point: Point) -> Score:
    """Least at lr = 1, tau1 = 5."""
    return score(1.0 + point[0] ** 2 + (2 - point[1]) ** 2, None)


def test_a_search_walks_down_to_the_best_by_its_neighbours() -> None:
    """From (2, 1), 6 s: four neighbours, of which (1, 1) has 3 s; three more; then (0, 1) or so."""
    tried = search(SQUARE, 12, bowl)
    assert list(tried)[:5] == [(2, 1), (1, 1), (3, 1), (2, 0), (2, 2)]
    assert best(tried) == (0, 2)


@given(st.integers(1, 40), st.integers(0, 99))
def test_every_method_has_exactly_as_many_trials_or_all_there_are(trials: int, salt: int) -> None:
    def rate(point: Point) -> Score:
        return score(float(hash((salt, point)) % 97 + 1), None)

    assert len(search(SQUARE, trials, rate)) == min(trials, size(SQUARE))


@given(st.integers(1, 14))
def test_what_comes_next_depends_on_what_was_tried_and_not_on_its_order(trials: int) -> None:
    tried = search(SQUARE, trials, bowl)
    backwards = dict(reversed(tried.items()))
    assert next_points(SQUARE, backwards, 15) == next_points(SQUARE, tried, 15)


def test_a_target_that_is_reached_is_better_than_any_that_is_not_and_diverging_is_worst() -> None:
    assert score(1e9, None) < score(None, 0.99) < score(None, 0.2) < score(None, None)
    assert score(1.0, None) < score(2.0, None)
    assert score(None, 0.2, -1) < score(None, 3.0, -1)


def test_a_best_value_at_the_end_of_its_list_is_said_unless_nothing_is_beyond() -> None:
    tried: dict[Point, Score] = {(0, 0): (0, 1.0), (1, 0): (0, 2.0), (0, 1): (0, 2.0)}
    rates = (Axis("train.lr", (0.1, 0.2)), Axis("algorithm.tau1", (1, 2)))
    assert open_ends(rates, tried) == ["train.lr is best at 0.1, the least in the list"]


def test_a_budget_that_ended_too_soon_is_said() -> None:
    assert open_ends(SQUARE, {(2, 1): score(1.0, None)}) == [
        "4 neighbours of the best were not tried"
    ]
