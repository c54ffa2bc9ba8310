"""NODE_GROUPING of Algorithm 1: k-medoids by Voronoi iteration over two costs.

`paper` follows the printed equations, `reference` the costs of the authors' simulator; `fl_sim.py`
has all rules of that. They share the loop and the medoid update and differ in what assigning a node
costs:

- paper: Cost_A(i, k) = Delta^k with i in the group, and the hops from i to medoid k (eq:Cost_A);
  each normalised by the first value met.
- reference: the total Delta and the total hops of all groups so far, Delta weighted by the data so
  far; each normalised by its mean over 100 random groupings.

Both visit the nodes in random order, starting from groups of one medoid each, and keep sums so that
adding node i to group k changes q' G q by 2 p_i (G q)_i + p_i^2 G_ii.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.core.amounts import size
from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.core.memory import physical_memory
from coterie.divergences.gram import LEAST_SHARE, divergence, group_divergences
from coterie.grouping import Evidence, Grouping, Planner, with_servers

RANDOM_GROUPINGS = 100
PAIR_BYTES = 17  # of memory for every two nodes: what they differ by, hops, and who is with whom


@dataclass(frozen=True)
class Weights:
    """alpha_iid and alpha_comm of eq:Cost, each over its normalising constant C."""

    iid: float
    comm: float

    def __call__(self, iid: Floats, comm: Floats) -> Floats:
        """Combine the two costs (eq:Cost)."""
        return self.iid * iid + self.comm * comm


Kind = Literal["paper", "reference"]
Assign = Callable[[Kind, Evidence, Ints, Weights, Ints, np.random.Generator], Ints]


def node_grouping(
    kind: Kind, alpha_iid: float, alpha_comm: float, assigned: Assign | None = None
) -> Planner:
    """Return NODE_GROUPING as a planner; FedAvg-I has alpha_comm = 0, FedAvg-C alpha_iid = 0."""
    by = assigned or assign

    def plan(e: Evidence, rng: np.random.Generator) -> Grouping:
        n, K = len(e.p), e.num_groups
        check_room(kind, n)
        medoids = rng.choice(n, K, replace=False)
        order = rng.permutation(n)
        C = _first_costs(e, medoids, order) if kind == "paper" else _mean_costs(e, rng)
        weights = normalised(alpha_iid, alpha_comm, *C)
        z = by(kind, e, medoids, weights, order, rng)
        trace = [assignment_cost(kind, e, z, medoids, weights)]
        C_U = [_first(cost[np.argsort(z, kind="stable")]) for cost in update_costs(e, z)]
        update_weights = normalised(alpha_iid, alpha_comm, *C_U)
        while True:  # until the last Cost_A is steady
            medoids = new_medoids(e, z, update_weights)
            new_z = by(kind, e, medoids, weights, rng.permutation(n), rng)
            cost = assignment_cost(kind, e, new_z, medoids, weights)
            if cost >= trace[-1]:
                return with_servers(z, e, tuple(trace))
            z = new_z
            trace.append(cost)

    return plan


def check_room(kind: str, n: int) -> None:
    """Refuse more nodes than memory has room for, before it is tried."""
    needed, there = PAIR_BYTES * n * n, physical_memory()
    if there is not None and needed > there:
        raise GroupingError(
            f"{kind} compares every two nodes: {n:,} of them need {size(needed)} of memory, "
            f"this machine has {size(there)}; use coterie"
        )


def assignment_cost(kind: Kind, e: Evidence, z: Ints, medoids: Ints, weights: Weights) -> float:
    """Cost of a whole assignment: what the search must lower to go on.

    paper: the mean of Cost_A(i, z_i) over the nodes; reference: total Delta and total hops.
    """
    hops = e.hops[np.arange(len(z)), medoids[z]].astype(np.float64)
    if kind == "paper":
        return float(weights(group_divergences(e.inner, e.p, z)[z], hops).mean())
    total = divergence(e.inner, e.p, z).Delta
    return float(weights(np.array(total), np.array(hops.sum())))


def assign(
    kind: Kind,
    e: Evidence,
    medoids: Ints,
    weights: Weights,
    order: Ints,
    rng: np.random.Generator,
) -> Ints:
    """z <- (argmin_k Cost_A(i, k) for all i), node by node in the given order, medoids staying."""
    n, K = len(e.p), len(medoids)
    z = np.full(n, -1, dtype=np.int64)
    z[medoids] = np.arange(K)
    mass = e.p[medoids].copy()  # [K]: sum(q_k)
    towards = mass[:, None] * e.inner[medoids]  # [K, n]: G q_k
    square = mass**2 * e.inner[medoids, medoids]  # [K]: q_k' G q_k
    for i in order:
        if z[i] >= 0:
            continue
        p_i = e.p[i]
        grown = np.maximum(square + 2 * p_i * towards[:, i] + p_i**2 * e.inner[i, i], 0.0)
        if kind == "paper":
            iid = np.sqrt(grown) / np.maximum(
                mass + p_i, LEAST_SHARE
            )  # Delta^k with i in the group
        else:
            # growth of the total Delta over what is assigned so far
            iid = (np.sqrt(grown) - np.sqrt(square)) / max(mass.sum() + p_i, LEAST_SHARE)
        k = least(weights(iid, e.hops[i, medoids].astype(np.float64)), rng)
        z[i] = k
        mass[k] += p_i
        towards[k] += p_i * e.inner[i]
        square[k] = grown[k]
    return z


def least(cost: Floats, rng: np.random.Generator) -> int:
    """Least cost, ties at random: the first of equals would depend on how groups are numbered."""
    best = np.flatnonzero(cost <= cost.min())
    return int(best[0] if len(best) == 1 else rng.choice(best))


def new_medoids(e: Evidence, z: Ints, weights: Weights) -> Ints:
    """Make the medoid of group k argmin_i Cost_U(i, k): near the mean gradient, near its group."""
    cost = weights(*update_costs(e, z))
    groups = [np.flatnonzero(z == k) for k in range(int(z.max()) + 1)]
    return np.array([members[np.argmin(cost[members])] for members in groups], dtype=np.int64)


def update_costs(e: Evidence, z: Ints) -> tuple[Floats, Floats]:
    """Both parts of Cost_U(i, z_i) for every node (eq:Cost_U)."""
    iid = e.p * np.sqrt(np.maximum(np.diag(e.inner), 0.0))
    together = z[:, None] == z[None, :]
    return iid, (e.hops * together).sum(axis=1).astype(np.float64)


def normalised(alpha_iid: float, alpha_comm: float, C_iid: float, C_comm: float) -> Weights:
    """Put both weights over their constants; a cost that is always 0 needs none."""
    return Weights(alpha_iid / (C_iid or 1.0), alpha_comm / (C_comm or 1.0))


def _first(values: Floats) -> float:
    """First cost value met that is not zero; 0 where there is none."""
    met = values[values > 0]
    return float(met[0]) if len(met) else 0.0


def _first_costs(e: Evidence, medoids: Ints, order: Ints) -> tuple[float, float]:
    """Cost_A of the first node visited, in the first medoid's group."""
    others = order[~np.isin(order, medoids)]
    m = medoids[0]
    q_i, q_m = e.p[others], e.p[m]
    square = q_m**2 * e.inner[m, m] + 2 * q_m * q_i * e.inner[m, others]
    square = square + q_i**2 * np.diag(e.inner)[others]
    iid = np.sqrt(np.maximum(square, 0.0)) / np.maximum(q_m + q_i, LEAST_SHARE)
    return _first(iid), _first(e.hops[others, m].astype(np.float64))


def _mean_costs(e: Evidence, rng: np.random.Generator) -> tuple[float, float]:
    """Mean total Delta and total hops over random groupings."""
    n, K = len(e.p), e.num_groups
    costs = []
    for _ in range(RANDOM_GROUPINGS):
        medoids = rng.choice(n, K, replace=False)
        z = rng.integers(K, size=n)
        z[medoids] = np.arange(K)
        hops = e.hops[np.arange(n), medoids[z]].sum()
        costs.append((divergence(e.inner, e.p, z).Delta, float(hops)))
    iid, comm = np.mean(costs, axis=0)
    return float(iid), float(comm)
