"""Values from files as their types have them; what does not fit is named in one line."""

import re
from reprlib import repr as short
from typing import TypeVar

import msgspec

T = TypeVar("T")
WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "object": "an object",
    "array": "a list",
}
LINE = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
EXPECTED = re.compile(r"Expected `(.*?)`(.*)", re.DOTALL)
STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def convert(raw: object, kind: type[T], where: str) -> T:
    """Return what was read as a value of a type; a ValueError says where it is not one.

    >>> convert([1, 2], list[float], "x.json")
    [1.0, 2.0]
    >>> convert([1, "2"], list[float], "x.json")
    Traceback (most recent call last):
    ValueError: x.json: [1] must be a number, got '2'
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {_in_our_words(str(error), raw)}") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: has text of half characters, {short(error.object)}") from error


def _in_our_words(line: str, raw: object) -> str:
    """Say what msgspec says, with the value that it says it of."""
    what, path = LINE.fullmatch(line).groups(default="")  # type: ignore[union-attr]
    place = path.removeprefix(".")
    if match := FIELD.fullmatch(what):
        fault = "has no" if match[1] == "missing required" else "unknown"
        return f"{place}: {fault} {short(match[2])}".removeprefix(": ")
    if match := EXPECTED.fullmatch(what):
        kinds = [WORDS.get(kind, kind) for kind in match[1].split(" | ") if kind != "null"]
        rule = " or ".join(kinds) if match[2].startswith(", got") else match[2].strip()
    elif what == "Number out of range":
        rule = WORDS["float"]
    else:  # what a struct's own check says
        return f"{place}: {' '.join(what.split())}".removeprefix(": ")
    return f"{place} must be {rule}, got {short(_value(raw, path))}".lstrip()


def _value(raw: object, path: str) -> object:
    """Follow a path; of a value under whatever key, which msgspec does not tell, give them all."""
    for key, index in STEP.findall(path.partition("[...]")[0]):
        raw = raw[key or int(index)]  # type: ignore[index]
    return raw
