"""How batches that were drawn on the host come to a device: those of a step all at once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.engine.kernels.batching import Batch


@dataclass(frozen=True, eq=False)
class Sent:
    """One mini-batch of c nodes where it is trained on: rows of the data [c * B], and weights."""

    shape: tuple[int, int]
    index: Tensor
    weights: Tensor | float  # [c, B, 1]


def sent(batches: Iterable[Batch], device: torch.device) -> Iterator[Sent]:
    """Yield batches as tensors on a device: two copies at most, however many batches there are.

    >>> some = [Batch(np.array([[4, 7]]), 0.5), Batch(np.array([[5]]), 1.0)]
    >>> [batch.index.tolist() for batch in sent(some, torch.device("cpu"))]
    [[4, 7], [5]]
    """
    if device.type == "cpu":
        for batch in batches:
            yield _sent(batch, torch.from_numpy(batch.rows.reshape(-1)), batch.weights)
        return
    several = list(batches)
    rows = np.concatenate([batch.rows.reshape(-1) for batch in several])
    sizes = [batch.rows.size for batch in several]
    indices = torch.split(torch.from_numpy(rows).to(device), sizes)
    padded = [batch.weights.flatten() for batch in several if isinstance(batch.weights, Tensor)]
    lengths = [len(some) for some in padded]
    pieces = iter(torch.split(torch.cat(padded).to(device), lengths) if padded else ())
    for batch, index in zip(several, indices, strict=True):
        weights = batch.weights
        if isinstance(weights, Tensor):
            weights = next(pieces).view(*batch.rows.shape, 1)
        yield _sent(batch, index, weights)


def _sent(batch: Batch, index: Tensor, weights: Tensor | float) -> Sent:
    c, width = batch.rows.shape
    return Sent((c, width), index, weights)
