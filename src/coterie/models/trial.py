"""Whether a model can be trained: it is copied, tried on two examples, and looked at."""

from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from coterie.core.errors import ModelError
from coterie.core.plugins import reason

if TYPE_CHECKING:
    from coterie.models import Offered

WHOLE = torch.float32, torch.float64  # what other numbers of a model may stand beside


def copy_of(called: str, model: nn.Module) -> nn.Module:
    """Return a copy, so that no run changes a module that somebody else keeps.

    >>> layer = nn.Linear(3, 2)
    >>> copied = copy_of("mine", layer)
    >>> torch.equal(copied.weight, layer.weight), copied.weight is layer.weight
    (True, False)
    """
    kept = (value for module in model.modules() for value in vars(module).values())
    # What a module has computed of its parameters, as an old weight_norm does, has no deepcopy.
    memo = {id(v): v.detach().clone() for v in kept if isinstance(v, Tensor) and v.grad_fn}
    try:
        return deepcopy(model, memo)
    except Exception as cause:
        raise ModelError(
            f"{called} cannot be copied, and a run trains a copy: {reason(cause)}"
        ) from cause


def scores_of(called: str, model: nn.Module, offered: "Offered") -> Tensor:
    """Return a model's scores of two examples, in evaluation mode; refuse those of a wrong shape.

    They have a gradient if they depend on what is trained.
    """
    training = model.training
    try:
        with torch.enable_grad():
            scores = model.eval()(offered.example())
        model.train(training)
    except KeyboardInterrupt:
        raise
    except BaseException as cause:
        kind = "tokens" if offered.tokens else "inputs"
        way = "; char-lstm and transformer read tokens" if offered.tokens else ""
        raise ModelError(
            f"{called} does not run on {kind} {offered.input_shape}: {reason(cause)}{way}"
        ) from cause
    shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if shape not in offered.shapes:
        every = f" or [batch, length, {offered.n_classes}]" if offered.tokens else ""
        raise ModelError(
            f"{called} must return one number per class, [batch, {offered.n_classes}]{every}, "
            f"got {list(shape) if isinstance(shape, tuple) else shape} for a batch of 2"
        )
    found: Tensor = scores
    return found


def check_trained(called: str, model: nn.Module, offered: "Offered", scores: Tensor) -> None:
    """Refuse a model of which nothing can be trained, or not in one vector, by its scores."""
    if not any(w.requires_grad for w in model.parameters()):
        raise ModelError(f"{called} has no parameters to train")
    _check_kinds(called, model)
    _check_sparse(called, model)
    if not (scores.requires_grad or _learns(called, model, offered)):
        raise ModelError(
            f"{called} returns scores that do not depend on the parameters it trains; let its "
            "forward call its layers, without detach() or torch.no_grad()"
        )


def _check_kinds(called: str, model: nn.Module) -> None:
    """Refuse numbers that are no real ones, and half precision beside another."""
    trained = {name: w for name, w in model.named_parameters() if w.requires_grad}
    buffers = (b for b in model.buffers() if b.is_floating_point())
    kinds = {w.dtype for w in (*trained.values(), *buffers)}
    for name, w in trained.items():
        if w.is_complex() or (len(kinds) > 1 and w.dtype not in WHOLE):
            raise ModelError(
                f"{called} must train real numbers of one precision, and {name!r} is "
                f"{str(w.dtype).removeprefix('torch.')}; use float32"
            )


def _check_sparse(called: str, model: nn.Module) -> None:
    """Refuse look-ups whose gradients are sparse."""
    for name, module in model.named_modules():
        looks_up = isinstance(module, nn.Embedding | nn.EmbeddingBag)
        if looks_up and module.sparse and module.weight.requires_grad:
            raise ModelError(
                f"{called} must have dense gradients, and those of its {type(module).__name__} "
                f"{name!r} are sparse; use sparse=False"
            )


def _learns(called: str, model: nn.Module, offered: "Offered") -> bool:
    """Whether scores have a gradient in training, if they have none in evaluation mode."""
    trial = copy_of(called, model).train()
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            return bool(trial(offered.example()).requires_grad)
    except Exception:  # whatever a user's module cannot do with so few examples
        return False
