# mypy: ignore-errors
"""A case as PyTorch sees it: the network, the nodes' mini-batches, and scores on the test part."""

from functools import cache

import numpy as np
import torch
from case import Task
from nets import NETS
from torch import nn
from torch_work import Batch, batches, layout, network


def make_net(task: Task) -> nn.Module:
    """Build the network with the case's first weights."""
    if task.model not in NETS:
        return network(task)
    net = NETS[task.model](task.array("test_x").shape[1:], task.classes())
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), task.weights(), strict=True):
            parameter.copy_(torch.from_numpy(value))
    return net.to(memory_format=layout(task.model))


def floats(images: np.ndarray, model: str) -> torch.Tensor:
    """Turn bytes into floats in [0, 1], laid out as the network has them."""
    x = torch.from_numpy(np.array(images)).float().div_(255)
    return x.contiguous(memory_format=layout(model))


class Nodes:
    """The nodes' examples as tensors, each made when it is first asked for, and kept."""

    def __init__(self, task: Task) -> None:
        """Open the arrays."""
        self.sizes, self._model = task.sizes(), task.model
        self._x, self._y = task.array("train_x"), task.array("train_y")
        self._starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self.node = cache(self._node)
        self.batches = cache(lambda i: batches(self.node(i), task.batch))

    def _node(self, i: int) -> Batch:
        at = slice(int(self._starts[i]), int(self._starts[i + 1]))
        return floats(self._x[at], self._model), torch.from_numpy(np.array(self._y[at]))


def test_part(task: Task) -> list[Batch]:
    """Return the test images and labels, in pieces that are scored at once."""
    y = torch.from_numpy(np.array(task.array("test_y")))
    return batches((floats(task.array("test_x"), task.model), y), task.piece)


def score(net: nn.Module, part: list[Batch]) -> tuple[float, float]:
    """Accuracy and mean loss, in evaluation mode."""
    right, loss = totals(net, part)
    n = sum(len(y) for _, y in part)
    return right / n, loss / n


@torch.inference_mode()
def totals(net: nn.Module, part: list[Batch]) -> tuple[float, float]:
    """Count what is classified rightly, and sum the loss, in evaluation mode."""
    net.eval()
    right = loss = 0.0
    for x, y in part:
        logits = net(x)
        loss += float(nn.functional.cross_entropy(logits, y, reduction="sum"))
        right += int((logits.argmax(1) == y).sum())
    net.train()
    return right, loss
