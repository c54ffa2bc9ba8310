"""How nodes are put side by side: nothing lost, nothing twice, little padding, small trials."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from coterie.core.arrays import Ints
from coterie.engine.contract import LocalSteps
from coterie.engine.kernels.batching import batches_of, stacks
from coterie.engine.kernels.calibrate import MOST_EXAMPLES, MOST_NODES, choose_kernel
from coterie.engine.module import Nodes, Shards

CPU = torch.device("cpu")
falling = st.lists(st.integers(1, 60), min_size=1, max_size=30).map(
    lambda sizes: np.array(sorted(sizes, reverse=True))
)


def shards_of(sizes: Ints) -> Shards:
    total = int(sizes.sum())
    return Shards(Nodes(np.zeros((total, 2), np.float32), np.zeros(total, np.int64), sizes), CPU)


@given(falling, st.integers(1, 8), st.booleans())
def test_stacks_hold_every_node_once_and_none_is_half_padding(
    sizes: Ints, most: int, padded: bool
) -> None:
    found = list(stacks(sizes, most, padded=padded))
    assert [i for part in found for i in range(part.start, part.stop)] == list(range(len(sizes)))
    for part in found:
        own = sizes[part]
        assert len(own) <= most
        assert not padded or 2 * own.min() > own.max()
        assert not padded or own.sum() > 0.5 * len(own) * own.max()


@settings(deadline=None)
@given(falling, st.integers(1, 70) | st.none(), st.integers(1, 5))
def test_an_epoch_takes_every_example_of_every_node_once(
    sizes: Ints, batch: int | None, t: int
) -> None:
    shards, nodes = shards_of(sizes), np.arange(len(sizes))
    taken: list[list[int]] = [[] for _ in sizes]
    for each in batches_of(shards, nodes, t, LocalSteps(0.1, 1.0, batch, "epoch", 3)):
        c, width = each.rows.shape
        weights = np.broadcast_to(np.asarray(each.weights), (c, width, 1))[..., 0]
        assert weights.sum(axis=1) == pytest.approx(np.ones(c), rel=1e-5)
        for i in range(c):
            taken[i] += each.rows[i][weights[i] > 0].tolist()
    starts = np.concatenate([[0], np.cumsum(sizes)])
    assert [sorted(own) for own in taken] == [list(range(a, b)) for a, b in pairwise(starts)]


def test_a_calibration_tries_few_nodes_and_few_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    tried: list[tuple[int, int | None]] = []

    class Spy:
        name = "spy"

        def stack(self, batch: int) -> int:
            return 1000

        def train(self, w: Tensor, rows: Tensor, nodes: Ints, *rest: object) -> list[Tensor]:
            steps = rest[2]
            assert isinstance(steps, LocalSteps)
            tried.append((len(nodes), steps.batch_size))
            assert len(rows) == len(nodes)
            return []

    shards = shards_of(np.full(50, 2000))
    spy: Any = Spy()
    choose_kernel(
        [spy], nn.Linear(2, 2), shards, LocalSteps(0.1, 1.0, None, "epoch", 0), torch.zeros(6)
    )
    assert tried
    assert set(tried) == {(MOST_NODES, MOST_EXAMPLES)}
