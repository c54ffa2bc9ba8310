"""Small datasets of every task, models for them, and metrics of one's own."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.data import Dataset
from coterie.engine.task import TASKS

N, WIDE, LENGTH, LETTERS = 240, 5, 7, 6


def dataset(task: str, n: int = N) -> Dataset:
    """Return n examples, from which something can be learnt."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, WIDE)).astype(np.float32)
    scores = x @ rng.normal(size=(WIDE, 3)) + 0.3 * rng.normal(size=(n, 3))
    if task == "regression":
        return Dataset("numbers", x, scores[:, :2].astype(np.float32), 2, task=task)
    if task == "binary":
        return Dataset("sides", x, (scores[:, 0] > 0).astype(np.int64), 2, task=task)
    if task == "multi-label":
        return Dataset("tags", x, (scores > 0.4).astype(np.int64), 3, task=task)
    if task == "classification":
        return Dataset("kinds", x, scores.argmax(axis=1), 3)
    text = rng.integers(0, LETTERS, (n, LENGTH + 1))
    for at in range(1, LENGTH + 1):  # mostly the letter after the one before
        follows = rng.random(n) < 0.8
        text[follows, at] = (text[follows, at - 1] + 1) % LETTERS
    y = text[:, 1:].copy()
    y[np.arange(LENGTH) >= rng.integers(2, LENGTH + 1, n)[:, None]] = -1  # of unequal lengths
    return Dataset("letters", text[:, :-1], y, LETTERS, task="next-token")


class Letters(nn.Module):
    """Scores of the next letter at every place, from the letter there."""

    def __init__(self, width: int = LETTERS) -> None:
        super().__init__()
        self.look_up = nn.Embedding(LETTERS, 4)
        self.out = nn.Linear(4, width)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(torch.tanh(self.look_up(x)))
        return found


def model(task: str) -> nn.Module:
    """Return a model whose first weights are always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        if task == "next-token":
            return Letters()
        width = {"regression": 2, "binary": 1}.get(task, 3)
        return nn.Sequential(nn.Linear(WIDE, 8), nn.Tanh(), nn.Linear(8, width))


def numbers() -> Dataset:
    return dataset("regression")


def sides() -> Dataset:
    return dataset("binary")


def letters() -> Dataset:
    return dataset("next-token")


def tags() -> Dataset:
    return dataset("multi-label")


def kinds() -> Dataset:
    return dataset("classification")


def kinds_model() -> nn.Module:
    return model("classification")


def numbers_model() -> nn.Module:
    return model("regression")


def sides_model() -> nn.Module:
    return model("binary")


def far(y: NDArray[np.float32], predicted: NDArray[np.float32]) -> float:
    """The largest error."""
    return float(np.abs(y - predicted).max())


def brier(y: NDArray[np.int64], predicted: NDArray[np.float32]) -> float:
    """The mean squared error of chances."""
    assert predicted.min() >= 0 and predicted.max() <= 1 and predicted.shape == y.shape
    return float(np.square(y - predicted).mean())


def says_nothing(y: object, predicted: object) -> None:
    return None


def breaks(y: object, predicted: object) -> float:
    raise ValueError("no such luck")


def without_end(y: object, predicted: object) -> float:
    return float("inf")


NAMES = tuple(TASKS)


CALLS: list[int] = []


def fails_later(y: object, predicted: object) -> float:
    """Fail when it is called for the second time."""
    CALLS.append(1)
    if len(CALLS) == 2:
        raise ValueError("once is enough")
    return 0.5


def writes_predictions(y: object, predicted: NDArray[np.float32]) -> float:
    predicted[:] = 0
    return 0.5


def writes_targets(y: NDArray[np.float32], predicted: object) -> float:
    y[:] = 0
    return 0.5


def whole_without_end(y: object, predicted: object) -> int:
    return 10**5000  # which has more digits than Python prints


def long_without_end(y: object, predicted: object) -> np.longdouble:
    return np.longdouble("1e4000")


UNMEASURED = replace(TASKS["regression"], name="unmeasured", known={})
UNCOUNTED = replace(TASKS["classification"], name="uncounted", right=None)
NO_SIDES_RIGHT = replace(TASKS["binary"], name="no-sides-right", right=None)
MISAIMED = replace(TASKS["regression"], name="misaimed", target="regresion")
AIMED_AT_A_LIST = replace(TASKS["regression"], name="aimed-at-a-list", target=["regression"])  # type: ignore[arg-type]
KNOWS_NOTHING = replace(TASKS["regression"], name="knows-nothing", known=None)  # type: ignore[arg-type]


def right_in_all(answers: Tensor, y: Tensor) -> Tensor:
    """Count right answers of all examples together, which is not what a task's `right` must do."""
    return (answers.argmax(dim=1) == y).sum()


COUNTED_IN_ALL = replace(TASKS["classification"], name="counted-in-all", right=right_in_all)
