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
            return import_module(library).DataFrame({n: alike(v) for n, v in columns.items()})
    raise CoterieError(
        "a frame needs pandas or polars, and neither is installed; pip install pandas, or take "
        ".columns(), a dict of lists"
    )


def alike(values: Sequence[Any]) -> list[Any]:
    """Return values of one kind, as polars has no column of several: numbers, else text.

    >>> alike(["full", 128, None]), alike([1, 0.5]), alike([1, None])
    (['full', '128', None], [1.0, 0.5], [1, None])
    """
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2:
        return [*values]
    as_one = float if kinds == {int, float} else str
    return [None if value is None else as_one(value) for value in values]
