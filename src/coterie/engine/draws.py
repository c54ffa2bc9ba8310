"""Where random layers draw from: a generator of one's own, in place of the one that threads share.

torch's layers know its default generator alone. A mode, which torch keeps for every thread apart,
sees their calls and has them draw from another. The numbers are those that the default generator
would give from the same seed.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

DROPOUTS = {functional.dropout: 0}  # and how many dimensions must be there to drop whole channels
DROPOUTS |= {functional.dropout1d: 3, functional.dropout2d: 4, functional.dropout3d: 5}
FUNCTIONS = "rand rand_like randn randn_like randint randint_like randperm bernoulli normal"
METHODS = "bernoulli bernoulli_ exponential_ normal_ random_ uniform_"
DRAWING = {getattr(torch, name) for name in FUNCTIONS.split()}
DRAWING |= {getattr(Tensor, name) for name in METHODS.split()}


class Drawing(TorchFunctionMode):
    """While a thread is in it, dropout and what takes a generator draw from this one.

    >>> drawing, x = Drawing(), torch.ones(2, 3)
    >>> drawing.generator.manual_seed(1) is torch.manual_seed(1)
    False
    >>> with drawing:
    ...     ours = functional.dropout(x)
    >>> torch.equal(ours, functional.dropout(x))
    True
    """

    def __init__(self) -> None:
        """Make a generator; whoever draws seeds it.

        Numbers come in the order of memory, as torch draws them. `ordered` draws those of dropout
        in the order of indices, so that channels last drop what channels first do.
        """
        super().__init__()
        self.generator = torch.Generator()
        self.ordered = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, with a generator if it takes one."""
        kwargs = kwargs or {}
        if func in DROPOUTS:
            return self._dropped(func, *args, **kwargs)
        if func in DRAWING and kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": self.generator}
        return func(*args, **kwargs)

    def _dropped(
        self,
        func: Callable[..., Tensor],
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        """Drop numbers, or channels, with the probability p; the others grow by 1 / (1 - p)."""
        whole = DROPOUTS[func]
        if not training or not 0 < p < 1 or whole not in (0, input.ndim):
            return func(input, p, training, inplace)
        if whole:
            noise = input.new_empty(*input.shape[:2], *[1] * (whole - 2))
        else:
            noise = input.new_empty(input.shape) if self.ordered else torch.empty_like(input)
        noise.bernoulli_(1 - p, generator=self.generator).div_(1 - p)
        return input.mul_(noise) if inplace else input * noise
