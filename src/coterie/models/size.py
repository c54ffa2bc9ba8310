"""What a model costs: bytes on the wire, and floating-point operations per example."""

import warnings
from typing import TYPE_CHECKING

import torch
from torch import nn

from coterie.core.errors import CoterieWarning
from coterie.models.norm import LocalNorm

if TYPE_CHECKING:
    from coterie.models.operations import Operations


def n_parameters(model: nn.Module) -> int:
    """Count the trained parameters."""
    return sum(w.numel() for w in model.parameters() if w.requires_grad)


def n_bytes(model: nn.Module) -> int:
    """Count the bytes of one model on the network: 4 for each number that is trained or kept.

    Floating buffers, such as a norm's statistics, change in training and are sent. What is frozen
    stays everywhere as it was, and is not.
    """
    buffers = (b for b in model.buffers() if b.is_floating_point())
    return 4 * (n_parameters(model) + sum(b.numel() for b in buffers))


# Layers without a product of matrices, which is all that torch's counter counts.
FREE = (
    nn.Flatten,
    nn.ReLU,
    nn.MaxPool2d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.GroupNorm,
    nn.Dropout,
    LocalNorm,
)


def flops_per_example(
    model: nn.Module, input_shape: tuple[int, ...], *, tokens: bool = False
) -> int:
    """Count forward and backward operations of one example; with `tokens`, of whole numbers.

    A multiply-add is two. The gradient of the input is included, as is usual in "backward is twice
    forward"; only the first layer could do without it. One warning names the operators that are
    not counted.

    >>> from coterie.models import make_model
    >>> flops_per_example(make_model("sr", (1, 28, 28), 10), (1, 28, 28))
    47040
    """
    known = (nn.Linear, nn.Conv2d, *FREE)
    trained = all(w.requires_grad for w in model.parameters())
    if trained and type(model) is nn.Sequential and all(type(layer) in known for layer in model):
        return 3 * _forward_flops(model, input_shape)
    found = counted_flops(model, input_shape, tokens=tokens)
    if found.unknown:
        warnings.warn(_not_counted(found.unknown), CoterieWarning, stacklevel=2)
    return found.flops


def _not_counted(names: tuple[str, ...]) -> str:
    """Say which operators are missing from a count, and what to do.

    >>> _not_counted(("aten._cdist_forward",))[:53]
    'the operations of aten._cdist_forward are not counted'
    """
    return (
        f"the operations of {', '.join(names)} are not counted, and simulated compute is too short "
        "by them; set compute.flops_per_example"
    )


def _forward_flops(chain: nn.Sequential, input_shape: tuple[int, ...]) -> int:
    """Count the products of a chain of known layers: one by each weight at each place."""
    x, total, training = torch.zeros(2, *input_shape), 0, chain.training
    chain.eval()
    with torch.no_grad():
        for layer in chain:
            x = layer(x)
            if isinstance(layer, nn.Linear | nn.Conv2d):
                places = x[0].numel() // len(layer.weight)  # that one output channel has
                total += 2 * layer.weight.numel() * places
    chain.train(training)
    return total


def counted_flops(
    model: nn.Module, input_shape: tuple[int, ...], *, tokens: bool = False
) -> "Operations":
    """Count the operations of any module with torch's own counter, which takes 2 s to import."""
    from coterie.models.operations import count_operations

    kind = torch.int64 if tokens else torch.float32
    device = next(model.parameters()).device
    return count_operations(model, torch.zeros(2, *input_shape, dtype=kind, device=device))
