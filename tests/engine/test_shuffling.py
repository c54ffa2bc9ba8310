"""Compiled permutations: NumPy's own, bit for bit."""

import numpy as np
import pytest

from coterie.core.arrays import Ints
from coterie.core.seeding import words

pytest.importorskip("numba", reason="Numba is not installed")

import itertools

from coterie.engine.contract import LocalSteps
from coterie.engine.kernels.compiled import Compiled
from coterie.engine.kernels.dense import Layer
from coterie.engine.kernels.shuffling import take_orders
from coterie.engine.module import Nodes, Shards

STEPS = (1, 2, 77, 2**31)


def drawn(seed: int, nodes: Ints, sizes: Ints) -> list[list[Ints]]:
    """Return the permutations of every node in every step."""
    before = np.array([[*words([seed, t]), 0] for t in STEPS], dtype=np.uint64)
    ends = np.cumsum([0, *np.repeat(sizes, len(STEPS))])
    ends = np.stack([ends[k : k + sizes.size * len(STEPS) : len(STEPS)] for k in range(5)], axis=1)
    found = np.empty(len(STEPS) * sizes.sum(), dtype=np.int64)
    take_orders(before, nodes, sizes, np.zeros_like(sizes), 0, ends, found)
    return [[found[a:b] for a, b in itertools.pairwise(row)] for row in ends]


@pytest.mark.parametrize("seed", [0, 1, 7, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 + 1, 2**100])
def test_permutations_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.concatenate([np.arange(1, 140), rng.integers(1, 3000, 10), [4096, 65_537]])
    nodes = rng.integers(2**32, size=len(sizes))
    for i, n, orders in zip(nodes, sizes, drawn(seed, nodes, sizes), strict=True):
        for t, order in zip(STEPS, orders, strict=True):
            assert (order == np.random.default_rng([seed, t, int(i)]).permutation(n)).all()


@pytest.mark.parametrize("sampling", ["epoch", "reference"])
@pytest.mark.parametrize("unit", ["epoch", "batch"])
def test_nodes_take_the_rows_that_the_plain_engine_draws(unit: str, sampling: str) -> None:
    sizes = np.array([3, 1, 40, 7, 8, 25])
    x, y = np.zeros((sizes.sum(), 2), dtype=np.float32), np.zeros(sizes.sum(), dtype=np.int64)
    shards = Shards(Nodes(x, y, sizes), "cpu")  # type: ignore[arg-type]
    steps = LocalSteps(0.1, 1.0, 7, unit, 5, sampling)  # type: ignore[arg-type]
    nodes = np.array([5, 2, 0, 4, 3])
    found, ends = Compiled([Layer(2, 2, 0, True, False)], shards)._order(nodes, 2, 5, steps)
    for i, own in zip(nodes, ends, strict=True):
        for t, start, end in zip((3, 4, 5), own, own[1:], strict=False):
            batches = steps.batches(t, int(i), int(sizes[i]))
            rows = [np.arange(sizes[i]) if batch is None else batch for batch in batches]
            assert (found[start:end] == shards.starts[i] + np.concatenate(rows)).all()
