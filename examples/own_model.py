"""Your own model: any function that returns a torch module, named by its import path.

Run it:  cd examples && coterie run quickstart --set model.name=own_model:make --set train.lr=0.1
"""

from torch import nn


def make(input_shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Return a small perceptron with dropout; ask only for the arguments you need."""
    channels, height, width = input_shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 64),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(64, n_classes),
    )
