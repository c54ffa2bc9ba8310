"""Small nets of a user's own, named by import path in tests."""

from math import prod

from torch import nn

HIDDEN = 6


def two_layers(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """One hidden layer of tanh."""
    body, head = nn.Linear(prod(input_shape), HIDDEN), nn.Linear(HIDDEN, n_classes)
    return nn.Sequential(nn.Flatten(), body, nn.Tanh(), head)


def normed(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Like two_layers, with batch norm."""
    body, head = nn.Linear(prod(input_shape), HIDDEN), nn.Linear(HIDDEN, n_classes)
    return nn.Sequential(nn.Flatten(), body, nn.BatchNorm1d(HIDDEN), nn.Tanh(), head)
