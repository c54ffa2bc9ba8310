"""Which vector is a node's own model: the one that it is scored by."""

from typing import TYPE_CHECKING

import numpy as np

from coterie.core.arrays import Ints
from coterie.engine.contract import Models

if TYPE_CHECKING:
    from torch import Tensor


def own_models(models: Models, nodes: Ints) -> "Tensor":
    """Return the own models [c, d] of c nodes."""
    return models.w[models.of_node[nodes]]


def sharing(models: Models) -> Ints:
    """Return a number [n] for every node; nodes with the same number have the same own model."""
    return models.of_node


def distinct(models: Models) -> tuple[Ints, Ints]:
    """Return for each distinct own model a node that has it, and each node's model among these.

    >>> first, which = distinct(Models(None, np.array([2, 0, 2])))
    >>> first.tolist(), which.tolist()
    ([1, 0], [1, 0, 1])
    """
    _, first, which = np.unique(sharing(models), return_index=True, return_inverse=True)
    return first, which
