"""Models of small colour images, such as CIFAR-10's."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from coterie.models.nets import image_shape

GROUPS = 2  # of channels in every norm, as Reddi et al. 2021 have it
WIDTHS = (64, 64, 64, 128, 128, 256, 256, 512, 512)


def make_cifar_cnn(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The CNN of pfl's benchmark on CIFAR-10: two 3x3 convolutions, dropout, a layer of 128.

    First weights are Glorot's, as there. Pooling comes before the second ReLU: the same numbers,
    less work.
    """
    channels, height, width = image_shape(input_shape)
    layers = nn.Sequential(
        nn.Conv2d(channels, 32, 3),  # [B, 32, 30, 30] for 32x32
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),  # [B, 64, 28, 28]
        nn.MaxPool2d(2),  # [B, 64, 14, 14]
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, n_classes),
    )
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return layers


def make_resnet18(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """ResNet-18 with group norm for images of 32x32: it begins with one 3x3 convolution."""
    channels, _, _ = image_shape(input_shape)
    return nn.Sequential(
        *(_convolution(channels, WIDTHS[0], 3, 1), nn.ReLU()),  # [B, 64, 32, 32] for 32x32
        *(Residual(before, after) for before, after in pairwise(WIDTHS)),  # [B, 512, 4, 4]
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], n_classes)),
    )


class Residual(nn.Module):
    """Two 3x3 convolutions beside a way past them; half the sides where there are more channels."""

    def __init__(self, before: int, after: int) -> None:
        """Take the channels of what comes in and of what goes out."""
        super().__init__()
        stride = 1 if before == after else 2
        self.first = _convolution(before, after, 3, stride)
        self.second = _convolution(after, after, 3, 1)
        self.past = nn.Identity() if stride == 1 else _convolution(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the convolutions make of x to x."""
        return torch.relu(self.second(torch.relu(self.first(x))) + self.past(x))


def _convolution(before: int, after: int, size: int, stride: int) -> nn.Module:
    """Return a convolution and its norm."""
    return nn.Sequential(
        nn.Conv2d(before, after, size, stride=stride, padding=size // 2, bias=False),
        nn.GroupNorm(GROUPS, after),
    )
