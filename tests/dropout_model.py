"""Models that are awkward for an engine, found by their import path."""

import torch
from torch import Tensor, nn


def make(n_classes: int) -> nn.Module:
    """A model that draws random numbers."""
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, n_classes))


def cumulative_norm(n_classes: int) -> nn.Module:
    """A model whose statistics depend on how many batches it has seen."""
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16, momentum=None), nn.Linear(16, n_classes))


def unused(n_classes: int) -> nn.Module:
    """A model with a parameter that its output does not depend on."""

    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.Parameter(torch.ones(3))
            self.used = nn.Sequential(nn.Flatten(), nn.ReLU(inplace=True), nn.Linear(16, n_classes))

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.used(x)
            return scores

    return Spare()
