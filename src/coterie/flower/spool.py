"""Where an edge's two apps meet: a folder in which orders come in and results go out.

The coordinator's client on the edge writes an order, a model and the steps to take; the edge's own
server writes the result. Files are whole or not there, and an order is known by its content, so
that either side may be killed and begun again.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from coterie.core.types import Json
from coterie.flower import FlowerError
from coterie.flower.messages import COUNTS, Arrays
from coterie.flower.tensorfile import MOST, digest_of, read_tensors, write_tensors

log = logging.getLogger("coterie.flower")
POLL_S = 0.2
Count = Annotated[int, Meta(ge=0, le=MOST)]
Stamp = tuple[str, int, int]  # a file's name, when it was written, and its number


class _OrderFile(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file of an order has beside its model."""

    start: Count
    stop: Count
    last: bool
    settings: str


class _ResultFile(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file of a result has beside the group's model: an error, or all the others."""

    error: str = ""
    num_examples: Annotated[float, Meta(ge=0, le=MOST)] = 0.0
    metrics: dict[str, float] = {}
    counted: Count = field(default=0, name=COUNTS[0])
    late: Count = field(default=0, name=COUNTS[1])
    failed: Count = field(default=0, name=COUNTS[2])
    rejected: Count = field(default=0, name=COUNTS[3])


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
        digest = digest_of(self.arrays, self.settings)
        return f"{self.start:08d}-{self.stop:08d}-{digest[:16]}"


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
        self._passed_over = set[Stamp]()
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, order: Order) -> None:
        """Write an order, unless it is there; what is left of others is of the past.

        If it failed before, or if it or its result is damaged, it is tried again.
        """
        for path in self.folder.glob("*.safetensors"):
            if order.key not in path.name:
                path.unlink(missing_ok=True)
        try:
            before = _read_result(self._result(order.key))
            again = before is not None and bool(before.about.get("error"))
        except FlowerError as error:
            log.warning("%s", error)
            again = True
        if again:
            self._result(order.key).unlink(missing_ok=True)
        if _order_in(self._order(order.key), order.key) is None:
            steps = {"start": order.start, "stop": order.stop, "last": order.last}
            about = {**steps, "settings": order.settings}
            write_tensors(self._order(order.key), order.arrays, about)

    def wait(self, stop: Callable[[], bool] = lambda: False) -> Order | None:
        """Wait for an order that has no result yet; None when told to stop.

        One that is damaged is passed over: whoever gave it gives it again.
        """
        while not stop():
            for path in sorted(self.folder.glob("order-*.safetensors")):
                key = path.name.removeprefix("order-").removesuffix(".safetensors")
                if self._result(key).exists() or (stamp := _stamp(path)) in self._passed_over:
                    continue
                if (order := _order_in(path, key)) is not None:
                    return order
                self._passed_over.add(stamp)
            time.sleep(POLL_S)
        return None

    def fill(self, order: Order, result: Filled) -> None:
        """Write the result of an order."""
        write_tensors(self._result(order.key), result.arrays, result.about)

    def result(self, order: Order, timeout_s: float) -> Filled:
        """Wait for the result of an order; an error if there is none in time."""
        path, deadline = self._result(order.key), time.monotonic() + timeout_s
        while (found := _read_result(path)) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if found is None:
            said = f"the edge gave no result within {timeout_s:g} s; is its app running?"
            raise FlowerError(said)
        if found.about.get("error"):
            raise FlowerError(str(found.about["error"]))
        return found

    def _order(self, key: str) -> Path:
        return self.folder / f"order-{key}.safetensors"

    def _result(self, key: str) -> Path:
        return self.folder / f"result-{key}.safetensors"


def _order_in(path: Path, key: str) -> Order | None:
    """Read an order; None if it is not there, or is not the one of that key any more."""
    try:
        found = _read(path, _OrderFile)
        order = found and Order(found[1], **found[0])
        if order and order.key != key:
            raise FlowerError(f"{path}: damaged (its content is of another order); remove it")
    except FlowerError as error:
        log.warning("%s", error)
        return None
    return order


def _read_result(path: Path) -> Filled | None:
    """Read a result; None if it is not there yet."""
    found = _read(path, _ResultFile)
    if found is None:
        return None
    about, arrays = found
    if not about.get("error") and not about.get("num_examples"):
        raise FlowerError(f"{path}: damaged (it has neither a model nor an error); remove it")
    return Filled(arrays, about)


def _read(path: Path, kind: type[object]) -> tuple[Json, Arrays] | None:
    """Read a file of the spool; None if it is not there, or is gone while it is read."""
    try:
        return read_tensors(path, kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FlowerError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise FlowerError(f"{path}: damaged ({error}); remove it") from error


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return path.name, 0, 0
    return path.name, found.st_mtime_ns, found.st_ino
