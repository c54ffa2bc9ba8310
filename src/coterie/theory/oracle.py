"""Losses and gradients of nodes, each at a model of its own, in double precision."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.core.arrays import Floats, Ints
from coterie.engine.module import Nodes, inputs
from coterie.engine.task import CLASSIFICATION, TASKS, Task

# The most that an example's loss bends in the answers, summed over them; not of texts.
BENDS = {"classification": 1 / 2, "regression": 2.0, "binary": 1 / 4, "multi-label": 1 / 4}
PLAIN = (nn.Sequential, nn.Flatten, nn.Identity)


class Oracle(Protocol):
    """Nodes with shares p [n] of the data, whose losses can be asked for."""

    @property
    def p(self) -> Floats:
        """Shares of the data [n]."""

    def at(self, models: Floats, of_node: Ints) -> tuple[Floats, Floats]:
        """Losses [n] and gradients [n, d] of every node at its row of models [m, d]."""

    def curve(self, w: Floats, direction: Floats) -> Floats:
        """Hessian of every node at w, times a direction of its own [n, d]."""


class ModuleOracle:
    """Nodes that train a torch module on all of their examples."""

    def __init__(self, model: nn.Module, nodes: Nodes, task: Task = CLASSIFICATION) -> None:
        """Take a module over, the examples of every node, and what is learnt."""
        self.model, self._task = model.double().eval(), task
        self._names = [name for name, w in model.named_parameters() if w.requires_grad]
        own = dict(model.named_parameters())
        self._shapes = [own[name].shape for name in self._names]
        self.start: Floats = _flat([own[name].detach() for name in self._names]).numpy()
        sizes = [int(size) for size in nodes.sizes]
        self._x = torch.split(torch.from_numpy(np.ascontiguousarray(nodes.x)), sizes)
        self._y = torch.split(torch.from_numpy(np.ascontiguousarray(nodes.y)), sizes)
        self._p: Floats = nodes.sizes / nodes.sizes.sum()

    @property
    def p(self) -> Floats:
        """Shares of the data [n]."""
        return self._p

    def at(self, models: Floats, of_node: Ints) -> tuple[Floats, Floats]:
        """Losses [n] and gradients [n, d]."""
        n, d = len(self._p), models.shape[1]
        losses, grads = np.empty(n), np.empty((n, d))
        for i in range(n):
            params = self._parts(models[of_node[i]])
            loss = self._loss(i, params)
            grads[i] = _flat(torch.autograd.grad(loss, params)).numpy()
            losses[i] = loss.item()
        return losses, grads

    def curve(self, w: Floats, direction: Floats) -> Floats:
        """Hessian times a direction."""
        found = np.empty_like(direction)
        for i in range(len(self._p)):
            params = self._parts(w)
            first = torch.autograd.grad(self._loss(i, params), params, create_graph=True)
            along = torch.from_numpy(direction[i])
            second = torch.autograd.grad(_flat(first) @ along, params, materialize_grads=True)
            found[i] = _flat(second).numpy()
        return found

    def _parts(self, w: Floats) -> list[Tensor]:
        sizes = [shape.numel() for shape in self._shapes]
        parts = torch.split(torch.from_numpy(np.array(w)), sizes)
        return [
            part.view(shape).requires_grad_()
            for part, shape in zip(parts, self._shapes, strict=True)
        ]

    def _loss(self, i: int, params: Sequence[Tensor]) -> Tensor:
        named = dict(zip(self._names, params, strict=True))
        x = inputs(self._x[i])
        x = x.double() if x.is_floating_point() else x
        scores = torch.func.functional_call(self.model, named, (x,))
        return self._task.loss(scores, self._y[i])


def bend_of(model: nn.Module, task: Task, width: int) -> float | None:
    """Return the most that an example's loss bends in a linear model's `width` answers.

    The Hessian of cross entropy, diag(q) - q q', is at most 1/2. A squared error has 2 and a logit
    1/4, of which a loss has the mean over answers. It is None where models are not known to be
    linear, or losses to be convex.

    >>> bend_of(nn.Linear(5, 2), TASKS["regression"], 2), bend_of(nn.ReLU(), CLASSIFICATION, 3)
    (1.0, None)
    """
    layers = [each for each in model.modules() if type(each) not in PLAIN]
    if len(layers) != 1 or type(layers[0]) is not nn.Linear:
        return None
    found = (most for name, most in BENDS.items() if TASKS[name].loss is task.loss)
    most = next(found, None)
    return most if most is None or task.softmax else most / width


def linear_smoothness(nodes: Nodes, bend: float) -> float:
    """Smoothness of a linear model on every node: the bend times the top eigenvalue of mean x x'.

    x has a 1 for the bias.
    """
    most, at = 0.0, 0
    for size in nodes.sizes:
        x = inputs(torch.from_numpy(nodes.x[at : at + size])).reshape(int(size), -1).double()
        x = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], dim=1)
        small: NDArray[np.float64] = (x @ x.T if len(x) < x.shape[1] else x.T @ x).numpy()
        most = max(most, float(np.linalg.eigvalsh(small)[-1]) / len(x))
        at += int(size)
    return bend * most


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
