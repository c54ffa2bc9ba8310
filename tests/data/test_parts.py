"""Which examples are trained on, chosen by, and tested on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.arrays import Ints
from coterie.core.errors import DataError
from coterie.data import Split, split_each, split_rest

SHARES = (0.6, 0.2, 0.2)
NODES = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=40), min_size=1, max_size=8)


def dealt(labels: list[list[int]], seed: int) -> tuple[Ints, list[Ints]]:
    """Labels y [N], and the examples of each node, which are scattered over them."""
    together = np.concatenate([np.array(node) for node in labels])
    place = np.random.default_rng(seed).permutation(len(together))
    y = np.empty_like(together)
    y[place] = together
    ends = np.cumsum([len(node) for node in labels])
    return y, [np.sort(held) for held in np.split(place, ends[:-1])]


def parts(split: Split) -> tuple[Ints, Ints, Ints]:
    return split.train, split.val, split.test


@given(NODES, st.integers(0, 99))
def test_every_example_of_a_node_is_in_exactly_one_part_of_that_node(
    labels: list[list[int]], seed: int
) -> None:
    y, nodes = dealt(labels, seed)
    each = split_each(y, nodes, np.random.default_rng(seed))
    for held, split in zip(nodes, each, strict=True):
        assert np.array_equal(np.sort(np.concatenate(parts(split))), held)


@given(NODES, st.integers(0, 99))
def test_shares_are_within_one_example_in_every_node_and_in_its_classes(
    labels: list[list[int]], seed: int
) -> None:
    y, nodes = dealt(labels, seed)
    for held, split in zip(nodes, split_each(y, nodes, np.random.default_rng(seed)), strict=True):
        for share, part in zip(SHARES, parts(split), strict=True):
            assert abs(len(part) - share * len(held)) < 1
            for c in np.unique(y[held]):
                assert abs((y[part] == c).sum() - share * (y[held] == c).sum()) < 1
        assert len(split.train) >= 1
        assert (len(split.val) >= 1 and len(split.test) >= 1) or len(held) < 3


@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        (1, (1, 0, 0)),
        (2, (1, 0, 1)),
        (3, (1, 1, 1)),
        (4, (2, 1, 1)),
        (5, (3, 1, 1)),
        (6, (4, 1, 1)),
        (10, (6, 2, 2)),
    ],
)
def test_small_nodes_train_first_then_test_then_validate(
    n: int, sizes: tuple[int, int, int]
) -> None:
    for y in (np.zeros(n, dtype=np.int64), np.arange(n)):
        (split,) = split_each(y, [np.arange(n)], np.random.default_rng(0))
        assert tuple(map(len, parts(split))) == sizes


@given(NODES, st.integers(0, 99))
def test_the_same_seed_splits_nodes_the_same(labels: list[list[int]], seed: int) -> None:
    y, nodes = dealt(labels, seed)
    one, two = (split_each(y, nodes, np.random.default_rng(seed)) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        assert all(map(np.array_equal, parts(a), parts(b)))


def test_which_examples_and_which_classes_are_held_out_is_random() -> None:
    y, nodes = np.arange(5), [np.arange(5)]
    tested = {int(split_each(y, nodes, np.random.default_rng(s))[0].test[0]) for s in range(60)}
    assert tested == set(range(5))


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60), st.integers(0, 99))
def test_a_given_test_part_stays_and_the_rest_is_three_to_one_within_classes(
    examples: list[tuple[int, bool]], seed: int
) -> None:
    y = np.array([c for c, _ in examples] + [0] * 4)
    test = np.array([tested for _, tested in examples] + [False] * 4)
    split = split_rest(y, test, np.random.default_rng(seed))
    assert np.array_equal(split.test, np.flatnonzero(test))
    together = np.sort(np.concatenate(parts(split)))
    assert np.array_equal(together, np.arange(len(y)))
    for c in np.unique(y[~test]):
        assert abs((y[split.train] == c).sum() - 0.75 * (y[~test] == c).sum()) <= 0.5


def test_too_few_examples_beside_a_given_test_part_are_refused() -> None:
    with pytest.raises(DataError, match="1 examples outside the official test part are too few"):
        split_rest(np.zeros(5, int), np.arange(5) > 0, np.random.default_rng(0))
    with pytest.raises(DataError, match="0 examples outside"):
        split_rest(np.zeros(5, int), np.ones(5, bool), np.random.default_rng(0))
