"""Whether a model, a task and a dataset go together, found by trying before anything is trained."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.core.amounts import size
from coterie.core.errors import ConfigError, ModelError
from coterie.core.plugins import reason
from coterie.engine.module import Answers, Seen, inputs
from coterie.engine.task import Task, described

MOST_KEPT = 1 << 28  # numbers that are kept of the test part for a metric of one's own: 1 GB
LOOSE = 1e-3  # error of the sum or mean of two losses, beside these


def check_fit(model: nn.Module, task: Task, x: Seen, y: Answers, width: int) -> None:
    """Try a model and its task on two examples; of tokens, on those with the highest and lowest.

    Its answers must be as wide as the task wants them.
    """
    some = _some(x)
    few, wanted = torch.from_numpy(x[some].copy()), torch.from_numpy(y[some].copy())
    training = model.training
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            answers = model.eval()(inputs(few, next(model.parameters()).dtype))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        tokens = f", whose tokens are {x.min()} to {x.max()}" if x.dtype == np.int64 else ""
        raise ModelError(f"the model fails on the dataset{tokens}: {reason(error)}") from error
    finally:
        model.train(training)
    _check_shape(answers, task, tuple(y.shape[1:2]) if len(task.places) > 1 else (), width)
    _check_loss(task, answers, wanted)
    _check_right(task, answers, wanted)
    _check_predictions(task, answers, wanted)


def check_room_for_metrics(task: Task, y: Answers, width: int) -> None:
    """Refuse metrics of one's own that would be shown more than there is room for."""
    own = [metric.name for metric in task.metrics if metric.own]
    each = width * (y.shape[1] if len(task.places) > 1 else 1)
    if own and len(y) * each > MOST_KEPT:
        raise ConfigError(
            f"metric {own[0]!r} would be shown all answers to the test part, "
            f"{size(4 * len(y) * each)}; lower data.sample, or leave it out of task.metrics"
        )


def _some(x: Seen) -> NDArray[np.int64]:
    if x.dtype != np.int64:
        return np.array([0, len(x) - 1])
    flat = x.reshape(len(x), -1)
    return np.array([flat.max(axis=1).argmax(), flat.min(axis=1).argmin()])


def _check_shape(answers: object, task: Task, places: tuple[int, ...], width: int) -> None:
    wanted = [2, *places, width]
    floats = isinstance(answers, Tensor) and answers.is_floating_point()
    shape = list(answers.shape) if isinstance(answers, Tensor) else []
    if not floats or shape != wanted:
        raise ModelError(
            f"a model for task {task.name!r} must return floating-point numbers "
            f"[batch, {', '.join(task.places)}], {wanted} for a batch of 2, got "
            f"{described(answers)}"
        )


def _check_loss(task: Task, answers: Tensor, y: Tensor) -> None:
    """Refuse a loss whose sum or mean is not that of its losses of examples."""
    each = _loss(task, answers, y, "one number for each of 2 examples", [2], "none")
    for given, how in (("sum",), "sum"), (("mean",), "mean"), ((), "mean"):
        asked = f"with reduction {given[0]!r}" if given else "without reduction"
        found = _loss(task, answers, y, f"one number {asked}", [], *given)
        wanted = each.sum() if how == "sum" else each.mean()
        if (found - wanted).abs() > LOOSE * each.abs().sum():  # never so if a loss is not finite
            raise ModelError(
                f"the loss of task {task.name!r} must be the {how} of the examples' losses "
                f"{asked}, {wanted.item():.6g} here, got {found.item():.6g}"
            )


def _loss(
    task: Task, answers: Tensor, y: Tensor, must: str, shape: list[int], *reduction: str
) -> Tensor:
    """Return a loss that is what it must be, and has a gradient."""
    what = f"the loss of task {task.name!r}"
    found = _tried(what, task.loss, answers.clone().requires_grad_(), y, *reduction)
    made = _shaped(what, must, found, shape)
    if not made.requires_grad:
        raise ModelError(f"{what} must have a gradient; use torch's functions, and no detach()")
    return made


def _check_right(task: Task, answers: Tensor, y: Tensor) -> None:
    """Refuse counts of right answers that are not one for each example, or beyond its units."""
    if task.right is None:
        return
    what = f"right of task {task.name!r}"
    each = "one number for each of 2 examples"
    right = _shaped(what, each, _tried(what, task.right, answers, y), [2])
    whose = f"units of task {task.name!r}"
    counted = _tried(whose, lambda _, y: torch.as_tensor(task.counted(y.numpy())), answers, y)
    units = _shaped(whose, each, counted, [2])
    if (right > units).any():
        raise ModelError(
            f"{what} must be at most {units.tolist()}, its units, got {right.tolist()}"
        )


def _check_predictions(task: Task, answers: Tensor, y: Tensor) -> None:
    """Refuse predictions that are not of every example, where a metric of one's own sees them."""
    if not any(metric.own for metric in task.metrics):
        return
    what = f"predict of task {task.name!r}"
    found = _tried(what, lambda answers, _: task.predict(answers), answers, y)
    if not isinstance(found, Tensor) or found.shape[:1] != (2,):
        raise ModelError(
            f"{what} must be a tensor with a row for each of 2 examples, got {described(found)}"
        )


def _tried(what: str, function: Callable[..., Any], answers: Tensor, y: Tensor, *more: str) -> Any:
    """Call a part of a task on copies, which it must leave as they are.

    Its random numbers are the same every time.
    """
    given = answers.clone(), y.clone()
    try:
        with torch.random.fork_rng(devices=[]):
            found = function(*given, *more)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(f"{what} fails: {reason(error)}") from error
    if not all(map(_same, given, (answers, y))):
        raise ModelError(f"{what} must not write into the answers or y; write into a copy")
    return found


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _shaped(what: str, must: str, found: object, shape: list[int]) -> Tensor:
    """Return a tensor of this shape, or say what must be one."""
    if not isinstance(found, Tensor) or list(found.shape) != shape:
        raise ModelError(f"{what} must be {must}, got {described(found)}")
    return found
