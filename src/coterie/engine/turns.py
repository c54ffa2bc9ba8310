"""What nodes begin their local steps with, and what they leave behind, by an algorithm's update."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import Floats, Ints
from coterie.engine.contract import LocalSteps, Models
from coterie.engine.local_rule import LocalRule
from coterie.engine.memory import (
    BESIDE,
    COMMON,
    GROUP,
    GROUPS,
    OWN,
    PART,
    PLACES,
    remembered,
    theirs,
)
from coterie.engine.update import At, Update

LEAST_RATES = 1e-30  # below this, the way divided by the rates is no gradient any more


@dataclass(frozen=True, eq=False)
class Begun:
    """Models w[rows] that c nodes start from, and where they are; None where nothing is added."""

    w: Tensor
    rows: Tensor
    at: At | None


class Turns:
    """Steps start+1 .. stop of nodes: what they keep is renewed in `own`, a row for each of them.

    `rank` [n] is the row of every node there, `sizes` [n] are their examples, and `mean_steps` [n]
    the batches that those take who are averaged with them. Rows of nodes that are not `there` stay.
    """

    def __init__(
        self,
        rule: LocalRule,
        models: Models,
        steps: LocalSteps,
        start: int,
        stop: int,
        sizes: Ints,
        rank: Ints,
        d: int,
        mean_steps: Floats,
        there: Ints,
    ) -> None:
        """Take the rule, the models and their memory, and which steps are taken."""
        self._old = remembered(models, OWN)
        self._new: dict[str, Tensor] = {}
        for key, array in self._old.items():  # rows of those who are there will be written
            away = np.setdiff1d(np.arange(len(array)), rank[there])
            self._new[key] = torch.empty_like(array)
            self._new[key][away] = array[away]
        self._written: set[str] = set()
        self._models, self._d, self._rank, self._sizes = models, d, rank, sizes
        self._update: Update = rule.update
        self.beside = replace(rule, update=Update(correct=rule.update.beside))
        self._common = theirs(remembered(models, COMMON))
        self._group = remembered(models, GROUP)
        self._rates = sum(steps.lr_at(t) for t in range(start + 1, stop + 1))
        self._batches, self._taken = steps, stop - start
        self._mean_steps = mean_steps

    @property
    def own(self) -> dict[str, Tensor]:
        """What nodes keep, once all who are there have ended their turn."""
        return {k: self._new[k] if k in self._written else old for k, old in self._old.items()}

    def begin(self, nodes: Ints) -> Begun:
        """Return what nodes begin with."""
        models = self._models
        rows = torch.from_numpy(models.of_node[nodes]).to(models.w.device)
        if not self._update.local:
            return Begun(models.w, rows, None)
        same = len(nodes) > 1 and (models.of_node[nodes] == models.of_node[nodes[0]]).all()
        if PLACES not in models.memory and same:  # as is usual: one model, and no copy of it
            given = models.w[int(models.of_node[nodes[0]])].expand(len(nodes), -1)
            return Begun(models.w, rows, self._at(nodes, given[:, : self._d]))
        given = models.w.index_select(0, rows)
        if PLACES in models.memory:  # a node knows its own part alone, and is pulled to no other
            given[:, models.memory[PLACES]] = self._old[PART.removeprefix(OWN)][self._rank[nodes]]
        at = self._at(nodes, given[:, : self._d])
        return Begun(given, torch.arange(len(nodes), device=given.device), at)

    def _at(self, nodes: Ints, given: Tensor) -> At:
        rank = self._rank[nodes]
        node = {key: _rows(array, rank) for key, array in theirs(self._old).items()}
        group = {}
        if self._group:
            z = self._models.memory[GROUPS][torch.from_numpy(nodes)].to(given.device)
            group = {key: _rows(array, z) for key, array in self._group.items()}
        batches = per_step(self._batches, self._sizes[nodes])
        numbers = np.stack((self._summed(nodes), self._taken * batches, self._mean_steps[nodes]))
        columns = given.new_tensor(numbers, device="cpu").to(given.device)[..., None]  # [3, c, 1]
        return At(given, node, group, self._common, *columns)

    def _summed(self, nodes: Ints) -> Floats:
        """Sum of the learning rates over the batches of the turn, [c]."""
        batches = per_step(self._batches, self._sizes[nodes]).astype(np.float64)
        found: Floats = self._rates * batches
        return found

    def end(self, nodes: Ints, done: Tensor, at: At) -> Tensor:
        """Renew what nodes keep, whose models are `done` [c, D] now; return what they send."""
        rank, update, d = self._rank[nodes], self._update, self._d
        sent = done
        if update.send is not None:
            sent = done.clone()
            sent[:, :d] = update.send(done[:, :d], at)
        if update.renew is not None:
            bad = np.flatnonzero(self._summed(nodes) <= LEAST_RATES)
            for key, array in update.renew(done[:, :d], at).items():
                rows = array.reshape(len(nodes), *self._old[key].shape[1:])
                if len(bad):
                    rows = rows.clone()
                    rows[bad] = self._old[key][rank[bad]]
                self._write(key, rank, rows)
        if PLACES in self._models.memory:
            self._write(PART.removeprefix(OWN), rank, done[:, self._models.memory[PLACES]])
        return sent

    def _write(self, key: str, rank: Ints, rows: Tensor) -> None:
        self._new[key][rank] = rows
        self._written.add(key)

    def begin_beside(self, nodes: Ints, at: At) -> Begun:
        """Return what nodes begin with to train their second models."""
        w = self._old[BESIDE.removeprefix(OWN)][self._rank[nodes]]
        return Begun(w, torch.arange(len(nodes), device=w.device), at)

    def end_beside(self, nodes: Ints, done: Tensor) -> None:
        """Keep the second models, `done` [c, D] now."""
        self._write(BESIDE.removeprefix(OWN), self._rank[nodes], done)


def _rows(array: Tensor, rows: Ints | Tensor) -> Tensor:
    """Take rows of an array [n, d], or of one [n] as [c, 1]."""
    found = array[rows]
    return found[:, None] if found.ndim == 1 else found


def per_step(steps: LocalSteps, sizes: Ints) -> Ints:
    """Count the mini-batches that nodes of so many examples take in a step.

    >>> per_step(LocalSteps(0.5, 1.0, 10, "epoch", 0), np.array([25, 3])).tolist()
    [3, 1]
    """
    if steps.batch_size is None or steps.unit == "batch":
        return np.ones_like(sizes)
    return -(-sizes // steps.batch_size)


def mean_steps(steps: LocalSteps, taken: int, sizes: Ints, z: Ints, there: Ints) -> Floats:
    """Average the batches of a turn over those who are there, in every group, by data: [n].

    >>> steps = LocalSteps(0.5, 1.0, 10, "epoch", 0)
    >>> mean_steps(steps, 2, np.array([10, 30]), np.zeros(2, int), np.arange(2)).tolist()
    [5.0, 5.0]
    """
    weights = np.zeros(len(sizes))
    weights[there] = sizes[there]
    mass = np.bincount(z, weights=weights)
    total = np.bincount(z, weights=weights * per_step(steps, sizes))
    means: Floats = taken * total / np.where(mass > 0, mass, 1.0)
    return means[z]
