"""What dropout multiplies by, as torch draws it, but sooner where a compiled loop can."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

TRIED = 3 * 624 + 7  # numbers that are held against torch's own


class Factors:
    """Zero with the probability of a drop, else 1 / (1 - drop): what torch draws from a seed."""

    def __init__(self, dtype: torch.dtype, *, compiled: bool | None = None) -> None:
        """Take the kind of numbers; `compiled` says how to draw, else what gives torch's."""
        self._dtype = dtype
        self._compiled = draws_alike(dtype) if compiled is None else compiled
        self._generator = torch.Generator()
        self._state, self._numbers = (np.empty(624, dtype=np.uint32) for _ in range(2))
        self._at = 0

    def seed(self, seed: int) -> None:
        """Begin anew."""
        if self._compiled:
            from coterie.engine.kernels.draw_loops import begin

            self._at = begin(np.uint64(seed % 2**63), self._state)
        else:
            self._generator.manual_seed(seed % 2**63)

    def draw(self, drop: float, shape: Sequence[int]) -> Tensor:
        """Return the factors of so many numbers, in the order of their indices."""
        found = torch.empty(*shape, dtype=self._dtype)
        if not self._compiled:
            return found.bernoulli_(1 - drop, generator=self._generator).div_(1 - drop)
        from coterie.engine.kernels.draw_loops import factors

        times = torch.ones(1, dtype=self._dtype).div_(1 - drop).numpy()[0]
        flat = found.numpy().reshape(-1)
        self._at = factors(self._state, self._numbers, self._at, 1 - drop, times, flat)
        return found


@cache
def draws_alike(dtype: torch.dtype) -> bool:
    """Whether the compiled loop draws what torch does here; on some processors torch uses MKL."""
    ways = [Factors(dtype, compiled=compiled) for compiled in (True, False)]
    for way in ways:
        way.seed(1)
    drawn = [torch.cat([way.draw(drop, (TRIED,)) for drop in (0.3, 0.5)]) for way in ways]
    return torch.equal(*drawn)
