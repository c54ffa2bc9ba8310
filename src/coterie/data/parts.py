"""Three parts of the examples: to train on, to choose settings by (val), and to test on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import Bools, Ints
from coterie.core.errors import DataError

SPLIT = (3, 1, 1)
REST = (3, 1)  # of what is not in a test part of the dataset's own
FEW = {2: (1, 0, 1), 3: (1, 1, 1)}  # rounding would leave 2 untested and 3 without validation
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """Example numbers of the three parts; together they are every example once."""

    train: Ints
    val: Ints
    test: Ints


def split(y: Ints, rng: np.random.Generator) -> Split:
    """Split examples 3:1:1 within every class, so that each part has the classes' proportions.

    >>> parts = split(np.repeat([0, 1], 10), np.random.default_rng(0))
    >>> len(parts.train), len(parts.val), len(parts.test)
    (12, 4, 4)
    """
    train, val, test = _within_classes(y, SPLIT, rng)
    if not (len(train) and len(val) and len(test)):
        raise DataError(f"{len(y)} examples are too few to split 3:1:1 within every class")
    return Split(train, val, test)


def split_rest(y: Ints, test: Bools, rng: np.random.Generator) -> Split:
    """Keep a test part that is given, and split the other examples 3:1 within every class.

    >>> parts = split_rest(np.zeros(10, int), np.arange(10) >= 6, np.random.default_rng(0))
    >>> len(parts.train), len(parts.val), parts.test.tolist()
    (4, 2, [6, 7, 8, 9])
    """
    rest = np.flatnonzero(~test)
    train, val = (rest[part] for part in _within_classes(y[rest], REST, rng))
    if not (len(train) and len(val)):
        raise DataError(
            f"{len(rest)} examples outside the official test part are too few to split 3:1 within "
            "every class"
        )
    return Split(train, val, np.flatnonzero(test))


def split_each(y: Ints, nodes: Sequence[Ints], rng: np.random.Generator) -> list[Split]:
    """Split the examples of every node 3:1:1, as evenly within its classes as whole numbers allow.

    A part has less than one example more or fewer than its share, in a node and in each of its
    classes. Nodes of 1, 2, 3 and 4 examples are split 1:0:0, 1:0:1, 1:1:1 and 2:1:1.

    >>> nodes = [np.array([0]), np.array([3, 4]), np.array([1, 2, 5])]
    >>> each = split_each(np.zeros(6, int), nodes, np.random.default_rng(0))
    >>> [(len(parts.train), len(parts.val), len(parts.test)) for parts in each]
    [(1, 0, 0), (1, 0, 1), (1, 1, 1)]
    """
    return [Split(*(held[part] for part in _of_node(y[held], rng))) for held in nodes]


def _within_classes(y: Ints, shares: tuple[int, ...], rng: np.random.Generator) -> list[Ints]:
    """Cut every class in proportion to the shares, its examples in random order."""
    parts: list[list[Ints]] = [[] for _ in shares]
    ends = np.cumsum(shares) / sum(shares)
    for c in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == c))
        cuts = np.rint(ends[:-1] * len(members)).astype(int)
        for part, piece in zip(parts, np.split(members, cuts), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate([_NONE, *part])) for part in parts]


def _of_node(y: Ints, rng: np.random.Generator) -> list[Ints]:
    """Positions of a node's examples in each part."""
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    _, counts = np.unique(y, return_counts=True)
    shuffled = rng.permutation(len(counts))  # so that no class is always the one that gives way
    table = np.empty((len(counts), len(SPLIT)), dtype=np.int64)
    table[shuffled] = _whole_shares(counts[shuffled], _sizes(len(y)))
    part_of = np.repeat(np.tile(np.arange(len(SPLIT)), len(counts)), table.ravel())
    return [np.sort(order[part_of == part]) for part in range(len(SPLIT))]


def _sizes(n: int) -> Ints:
    """Examples of a node in each part [3].

    >>> [_sizes(n).tolist() for n in (1, 2, 3, 4, 5)]
    [[1, 0, 0], [1, 0, 1], [1, 1, 1], [2, 1, 1], [3, 1, 1]]
    """
    if n in FEW:
        return np.array(FEW[n])
    ends = np.rint(np.cumsum(SPLIT) / sum(SPLIT) * n).astype(np.int64)
    return np.diff(ends, prepend=0)


def _whole_shares(counts: Ints, sizes: Ints) -> Ints:
    """Round 3:1:1 of every class up or down, so that the parts [3] add up to their sizes: [C, 3].

    Rounded down, a class has 0, 1 or 2 examples left. One that is left may go to any part, and of
    two any part may go without, so that there is always a way.

    >>> _whole_shares(np.array([1, 4, 2]), np.array([4, 2, 1])).tolist()
    [[1, 0, 0], [2, 1, 1], [1, 1, 0]]
    """
    table = counts[:, None] * SPLIT // sum(SPLIT)
    left, wanted = counts - table.sum(axis=1), sizes - table.sum(axis=0)
    ones, twos = np.flatnonzero(left == 1), np.flatnonzero(left == 2)
    # 1 and 4 examples train on 0.6 and 2.4: the first to have one more, and to go without
    ones = ones[np.argsort(counts[ones] % sum(SPLIT), kind="stable")]
    twos = twos[np.argsort(-counts[twos] % sum(SPLIT), kind="stable")]
    extra, without = np.maximum(wanted - len(twos), 0), np.maximum(len(twos) - wanted, 0)
    free = len(ones) - extra.sum()
    extra[0] += free
    without[0] += free
    parts = np.arange(len(SPLIT))
    table[ones, np.repeat(parts, extra)] += 1
    table[twos] += 1
    table[twos, np.repeat(parts, without)] -= 1
    return table
