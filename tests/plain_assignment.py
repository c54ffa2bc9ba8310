"""The assignment step of NODE_GROUPING, every cost counted anew: slow, and plainly right.

`medoids.assign` must give the same groups; a test says so, and a benchmark how much sooner it does.
"""

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.divergences.gram import LEAST_SHARE
from coterie.grouping import Evidence
from coterie.grouping.medoids import Kind, Weights, least


def assign_plainly(
    kind: Kind,
    e: Evidence,
    medoids: Ints,
    weights: Weights,
    order: Ints,
    rng: np.random.Generator,
) -> Ints:
    """z <- (argmin_k Cost_A(i, k) for all i), node by node in the given order, medoids staying."""
    z = np.full(len(e.p), -1, dtype=np.int64)
    z[medoids] = np.arange(len(medoids))
    for i in order:
        if z[i] >= 0:
            continue
        iid = np.array([_apart(kind, e, z, i, k) for k in range(len(medoids))])
        z[i] = least(weights(iid, e.hops[i, medoids].astype(np.float64)), rng)
    return z


def _apart(kind: Kind, e: Evidence, z: Ints, i: int, k: int) -> float:
    """Delta^k with node i in group k, or the total Delta of all nodes that have a group then."""
    trial = z.copy()
    trial[i] = k
    vectors = _vectors(e)
    found = {}
    for group in [k] if kind == "paper" else range(int(trial.max()) + 1):
        members = np.flatnonzero(trial == group)
        mass = e.p[members].sum()
        mean = (e.p[members, None] * vectors[members]).sum(axis=0) / max(mass, LEAST_SHARE)
        found[group] = mass, float(np.sqrt((mean**2).sum()))
    if kind == "paper":
        return found[k][1]
    total = max(e.p[trial >= 0].sum(), LEAST_SHARE)
    return float(sum(mass * far for mass, far in found.values()) / total)


def _vectors(e: Evidence) -> Floats:
    """Gradients themselves where they are there, else any with the same Gram matrix."""
    if e.vectors is not None:
        return e.vectors
    values, turn = np.linalg.eigh(e.inner)
    rows: Floats = turn * np.sqrt(np.maximum(values, 0.0))
    return rows
