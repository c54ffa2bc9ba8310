"""Which vector is a node's own model: the one that it is scored by."""

from typing import TYPE_CHECKING

import numpy as np

from coterie.core.arrays import Ints
from coterie.engine.contract import Models
from coterie.engine.memory import BESIDE, PART, PLACES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


def own_models(models: Models, nodes: Ints) -> "Tensor":
    """Return the own models [c, d] of c nodes: what they were given, or what they keep of it."""
    if BESIDE in models.memory:
        return models.memory[BESIDE][nodes]
    found = models.w[models.of_node[nodes]]
    if PLACES in models.memory:
        found[:, models.memory[PLACES]] = models.memory[PART][nodes]
    return found


def one_by_one(models: Models, nodes: Ints) -> "Iterator[Tensor]":
    """Yield the own models [d] of nodes in turn: all at once may be more than memory holds."""
    for at in range(len(nodes)):
        yield own_models(models, nodes[at : at + 1])[0]


def sharing(models: Models) -> Ints:
    """Return a number [n] for every node; nodes with the same number have the same own model."""
    personal = BESIDE in models.memory or PLACES in models.memory
    return np.arange(len(models.of_node)) if personal else models.of_node


def distinct(models: Models) -> tuple[Ints, Ints]:
    """Return for each distinct own model a node that has it, and each node's model among these.

    >>> first, which = distinct(Models(None, np.array([2, 0, 2])))
    >>> first.tolist(), which.tolist()
    ([1, 0], [1, 0, 1])
    """
    _, first, which = np.unique(sharing(models), return_index=True, return_inverse=True)
    return first, which
