"""What a target y must be for each task, and by which column examples are dealt and split."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Ints
from coterie.core.errors import ConfigError, DataError, unknown

Column = tuple[Ints, int]  # a number of every example [N], and how many numbers there may be

QUANTILES = 10  # strata of a real-valued target
NOT_SCORED = -1
CHUNK = 65_536  # examples looked at together where all are checked


@dataclass(frozen=True)
class Target:
    """The target of a task: what it must be, how wide a model's answer is, and what strata it has.

    `check` takes y, x, the number of classes and what is read; `width` and `strata` take y and the
    number of classes. `metrics` are the names of what the task is measured by.
    """

    about: str
    metrics: tuple[str, ...]
    check: Callable[[NDArray[Any], NDArray[Any], int, object], None]
    width: Callable[[NDArray[Any], int], int]
    strata: Callable[[NDArray[Any], int], Column]

    @property
    def described(self) -> str:
        """What the task is, and what it is measured by."""
        return f"{self.about}; {', '.join(self.metrics)}"


def check_labels(y: Ints, n_classes: int, where: object) -> None:
    """Refuse labels outside 0..n_classes-1."""
    if len(y) and (y.min() < 0 or y.max() >= n_classes):
        bad = int(np.flatnonzero((y < 0) | (y >= n_classes))[0])
        raise DataError(
            f"{where}: labels must be 0 to {n_classes - 1}, got {y[bad]} for example {bad}"
        )


def check_target(
    task: str, y: NDArray[Any], x: NDArray[Any], n_classes: int, where: object
) -> None:
    """Refuse a task that is not known, and a target that does not fit it."""
    if task not in TARGETS:
        raise DataError(f"{where}: {unknown('task', str(task), TARGETS)}")
    TARGETS[task].check(y, x, n_classes, where)


def quantiles(values: NDArray[Any], parts: int = QUANTILES) -> Column:
    """Number examples by quantiles of their values; equal values have the same number.

    >>> quantiles(np.array([0.5, 9.0, 0.1, 7.0]), 2)
    (array([0, 1, 0, 1]), 2)
    """
    inner = np.linspace(0, 1, parts + 1)[1:-1]
    numbers = np.searchsorted(np.quantile(values.astype(np.float64), inner), values)
    known, compact = np.unique(numbers, return_inverse=True)
    return compact.astype(np.int64), len(known)


def _whole(y: NDArray[Any], x: NDArray[Any], what: object) -> None:
    if y.dtype != np.int64 or y.shape != x.shape[:1]:
        raise DataError(
            f"{what}: y must be {len(x)} whole numbers (int64), one for each example of x, got "
            f"{y.dtype} {list(y.shape)}"
        )


def _one_class(y: NDArray[Any], x: NDArray[Any], n_classes: int, where: object) -> None:
    _whole(y, x, where)
    check_labels(y, n_classes, where)


def _two_classes(y: NDArray[Any], x: NDArray[Any], n_classes: int, where: object) -> None:
    if n_classes != 2:
        raise DataError(
            f"{where}: n_classes must be 2 for task 'binary', got {n_classes}; use 'classification'"
        )
    _one_class(y, x, n_classes, where)


def _columns(y: NDArray[Any], x: NDArray[Any], n_classes: int, where: object, kind: type) -> None:
    """Refuse y unless it has a row of n_classes numbers for each example."""
    name = np.dtype(kind).name
    if y.dtype != kind or y.ndim != 2 or len(y) != len(x) or not y.shape[1]:
        raise DataError(
            f"{where}: y must be {name} [{len(x)}, targets], a row for each example of x, got "
            f"{y.dtype} {list(y.shape)}"
        )
    if n_classes != y.shape[1]:
        raise DataError(
            f"{where}: n_classes must be the number of columns of y, {y.shape[1]}, got {n_classes}"
        )


def _numbers(y: NDArray[Any], x: NDArray[Any], n_classes: int, where: object) -> None:
    _columns(y, x, n_classes, where, np.float32)
    for start in range(0, len(y), CHUNK):
        if not np.isfinite(y[start : start + CHUNK]).all():
            bad = start + int(np.flatnonzero(~np.isfinite(y[start:]).all(axis=1))[0])
            raise DataError(f"{where}: y of example {bad} is no finite number")


def _labels_on_off(y: NDArray[Any], x: NDArray[Any], n_classes: int, where: object) -> None:
    _columns(y, x, n_classes, where, np.int64)
    odd = np.flatnonzero(((y != 0) & (y != 1)).any(axis=1))
    if len(odd):
        raise DataError(f"{where}: y must be 0 or 1, got {y[odd[0]].tolist()} for example {odd[0]}")


def _tokens(y: NDArray[Any], x: NDArray[Any], n_classes: int, where: object) -> None:
    """Refuse tokens outside of the vocabulary, and targets of another shape than x."""
    if x.dtype != np.int64 or x.ndim != 2 or y.dtype != np.int64 or y.shape != x.shape:
        raise DataError(
            f"{where}: x and y must be tokens (int64) [N, length] for task 'next-token', got x "
            f"{x.dtype} {list(x.shape)} and y {y.dtype} {list(y.shape)}"
        )
    for what, values, least in (("x", x, 0), ("y", y, NOT_SCORED)):
        if values.min() < least or values.max() >= n_classes:
            bad = np.argwhere((values < least) | (values >= n_classes))[0]
            raise DataError(
                f"{where}: tokens of {what} must be {least} to {n_classes - 1}, the vocabulary, "
                f"got {values[tuple(bad)]} in example {bad[0]}"
            )
    empty = np.flatnonzero((y == NOT_SCORED).all(axis=1))
    if len(empty):
        raise DataError(
            f"{where}: every example must have a token to predict, example {empty[0]} has only "
            f"{NOT_SCORED}, which is not scored"
        )


def _classes(y: NDArray[Any], n_classes: int) -> int:
    return n_classes


def _by_label(y: NDArray[Any], n_classes: int) -> Column:
    return y, n_classes


def _by_first_label(y: NDArray[Any], n_classes: int) -> Column:
    """Number examples by the first label that is set; those without any come last."""
    first = np.where(y.any(axis=1), y.argmax(axis=1), n_classes)
    return first.astype(np.int64), n_classes + 1


TARGETS: dict[str, Target] = {
    "classification": Target(
        "one of several classes", ("accuracy",), _one_class, _classes, _by_label
    ),
    "next-token": Target(
        "the next token at every place of a text",
        ("accuracy", "perplexity"),
        _tokens,
        _classes,
        lambda y, n_classes: (np.zeros(len(y), dtype=np.int64), 1),
    ),
    "regression": Target(
        "real numbers",
        ("mse", "mae", "r2"),
        _numbers,
        _classes,
        lambda y, n_classes: quantiles(y[:, 0]),
    ),
    "binary": Target(
        "yes or no", ("accuracy", "auc"), _two_classes, lambda y, n_classes: 1, _by_label
    ),
    "multi-label": Target(
        "several labels, each of which may be set",
        ("accuracy", "auc", "exact"),
        _labels_on_off,
        _classes,
        _by_first_label,
    ),
}


def metric_word(word: str) -> str:
    """Return a metric as it is written, the import path of one's own, or say that there is none.

    >>> metric_word(" auc "), metric_word("mine:f1")
    ('auc', 'mine:f1')
    """
    word = word.strip()
    known = dict.fromkeys(name for target in TARGETS.values() for name in target.metrics)
    if ":" not in word and word not in known:
        raise ConfigError(f"{unknown('task.metrics', word, known)} (your own: 'mine:metric')")
    return word
