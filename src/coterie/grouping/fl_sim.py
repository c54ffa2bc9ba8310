"""The search of the authors' published program (FL-Sim), rule by rule.

It is NODE_GROUPING over total costs, as `reference` in medoids.py, with four rules of its own:

- A node's trial membership costs the total Delta and the total hops of all that have a group so
  far; hops go to each group's best server of the moment, the member with the least sum of them.
- Each cost is normalised by its mean over 100 groupings that grow at random, taken after every
  node that joins, so that most of them are partial.
- The costs of a medoid are normalised by their means over the members of those groupings.
- It goes on from the last assignment, be it worse, until five in a row are no better than the best
  by more than 1%.
"""

from collections.abc import Iterator

import numpy as np

from coterie.core.arrays import Bools, Floats, Ints
from coterie.divergences.gram import LEAST_SHARE
from coterie.grouping.evidence import Evidence
from coterie.grouping.medoids import (
    RANDOM_GROUPINGS,
    Weights,
    check_room,
    least,
    new_medoids,
    normalised,
    update_costs,
)
from coterie.grouping.seating import with_servers
from coterie.grouping.values import Grouping, Planner

STEADY = 5  # assignments in a row that lower the cost by no more than
THRESHOLD = 0.01


class Growing:
    """Groups [K] that nodes join one by one; costs are of all that have joined."""

    def __init__(self, e: Evidence, medoids: Ints) -> None:
        """Begin with groups of one medoid each."""
        K = len(medoids)
        self.z = np.full(len(e.p), -1, dtype=np.int64)
        self.z[medoids] = np.arange(K)
        self._e, self._each = e, np.arange(K)
        self._mass = float(e.p[medoids].sum())
        self._towards = e.p[medoids, None] * e.inner[medoids]  # [K, n]: G q_k
        self._square = e.p[medoids] ** 2 * e.inner[medoids, medoids]  # [K]: q_k' G q_k
        self._far = e.hops[medoids].astype(np.float64)  # [K, n]: hops from a group's members
        self._inside: Bools = self.z[None] == self._each[:, None]
        self._least = np.zeros(K)  # of a group's members: the hops to its best server

    def joined(self, i: int) -> tuple[Floats, Floats]:
        """Return the total Delta and the total hops with node i in each of the groups [K]."""
        e, p = self._e, self._e.p[i]
        roots = np.sqrt(np.maximum(self._square, 0.0))
        grown = np.sqrt(np.maximum(self._grown(i), 0.0))
        Delta = (roots.sum() - roots + grown) / max(self._mass + p, LEAST_SHARE)
        return Delta, self._least.sum() - self._least + self._near(self._far + e.hops[i], i)

    def join(self, i: int, k: int) -> None:
        """Put node i into group k."""
        e, p = self._e, self._e.p[i]
        self._square[k] = self._grown(i)[k]
        self._towards[k] += p * e.inner[i]
        self._mass += float(p)
        self._far[k] += e.hops[i]
        self._least[k] = self._near(self._far[[k]], i, k)[0]
        self._inside[k, i] = True
        self.z[i] = k

    def _grown(self, i: int) -> Floats:
        p = self._e.p[i]
        found: Floats = self._square + 2 * p * self._towards[:, i] + p**2 * self._e.inner[i, i]
        return found

    def _near(self, far: Floats, i: int, k: int | None = None) -> Floats:
        """Least sum of hops to any member, node i included; of all groups, or one."""
        inside = self._inside if k is None else self._inside[[k]]
        found: Floats = np.minimum(np.where(inside, far, np.inf).min(axis=1), far[:, i])
        return found


def fl_sim(alpha_iid: float = 1.0, alpha_comm: float = 1.0) -> Planner:
    """Return the program's search as a planner; FedAvg-I has alpha_comm = 0, FedAvg-C alpha_iid."""

    def plan(e: Evidence, rng: np.random.Generator) -> Grouping:
        check_room("fl-sim", len(e.p))
        C, C_medoid = mean_costs(e, rng)
        weights = normalised(alpha_iid, alpha_comm, *C)
        update_weights = normalised(alpha_iid, alpha_comm, *C_medoid)
        z, cost = _assigned(e, rng.choice(len(e.p), e.num_groups, replace=False), weights, rng)
        best, trace, steady = z, [cost], 0
        while steady < STEADY:
            z, cost = _assigned(e, new_medoids(e, z, update_weights), weights, rng)
            steady += 1
            if trace[-1] - cost > THRESHOLD * cost:
                best, steady = z, 0
                trace.append(cost)
        return with_servers(best, e, tuple(trace))

    return plan


def _assigned(
    e: Evidence, medoids: Ints, weights: Weights, rng: np.random.Generator
) -> tuple[Ints, float]:
    """Assign all nodes in random order, each where the total is least; return that total, too."""
    groups, cost = Growing(e, medoids), np.zeros(1)
    for i in _others(medoids, rng.permutation(len(e.p))):
        costs = weights(*groups.joined(i))
        k = least(costs, rng)
        cost = costs[[k]]
        groups.join(i, k)
    return groups.z, float(cost[0])


def mean_costs(
    e: Evidence, rng: np.random.Generator
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Mean costs of groupings that grow at random, and of a node as the medoid of its group."""
    n, K = len(e.p), e.num_groups
    grown: list[tuple[float, float]] = []
    of_medoids: list[tuple[float, float]] = []
    for _ in range(RANDOM_GROUPINGS):
        medoids = rng.choice(n, K, replace=False)
        groups = Growing(e, medoids)
        for i in _others(medoids, rng.permutation(n)):
            k = int(rng.integers(K))
            Delta, hops = groups.joined(i)
            grown.append((float(Delta[k]), float(hops[k])))
            groups.join(i, k)
        iid, comm = update_costs(e, groups.z)
        of_medoids.append((float(iid.mean()), float(comm.mean())))
    return _means(grown), _means(of_medoids)


def _means(costs: list[tuple[float, float]]) -> tuple[float, float]:
    """Average both costs; without any, as with a group for each node, nothing is normalised."""
    if not costs:
        return 1.0, 1.0
    iid, comm = np.mean(costs, axis=0)
    return float(iid), float(comm)


def _others(medoids: Ints, order: Ints) -> Iterator[int]:
    """Yield the nodes in an order, without the medoids."""
    return (int(i) for i in order[~np.isin(order, medoids)])
