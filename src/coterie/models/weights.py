"""First weights from a file: the model that an earlier run ended with."""

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
    """Refuse a file of another model."""
    for key in sorted(there.keys() ^ wanted.keys()):
        which = "lacks" if key in wanted else "has"
        raise ModelError(f"{path}: {which} {key!r}, unlike the model; set model.name as in its run")
    for key, shape in wanted.items():
        if there[key] != shape:
            raise ModelError(
                f"{path}: {key!r} is {list(there[key])}, and the model's is {list(shape)}"
            )
