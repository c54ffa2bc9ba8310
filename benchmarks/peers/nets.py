"""Networks of published benchmarks, for Coterie (by import path) and for the peers on PyTorch."""

from itertools import pairwise

import torch
from torch import Tensor, nn


def femnist_cnn(input_shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Two 3x3 convolutions, 32 and 64 wide, pooling, dropout, a layer of 128.

    FLUTE and FedML train it on FEMNIST (1,206,590 parameters with 62 classes), and pfl on CIFAR-10.
    """
    channels, height, _ = input_shape
    side = (height - 4) // 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(64 * side * side, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, n_classes)),
    )


def tutorial_cnn(input_shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """BlazeFL's CNN, that of PyTorch's tutorial on CIFAR-10: 62,006 parameters."""
    channels, height, _ = input_shape
    side = ((height - 4) // 2 - 4) // 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(16 * side * side, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, n_classes),
    )


def resnet18(input_shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """ResNet-18 for large images, as torchvision has it, with batch norm: 11.2 million weights."""
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [_Block(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 64, 7, stride=2, padding=3, bias=False),
        *(nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1), *blocks),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, n_classes)),
    )


class _Block(nn.Module):
    """Two 3x3 convolutions beside a way past them."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.way = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            *(nn.BatchNorm2d(after), nn.ReLU()),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.past = (
            nn.Identity()
            if before == after
            else nn.Sequential(
                nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.way(x) + self.past(x))


def cnn_nolrn(input_shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Coterie's CNN without local response normalisation."""
    channels, height, _ = input_shape
    side = ((height - 4) // 2 - 4) // 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64 * side * side, 256), nn.ReLU(), nn.Linear(256, n_classes)),
    )


NETS = {
    "cnn-nolrn": cnn_nolrn,
    "femnist_cnn": femnist_cnn,
    "tutorial_cnn": tutorial_cnn,
    "resnet18": resnet18,
}
