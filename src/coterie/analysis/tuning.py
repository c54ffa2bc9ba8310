"""A search of settings that is fair to several methods: each has as many trials.

A point says which value of every axis is taken, by its place in the list of that axis. The first is
in the middle. Then the neighbours of the best point are tried, one step along an axis, until it is
better than all of them. Trials that are left go to points that are drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

Point = tuple[int, ...]
Score = tuple[int, float]  # less is better
REACHED, SHORT, FAILED = range(3)


@dataclass(frozen=True)
class Axis:
    """A setting, or several that go together, and their values from one end to the other."""

    name: str
    values: tuple[Any, ...]


Space = tuple[Axis, ...]


def size(space: Space) -> int:
    """Return how many points there are.

    >>> size((Axis("train.lr", (0.1, 1.0)), Axis("tau", (1, 2, 5))))
    6
    """
    return int(np.prod([len(axis.values) for axis in space], dtype=np.int64))


def values_at(space: Space, point: Point) -> dict[str, Any]:
    """Return the value of every axis at a point.

    >>> values_at((Axis("train.lr", (0.1, 1.0)), Axis("tau", (1, 2, 5))), (1, 0))
    {'train.lr': 1.0, 'tau': 1}
    """
    return {axis.name: axis.values[at] for axis, at in zip(space, point, strict=True)}


def score(seconds: float | None, nearest: float | None, sign: int = 1) -> Score:
    """Rate a trial: by the seconds to the target, or else by how near it came; failed ones last.

    `nearest` is the best value of what has the target, and `sign` 1 where more of it is better.

    >>> sorted([score(None, None), score(None, 0.7), score(9.0, 0.8), score(None, 0.6)])
    [(0, 9.0), (1, -0.7), (1, -0.6), (2, 0.0)]
    """
    if seconds is not None:
        return REACHED, seconds
    return (FAILED, 0.0) if nearest is None else (SHORT, -sign * nearest)


def best(tried: Mapping[Point, Score]) -> Point:
    """Return the best point; of equal ones the first in the order of the lists.

    >>> best({(1, 1): (1, -0.5), (0, 1): (0, 3.0), (0, 0): (0, 3.0)})
    (0, 0)
    """
    return min(tried, key=lambda point: (tried[point], point))


def neighbours(space: Space, point: Point) -> list[Point]:
    """List the points one step away along an axis.

    >>> neighbours((Axis("lr", (1, 2, 3)), Axis("tau", (1, 2))), (0, 0))
    [(1, 0), (0, 1)]
    """
    moves = [(a, step) for a in range(len(space)) for step in (-1, 1)]
    near = [tuple(at + step * (b == a) for b, at in enumerate(point)) for a, step in moves]
    return [p for p in near if all(0 <= at < len(x.values) for at, x in zip(p, space, strict=True))]


def next_points(
    space: Space, tried: Mapping[Point, Score], trials: int, seed: int = 0
) -> list[Point]:
    """Return the points to try next; none once there were as many trials as allowed, or all points.

    What comes next depends on what was tried alone, so that a search goes on where it stopped.

    >>> line = (Axis("lr", (1, 2, 3, 4, 5)),)
    >>> next_points(line, {}, 4), next_points(line, {(2,): (0, 9.0)}, 4)
    ([(2,)], [(1,), (3,)])
    >>> next_points(line, {(2,): (0, 9.0), (1,): (0, 8.0), (3,): (0, 9.5)}, 4)
    [(0,)]
    """
    left = min(trials, size(space)) - len(tried)
    if left <= 0:
        return []
    if not tried:
        return [tuple(len(axis.values) // 2 for axis in space)]
    near = [point for point in neighbours(space, best(tried)) if point not in tried]
    if near:
        return near[:left]
    rest = [p for p in product(*(range(len(x.values)) for x in space)) if p not in tried]
    order = np.random.default_rng([seed, len(tried)]).permutation(len(rest))
    return [rest[order[0]]]


def open_ends(space: Space, tried: Mapping[Point, Score]) -> list[str]:
    """Say what may be wrong with the best point: values at the end of a list, neighbours not tried.

    >>> line = (Axis("train.lr", (1, 2, 3)),)
    >>> open_ends(line, {(1,): (0, 9.0), (2,): (0, 8.0)})
    ['train.lr is best at 3, the largest in the list']
    >>> open_ends(line, {(1,): (0, 9.0)})
    ['2 neighbours of the best were not tried']
    """
    point = best(tried)
    told = [at_an_end(axis, at) for axis, at in zip(space, point, strict=True)]
    found = [line for line in told if line]
    if missing := untried(space, tried):
        what = "1 neighbour" if missing == 1 else f"{missing} neighbours"
        found.append(f"{what} of the best {'was' if missing == 1 else 'were'} not tried")
    return found


def at_an_end(axis: Axis, at: int) -> str:
    """Say that a value is the first or the last of its list, if what is best may lie beyond.

    >>> at_an_end(Axis("train.lr", (1, 2, 3)), 2), at_an_end(Axis("tau1", (1, 2, 3)), 0)
    ('train.lr is best at 3, the largest in the list', '')
    """
    inside = len(axis.values) == 1 or at not in (0, len(axis.values) - 1)
    if inside or not _may_go_on(axis, at):
        return ""
    return (
        f"{axis.name} is best at {axis.values[at]}, the {'largest' if at else 'least'} in the list"
    )


def untried(space: Space, tried: Mapping[Point, Score]) -> int:
    """Count the neighbours of the best point that were not tried."""
    return sum(near not in tried for near in neighbours(space, best(tried)))


def _may_go_on(axis: Axis, at: int) -> bool:
    """Whether there is anything beyond the end of a list: nothing is below one."""
    return not (at == 0 and axis.values[0] == 1)
