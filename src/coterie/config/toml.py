"""TOML as others write it: what cannot be read is a ValueError of one line."""

import sys
import tomllib
from typing import Any

DEEPEST = 20  # tables and lists in one another; an experiment file has four


def read_toml(text: str) -> dict[str, Any]:
    """Read TOML; numbers that are too long and tables that are too deep are refused like a typo.

    >>> read_toml("a.b = [1, 2]")
    {'a': {'b': [1, 2]}}
    >>> read_toml("a = " + 50 * "[" + 50 * "]")
    Traceback (most recent call last):
    ValueError: tables or lists are nested more than 20 deep
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError as error:
        raise ValueError(_too_deep()) from error
    except ValueError as error:
        digits = sys.get_int_max_str_digits()
        raise ValueError(f"a whole number has more than {digits:,} digits") from error
    check_depth(found)
    return found


def check_depth(value: object) -> None:
    """Refuse tables and lists that are nested deeper than anything here needs; without recursion.

    >>> check_depth({"a": [{"b": 1}]})
    """
    level: list[dict[str, Any] | list[Any]] = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST + 1):
        parts = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for part in parts for value in part if isinstance(value, dict | list)]
    if level:
        raise ValueError(_too_deep())


def _too_deep() -> str:
    return f"tables or lists are nested more than {DEEPEST} deep"
