"""What goes into a group's mean: whose data weighs how much, and how models are added up."""

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import Ints
from coterie.engine.contract import Models


def counts(sizes: Ints, there: Ints) -> Ints:
    """Weight [n] of every node in its group's mean before it is divided: its examples, if there.

    A whole number times a model in single precision is exact in double precision, and so are sums
    of such unless their sizes differ by far: no digit depends on the order in which they are added.
    Models that are trained in one stack are averaged in single precision first, and weigh together.

    >>> counts(np.array([5, 3, 4]), np.array([1, 2])).tolist()
    [0, 3, 4]
    """
    found = np.zeros_like(sizes)
    found[there] = sizes[there]
    return found


def divide(sums: Tensor, sizes: Ints, models: Models, z: Ints, there: Ints) -> Tensor:
    """Make means of the groups' sums [K, d]; where nobody was there, of what its nodes have."""
    mass = np.bincount(z, weights=counts(sizes, there), minlength=len(sums))
    means = sums / torch.from_numpy(np.where(mass > 0, mass, 1.0)).to(sums)[:, None]
    for k in np.flatnonzero(mass == 0):
        members = z == k
        rows = torch.from_numpy(models.of_node[members]).to(sums.device)
        weights = torch.from_numpy(sizes[members]).double()
        means[k] = weights.to(sums) @ models.w.to(sums)[rows] / weights.sum()
    return means


def add_up(total: Tensor, weights: Tensor, parts: list[Tensor]) -> None:
    """Add to total [K, d] the models whose pieces [c, ...] are given, weighted [K, c]."""
    at = 0
    for part in parts:
        flat = part.flatten(1)
        place = total[:, at : at + flat.shape[1]]
        if len(flat) == 1 and flat.device.type == "cpu":  # of one group
            k = int(weights[:, 0].argmax())
            place[k].add_(flat[0], alpha=float(weights[k, 0]))
        else:
            place.addmm_(weights, flat)
        at += flat.shape[1]
