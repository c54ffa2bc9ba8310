"""Gradients in a few numbers: a node uploads a sketch [r] in place of its gradient [d].

Inner products survive, so the Gram matrix of the sketches stands in for that of the gradients.
"""

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats
from coterie.core.errors import ConfigError, GroupingError
from coterie.core.streams import Stream, generator

SIZE = 256  # r, unless told: squared lengths are then right to 9 %, lengths to about half of that
COLUMNS = 65_536  # gradient entries hashed at once
NARROW = 1e-5  # below this a difference of two erfcx is its slope times the gap


@dataclass(frozen=True)
class Sketch:
    """CountSketch: entry j of a vector is added to bucket h(j) of r = `size`, with a sign s(j).

    Sx_b = sum over j with h(j) = b of s(j) x_j, where h and s come from the seed alone, so that
    all nodes project alike. Over seeds <Sx, Sy> has mean <x, y> and variance
    (|x|^2 |y|^2 + <x, y>^2 - 2 sum_j x_j^2 y_j^2) / r: a standard deviation of at most
    sqrt(2 / r) |x| |y|.
    """

    size: int
    seed: int

    def __post_init__(self) -> None:
        """Refuse what is no projection."""
        if self.size < 1:
            raise ConfigError(f"sketch size must be >= 1, got {self.size}; {SIZE} is usual")
        if self.seed < 0:
            raise ConfigError(f"sketch seed must be >= 0, got {self.seed}")

    def apply(self, vectors: NDArray[np.floating[Any]]) -> Floats:
        """Project [n, d] to [n, r], or [d] to [r], in O(d) a vector and without a copy of them.

        A vector of d <= r entries is kept exactly, with zeros after it.

        >>> Sketch(4, seed=0).apply(np.array([1.0, 2.0])).tolist()
        [1.0, 2.0, 0.0, 0.0]
        >>> Sketch(4, seed=0).apply(np.ones((3, 1000))).shape
        (3, 4)
        """
        if vectors.ndim not in (1, 2):
            raise GroupingError(f"a sketch takes rows [n, d] or one [d], got {vectors.shape}")
        sketches = self._project(np.atleast_2d(vectors))
        return _finite(sketches.reshape(*vectors.shape[:-1], self.size))

    def _project(self, vectors: NDArray[np.floating[Any]]) -> Floats:
        d, r = vectors.shape[1], self.size
        if d <= r:
            exact = np.zeros((len(vectors), r))
            exact[:, :d] = vectors
            return exact
        rng = generator(self.seed, Stream.SKETCH)
        sums = np.zeros((len(vectors), 2 * r))  # bucket b: [2b] of sign +, [2b + 1] of sign -
        columns = max(COLUMNS, 2 * r)
        for at in range(0, d, columns):
            hashes = rng.integers(2 * r, size=min(columns, d - at))
            for i, row in enumerate(vectors[:, at : at + columns]):
                sums[i] += np.bincount(hashes, weights=row, minlength=2 * r)
        with np.errstate(invalid="ignore"):  # inf - inf, which `apply` refuses
            sketches: Floats = sums[:, ::2] - sums[:, 1::2]
        return sketches


@dataclass(frozen=True)
class Privacy:
    """Hides a node's data in its upload, by (epsilon, delta)-differential privacy.

    Replace all data of one node by any other: the chance of whatever its upload shows changes by
    a factor of at most e^epsilon, but for a chance of delta. Each sketch is cut to the length
    `clip`, a constant that may not be set from the data; two of them are then at most 2 clip
    apart, and Gaussian noise of standard deviation `sigma` hides that. As the projection comes
    before the cut, the bound is exact, however the projection stretches a gradient.

    It covers one upload. After R plannings the epsilons add up, at worst to R epsilon, and the
    deltas to R delta. It covers neither the models that nodes upload to train, nor their shares
    p, nor a server that knows the generator of the noise.

    What the server sees is noisy: |x|^2 grows by r sigma^2 in the mean, <x, y> keeps its mean.
    """

    epsilon: float
    delta: float
    clip: float

    def __post_init__(self) -> None:
        """Refuse what promises nothing, or cannot be kept."""
        if not 0 < self.epsilon < math.inf:
            raise ConfigError(f"privacy epsilon must be > 0 and finite, got {self.epsilon:g}")
        if not 0 < self.delta < 1:
            raise ConfigError(
                f"privacy delta must be between 0 and 1, got {self.delta:g}; "
                "use far less than 1 / num_nodes"
            )
        if not 0 < self.clip < math.inf:
            raise ConfigError(
                f"privacy clip must be > 0 and finite, got {self.clip:g}; "
                "use a constant that is chosen before the data are seen"
            )

    @cached_property
    def sigma(self) -> float:
        """The least noise that keeps the promise: the analytic Gaussian mechanism.

        Balle and Wang (ICML 2018): noise of standard deviation s times the sensitivity, here
        2 clip, is (epsilon, delta)-private if and only if
        Phi(1/(2s) - epsilon s) - e^epsilon Phi(-1/(2s) - epsilon s) <= delta.

        >>> round(Privacy(epsilon=1.0, delta=1e-5, clip=0.5).sigma, 4)
        3.7306
        """
        return 2 * self.clip * _least_noise(self.epsilon, self.delta)

    def clipped(self, sketches: Floats) -> Floats:
        """Scale rows [n, r] that are longer than `clip` down to it; keep the others.

        >>> Privacy(1.0, 1e-5, clip=2.5).clipped(np.array([[3.0, 4.0], [0.3, 0.4]])).tolist()
        [[1.5, 2.0], [0.3, 0.4]]
        """
        lengths = np.hypot.reduce(_finite(sketches), axis=-1, keepdims=True)
        short: Floats = sketches * (self.clip / np.maximum(lengths, self.clip))
        return short

    def noisy(self, sketches: Floats, rng: np.random.Generator) -> Floats:
        """What the nodes upload, [n, r] from [n, r]: their clipped sketches plus the noise."""
        return self.clipped(sketches) + rng.normal(scale=self.sigma, size=sketches.shape)


def centred(sketches: Floats, p: Floats) -> Floats:
    """Subtract the mean row, weighted by p [n], from rows [n, r].

    A sketch is linear: these are the sketches of the centred gradients, and their products
    approximate the Gram matrix that `costs` takes.

    >>> centred(np.array([[1.0, 0.0], [5.0, 4.0]]), np.array([0.75, 0.25])).tolist()
    [[-1.0, -1.0], [3.0, 3.0]]
    """
    return sketches - p @ sketches


def _finite(rows: Floats) -> Floats:
    """Return rows [n, r] if all are numbers: after a mean, nobody could tell which is not."""
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=-1))
    if len(bad):
        who = f"the gradient of node {bad[0]}" if rows.ndim == 2 else "the gradient"
        raise GroupingError(f"{who} is not finite")
    return rows


def _least_noise(epsilon: float, delta: float) -> float:
    """Solve Phi(a) - e^epsilon Phi(-b) = delta for s, where a, b = 1/(2s) -+ epsilon s.

    The unknown is a, since b^2 = a^2 + 2 epsilon and 1/s = a + b. With e^epsilon phi(b) = phi(a)
    the left side is e^(-a^2/2) (erfcx(-a/sqrt 2) - erfcx(b/sqrt 2)) / 2, where nothing overflows.
    It rises in a from below Phi(a), and for a > 0 is at least 2 Phi(a) - 1: that brackets a.
    """
    from scipy.optimize import brentq
    from scipy.special import erfcx, erfinv, ndtr, ndtri

    root = math.sqrt(2) * math.sqrt(epsilon)

    def inverse(a: float) -> float:
        b = math.hypot(a, root)
        return a + b if a > 0 else root * (root / (b - a))  # 1/s, without cancelling

    def excess(a: float) -> float:
        b, gap = math.hypot(a, root), inverse(a) / math.sqrt(2)
        if gap < NARROW:
            middle = (b - a) / math.sqrt(8)
            fall = gap * (2 / math.sqrt(math.pi) - 2 * middle * erfcx(middle))
        elif a > 1:  # a delta near 1, whose distance from 1 is to be kept
            tail = math.exp(-(a**2) / 2) * erfcx(b / math.sqrt(2)) / 2
            return math.log(ndtr(a) - tail) - math.log(delta)
        else:
            fall = erfcx(-a / math.sqrt(2)) - erfcx(b / math.sqrt(2))
        return -(a**2) / 2 + math.log(max(fall / 2, sys.float_info.min)) - math.log(delta)

    low, high = float(ndtri(delta)) - 1, math.sqrt(2) * float(erfinv(delta)) + 1
    a = brentq(excess, low, high, xtol=1e-14 * root, maxiter=1000)
    return 1 / inverse(float(a))
