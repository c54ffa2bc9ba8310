"""Generators of many addresses at once: NumPy's own, bit for bit."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.seeding import FEW, generators, states

NUMBERS = st.integers(0, 2**70)


@given(st.lists(NUMBERS, max_size=6), st.lists(st.integers(0, 2**32 - 1), max_size=30))
@settings(max_examples=100, deadline=None)
def test_states_are_those_of_seed_sequences(before: list[int], last: list[int]) -> None:
    found = states(before, np.array(last, dtype=np.int64))
    for i, state in zip(last, found, strict=True):
        sequence = np.random.SeedSequence([*before, i])
        assert (sequence.generate_state(4, np.uint64) == state).all()


@pytest.mark.parametrize("count", [0, 1, FEW - 1, FEW, 200])
@pytest.mark.parametrize("before", [(0, 1), (2**32, 3), (2**100, 2**40, 7)])
def test_generators_draw_what_their_own_would(before: Sequence[int], count: int) -> None:
    last = np.random.default_rng(count).integers(2**32, size=count)
    for i, rng in zip(last, generators(before, last), strict=True):
        own = np.random.default_rng([*before, int(i)])
        assert rng.integers(7, size=3).tolist() == own.integers(7, size=3).tolist()
        assert rng.permutation(31).tolist() == own.permutation(31).tolist()
        assert (rng.choice(50, 9, replace=False) == own.choice(50, 9, replace=False)).all()
        assert rng.random() == own.random()
