"""Models of tables: rows of numbers, of any shape."""

from math import prod

from torch import nn

HIDDEN = 64


def make_logistic(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Logistic regression: one linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), n_classes))


def make_mlp(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Perceptron with two hidden layers of 64 rectified units."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(input_shape), HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, n_classes),
    )
