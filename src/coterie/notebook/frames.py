"""Tables as DataFrames of the library that is installed: pandas, else polars."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from coterie.core.errors import CoterieError

LIBRARIES = ("pandas", "polars")  # the first that is there is used


def frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns as a pandas.DataFrame, or as a polars.DataFrame where there is no pandas."""
    for library in LIBRARIES:
        if find_spec(library) is not None:
            return import_module(library).DataFrame({name: [*v] for name, v in columns.items()})
    raise CoterieError(
        "a frame needs pandas or polars, and neither is installed; pip install pandas, or take "
        ".columns(), a dict of lists"
    )
