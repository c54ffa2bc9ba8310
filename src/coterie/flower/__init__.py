"""Group learning on Flower: a strategy for its Message API, and an edge tier of SuperLinks.

`GroupStrategy` is loaded when it is first used, so that the package can be imported without Flower.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

from coterie.errors import CoterieError

if TYPE_CHECKING:
    from coterie.flower.strategy import GroupStrategy

__all__ = ["FlowerError", "GroupStrategy", "needs_flower"]


class FlowerError(CoterieError):
    """A deployment on Flower that cannot start or go on."""


def needs_flower() -> None:
    """Refuse in one line to go on where Flower is not installed."""
    found = importlib.util.find_spec("flwr")
    if found is None or found.origin is None:  # a folder of that name is not the library
        raise FlowerError("flwr: needs coterie[flower]: pip install 'coterie[flower]'")


def __getattr__(name: str) -> object:
    if name != "GroupStrategy":
        raise AttributeError(f"module 'coterie.flower' has no attribute {name!r}")
    needs_flower()
    return importlib.import_module("coterie.flower.strategy").GroupStrategy
