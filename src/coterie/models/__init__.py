"""What is trained: models by name, or any `torch.nn.Module` by import path.

A model is a function `make(input_shape, n_classes) -> nn.Module`; ours are named by their import
path just as a user's are. Nothing here imports torch before a model is made.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
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
    weights: Path | None = None,
    adapters: int = 0,
) -> "nn.Module":
    """Make a model by its short name or import path `package.module:function`.

    One's `own` module or function takes the place of what the name means. What comes back is a
    copy: a module that somebody keeps stays as it is. First weights are as torch draws them, as the
    paper's simulator did, or those of a file, and adapters of some rank may be put on them.
    `output` is how many numbers it returns for an example, one for each class unless said. With
    `tokens` it reads whole numbers, and may return as many at every place.

    >>> sum(w.numel() for w in make_model("sr", (1, 28, 28), 10).parameters())
    7850
    """
    offered = Offered(input_shape, n_classes if output is None else output, tokens)
    called = repr(name)
    model = _call(called, _maker(name, own), offered)

    from coterie.models.trial import check_trained, scores_of

    scores = scores_of(called, model, offered)
    if init == "reference" and own is None:
        from coterie.models.initial import draw_as_reference

        draw_as_reference(name, model)
    if weights:
        from coterie.models.weights import load_weights

        load_weights(weights, model)
    if adapters:
        from coterie.models.adapters import with_adapters

        model, called = with_adapters(model, adapters), f"{called} with model.adapters"
        scores = scores_of(called, model, offered)
    check_trained(called, model, offered, scores)
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


def _maker(name: str, own: "nn.Module | Callable[..., object] | None") -> Callable[..., object]:
    """Return the function that makes a model: one's own, or that of a name."""
    if own is not None:
        from torch import nn

        return (lambda: own) if isinstance(own, nn.Module) else own
    path = MODELS[name][1] if name in MODELS else name
    if ":" not in path:
        raise ModelError(f"{unknown('model', name, MODELS)} (your own: 'my_pkg.models:make')")
    return import_by_path(path, ModelError)


def _call(called: str, make: Callable[..., object], offered: Offered) -> "nn.Module":
    """Call a model function with what it asks for of what is offered; copy what it made."""
    from torch import nn

    from coterie.models.trial import copy_of

    try:
        asked = inspect.signature(make).parameters
        takes_all = any(a.kind is inspect.Parameter.VAR_KEYWORD for a in asked.values())
        model = make(**{k: v for k, v in vars(offered).items() if takes_all or k in asked})
    except KeyboardInterrupt:
        raise
    except BaseException as cause:
        raise ModelError(
            f"{called} cannot be made (it may take input_shape, n_classes): {reason(cause)}"
        ) from cause
    if not isinstance(model, nn.Module):
        raise ModelError(f"{called} returned {type(model).__name__}, not a torch.nn.Module")
    return copy_of(called, model)
