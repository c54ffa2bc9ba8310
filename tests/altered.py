"""Files as a bad disk, another program or somebody else leaves them, the same every time."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from fuzz.mutate import mutated

GONE: Any = object()
DEEP = "@deep@"
# Numbers and words that JSON cannot have by way of Python's values, and how they are written.
WRITTEN = {
    DEEP: 3000 * "[" + 3000 * "]",
    "@400 digits@": 400 * "9",
    "@-400 digits@": "-" + 400 * "9",
    "@5000 digits@": 5000 * "9",
    "@nan@": "NaN",
    "@inf@": "Infinity",
    "@-inf@": "-Infinity",
    "@1e400@": "1e400",
}
VALUES = [
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e308, 2**31, 2**53 + 1, 2**63, 2**64),
    *("", " ", "x", 300 * "x", 70_000 * "x", "a\x00b", "a\x1b[2J", "..", "../../x", "a/b"),
    *("\ud800", "a\nb", 200 * "é", [], {}, [1], [[[]]], {"a": 1}, [None], ["a"], *WRITTEN),
]


def bytes_of(data: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Yield what becomes of some bytes."""
    rng = random.Random(seed)
    for _ in range(count):
        yield mutated(data, rng)


def texts_of(good: Any) -> Iterator[tuple[str, str]]:
    """Yield JSON in which one value is another, with its place; every value in many ways."""
    for place in _places(good):
        for value in [*VALUES, *([GONE] if place else [])]:
            text = json.dumps(_put(good, place, value))
            for word, written in WRITTEN.items():
                text = text.replace(json.dumps(word), written)
            yield f"{'.'.join(map(str, place))} = {str(value)[:40]!r}", text
        if isinstance(at := _at(good, place), dict):
            for key in ("", 500 * "x", "a\x1bb", "\ud800"):
                yield f"{place} {key[:9]!r}", json.dumps(_put(good, place, {**at, key: 1}))


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        yield from _places(value[key], (*place, key))


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def _put(good: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    found = copy.deepcopy(good)
    within = _at(found, place[:-1])
    if value is GONE:
        del within[place[-1]]
    else:
        within[place[-1]] = value
    return found
