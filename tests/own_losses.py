"""Losses of one's own for regression, most of which are not what they must be, and tasks."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from coterie.engine.task import TASKS


def right(answers: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    each = (answers - y).abs().mean(dim=1)
    return each if reduction == "none" else each.sum() if reduction == "sum" else each.mean()


def sums(answers: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return right(answers, y, "sum" if reduction == "mean" else reduction)


def means(answers: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return right(answers, y, "mean" if reduction == "sum" else reduction)


def each_alone(answers: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return right(answers, y, "none")


def sums_unless_told(answers: Tensor, y: Tensor, reduction: str = "sum") -> Tensor:
    return right(answers, y, reduction)


def floats(answers: Tensor, y: Tensor, reduction: str = "mean") -> Any:
    found = right(answers, y, reduction)
    return found if reduction == "none" else found.item()


def lists(answers: Tensor, y: Tensor, reduction: str = "mean") -> Any:
    return right(answers, y, reduction).tolist()


def detached(answers: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return right(answers.detach(), y, reduction)


def whole_numbers(answers: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    found = right(answers, y, reduction)
    return found.long() if reduction == "none" else found


def writes_targets(answers: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return right(answers, y.mul_(2), reduction)


def writes_answers(answers: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return right(answers.mul_(2), y, reduction)


def noisy(answers: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return right(answers + torch.randn_like(answers), y, reduction)


def no_number(answers: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    return right(answers * torch.nan, y, reduction)


MEANS = replace(TASKS["regression"], name="means", loss=means)
FLOATS = replace(TASKS["regression"], name="floats", loss=floats)
