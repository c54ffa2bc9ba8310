"""Which examples many nodes take together: their batches side by side, padded where they must."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import Ints
from coterie.engine.contract import LocalSteps
from coterie.engine.module import Shards


@dataclass(frozen=True, eq=False)
class Batch:
    """One mini-batch of each of the first c nodes: rows of the data [c, B], and their weights.

    A node with fewer examples than B repeats one with weight 0; without such, the weight of every
    example is one number.
    """

    rows: Ints
    weights: Tensor | float  # [c, B, 1]


def batches_of(shards: Shards, nodes: Ints, t: int, steps: LocalSteps) -> Iterator[Batch]:
    """Yield the mini-batches of step t; nodes must come by falling size.

    The first nodes have the most batches, so that in each batch the nodes at work are the first c.
    """
    sizes = shards.sizes[nodes]
    taken = steps.examples_per_step(sizes)
    most = int(taken[0])
    order = np.repeat(shards.starts[nodes, None], most, axis=1)  # [c, most examples]
    for row, own in enumerate(steps.orders(t, nodes, sizes)):
        order[row, : taken[row]] += np.arange(taken[row]) if own is None else own[: taken[row]]
    width = min(steps.batch_size or most, most)
    for at in range(0, most, width):
        c = int(np.count_nonzero(taken > at))
        left = np.minimum(taken[:c] - at, width)
        rows = order[:c, at : at + int(left[0])]
        yield Batch(rows, _weights(left, shards.dtype))


def _weights(counts: Ints, dtype: torch.dtype) -> Tensor | float:
    """1/count for the first count examples of a node, then 0."""
    most = int(counts[0])
    if counts[-1] == most:
        return 1 / most
    inside = np.arange(most) < counts[:, None]
    return torch.from_numpy(inside / counts[:, None]).to(dtype)[..., None]


def stacks(sizes: Ints, most: int, *, padded: bool) -> Iterator[slice]:
    """Cut nodes, by falling size, into stacks of at most so many.

    Where a batch is all that a node has, `padded`, none is half padding.

    >>> list(stacks(np.array([9, 8, 3, 3, 3]), 2, padded=True))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    >>> list(stacks(np.array([9, 3, 3]), 3, padded=True))
    [slice(0, 1, None), slice(1, 3, None)]
    """
    at = 0
    while at < len(sizes):
        end = min(at + most, len(sizes))
        if padded:
            end = min(end, at + int(np.count_nonzero(2 * sizes[at:] > sizes[at])))
        yield slice(at, end)
        at = end


def runs(sizes: Ints, most: int) -> Iterator[slice]:
    """Cut nodes, in their order, into runs of at most so many examples; a larger one is alone.

    >>> list(runs(np.array([3, 4, 9, 2]), 8))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    ends, at = np.cumsum(sizes), 0
    while at < len(sizes):
        before = int(ends[at] - sizes[at])
        end = max(at + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(at, end)
        at = end
