"""Adapters of low rank on a frozen model (Hu et al. 2022): they alone are trained, and travel."""

from typing import Any

from torch import Tensor, nn

from coterie.core.errors import ModelError


class Adapted(nn.Module):
    """y = layer(x) + up(down(x)): a frozen layer, and a way of few numbers past it.

    The second factor is zero at first, so that the model begins as its base. The scale that others
    call alpha / rank is 1.

    >>> import torch
    >>> layer, x = nn.Linear(6, 4), torch.rand(3, 6)
    >>> torch.equal(Adapted(layer, 2)(x), layer(x))
    True
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, rank: int) -> None:
        """Take a layer over, and how many numbers the way past it has at every place."""
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down: nn.Module
        self.up: nn.Module
        if isinstance(layer, nn.Linear):
            self.down = nn.Linear(layer.in_features, rank, bias=False)
            self.up = nn.Linear(rank, layer.out_features, bias=False)
        else:
            self.down = nn.Conv2d(
                layer.in_channels,
                rank,
                layer.kernel_size,  # type: ignore[arg-type]
                layer.stride,  # type: ignore[arg-type]
                layer.padding,  # type: ignore[arg-type]
                layer.dilation,  # type: ignore[arg-type]
                bias=False,
                padding_mode=layer.padding_mode,
            )
            self.up = nn.Conv2d(rank, layer.out_channels, 1, bias=False)
        nn.init.zeros_(self.up.weight)
        self.to(layer.weight.dtype)

    def __getattr__(self, name: str) -> Any:
        """Return what the layer has, such as its weight, which is the base's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)

    def forward(self, x: Tensor) -> Tensor:
        """Add both ways."""
        y: Tensor = self.layer(x) + self.up(self.down(x))
        return y


def with_adapters(model: nn.Module, rank: int) -> nn.Module:
    """Freeze a model, and put adapters on its linear layers and convolutions.

    Recurrent layers, and what is inside of torch's own attention, have none. What a model's forward
    multiplies by a layer's weight itself goes past its adapter.

    >>> model = with_adapters(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), 1)
    >>> sum(w.numel() for w in model.parameters() if w.requires_grad)
    16
    """
    model.requires_grad_(False)
    if _takes_one(model):
        return Adapted(model, rank)  # type: ignore[arg-type]
    closed = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    inside = {id(child) for m in closed for child in m.modules()}
    parents = [m for m in model.modules() if id(m) not in inside]
    made: dict[int, Adapted] = {}  # a layer that stands in two places has one adapter
    for parent in parents:
        for name, child in list(parent._modules.items()):
            if child is not None and _takes_one(child):
                if id(child) not in made:
                    made[id(child)] = Adapted(child, rank)  # type: ignore[arg-type]
                setattr(parent, name, made[id(child)])
    if not made:
        raise ModelError(
            "model.adapters needs linear layers or convolutions, and the model has none; use 0 to "
            "train all of it"
        )
    return model


def _takes_one(module: nn.Module) -> bool:
    return type(module) in (nn.Linear, nn.Conv2d)
