"""What is trained: the paper's models, or any `torch.nn.Module` by import path.

A model is a function `make(input_shape, n_classes) -> nn.Module`; the paper's are named by their
import path just as a user's are. Nothing here imports torch before a model is made.
"""

import inspect
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Literal

from coterie.core.errors import ModelError, unknown
from coterie.core.plugins import import_by_path, reason

if TYPE_CHECKING:
    from torch import nn

MODELS: dict[str, tuple[str, str]] = {
    "sr": ("softmax regression, 7,850 parameters on 28x28", "coterie.models.nets:make_sr"),
    "2nn": ("two hidden layers of 200, 199,210 parameters", "coterie.models.nets:make_2nn"),
    "cnn": ("two 5x5 convolutions of 64, 369,098 parameters", "coterie.models.nets:make_cnn"),
    "celeba-cnn": (
        "LEAF's for CelebA: four 3x3 convolutions of 32, 31,202 parameters on 84x84x3",
        "coterie.models.nets:make_celeba_cnn",
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
) -> "nn.Module":
    """Make a model by its short name or import path `package.module:function`.

    One's `own` module, of which a copy is made, or function takes the place of what the name means.
    First weights are as torch draws them, or as the paper's simulator did.

    >>> sum(w.numel() for w in make_model("sr", (1, 28, 28), 10).parameters())
    7850
    """
    if own is not None:
        return _call(name, own if inspect.isroutine(own) else _maker(own), input_shape, n_classes)
    path = MODELS[name][1] if name in MODELS else name
    if ":" not in path:
        raise ModelError(f"{unknown('model', name, MODELS)} (your own: 'my_pkg.models:make')")
    model = _call(name, import_by_path(path, ModelError), input_shape, n_classes)
    if init == "reference":
        from coterie.models.initial import draw_as_reference

        draw_as_reference(name, model)
    return model


def _maker(own: "nn.Module | Callable[..., object]") -> Callable[..., object]:
    """Return a function that makes a model: of a module, copies that no training changes."""
    from torch import nn

    return partial(deepcopy, own) if isinstance(own, nn.Module) else own


def _call(
    name: str, make: Callable[..., object], input_shape: tuple[int, ...], n_classes: int
) -> "nn.Module":
    """Call a model function with those of input_shape and n_classes that it asks for."""
    import torch
    from torch import nn

    offered = {"input_shape": input_shape, "n_classes": n_classes}
    asked = inspect.signature(make).parameters
    takes_all = any(a.kind is inspect.Parameter.VAR_KEYWORD for a in asked.values())
    try:
        model = make(**{k: v for k, v in offered.items() if takes_all or k in asked})
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
            scores = model.eval()(torch.zeros(2, *input_shape))
    except KeyboardInterrupt:
        raise
    except BaseException as cause:
        raise ModelError(
            f"{name!r} does not run on inputs {input_shape}: {reason(cause)}"
        ) from cause
    model.train(training)
    shape = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if shape != (2, n_classes):
        raise ModelError(
            f"{name!r} must return one number per class, [batch, {n_classes}], "
            f"got {list(shape) if isinstance(shape, tuple) else shape} for a batch of 2"
        )
    if not any(w.requires_grad for w in model.parameters()):
        raise ModelError(f"{name!r} has no parameters to train")
    return model
