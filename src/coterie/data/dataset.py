"""Labelled examples, what may be in them, and a sample of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Bools, Ints
from coterie.core.errors import DataError
from coterie.data.targets import CHUNK, TARGETS, Column, check_target

Values = NDArray[np.uint8] | NDArray[np.float32] | NDArray[np.int64]
Answers = NDArray[np.int64] | NDArray[np.float32]
Room = Callable[[tuple[int, ...]], NDArray[np.uint8]]  # makes the array for pictures

MOST_CLASSES = 1_000_000


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples x [N, ...], their targets y, and where known who each is from.

    Bytes in x are pixels, and models see them divided by 255; floating-point numbers and tokens
    (int64) are seen as they are. Images are [N, channels, height, width]. What y is depends on the
    `task`: by "classification" labels [N] in 0..n_classes-1; `TARGETS` has the others. `n_classes`
    is the vocabulary of "next-token", and the columns of y where that has several.

    `users` [N] are numbers into `user_names`. `test` [N] is true for the examples that the
    dataset's authors test on, where they said so. `strata` [N], whole numbers from 0, are what
    examples are dealt and split by, in place of what the task makes of y.
    """

    name: str
    x: Values
    y: Answers
    n_classes: int
    users: Ints | None = None
    user_names: tuple[str, ...] = ()
    test: Bools | None = None
    task: str = "classification"
    strata: Ints | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example; of an image (channels, height, width)."""
        return tuple(self.x.shape[1:])

    @cached_property
    def has_tokens(self) -> bool:
        """Whether examples are whole numbers that a model looks up, not numbers or pixels."""
        return bool(self.x.dtype == np.int64)

    @cached_property
    def width(self) -> int:
        """How many numbers a model answers with for one example, or for one token."""
        return TARGETS[self.task].width(self.y, self.n_classes)

    @property
    def by(self) -> Ints:
        """Number [N] of what partitions, splits and class counts go by: `strata`, or of y.

        >>> x, y = np.zeros((4, 1), np.float32), np.array([[3], [8], [2], [9]], np.float32)
        >>> Dataset("d", x, y, 1, task="regression").by.tolist()
        [1, 2, 0, 3]
        """
        return self._column[0]

    @property
    def n_strata(self) -> int:
        """How many numbers `by` may have."""
        return self._column[1]

    @cached_property
    def _column(self) -> Column:
        if self.strata is not None:
            return self.strata, int(self.strata.max()) + 1
        return TARGETS[self.task].strata(self.y, self.n_classes)

    def take(self, examples: Ints) -> "Dataset":
        """Keep only some examples, in the order given."""
        users = None if self.users is None else self.users[examples]
        test = None if self.test is None else self.test[examples]
        strata = None if self.strata is None else self.strata[examples]
        x, y = self.x[examples], self.y[examples]
        return replace(self, x=x, y=y, users=users, test=test, strata=strata)


def sample(dataset: Dataset, share: float, rng: np.random.Generator) -> Ints:
    """Choose a share of the examples; where there are users, whole ones in random order.

    It stops at the number of users that comes nearest to the share.

    >>> x, y, users = np.zeros((4, 1), np.float32), np.zeros(4, int), np.array([0, 1, 1, 1])
    >>> sample(Dataset("d", x, y, 1, users), 0.5, np.random.default_rng(1)).tolist()
    [0]
    """
    total = len(dataset.y)
    wanted = max(1, round(share * total))
    if wanted == total:
        return np.arange(total)
    if dataset.users is None:
        return np.sort(rng.permutation(total)[:wanted])
    users, sizes = np.unique(dataset.users, return_counts=True)
    order = rng.permutation(len(users))
    nearest = np.argmin(np.abs(np.cumsum(sizes[order]) - wanted))
    chosen = users[order[: nearest + 1]]
    return np.flatnonzero(np.isin(dataset.users, chosen))


def in_memory(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Make the array for pictures where it need not outlive the process."""
    return np.empty(shape, dtype=np.uint8)


def check_dataset(dataset: Dataset) -> Dataset:
    """Return a dataset that is what it says, or say what is wrong with it."""
    x, y, users, name = dataset.x, dataset.y, dataset.users, dataset.name
    optional = {"users": users, "test": dataset.test, "strata": dataset.strata}
    given = {"x": x, "y": y} | optional
    refuse_masks(given, name)
    for what, values in given.items():
        if not isinstance(values, np.ndarray) and not (what in optional and values is None):
            raise DataError(f"{name}: {what} must be a NumPy array, got {type(values).__name__}")
    if x.dtype not in (np.uint8, np.float32, np.int64) or x.ndim < 2 or not x.size:
        raise DataError(
            f"{name}: x must be pixels (uint8) or numbers (float32) [N, ...], or tokens (int64), "
            f"got {x.dtype} {list(x.shape)}"
        )
    for what, column in (("users", users), ("strata", dataset.strata)):
        if column is not None and (column.dtype != np.int64 or column.shape != x.shape[:1]):
            raise DataError(
                f"{name}: {what} must be {len(x)} whole numbers (int64), one for each example of "
                f"x, got {column.dtype} {list(column.shape)}"
            )
    test = dataset.test
    if test is not None and (test.dtype != np.bool_ or test.shape != x.shape[:1]):
        raise DataError(
            f"{name}: test must be {len(x)} times true or false (bool), one for each example of x, "
            f"got {test.dtype} {list(test.shape)}"
        )
    if type(dataset.n_classes) is not int or not 1 <= dataset.n_classes <= MOST_CLASSES:
        raise DataError(
            f"{name}: n_classes must be a whole number up to {MOST_CLASSES:,}, got "
            f"{dataset.n_classes!r}"
        )
    check_target(dataset.task, y, x, dataset.n_classes, name)
    _check_numbers(dataset)
    _check_values(x, name)
    return dataset


def refuse_masks(arrays: Mapping[str, object], where: object) -> None:
    """Refuse arrays with masked values, which would be trained on as if they were not."""
    for what, values in arrays.items():
        if np.ma.is_masked(values):
            raise DataError(
                f"{where}: {what} has masked values, and masks are not read; leave those examples "
                f"out, or set them by {what}.filled(...)"
            )


def _check_numbers(dataset: Dataset) -> None:
    """Refuse users without a name, and strata that cannot be counted."""
    users, name = dataset.users, dataset.name
    strata = dataset.strata
    if strata is not None and not 0 <= strata.min() <= strata.max() < MOST_CLASSES:
        raise DataError(
            f"{name}: strata must be 0 to {MOST_CLASSES - 1:,}, got {strata.min()} to "
            f"{strata.max()}"
        )
    if users is not None:
        most = len(dataset.user_names) - 1 if dataset.user_names else users.max()
        if users.min() < 0 or users.max() > most:
            raise DataError(
                f"{name}: users must be numbers of user_names, 0 to {most}, got {users.min()} to "
                f"{users.max()}"
            )


def _check_values(x: Values, name: str) -> None:
    """Refuse numbers that are not finite, and tokens below 0."""
    if x.dtype == np.float32:
        for start in range(0, len(x), CHUNK):
            if not np.isfinite(x[start : start + CHUNK]).all():
                raise DataError(f"{name}: x has values that are not finite numbers")
    if x.dtype == np.int64 and x.min() < 0:
        bad = int(np.argwhere(x < 0)[0][0])
        raise DataError(f"{name}: tokens of x must be >= 0, got {x[bad].min()} in example {bad}")
