"""What a module does with a batch, found by trying it on a few examples."""

import copy
import random
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from coterie.engine.draws import Drawing
from coterie.engine.module import inputs


@dataclass(frozen=True)
class Habits:
    """Whether a module treats examples one by one, in training and in evaluation mode.

    And whether all its random numbers, if it draws any, can come from a generator of one's own.
    """

    apart: bool
    scores_apart: bool
    draws_apart: bool


def find_habits(model: nn.Module, x: Tensor, dtype: torch.dtype = torch.float32) -> Habits:
    """Find out how a module does.

    >>> find_habits(nn.Sequential(nn.Linear(3, 2), nn.Dropout()), torch.rand(4, 3))
    Habits(apart=False, scores_apart=True, draws_apart=True)
    """
    if treats_examples_alone(model, x, dtype):
        return Habits(apart=True, scores_apart=True, draws_apart=True)
    scores_apart = treats_examples_alone(model, x, dtype, training=False)
    draws_apart = draws_as_told(model, x, dtype)
    return Habits(apart=False, scores_apart=scores_apart, draws_apart=draws_apart)


def treats_examples_alone(
    model: nn.Module, x: Tensor, dtype: torch.dtype = torch.float32, *, training: bool = True
) -> bool:
    """Whether a module in training mode is a function of each example and its parameters alone.

    Not so with batch norm, which mixes a batch, with dropout, which draws random numbers, or with
    anything that changes its buffers; these run one node at a time. Tried on a few examples, away
    from the first weights, as zeros there would hide what a layer does; on the CPU, whose random
    numbers show whether any were drawn. In evaluation mode most modules do.
    """
    if len(x) < 2:
        return False
    some = _few(x, dtype)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        trial = copy.deepcopy(model).cpu().train(training)
        for w in trial.parameters():
            w.add_(0.01 * torch.randn_like(w))
        before = [b.clone() for b in trial.buffers()]
        state = torch.default_generator.get_state()
        try:
            whole = trial(some.clone())
            halves = [trial(some[k : k + 2].clone()) for k in range(0, len(some), 2)]
            same = torch.allclose(whole, torch.cat(halves), rtol=1e-4, atol=1e-5)
        except Exception:  # whatever a user's module cannot do with so few examples
            return False
        unchanged = all(torch.equal(a, b) for a, b in zip(before, trial.buffers(), strict=True))
        return same and unchanged and torch.equal(state, torch.default_generator.get_state())


def draws_as_told(model: nn.Module, x: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Whether a module draws its random numbers in training alone, from a generator it is given.

    Then scores and gradients are those that torch's own generator makes from the same seed, and
    that one, NumPy's and Python's stay as they are. A second time gives the same: a module that
    keeps a generator or a counter of its own would go on with it, and a copy of it with another.
    """
    found: list[list[Tensor]] = []
    with torch.random.fork_rng(devices=[]):
        for drawing in (None, Drawing()):
            trial = copy.deepcopy(model).cpu()
            first = [b.clone() for b in trial.buffers()]
            before = states()
            try:
                for _ in range(2):
                    for buffer, value in zip(trial.buffers(), first, strict=True):
                        buffer.copy_(value)
                    found.append(_trained(trial.train(), _few(x, dtype), drawing))
                with torch.no_grad():
                    found[-1].append(trial.eval()(_few(x, dtype)))
                    found[-2].append(trial(_few(x, dtype)))
            except Exception:  # whatever a user's module cannot do with so few examples
                return False
        untouched = before == states()
    return untouched and all(all(map(torch.equal, found[0], other)) for other in found[1:])


def _trained(trial: nn.Module, x: Tensor, drawing: Drawing | None) -> list[Tensor]:
    """Return scores, gradients and buffers after a batch, with random numbers from a seed."""
    generator = drawing.generator if drawing else torch.default_generator
    generator.manual_seed(1)
    with drawing or nullcontext():
        scores = trial(x)
    loss = (scores * torch.linspace(1, 2, scores.numel()).view_as(scores)).sum()
    weights = [w for w in trial.parameters() if w.requires_grad]
    grads = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    return [scores, *grads, *(b.clone() for b in trial.buffers())]


def _few(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a few examples as a module sees them, on the CPU."""
    few = inputs(x[torch.linspace(0, len(x) - 1, min(4, len(x))).long()].cpu(), dtype)
    return few.clone()  # a module may work in place


def states() -> list[object]:
    """Return the states of the generators that a module may draw from behind one's back."""
    numpys = np.random.get_state(legacy=False)  # noqa: NPY002  a user's module may draw from it
    keys = numpys["state"].pop("key").tolist()
    return [torch.default_generator.get_state().tolist(), keys, numpys, random.getstate()]
