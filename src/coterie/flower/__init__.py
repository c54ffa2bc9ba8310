"""Group learning on Flower: a strategy for its Message API, and an edge tier of SuperLinks.

`GroupStrategy` is loaded when it is first used, so that the package can be imported without Flower.
"""

import importlib
import importlib.util
from importlib.metadata import version
from typing import TYPE_CHECKING

from coterie.core.errors import CoterieError

if TYPE_CHECKING:
    from coterie.flower.strategy import GroupStrategy

__all__ = ["FlowerError", "GroupStrategy", "needs_flower"]


class FlowerError(CoterieError):
    """A deployment on Flower that cannot start or go on."""


def needs_flower(least: str = "") -> None:
    """Refuse in one line to go on where Flower is not installed, or is older than that."""
    found = importlib.util.find_spec("flwr")
    if found is None or found.origin is None:  # a folder of that name is not the library
        raise FlowerError("flwr: needs coterie[flower]: pip install 'coterie[flower]'")
    there = version("flwr")
    if least and _number(there) < _number(least):
        raise FlowerError(f"this needs flwr >= {least}, got {there}: pip install 'flwr>={least}'")


def _number(text: str) -> tuple[int, ...]:
    """Read the first two parts of a version.

    >>> _number("1.41.0") >= _number("1.40"), _number("1.9.2rc1") >= _number("1.40")
    (True, False)
    """
    return tuple(int(part) for part in text.split(".")[:2])


def __getattr__(name: str) -> object:
    if name != "GroupStrategy":
        raise AttributeError(f"module 'coterie.flower' has no attribute {name!r}")
    needs_flower()
    return importlib.import_module("coterie.flower.strategy").GroupStrategy
