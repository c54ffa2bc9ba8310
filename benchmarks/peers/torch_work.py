# mypy: ignore-errors
"""The work as PyTorch sees it, for the peers that are built on PyTorch."""

import torch
from torch import nn
from work import CLASSES, Work

LOSS_EXAMPLES = 2000  # the first ones; enough to see that the same thing was learned

# Quicker with channels last, in training and in scoring: half to nine tenths of the seconds. The
# small CNN and ResNet-18 of nets.py are not, at their mini-batches.
CHANNELS_LAST = ("cnn", "cnn-nolrn", "femnist_cnn")

Batch = tuple[torch.Tensor, torch.Tensor]


def network(work: Work) -> nn.Sequential:
    """Build the project's networks of stock PyTorch modules, with the work's first weights."""
    norm = [] if work.model == "cnn-nolrn" else [nn.LocalResponseNorm(9, alpha=0.001, k=1.0)]
    hidden = {
        "sr": [nn.Flatten()],
        "2nn": [nn.Flatten(), *_rectified(nn.Linear(784, 200)), *_rectified(nn.Linear(200, 200))],
    }.get(work.model) or [
        *(*_rectified(nn.Conv2d(1, 64, 5)), nn.MaxPool2d(2), *norm),  # [B, 64, 12, 12]
        *(*_rectified(nn.Conv2d(64, 64, 5)), *norm, nn.MaxPool2d(2)),  # [B, 64, 4, 4]
        *(nn.Flatten(), *_rectified(nn.Linear(1024, 256))),
    ]
    width = {"sr": 784, "2nn": 200}.get(work.model, 256)
    net = nn.Sequential(*hidden, nn.Linear(width, CLASSES))
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), work.weights(), strict=True):
            parameter.copy_(torch.from_numpy(value))
    return net.to(memory_format=layout(work.model))


def layout(model: str) -> torch.memory_format:
    """Return how weights and images of a network best lie in memory."""
    return torch.channels_last if model in CHANNELS_LAST else torch.contiguous_format


def _rectified(layer: nn.Module) -> tuple[nn.Module, nn.Module]:
    return layer, nn.ReLU()


def tensors(work: Work) -> Batch:
    """Return all images as floats in [0, 1] and all labels."""
    images, labels = work.data()
    return torch.from_numpy(images).float().div_(255), torch.from_numpy(labels)


def nodes(work: Work) -> list[Batch]:
    """Cut the tensors into nodes, without copying."""
    sizes = work.sizes().tolist()
    x, y = tensors(work)
    return list(zip(x.split(sizes), y.split(sizes), strict=True))


def batches(node: Batch, size: int) -> list[Batch]:
    """Cut a node into mini-batches, without copying."""
    return list(zip(node[0].split(size), node[1].split(size), strict=True))


@torch.no_grad()
def mean_loss(net: nn.Module, of_nodes: list[Batch]) -> float:
    """Mean cross entropy of the first examples."""
    x = torch.cat([x for x, _ in of_nodes])[:LOSS_EXAMPLES]
    y = torch.cat([y for _, y in of_nodes])[:LOSS_EXAMPLES]
    losses = [
        nn.functional.cross_entropy(net(a), b, reduction="sum")
        for a, b in zip(x.split(250), y.split(250), strict=True)
    ]
    return float(sum(losses)) / len(y)
