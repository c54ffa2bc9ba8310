"""FedPer: the last layers of a model stay on their node.

Arivazhagan et al., Federated Learning with Personalization Layers, 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.engine.update import Update
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.algorithms.options import at_least

if TYPE_CHECKING:
    from torch import nn


def last_layers(model: nn.Module, layers: int) -> list[str]:
    """Name the tensors of the last modules that have parameters of their own."""
    with_own = [
        name for name, module in model.named_modules() if [*module.parameters(recurse=False)]
    ]
    heads = with_own[max(0, len(with_own) - layers) :]
    return [name for name, _ in model.named_parameters() if name.rpartition(".")[0] in heads]


def fedper(layers: int = 1) -> Algorithm:
    """FedPer: the last layers stay on nodes; the others are averaged."""
    at_least("layers", layers, 0)
    update = Update(personal=lambda model: last_layers(model, layers))
    return Algorithm("FedPer: the last layers stay on nodes", update)
