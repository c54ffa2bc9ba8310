"""First weights as the authors' simulator drew them, for the paper's models."""

import torch
from torch import nn

CNN_SD = 0.05
CUT = 2.0  # standard deviations, beyond which TensorFlow's truncated normal draws again


def draw_as_reference(name: str, model: nn.Module) -> None:
    """Draw the first weights of a paper's model anew, from torch's generator.

    SR and 2NN: weights normal with SD 1/sqrt(inputs of the layer), biases normal with SD 1. CNN:
    weights normal with SD 0.05, none beyond 0.1; biases 0.

    >>> model = nn.Linear(4, 2)
    >>> draw_as_reference("cnn", model)
    >>> model.weight.abs().max().item() <= 0.1, model.bias.tolist()
    (True, [0.0, 0.0])
    """
    with torch.no_grad():
        for w in model.parameters():
            if name == "cnn":
                _draw_cnn(w)
            else:
                w.normal_(0.0, w[0].numel() ** -0.5 if w.ndim > 1 else 1.0)


def _draw_cnn(w: nn.Parameter) -> None:
    if w.ndim > 1:
        nn.init.trunc_normal_(w, 0.0, CNN_SD, -CUT * CNN_SD, CUT * CNN_SD)
    else:
        nn.init.zeros_(w)
