"""What is learnt: a task's loss, what a model's answer predicts, and what it is measured by."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from coterie.core.errors import ConfigError, CoterieError, MetricError, unknown
from coterie.core.plugins import import_by_path, reason
from coterie.data.targets import NOT_SCORED
from coterie.engine.contract import Figures
from coterie.engine.metrics import auc, macro_auc, r2

Reduction = Literal["mean", "sum", "none"]
Array = NDArray[Any]
Rows = Callable[[Tensor, Tensor], Tensor]  # of answers and targets: numbers of each example [B, k]


class Loss(Protocol):
    """The losses of answers, beside their targets, one for each of B examples."""

    def __call__(self, answers: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
        """Return their mean, their sum, or each of them [B]."""


@dataclass(frozen=True, eq=False)
class Metric:
    """A number for all examples together: `rows` of each are kept, and `of` sees them and y."""

    name: str
    rows: Rows
    of: Callable[[Array, Array], float]
    own: bool = False


@dataclass(frozen=True, eq=False)
class Task:
    """What is learnt, as a value; `TASKS` has those that are built in.

    `target` names what y must be. A model answers with `places`, beside the batch. `predict` makes
    of answers what a metric of one's own is shown: probabilities, or numbers. Where a task has an
    accuracy, `right` counts what is right of every example [B], out of `units` of y. If the task is
    `labelled`, these are examples, and counted by class.
    """

    name: str
    about: str
    target: str
    loss: Loss
    predict: Callable[[Tensor], Tensor]
    right: Callable[[Tensor, Tensor], Tensor] | None
    known: Mapping[str, Metric]
    places: tuple[str, ...] = ("classes",)
    units: Callable[[Any], Any] | None = None
    labelled: bool = False
    metrics: tuple[Metric, ...] = ()

    @property
    def softmax(self) -> bool:
        """Whether the loss is cross-entropy of one label, which written-out kernels know."""
        return self.loss is _softmax_loss

    @property
    def kept(self) -> tuple[Rows, ...]:
        """What is kept of every example's answer for the metrics, each once."""
        return tuple(dict.fromkeys(metric.rows for metric in self.metrics))

    def rows(self, answers: Tensor, y: Tensor) -> list[Tensor]:
        """Numbers [B, k] of every example that metrics need."""
        return [rows(answers, y) for rows in self.kept]

    def measured(self, kept: list[Array], y: Array) -> Figures:
        """Every metric's number, of what was kept of examples and their targets y [N]."""
        place = {rows: at for at, rows in enumerate(self.kept)}
        return {m.name: _number(m, kept[place[m.rows]], y) for m in self.metrics}

    def counted(self, y: Array) -> NDArray[np.int64]:
        """How much can be right of every example [N]: one, or its tokens, or its labels."""
        if self.units is None:
            return np.ones(len(y), dtype=np.int64)
        found: NDArray[np.int64] = np.asarray(self.units(y))
        return found

    def shaped(self, answers: object, n: int) -> Tensor:
        """Return what a module made of n examples: floating-point numbers [n, *places]."""
        if isinstance(answers, Tensor):
            fits = answers.ndim == 1 + len(self.places) and len(answers) == n
            if fits and answers.is_floating_point():
                return answers
        wanted = ", ".join([str(n), *self.places])
        raise ValueError(
            f"forward must return floating-point numbers [{wanted}], got {described(answers)}"
        )


def described(value: object) -> str:
    """Say what a tensor is, or of which type another value is.

    >>> described(torch.zeros(2, 3)), described([2, 3])
    ('[2, 3] of float32', 'list')
    """
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"


def _number(metric: Metric, rows: Array, y: Array) -> float | None:
    """Return a metric's number; None of one that is not defined here, such as an AUC of one class.

    One's own must return a number.
    """
    if not metric.own:
        found = metric.of(rows, y)
        return float(found) if np.isfinite(found) else None
    try:
        made: Any = metric.of(rows, y)
    except (KeyboardInterrupt, CoterieError):
        raise
    except BaseException as error:
        raise MetricError(f"metric {metric.name!r} raised {reason(error)}") from error
    if isinstance(made, Tensor | np.ndarray) and made.ndim == 0:
        made = made.item()
    if not isinstance(made, int | float | np.integer | np.floating) or isinstance(made, bool):
        raise MetricError(f"metric {metric.name!r} must return a number, got {type(made).__name__}")
    found = _double(made)
    if math.isinf(found):
        shown = found if made == found else "one too large for a float"
        raise MetricError(f"metric {metric.name!r} must return a number, got {shown}")
    return None if math.isnan(found) else found


def _double(number: Any) -> float:
    """Return a real number as a float, infinite where a whole one is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Predicted:
    """Keeps every example's prediction, flat: what metrics of one's own are shown."""

    predict: Callable[[Tensor], Tensor]

    def __call__(self, answers: Tensor, y: Tensor) -> Tensor:
        """Return predictions [B, k]."""
        return self.predict(answers).reshape(len(y), -1)


def _reduced(each: Tensor, reduction: Reduction) -> Tensor:
    return each if reduction == "none" else each.sum() if reduction == "sum" else each.mean()


def _softmax_loss(answers: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
    return cross_entropy(answers, y, reduction=reduction)


def _token_losses(answers: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of every token [B, L]; 0 of one that is not scored."""
    flat = answers.reshape(-1, answers.shape[-1])
    each = cross_entropy(flat, y.reshape(-1), ignore_index=NOT_SCORED, reduction="none")
    return each.view(y.shape)


def _token_loss(answers: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Mean over an example's scored tokens, of every example."""
    scored = (y != NOT_SCORED).sum(dim=1).clamp(min=1)
    return _reduced(_token_losses(answers, y).sum(dim=1) / scored, reduction)


def _square_loss(answers: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
    each = mse_loss(answers, y.to(answers.dtype), reduction="none")
    return _reduced(each.mean(dim=1), reduction)


def _logit_loss(answers: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
    wanted = y.to(answers.dtype).view(len(y), -1)
    each = binary_cross_entropy_with_logits(answers, wanted, reduction="none")
    return _reduced(each.mean(dim=1), reduction)


def _class_right(answers: Tensor, y: Tensor) -> Tensor:
    return answers.argmax(dim=1) == y


def _tokens_right(answers: Tensor, y: Tensor) -> Tensor:
    """Count right tokens of every example; one that is not scored is never right."""
    return (answers.argmax(dim=2) == y).sum(dim=1)


def _side_right(answers: Tensor, y: Tensor) -> Tensor:
    return (answers[:, 0] > 0) == (y > 0)


def _labels_right(answers: Tensor, y: Tensor) -> Tensor:
    return ((answers > 0) == (y > 0)).sum(dim=1)


def _class_row(answers: Tensor, y: Tensor) -> Tensor:
    return _class_right(answers, y)[:, None]


def _token_row(answers: Tensor, y: Tensor) -> Tensor:
    """Sum of the losses of every example's tokens, in doubles, right ones, and all: [B, 3]."""
    losses = _token_losses(answers, y).cpu().double().sum(dim=1)
    right, scored = _tokens_right(answers, y), (y != NOT_SCORED).sum(dim=1)
    return torch.stack([losses, right.cpu().double(), scored.cpu().double()], dim=1)


def _answers(answers: Tensor, y: Tensor) -> Tensor:
    return answers


def _class_shares(answers: Tensor) -> Tensor:
    return answers.softmax(dim=1)


def _token_shares(answers: Tensor) -> Tensor:
    return answers.softmax(dim=2)


def _as_they_are(answers: Tensor) -> Tensor:
    return answers


def _chance(answers: Tensor) -> Tensor:
    return answers[:, 0].sigmoid()


def _chances(answers: Tensor) -> Tensor:
    return answers.sigmoid()


def _tokens_scored(y: Any) -> Any:
    return (y != NOT_SCORED).sum(1)


def _columns(y: Any) -> Any:
    return np.full(len(y), y.shape[1], dtype=np.int64)


def _metrics(rows: Rows, **of: Callable[[Array, Array], float]) -> dict[str, Metric]:
    return {name: Metric(name, rows, function) for name, function in of.items()}


CLASSIFICATION = Task(
    "classification",
    "one of several classes: cross-entropy",
    "classification",
    _softmax_loss,
    _class_shares,
    _class_right,
    _metrics(_class_row, accuracy=lambda rows, y: rows.mean()),
    labelled=True,
)
NEXT_TOKEN = Task(
    "next-token",
    "the next token at every place: cross-entropy of every token that is scored",
    "next-token",
    _token_loss,
    _token_shares,
    _tokens_right,
    _metrics(
        _token_row,
        accuracy=lambda rows, y: rows[:, 1].sum() / rows[:, 2].sum(),
        perplexity=lambda rows, y: float(np.exp(min(700.0, rows[:, 0].sum() / rows[:, 2].sum()))),
    ),
    places=("length", "vocabulary"),
    units=_tokens_scored,
)
REGRESSION = Task(
    "regression",
    "real numbers: mean squared error",
    "regression",
    _square_loss,
    _as_they_are,
    None,
    _metrics(
        _answers,
        mse=lambda rows, y: np.square(rows - y, dtype=np.float64).mean(),
        mae=lambda rows, y: np.abs(rows - y, dtype=np.float64).mean(),
        r2=r2,
    ),
    places=("targets",),
    units=_columns,
)
BINARY = Task(
    "binary",
    "yes or no, by one logit: binary cross-entropy",
    "binary",
    _logit_loss,
    _chance,
    _side_right,
    _metrics(
        _answers,
        accuracy=lambda rows, y: ((rows[:, 0] > 0) == (y > 0)).mean(),
        auc=lambda rows, y: auc(rows[:, 0], y),
    ),
    places=("1",),
    labelled=True,
)
MULTI_LABEL = Task(
    "multi-label",
    "several labels, each by a logit: mean binary cross-entropy",
    "multi-label",
    _logit_loss,
    _chances,
    _labels_right,
    _metrics(
        _answers,
        accuracy=lambda rows, y: ((rows > 0) == (y > 0)).mean(),
        auc=macro_auc,
        exact=lambda rows, y: ((rows > 0) == (y > 0)).all(axis=1).mean(),
    ),
    places=("labels",),
    units=_columns,
)
TASKS: dict[str, Task] = {
    task.name: task for task in (CLASSIFICATION, NEXT_TOKEN, REGRESSION, BINARY, MULTI_LABEL)
}


def make_task(name: str, metrics: Sequence[str] = ()) -> Task:
    """Return a task by name, or by the import path of a `Task`, with what is to be measured.

    Metrics are names that the task knows, or import paths of functions of (y, prediction). Without
    any, a task has all that it knows; classification then has none, as every row has its accuracy.
    What has no accuracy has none by class.

    >>> [metric.name for metric in make_task("regression").metrics]
    ['mse', 'mae', 'r2']
    >>> make_task("binary", ["f1"])
    Traceback (most recent call last):
    coterie.core.errors.ConfigError: unknown task.metrics 'f1'; choose one of accuracy, auc \
(your own: 'mine:metric')
    """
    task = _named(name)
    scored = task.right is not None
    words = metrics or ([] if task.softmax and scored else list(task.known))
    chosen = tuple(_metric(task, word) for word in words)
    names = [metric.name for metric in chosen]
    for metric in names:
        if names.count(metric) > 1:
            raise ConfigError(f"task.metrics has {metric!r} twice; give one another name")
    return replace(task, metrics=chosen, labelled=task.labelled and scored)


def _named(name: str) -> Task:
    if ":" not in name:
        if name not in TASKS:
            raise ConfigError(f"{unknown('task', name, TASKS)} (your own: 'mine:task')")
        return TASKS[name]
    made = import_by_path(name, ConfigError, (Task,))
    if not isinstance(made, Task):
        raise ConfigError(f"{name!r} must be a coterie.Task, got {type(made).__name__}")
    if not isinstance(made.target, str) or made.target not in TASKS:
        raise ConfigError(f"{name!r}: {unknown('target', str(made.target), TASKS)}")
    if not isinstance(made.known, Mapping):
        got = type(made.known).__name__
        raise ConfigError(f"{name!r}: known must be a dict of metrics, got {got}; {{}} has none")
    return made


def _metric(task: Task, word: str) -> Metric:
    """Return a metric by name or import path."""
    if ":" not in word:
        if word not in task.known:
            known = unknown("task.metrics", word, task.known)
            raise ConfigError(f"{known} (your own: 'mine:metric')")
        return task.known[word]
    function = import_by_path(word, ConfigError)
    of = partial(_own_number, function, len(task.places) > 1, task.target == "binary")
    return Metric(word.partition(":")[2], Predicted(task.predict), of, own=True)


def _own_number(
    function: Callable[[Array, Array], float], by_place: bool, single: bool, rows: Array, y: Array
) -> float:
    """Call one's own metric with targets and predictions as they were; it may change neither."""
    wanted = rows[:, 0] if single else rows.reshape(*y.shape, -1) if by_place else rows
    return function(_read_only(y), _read_only(wanted))


def _read_only(values: Array) -> Array:
    shown = values.view()
    shown.flags.writeable = False
    return shown


def away(task: Task) -> Task:
    """Return a task as another process needs it, which sees examples and measures nothing."""
    return replace(task, known={}, metrics=tuple(replace(m, of=_not_here) for m in task.metrics))


def _not_here(rows: Array, y: Array) -> float:
    raise AssertionError  # metrics are of all examples, which are in one place
