"""Where an edge's two apps meet: a folder in which orders come in and results go out.

The coordinator's client on the edge writes an order, a model and the steps to take; the edge's own
server writes the result. Files are whole or not there, and an order is known by its content, so
that either side may be killed and begun again.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.files import write_atomically
from coterie.flower import FlowerError
from coterie.flower.messages import Arrays

POLL_S = 0.2


@dataclass(frozen=True, eq=False)
class Order:
    """Local steps start+1 .. stop from a model; `last` if no other comes.

    `settings` name the app's settings that nodes train by.
    """

    arrays: Arrays
    start: int
    stop: int
    last: bool
    settings: str = ""

    @property
    def key(self) -> str:
        """The same for the same order, and for no other."""
        digest = hashlib.sha256(self.settings.encode())
        for name in sorted(self.arrays):
            array = self.arrays[name]
            digest.update(f"\0{name}\0{array.dtype.str}{array.shape}".encode() + array.tobytes())
        return f"{self.start:08d}-{self.stop:08d}-{digest.hexdigest()[:16]}"


@dataclass(frozen=True, eq=False)
class Filled:
    """What came of an order: the group's model, its weight, and who was dropped; or an error."""

    arrays: Arrays
    about: Mapping[str, Any]


class Spool:
    """The folder of one edge."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, which is made where it is not there yet."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, order: Order) -> None:
        """Write an order, unless it is there; what is left of others is of the past.

        If it failed before, it is tried again.
        """
        for path in self.folder.glob("*.safetensors"):
            if order.key not in path.name:
                path.unlink(missing_ok=True)
        before = _read(self._result(order.key))
        if before is not None and before[1].get("error"):
            self._result(order.key).unlink(missing_ok=True)
        steps = {"start": order.start, "stop": order.stop, "last": order.last}
        about: dict[str, Any] = {**steps, "settings": order.settings}
        if not self._order(order.key).exists():
            _write(self._order(order.key), order.arrays, about)

    def wait(self, stop: Callable[[], bool] = lambda: False) -> Order | None:
        """Wait for an order that has no result yet; None when told to stop."""
        while not stop():
            for path in sorted(self.folder.glob("order-*.safetensors")):
                key = path.name.removeprefix("order-").removesuffix(".safetensors")
                if not self._result(key).exists() and (found := _read(path)) is not None:
                    arrays, about = found
                    return Order(arrays, **about)
            time.sleep(POLL_S)
        return None

    def fill(self, order: Order, result: Filled) -> None:
        """Write the result of an order."""
        _write(self._result(order.key), result.arrays, result.about)

    def result(self, order: Order, timeout_s: float) -> Filled:
        """Wait for the result of an order; an error if there is none in time."""
        deadline = time.monotonic() + timeout_s
        while (found := _read(self._result(order.key))) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if found is not None:
            arrays, about = found
            if about.get("error"):
                raise FlowerError(str(about["error"]))
            return Filled(arrays, about)
        raise FlowerError(f"the edge gave no result within {timeout_s:g} s; is its app running?")

    def _order(self, key: str) -> Path:
        return self.folder / f"order-{key}.safetensors"

    def _result(self, key: str) -> Path:
        return self.folder / f"result-{key}.safetensors"


def _write(path: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    from safetensors.numpy import save

    whole = {key: np.asarray(array, order="C") for key, array in arrays.items()}
    write_atomically(path, save(whole, {"coterie": json.dumps(dict(about))}))


def _read(path: Path) -> tuple[Arrays, dict[str, Any]] | None:
    """Read a file of the spool; None if it is not there, or is gone while it is read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return arrays, json.loads((file.metadata() or {})["coterie"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise FlowerError(f"{path}: damaged ({error}); remove it") from error
