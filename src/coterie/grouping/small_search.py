"""Search among few nodes: every swap and move is weighed, by the delays as they are.

With many nodes there is nearly always another as good; with few, the farthest member decides, and a
smoothed delay leads astray.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.grouping.objective import Objective, Priced, price

TRIALS = 40  # swaps and moves of a grouping that the clock weighs
ENTRIES = 1 << 20  # of groups, places and nodes that are weighed at once
HOPED = 0.25  # part of the transfers that one of them may save


def settle(o: Objective, H: Floats, z: Ints, least: Ints, most: Ints) -> Ints:
    """Make the best swap or move, by the rough delays, until none is better."""
    e, n, K = o.evidence, len(z), o.evidence.num_groups
    able = e.places if len(e.places) else np.arange(n)
    far, added = o.rough.far(able, np.arange(n)), o.rough.member_s(able)
    if not len(e.places) and e.topology.may_serve is not None:
        added = np.where(e.topology.may_serve, added, 1e9 * (1 + added.max()))
    best = np.inf
    while True:
        tried = neighbours(z, K)
        one = tried[:, None, :] == np.arange(K)[:, None]  # [B, K, n]
        size = one.sum(axis=2)
        apart = np.sqrt(np.maximum(((one @ H) * one).sum(axis=2), 0.0)).sum(axis=1)
        cost = o.iid * apart + o.comm * _slowest(one, far, added, inside=not len(e.places))
        cost[((size < least) | (size > most)).any(axis=1)] = np.inf
        at = int(cost.argmin())
        if cost[at] >= best * (1 - 1e-9):
            return z
        best, z = float(cost[at]), tried[at]


def _slowest(one: NDArray[np.bool_], far: Floats, added: Floats, *, inside: bool) -> Floats:
    """Rough delay of the slowest group, by its best server, of groupings one [B, K, n]: [B].

    far [m, n] is between servers and nodes, added [m] what a member adds; `inside`, only a member
    serves. Most groups are in many groupings: each is weighed once, and only so many at a time.
    """
    n = one.shape[2]
    codes, of = np.unique(one @ (1 << np.arange(n)), return_inverse=True)
    member = codes[:, None] >> np.arange(n) & 1 > 0  # [groups, n]
    delay = np.empty(len(member))
    rows = max(1, ENTRIES // far.size)
    for at in range(0, len(member), rows):
        some = member[at : at + rows]
        reach = np.where(some[:, None, :], far, 0.0).max(axis=2)  # [rows, m]
        reach += added * (some.sum(axis=1, keepdims=True) - 1)
        if inside:
            reach = np.where(some, reach, np.inf)
        delay[at : at + rows] = reach.min(axis=1)
    slowest: Floats = delay[of].reshape(one.shape[:2]).max(axis=1)
    return slowest


def polish(o: Objective, best: Priced, least: Ints, most: Ints, rng: np.random.Generator) -> Priced:
    """Try swaps and moves by the clock, and take each that is better.

    One whose Delta costs more than a part of the transfers could save is not worth the clock.
    """
    K, left, better = o.evidence.num_groups, TRIALS, True
    while better and left:
        better = False
        for z in rng.permutation(neighbours(best.grouping.z, K)):
            size = np.bincount(z, minlength=K)
            hoped = o.cost(o.divergence(z), (1 - HOPED) * best.group_s)
            if (size < least).any() or (size > most).any() or hoped >= best.cost:
                continue
            try:
                tried, left = price(o, o.rough.serve(z)), left - 1
            except GroupingError:  # nobody in a group may serve it
                continue
            if tried.cost < best.cost * (1 - 1e-9):
                best, better = tried, True
            if better or not left:
                break
    return best


def neighbours(z: Ints, K: int) -> Ints:
    """List a grouping, all with two nodes of it swapped, and all with one node moved [B, n].

    >>> neighbours(np.array([0, 1]), 2).tolist()
    [[0, 1], [1, 0], [0, 1], [1, 1], [0, 0], [0, 1]]
    """
    n = len(z)
    i, j, moved, to = _changes(n, K)
    swaps, moves = np.arange(1, 1 + len(i)), np.arange(1 + len(i), 1 + len(i) + n * K)
    found: Ints = np.tile(z, (1 + len(i) + n * K, 1))
    found[swaps, i], found[swaps, j], found[moves, moved] = z[j], z[i], to
    return found


@cache
def _changes(n: int, K: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Nodes of every swap, nodes of every move, and where those go."""
    i, j = np.triu_indices(n, 1)
    return i, j, np.repeat(np.arange(n), K), np.tile(np.arange(K), n)
