"""The paper's divergences on a Gram matrix, so that no function here sees a d-sized array.

With centred gradients g_i = grad F_i - grad F and G_ij = <g_i, g_j>, everything in
eq:GradientDivergence is a quadratic form: n nodes, K groups, G [n, n], p [n], z [n] in 0..K-1.
"""

from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import Floats, Ints

LEAST_SHARE = 1e-300  # of nothing: nodes without data have no divergence, rather than 0 / 0


@dataclass(frozen=True)
class Divergence:
    """delta, the data-weighted local-to-group divergence, and Delta, the group-to-global one."""

    delta: float
    Delta: float


def divergence(gram: Floats, p: Floats, z: Ints) -> Divergence:
    """Compute delta and Delta of a grouping (eq:GradientDivergence, eq:GradientDivergenceSum).

    Delta^k = sqrt(q' G q) / sum(q) with q = p restricted to group k, and
    (delta_i^k)^2 = G_ii - 2 (G q)_i / sum(q) + (Delta^k)^2. A group without data counts nothing.

    Two opposite nodes: apart, each group is as far from the mean as its node; together, not at all.

    >>> G = np.array([[4.0, -4.0], [-4.0, 4.0]])
    >>> divergence(G, np.array([0.5, 0.5]), np.array([0, 1]))
    Divergence(delta=0.0, Delta=2.0)
    >>> divergence(G, np.array([0.5, 0.5]), np.array([0, 0]))
    Divergence(delta=2.0, Delta=0.0)
    """
    q = _restricted(p, z)  # [K, n]
    mass = np.maximum(q.sum(axis=1), LEAST_SHARE)
    towards = q @ gram / mass[:, None]  # [K, n]: <g^k, g_i>
    squared = np.maximum((towards * q).sum(axis=1) / mass, 0.0)  # [K]: (Delta^k)^2
    local = np.diag(gram) - 2 * towards[z, np.arange(len(z))] + squared[z]
    return Divergence(
        delta=float(p @ np.sqrt(np.maximum(local, 0.0))),
        Delta=float(mass @ np.sqrt(squared)),
    )


def group_divergences(gram: Floats, p: Floats, z: Ints) -> Floats:
    """Compute Delta^k of every group [K]; 0 of one without data."""
    q = _restricted(p, z)
    squared = np.maximum(((q @ gram) * q).sum(axis=1), 0.0)
    apart: Floats = np.sqrt(squared) / np.maximum(q.sum(axis=1), LEAST_SHARE)
    return apart


def _restricted(p: Floats, z: Ints) -> Floats:
    """Rows q_k: p on the nodes of group k, else 0."""
    q = np.zeros((int(z.max()) + 1, len(z)))
    q[z, np.arange(len(z))] = p
    return q
