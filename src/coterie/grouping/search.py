"""Local search: nodes change groups or places with each other while that lowers the cost.

Delta is the sum over the groups of |v_k| with v_k = sum of x_i = p_i g_i, so a move changes two
norms, and both follow from inner products that are kept up to date. The delay of the farthest
members is smoothed, so that bringing one far node nearer counts although another is as far still.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints

Singles = NDArray[np.float32]
ALL = slice(None)

SHARPNESS = 8  # of the smoothed maximum
LEAST_GAIN = 1e-7  # relative, so that rounding cannot make a search go round in circles
BLOCK = 256  # nodes whose swaps with as many others are weighed at once


@dataclass(frozen=True, eq=False)
class Field:
    """What a search weighs and may do.

    far [n, K] seconds between nodes and servers, member_s [K] what a member adds at a server,
    may [n, K] which groups a node may join, and the least and most members of each group [K]. toll
    [n, K], where links between switches are shared: seconds that a node adds on the busiest.
    """

    iid: float
    comm: float
    far: Floats
    member_s: Floats
    may: NDArray[np.bool_]
    least: Ints
    most: Ints
    toll: Floats | None = None

    @cached_property
    def free(self) -> bool:
        """Whether every node may join any group; looked up once, of a million nodes in each."""
        return bool(self.may.all())


class Sums(Protocol):
    """The sums v_k of groups of vectors x_i, known by their inner products."""

    own: Floats  # |x_i|^2 [n]
    square: Floats  # |v_k|^2 [K]

    def towards(self, i: int) -> Floats:
        """<v_k, x_i> for every group [K]."""

    def add(self, i: int, k: int) -> None:
        """Put node i in group k."""


class ByGram:
    """Sums of few vectors, by all their inner products H [n, n]."""

    def __init__(self, H: Floats, K: int) -> None:
        """Start with empty groups."""
        self.H, self.own = H, np.diag(H).copy()
        self.V = np.zeros((K, len(H)))  # <v_k, x_i>
        self.square = np.zeros(K)

    def towards(self, i: int) -> Floats:
        """<v_k, x_i> for every group [K]."""
        return self.V[:, i]

    def add(self, i: int, k: int) -> None:
        """Put node i in group k."""
        self.square[k] += 2 * self.V[k, i] + self.own[i]
        self.V[k] += self.H[i]

    def fill(self, z: Ints) -> None:
        """Take the groups z."""
        one = np.zeros((len(self.V), len(z)))
        one[z, np.arange(len(z))] = 1
        self.V = one @ self.H
        self.square = np.maximum((self.V * one).sum(axis=1), 0.0)

    def swap(self, i: int, j: int, a: int, b: int) -> None:
        """Take i from a to b, and j from b to a."""
        moved = self.H[j] - self.H[i]
        apart = self.own[i] + self.own[j] - 2 * self.H[i, j]
        self.square[a] += 2 * (self.V[a, j] - self.V[a, i]) + apart
        self.square[b] += 2 * (self.V[b, i] - self.V[b, j]) + apart
        self.V[a] += moved
        self.V[b] -= moved

    def move(self, i: int, a: int, b: int) -> None:
        """Take i from a to b."""
        self.square[a] += self.own[i] - 2 * self.V[a, i]
        self.square[b] += self.own[i] + 2 * self.V[b, i]
        self.V[a] -= self.H[i]
        self.V[b] += self.H[i]


class ByVectors:
    """Sums of many vectors X [n, r]."""

    def __init__(self, X: Singles, K: int) -> None:
        """Start with empty groups."""
        self.X, self.own = X, (X.astype(np.float64) ** 2).sum(axis=1)
        self.v = np.zeros((K, X.shape[1]), dtype=np.float32)
        self.square = np.zeros(K)

    def towards(self, i: int) -> Floats:
        """<v_k, x_i> for every group [K]."""
        inner: Floats = (self.v @ self.X[i]).astype(np.float64)
        return inner

    def add(self, i: int, k: int) -> None:
        """Put node i in group k."""
        self.v[k] += self.X[i]
        self.square[k] = float(self.v[k] @ self.v[k])

    def fill(self, z: Ints) -> None:
        """Take the groups z."""
        order = np.argsort(z, kind="stable")
        first = np.searchsorted(z[order], np.arange(len(self.v)))
        self.v = np.add.reduceat(self.X[order], first, axis=0)
        self.square = (self.v.astype(np.float64) ** 2).sum(axis=1)


def never() -> bool:
    """Say that there is time."""
    return False


def deal(
    sums: Sums, order: Ints, field: Field, seeds: int = 0, over: Callable[[], bool] = never
) -> Ints:
    """Give every node in turn to the group, of those with room, that it draws apart least.

    The first `seeds` nodes get a group each, if they may. Nodes are left with -1 where limits leave
    no room, or once the time is over.
    """
    z = np.full(len(order), -1, dtype=np.int64)
    room = field.most.copy()
    lacking = int(field.least.sum())
    for left, i in zip(range(len(order), 0, -1), order, strict=True):
        grown = sums.square + 2 * sums.towards(i) + sums.own[i]
        cost = np.sqrt(np.maximum(grown, 0.0)) - np.sqrt(np.maximum(sums.square, 0.0))
        cost = field.iid * cost + field.comm * field.far[i] / len(order)
        open_ = (room > 0) & field.may[i]
        if len(order) - left < seeds and open_[len(order) - left]:
            open_ = np.arange(len(room)) == len(order) - left
        if left <= lacking:  # the rest must fill the groups that have not enough
            open_ &= field.most - room < field.least
        if not open_.any() or (left % BLOCK == 0 and over()):
            return z
        k = int(np.where(open_, cost, np.inf).argmin())
        lacking -= int(field.most[k] - room[k] < field.least[k])
        z[i] = k
        room[k] -= 1
        sums.add(int(i), k)
    return z


class _Far:
    """The smoothed delay of the farthest members, and what moves do to it."""

    def __init__(self, field: Field, z: Ints) -> None:
        self._top = float(field.far.max()) or 1.0
        self.powers = ((field.far / self._top) ** SHARPNESS).astype(np.float32)
        self._toll = None if field.toll is None else field.toll.astype(np.float32)
        self._n = len(z)
        self.total = float(self.powers[np.arange(len(z)), z].sum(dtype=np.float64))

    @property
    def seconds(self) -> float:
        return float(self._top * (self.total / self._n) ** (1 / SHARPNESS))

    def prices(self, nodes: Ints | slice = ALL) -> Singles:
        """Seconds that nodes add in every group, about [m, K]."""
        prices: Singles = np.float32(self.slope) * self.powers[nodes]
        return prices if self._toll is None else prices + self._toll[nodes]

    def swapped(self, i: int, j: int, a: int, b: int) -> tuple[float, float]:
        """What it adds to `total`, and in seconds, to take i from a to b and j from b to a."""
        powers, toll = self.powers, self._toll
        change = float(powers[i, b] + powers[j, a] - powers[i, a] - powers[j, b])
        seconds = self.slope * change
        if toll is not None:
            seconds += float(toll[i, b] + toll[j, a] - toll[i, a] - toll[j, b])
        return change, seconds

    @property
    def slope(self) -> float:
        """Seconds per unit of `total`; as the root is concave, a bound on what a step adds."""
        least = max(self.total, 1e-12)
        return float(self._top / SHARPNESS / self._n * (least / self._n) ** (1 / SHARPNESS - 1))


def descend(
    sums: ByGram,
    z: Ints,
    field: Field,
    most_steps: int = 10_000,
    over: Callable[[], bool] = never,
) -> Ints:
    """Make the best swaps, or the best move, until none lowers the cost or the time is over."""
    z, n, K = z.copy(), len(z), len(field.least)
    sums.fill(z)
    far = _Far(field, z)
    size = np.bincount(z, minlength=K)
    nodes = np.arange(n)
    pair = sums.own[:, None] + sums.own[None, :] - 2 * sums.H
    crowding = _crowding(field, size)
    enough = LEAST_GAIN * (field.iid * float(np.sqrt(sums.own.sum())) + field.comm * far.seconds)
    for _ in range(most_steps):
        if over():
            break
        root = np.sqrt(np.maximum(sums.square, 0.0))
        drag = field.comm * far.prices().astype(np.float64)  # [n, K]
        W = sums.V[z]  # [n, n]: <v of i's group, x_j>
        own = W[nodes, nodes]
        norm = np.sqrt(np.maximum(pair + 2 * W + (sums.square[z] - 2 * own)[:, None], 0.0))
        here = field.iid * root[z] + drag[nodes, z]
        change = field.iid * norm
        if field.comm:
            change += drag[:, z]
        change -= here[:, None]
        if not field.free:
            change[~field.may[:, z]] = np.inf
        both = change + change.T
        both[z[:, None] == z[None, :]] = 0.0
        partner = both.argmin(axis=1)
        gains = both[nodes, partner]

        out = np.sqrt(np.maximum(sums.square[z] - 2 * own + sums.own, 0.0)) - root[z]
        into = np.sqrt(np.maximum(sums.square + 2 * sums.V.T + sums.own[:, None], 0.0)) - root
        moved = field.iid * (out[:, None] + into)
        moved += drag - drag[nodes, z][:, None]
        moved += field.comm * crowding[z]
        barred = ~field.may | (size >= field.most) | (size <= field.least)[z][:, None]
        moved[barred] = np.inf
        moved[nodes, z] = np.inf
        m, k = divmod(int(moved.argmin()), K)

        if min(gains.min(), moved[m, k]) >= -enough:
            return z
        if gains.min() <= moved[m, k]:
            for i in np.argsort(gains, kind="stable"):
                if gains[i] >= -enough:
                    break
                _swap_if_good(sums, z, field, far, int(i), int(partner[i]), enough)
        else:
            a = int(z[m])
            sums.move(m, a, k)
            far.total += far.powers[m, k] - far.powers[m, a]
            z[m] = k
            size[a] -= 1
            size[k] += 1
            crowding = _crowding(field, size)
    return z


def _swap_if_good(
    sums: ByGram, z: Ints, field: Field, far: "_Far", i: int, j: int, enough: float
) -> None:
    """Swap two nodes if that still lowers the cost, after the swaps made before it."""
    a, b = int(z[i]), int(z[j])
    if a == b or not (field.may[i, b] and field.may[j, a]):
        return
    V, square = sums.V, sums.square
    apart = sums.own[i] + sums.own[j] - 2 * sums.H[i, j]
    norms = sqrt(max(square[a] + 2 * (V[a, j] - V[a, i]) + apart, 0.0))
    norms += sqrt(max(square[b] + 2 * (V[b, i] - V[b, j]) + apart, 0.0))
    norms -= sqrt(max(square[a], 0.0)) + sqrt(max(square[b], 0.0))
    change, seconds = far.swapped(i, j, a, b)
    if field.iid * norms + field.comm * seconds < -enough:
        sums.swap(i, j, a, b)
        far.total += change
        z[i], z[j] = b, a


def _crowding(field: Field, size: Ints) -> Floats:
    """Seconds that a move from group a to group b adds at the busiest server [K, K]."""
    load = field.member_s * (size - 1)  # a server's own model goes nowhere
    K = len(load)
    order = np.argsort(load)[::-1]
    a, b = np.arange(K)[:, None], np.arange(K)[None, :]
    rest = np.zeros((K, K))  # the busiest server apart from a and b
    for k in order[:3][::-1]:
        rest = np.where((a != k) & (b != k), load[k], rest)
    busiest = np.maximum(rest, np.maximum((load - field.member_s)[:, None], load + field.member_s))
    crowded: Floats = busiest - load.max()
    return crowded


def exchange(
    sums: ByVectors, z: Ints, field: Field, order: Ints, over: Callable[[], bool] = never
) -> Ints:
    """Sweep once over many nodes: weigh the swaps of each block with the next, make the good ones.

    Sizes stay; every swap is weighed again when its turn comes, as the ones before change the sums.
    A sweep ends where the time is over.
    """
    z = z.copy()
    sums.fill(z)
    far = _Far(field, z)
    X = sums.X
    enough = LEAST_GAIN * (field.iid * float(np.sqrt(sums.own.sum())) + field.comm * far.seconds)
    for at in range(0, len(order), BLOCK):
        if over():
            break
        P = order[at : at + BLOCK]
        Q = order[(at + BLOCK + np.arange(BLOCK)) % len(order)]
        half = _half(sums, z, field, far, P, Q)
        for row in np.flatnonzero(half.min(axis=1) < 0):
            i, j = int(P[row]), int(Q[half[row].argmin()])
            a, b = int(z[i]), int(z[j])
            if a == b or not (field.may[i, b] and field.may[j, a]):
                continue
            step = X[j] - X[i]
            va, vb = sums.v[a] + step, sums.v[b] - step
            sa, sb = float(va @ va), float(vb @ vb)
            before = np.sqrt(sums.square[a]) + np.sqrt(sums.square[b])
            change, seconds = far.swapped(i, j, a, b)
            gain = field.iid * (np.sqrt(sa) + np.sqrt(sb) - before) + field.comm * seconds
            if gain < -enough:
                sums.v[a], sums.v[b] = va, vb
                sums.square[a], sums.square[b] = sa, sb
                far.total += change
                z[i], z[j] = b, a
    return z


def _half(sums: ByVectors, z: Ints, field: Field, far: _Far, P: Ints, Q: Ints) -> Singles:
    """What swapping each of P with each of Q would change [P, Q]; inf where it may not be."""
    zp, zq = z[P], z[Q]
    xp, xq = sums.X[P], sums.X[Q]
    to_q, to_p = sums.v @ xq.T, sums.v @ xp.T  # [K, .]: <v_k, x>
    own_p, own_q = to_p[zp, np.arange(len(P))], to_q[zq, np.arange(len(Q))]
    square = sums.square.astype(np.float32)
    apart = xp @ xq.T
    apart *= -2
    apart += sums.own[P].astype(np.float32)[:, None]
    apart += sums.own[Q].astype(np.float32)[None, :]
    a = 2 * to_q[zp] + apart
    a += (square[zp] - 2 * own_p)[:, None]
    b = 2 * to_p[zq].T + apart
    b += (square[zq] - 2 * own_q)[None, :]
    change: Singles = np.sqrt(np.maximum(a, 0, out=a), out=a)
    change += np.sqrt(np.maximum(b, 0, out=b), out=b)
    root = np.sqrt(square)
    change -= root[zp][:, None]
    change -= root[zq][None, :]
    change *= np.float32(field.iid)
    if field.comm:
        drag_p, drag_q = (np.float32(field.comm) * far.prices(some) for some in (P, Q))
        change += drag_p.take(zq, axis=1) - drag_p[np.arange(len(P)), zp][:, None]
        change += drag_q.take(zp, axis=1).T - drag_q[np.arange(len(Q)), zq][None, :]
    if not field.free:
        change[~(field.may[P][:, zq] & field.may[Q][:, zp].T)] = np.inf
    change[zp[:, None] == zq[None, :]] = np.inf
    return change
