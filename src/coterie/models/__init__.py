"""What is trained: models by name, or any `torch.nn.Module` by import path.

A model is a function `make(input_shape, n_classes) -> nn.Module`; ours are named by their import
path just as a user's are. Nothing here imports torch before a model is made.
"""

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from coterie.core.errors import ModelError, unknown
from coterie.core.plugins import import_by_path, reason

if TYPE_CHECKING:
    from torch import Tensor, nn

TABLES, IMAGES, TEXT = (f"coterie.models.{kind}" for kind in ("tables", "images", "text"))
MODELS: dict[str, tuple[str, str]] = {
    "sr": ("softmax regression, 7,850 parameters on 28x28", "coterie.models.nets:make_sr"),
    "2nn": ("two hidden layers of 200, 199,210 parameters", "coterie.models.nets:make_2nn"),
    "cnn": ("two 5x5 convolutions of 64, 369,098 parameters", "coterie.models.nets:make_cnn"),
    "celeba-cnn": (
        "LEAF's for CelebA: four 3x3 convolutions of 32, 31,202 parameters on 84x84x3",
        "coterie.models.nets:make_celeba_cnn",
    ),
    "logistic": ("logistic regression for tables: one linear layer", f"{TABLES}:make_logistic"),
    "mlp": ("two hidden layers of 64, for tables", f"{TABLES}:make_mlp"),
    "cifar-cnn": (
        "pfl's for CIFAR-10: two 3x3 convolutions and dropout, 1,626,442 parameters on 32x32x3",
        f"{IMAGES}:make_cifar_cnn",
    ),
    "resnet18": (
        "ResNet-18 with group norm for 32x32 images, 11,173,962 parameters",
        f"{IMAGES}:make_resnet18",
    ),
    "char-lstm": (
        "LEAF's for Shakespeare: embedding of 8, two LSTM layers of 256, scores at every place",
        f"{TEXT}:make_char_lstm",
    ),
    "transformer": (
        "causal, two blocks of width 128 with four heads, scores at every place",
        f"{TEXT}:make_transformer",
    ),
}

# FLOPs per example that the paper's simulator charged, as its profiler reported them: it saw no
# batch size and counted weight initialisers (see docs/explanation/paper.md).
REFERENCE_FLOPS = {"sr": 7, "2nn": 398_428, "cnn": 737_413}


REFERENCE_INIT = ("sr", "2nn", "cnn")  # whose first weights it drew in its own way


def make_model(
    name: str,
    input_shape: tuple[int, ...],
    n_classes: int,
    own: "nn.Module | Callable[..., object] | None" = None,
    init: Literal["torch", "reference"] = "torch",
    *,
    output: int | None = None,
    tokens: bool = False,
) -> "nn.Module":
    """Make a model by its short name or import path `package.module:function`.

    One's `own` module, of which a copy is made, or function takes the place of what the name means.
    First weights are as torch draws them, or as the paper's simulator did. `output` is how many
    numbers it returns for an example, one for each class unless said. With `tokens` it reads whole
    numbers, and may return as many at every place.

    >>> sum(w.numel() for w in make_model("sr", (1, 28, 28), 10).parameters())
    7850
    """
    offered = Offered(input_shape, n_classes if output is None else output, tokens)
    if own is not None:
        return _call(name, own if inspect.isroutine(own) else _maker(own), offered)
    path = MODELS[name][1] if name in MODELS else name
    if ":" not in path:
        raise ModelError(f"{unknown('model', name, MODELS)} (your own: 'my_pkg.models:make')")
    model = _call(name, import_by_path(path, ModelError), offered)
    if init == "reference":
        from coterie.models.initial import draw_as_reference

        draw_as_reference(name, model)
    return model


@dataclass(frozen=True)
class Offered:
    """What a model function may ask for, by these names; n_classes is what it is to return."""

    input_shape: tuple[int, ...]
    n_classes: int
    tokens: bool

    def example(self) -> "Tensor":
        """Return a batch of two."""
        import torch

        kind = torch.int64 if self.tokens else torch.float32
        return torch.zeros(2, *self.input_shape, dtype=kind)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes that scores of such a batch may have."""
        return ((2, self.n_classes), *([(2, *self.input_shape, self.n_classes)] * self.tokens))


def _maker(own: "nn.Module | Callable[..., object]") -> Callable[..., object]:
    """Return a function that makes a model: of a module, copies that no training changes."""
    from torch import nn

    return partial(deepcopy, own) if isinstance(own, nn.Module) else own


def _call(name: str, make: Callable[..., object], offered: Offered) -> "nn.Module":
    """Call a model function with what it asks for of what is offered, and try what it made."""
    import torch
    from torch import nn

    asked = inspect.signature(make).parameters
    takes_all = any(a.kind is inspect.Parameter.VAR_KEYWORD for a in asked.values())
    try:
        model = make(**{k: v for k, v in vars(offered).items() if takes_all or k in asked})
    except KeyboardInterrupt:
        raise
    except BaseException as cause:
        raise ModelError(
            f"{name!r} cannot be made (it may take input_shape, n_classes): {reason(cause)}"
        ) from cause
    if not isinstance(model, nn.Module):
        raise ModelError(f"{name!r} returned {type(model).__name__}, not a torch.nn.Module")
    training = model.training
    try:
        with torch.no_grad():
            scores = model.eval()(offered.example())
    except KeyboardInterrupt:
        raise
    except BaseException as cause:
        kind = "tokens" if offered.tokens else "inputs"
        raise ModelError(
            f"{name!r} does not run on {kind} {offered.input_shape}: {reason(cause)}"
        ) from cause
    model.train(training)
    shape = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if shape not in offered.shapes:
        every = f" or [batch, length, {offered.n_classes}]" if offered.tokens else ""
        raise ModelError(
            f"{name!r} must return one number per class, [batch, {offered.n_classes}]{every}, "
            f"got {list(shape) if isinstance(shape, tuple) else shape} for a batch of 2"
        )
    if not any(w.requires_grad for w in model.parameters()):
        raise ModelError(f"{name!r} has no parameters to train")
    return model
