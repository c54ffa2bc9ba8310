"""Whether a model, a task and a dataset go together, found by trying before anything is trained."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from coterie.core.amounts import size
from coterie.core.errors import ConfigError, ModelError
from coterie.core.plugins import reason
from coterie.engine.module import Answers, Seen, inputs
from coterie.engine.task import Task

MOST_KEPT = 1 << 28  # numbers that are kept of the test part for a metric of one's own: 1 GB


def check_fit(model: nn.Module, task: Task, x: Seen, y: Answers, width: int) -> None:
    """Try a model and its loss on two examples; of tokens, on those with the highest and lowest.

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
    try:
        loss = task.loss(answers, wanted, "none")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(f"the loss of task {task.name!r} fails: {reason(error)}") from error
    if tuple(loss.shape) != (2,):
        raise ModelError(
            f"the loss of task {task.name!r} must be one number for each of 2 examples, got "
            f"{list(loss.shape)}"
        )


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
    wanted = (2, *places, width)
    shape = tuple(answers.shape) if isinstance(answers, torch.Tensor) else type(answers).__name__
    if shape != wanted:
        got = list(shape) if isinstance(shape, tuple) else shape
        raise ModelError(
            f"a model for task {task.name!r} must return [batch, {', '.join(task.places)}], "
            f"{list(wanted)} for a batch of 2, got {got}"
        )
