"""What a model costs: bytes on the wire, and floating-point operations per example."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from coterie.models.norm import LocalNorm


def n_parameters(model: nn.Module) -> int:
    """Count the trained parameters."""
    return sum(w.numel() for w in model.parameters() if w.requires_grad)


def n_bytes(model: nn.Module) -> int:
    """Count the bytes of one model on the network: 4 for each parameter and floating buffer."""
    buffers = (b for b in model.buffers() if b.is_floating_point())
    return 4 * sum(w.numel() for w in (*model.parameters(), *buffers))


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


def flops_per_example(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Count forward and backward operations of one example.

    A multiply-add is two. The gradient of the input is included, as is usual in "backward is twice
    forward"; only the first layer could do without it.

    >>> from coterie.models import make_model
    >>> flops_per_example(make_model("sr", (1, 28, 28), 10), (1, 28, 28))
    47040
    """
    known = (nn.Linear, nn.Conv2d, *FREE)
    if type(model) is nn.Sequential and all(type(layer) in known for layer in model):
        return 3 * _forward_flops(model, input_shape)
    return counted_flops(model, input_shape)


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


def counted_flops(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Count the operations of any module with torch's own counter, which takes 2 s to import."""
    from torch.utils.flop_counter import FlopCounterMode

    device = next(model.parameters()).device
    x = torch.zeros(2, *input_shape, device=device, requires_grad=True)
    keep = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.random.fork_rng(devices=[]), FlopCounterMode(display=False) as counter:
        scores = model(x.clone())  # a layer may work in place, which a leaf does not allow
        torch.autograd.backward(cross_entropy(scores, torch.zeros_like(scores[:, 0]).long()))
    model.load_state_dict(keep)
    model.zero_grad()
    return int(counter.get_total_flops()) // 2
