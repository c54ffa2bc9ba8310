"""What functions of the Python interface are called with: every argument is what it must be."""

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from coterie.core.errors import ConfigError, CoterieError, short


@dataclass(frozen=True)
class Rule:
    """What an argument must be: in words, and whether a value is that."""

    about: str
    holds: Callable[[Any], bool]

    @property
    def or_none(self) -> "Rule":
        """The same rule for an argument that may be left out."""
        return Rule(self.about, lambda value: value is None or self.holds(value))


def check(rule: Rule, **given: object) -> None:
    """Refuse arguments that are not what they must be.

    >>> check(COUNT, threads=0)
    Traceback (most recent call last):
    coterie.core.errors.ConfigError: threads must be a whole number >= 1, got 0
    """
    for name, value in given.items():
        if not rule.holds(value):
            raise ConfigError(f"{name} must be {rule.about}, got {short(value)}")


@contextmanager
def renamed(words: Mapping[str, str]) -> Iterator[None]:
    """Call options of the command line, where something is wrong with them, as in Python.

    >>> with renamed({"--score": "score"}):
    ...     raise ConfigError("--score must be last")
    Traceback (most recent call last):
    coterie.core.errors.ConfigError: score must be last
    """
    try:
        yield
    except CoterieError as error:
        error.args = tuple(in_words(words, told) for told in error.args)
        raise


def in_words(words: Mapping[str, str], text: Any) -> Any:
    """Return a text with words in the place of others."""
    for option, word in words.items():
        text = text.replace(option, word) if isinstance(text, str) else text
    return text


def _is_path(value: Any) -> bool:
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    return isinstance(text, str) and text != "" and "\0" not in text


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    several = isinstance(value, Collection) and not isinstance(value, str)
    return several and all(isinstance(each, str) for each in value)


PATH = Rule("a path, as a string or Path", _is_path)
TEXT = Rule("a string", lambda value: isinstance(value, str))
TEXTS = Rule("a list of strings", _is_texts)
FUNCTION = Rule("a function", callable)
NUMBER = Rule("a number", _is_number)
WHOLE = Rule("a whole number", _is_whole)
COUNT = Rule("a whole number >= 1", lambda value: _is_whole(value) and value >= 1)
SECONDS = Rule("a number of seconds >= 0", lambda value: _is_number(value) and value >= 0)
SHARE = Rule("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
