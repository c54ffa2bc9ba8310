"""FedBN: norm layers stay on their node, with their statistics.

Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.core.errors import ModelError
from coterie.engine.update import Update
from coterie.simulation.algorithm import Algorithm

if TYPE_CHECKING:
    from torch import nn


def norms(model: nn.Module) -> list[str]:
    """Name the tensors of all batch norms: scale, shift and running statistics."""
    from torch.nn.modules.batchnorm import _BatchNorm

    inside = [name for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
    if not inside:
        raise ModelError("fedbn keeps batch norms on nodes, and the model has none")
    tensors = (*model.named_parameters(), *model.named_buffers())
    return [
        name
        for name, tensor in tensors
        if name.rpartition(".")[0] in inside and tensor.is_floating_point()
    ]


def fedbn() -> Algorithm:
    """FedBN: batch norms and their statistics stay on nodes; all else is averaged."""
    return Algorithm("FedBN: batch norms stay on nodes", Update(personal=norms))
