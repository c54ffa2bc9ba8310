"""First weights from a file: the model that an earlier run ended with."""

import re
from collections.abc import Collection
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from coterie.core.boundary import reader
from coterie.core.errors import ModelError
from coterie.core.inputs import with_an_end

NAME = "model.safetensors"


@reader(ModelError)
def load_weights(path: Path, model: nn.Module) -> None:
    """Give a model the weights of a file of safetensors, or of a run's folder.

    Names and shapes must be the model's: nothing is read before they are compared.
    """
    path = path / NAME if path.is_dir() else path
    if not path.exists():
        raise ModelError(f"{path}: there is no such file; model.weights is a run's {NAME}")
    wanted = model.state_dict()
    try:
        opened = safe_open(with_an_end(path), framework="pt")
    except SafetensorError as error:
        raise ModelError(f"{path}: not a whole file of safetensors ({error})") from error
    with opened as file:
        shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
        _check(path, shapes, {key: tuple(w.shape) for key, w in wanted.items()})
        with torch.no_grad():
            for key, w in wanted.items():
                value = file.get_tensor(key)
                if not torch.isfinite(value).all():
                    raise ModelError(f"{path}: {key!r} has numbers that are not finite")
                w.copy_(value)


def _check(
    path: Path, there: dict[str, tuple[int, ...]], wanted: dict[str, tuple[int, ...]]
) -> None:
    """Refuse a file of another model, or of several."""
    if number := _models_in(there.keys(), wanted.keys()):
        raise ModelError(
            f"{path}: has {number} models, one for each group or cluster, and model.weights is "
            "one; take a run that ends with one model"
        )
    if len(there) > len(wanted) and _without_adapters(there.keys()) == wanted.keys():
        raise ModelError(
            f"{path}: has a model with adapters, and model.weights is one without; take a run "
            "with model.adapters = 0"
        )
    for key in sorted(there.keys() ^ wanted.keys()):
        which = "lacks" if key in wanted else "has"
        raise ModelError(f"{path}: {which} {key!r}, unlike the model; set model.name as in its run")
    for key, shape in wanted.items():
        if there[key] != shape:
            raise ModelError(
                f"{path}: {key!r} is {list(there[key])}, and the model's is {list(shape)}"
            )


def _models_in(there: Collection[str], wanted: Collection[str]) -> int:
    """Count the models whose names a file has behind 0., 1. and so on; 0 if it has others.

    >>> _models_in(["0.a", "0.b", "1.a", "1.b"], ["a", "b"]), _models_in(["0.a"], ["a", "b"])
    (2, 0)
    """
    number = len(there) // max(1, len(wanted))
    every = {f"{k}.{key}" for k in range(number) for key in wanted}
    return number if every == set(there) else 0


def _without_adapters(there: Collection[str]) -> set[str]:
    """Return the names that a model with adapters has without them.

    >>> sorted(_without_adapters(["0.layer.bias", "0.down.weight", "0.up.weight", "1.weight"]))
    ['0.bias', '1.weight']
    """
    kept = (key for key in there if not re.search(r"(^|\.)(down|up)\.weight$", key))
    return {re.sub(r"(^|\.)layer\.(weight|bias)$", r"\1\2", key) for key in kept}
