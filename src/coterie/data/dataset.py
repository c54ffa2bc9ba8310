"""Labelled examples, what may be in them, and a sample of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Bools, Ints
from coterie.core.errors import DataError

Values = NDArray[np.uint8] | NDArray[np.float32]
Room = Callable[[tuple[int, ...]], NDArray[np.uint8]]  # makes the array for pictures

MOST_CLASSES = 1_000_000
CHUNK = 65_536  # examples looked at together where all are checked


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples x [N, ...], labels y [N] in 0..n_classes-1, and where known who each is from.

    Bytes in x are pixels, and models see them divided by 255; floating-point numbers are seen as
    they are. Images are [N, channels, height, width]. `users` [N] are numbers into `user_names`.
    `test` [N] is true for the examples that the dataset's authors test on, where they said so.
    """

    name: str
    x: Values
    y: Ints
    n_classes: int
    users: Ints | None = None
    user_names: tuple[str, ...] = ()
    test: Bools | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example; of an image (channels, height, width)."""
        return tuple(self.x.shape[1:])

    def take(self, examples: Ints) -> "Dataset":
        """Keep only some examples, in the order given."""
        users = None if self.users is None else self.users[examples]
        test = None if self.test is None else self.test[examples]
        return replace(self, x=self.x[examples], y=self.y[examples], users=users, test=test)


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
    for what, values in (("x", x), ("y", y), ("users", users), ("test", dataset.test)):
        is_optional = what in ("users", "test")
        if not isinstance(values, np.ndarray) and not (is_optional and values is None):
            raise DataError(f"{name}: {what} must be a NumPy array, got {type(values).__name__}")
    if x.dtype not in (np.uint8, np.float32) or x.ndim < 2 or not x.size:
        raise DataError(
            f"{name}: x must be pixels (uint8) or numbers (float32) [N, ...], got {x.dtype} "
            f"{list(x.shape)}"
        )
    for what, values in (("y", y), ("users", users)):
        if values is not None and (values.dtype != np.int64 or values.shape != x.shape[:1]):
            raise DataError(
                f"{name}: {what} must be {len(x)} whole numbers (int64), one for each example of "
                f"x, got {values.dtype} {list(values.shape)}"
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
    check_labels(y, dataset.n_classes, name)
    if users is not None:
        most = len(dataset.user_names) - 1 if dataset.user_names else users.max()
        if users.min() < 0 or users.max() > most:
            raise DataError(
                f"{name}: users must be numbers of user_names, 0 to {most}, got {users.min()} to "
                f"{users.max()}"
            )
    if x.dtype == np.float32:
        for start in range(0, len(x), CHUNK):
            if not np.isfinite(x[start : start + CHUNK]).all():
                raise DataError(f"{name}: x has values that are not finite numbers")
    return dataset


def check_labels(y: Ints, n_classes: int, where: object) -> None:
    """Refuse labels outside 0..n_classes-1."""
    if len(y) and (y.min() < 0 or y.max() >= n_classes):
        bad = int(np.flatnonzero((y < 0) | (y >= n_classes))[0])
        raise DataError(
            f"{where}: labels must be 0 to {n_classes - 1}, got {y[bad]} for example {bad}"
        )
