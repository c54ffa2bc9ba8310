"""Smoothness and slope of losses that nobody has a formula for."""

import numpy as np

from coterie.core.arrays import Floats
from coterie.theory.oracle import Oracle


def curvature(oracle: Oracle, w: Floats, rng: np.random.Generator, rounds: int = 30) -> Floats:
    """Largest curvature of every node's loss at w [n], by power iteration on its Hessian.

    From below: it grows to the eigenvalue of largest size with the rounds.
    """
    n = len(oracle.p)
    along = rng.standard_normal((n, len(w)))
    size = np.ones(n)
    for _ in range(rounds):
        along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-300)
        bent = oracle.curve(w, along)
        size = np.linalg.norm(bent, axis=1)
        along = np.where(size[:, None] > 0, bent, along)
    return np.asarray(size)


def smoothness_between(oracle: Oracle, a: Floats, b: Floats) -> float:
    """Largest ||grad F_i(a) - grad F_i(b)|| / ||a - b|| of any node; 0 if a is b."""
    apart = float(np.linalg.norm(a - b))
    if apart == 0:
        return 0.0
    one = np.zeros(len(oracle.p), dtype=np.int64)
    change = oracle.at(a[None], one)[1] - oracle.at(b[None], one)[1]
    return float(np.linalg.norm(change, axis=1).max()) / apart


def omega(starts: Floats, best: Floats) -> float:
    """Least 1 / ||w - w*||^2 of the models that global intervals start from [L, d].

    >>> omega(np.array([[3.0, 4.0], [0.0, 1.0]]), np.zeros(2))
    0.04
    """
    far = float(np.linalg.norm(starts - best, axis=1).max())
    return 1 / far**2 if far else float("inf")


def slope(oracle: Oracle, w: Floats) -> float:
    """Largest ||grad F_i(w)|| of any node: the Lipschitz constant of all losses near w."""
    one = np.zeros(len(oracle.p), dtype=np.int64)
    return float(np.linalg.norm(oracle.at(w[None], one)[1], axis=1).max())
