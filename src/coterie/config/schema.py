"""Checked settings: how a mapping becomes frozen dataclasses, and what is said when it cannot."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from coterie.core.errors import LONGEST_NAME, ConfigError, short, unknown
from coterie.core.units import Kind, has_unit, quantity
from coterie.simulation.algorithms import option_names

TYPE_NAMES = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
# What other projects have a setting for and we do not, and what to do instead.
OTHERS_WORDS = {
    "partition_by": "data is always split by label, or by user with partition.kind = 'natural'",
    "shuffle": "examples are always shuffled, by the seed",
    "shard_size": "shards are equal; set partition.shards_per_node",
    "keep_incomplete_shard": "shards are equal and every example is used",
    "group_size": "set partition.num_nodes to deal users to so many nodes",
    "self_balancing": "it is not offered; partition.min_partition_size bounds the smallest node",
    "class_assignment_mode": "classes are dealt at random, each to about as many nodes",
}
UNITS: dict[str, tuple[Kind, float]] = {  # what a bare number counts, by how a setting's name ends
    "_mbytes_per_s": ("rate", 1e6),
    "_gbytes": ("size", 1e9),
    "_mbytes": ("size", 1e6),
    "_s": ("time", 1.0),
}
LONGEST_TEXT = 4096  # no path is longer
MOST_OPTION = 1e38  # what float32 holds
BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "at_least": (">=", lambda value, bound: value >= bound),
    "above": (">", lambda value, bound: value > bound),
    "at_most": ("<=", lambda value, bound: value <= bound),
}


class Options(dict[str, bool | int | float | str]):
    """Settings that somebody else knows the names of; read, and never changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        """Tell configs apart by them."""
        return hash(tuple(sorted(self.items())))


def setting(
    default: object,
    about: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    choices: Iterable[str] = (),
    paths: bool = False,
    also: tuple[str, ...] = (),
    way_out: str = "",
    canon: Callable[[str], str] | None = None,
    compare: bool = True,
) -> Any:
    """Describe a setting: its bounds or choices, its help, and what other projects call it.

    `paths` allows an import path besides the choices; `way_out` ends the error of a broken bound;
    `canon` turns other names of a choice into it, or says better why it is none. Runs that differ
    in a setting without `compare` alone are the same.
    """
    meta = {
        "about": about,
        "bounds": {"at_least": at_least, "above": above, "at_most": at_most},
        "choices": tuple(choices),
        "paths": paths,
        "also": also,
        "way_out": way_out,
        "canon": canon,
    }
    if default is dict:
        return field(default_factory=Options, metadata=meta, compare=compare)
    return field(default=default, metadata=meta, compare=compare)


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields, worked out once: many runs are read at a time."""
    return get_type_hints(kind)


def leaves(kind: type, prefix: str = "") -> Iterator[tuple[str, Field[Any]]]:
    """Yield the dotted key and the field of every setting in a config dataclass."""
    hints = _hints(kind)
    for f in fields(kind):
        if is_dataclass(hints[f.name]):
            yield from leaves(hints[f.name], f"{prefix}{f.name}.")
        else:
            yield f"{prefix}{f.name}", f


def default_of(f: Field[Any]) -> Any:
    """Return the default of a setting; a table has none in it."""
    return f.default if f.default_factory is MISSING else f.default_factory()


def words(f: Field[Any]) -> tuple[str, ...]:
    """Words that a setting takes besides numbers and paths."""
    options = get_args(f.type) if get_origin(f.type) in (Union, UnionType) else (f.type,)
    literal = tuple(w for o in options if get_origin(o) is Literal for w in get_args(o))
    chosen: tuple[str, ...] = f.metadata["choices"]
    return chosen or literal


def build(root: type, content: Mapping[str, Any]) -> Any:
    """Make a config dataclass out of a nested mapping, checking keys, types and rules."""
    return _build(root, root, content, "")


def _build(root: type, kind: type, content: Mapping[str, Any], prefix: str) -> Any:
    hints = _hints(kind)
    known = {f.name: f for f in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key not in known:
            raise ConfigError(_unknown_key(root, prefix, key))
        if not is_dataclass(hints[key]):
            values[key] = _checked(f"{prefix}{key}", value, hints[key], known[key].metadata)
        elif isinstance(value, Mapping):
            values[key] = _build(root, hints[key], value, f"{prefix}{key}.")
        else:
            raise ConfigError(f"{key!r} is a section, written [{key}], got {short(value)}")
    return kind(**values)


def check_value(root: type, dotted: str, value: object) -> None:
    """Refuse a value that a setting cannot have, without making a config; other keys are let be."""
    kind, (*sections, name) = root, dotted.split(".")
    for section in sections:
        kind = _hints(kind).get(section)  # type: ignore[assignment]
        if not is_dataclass(kind):
            return
    hint = _hints(kind).get(name)
    if hint is not None and not is_dataclass(hint):
        meta = next(f.metadata for f in fields(kind) if f.name == name)
        _checked(dotted, value, hint, meta)


def unknown_setting(root: type, dotted: str) -> str:
    """Say that there is no setting of that name, and which may have been meant."""
    section, dot, key = dotted.rpartition(".")
    return _unknown_key(root, f"{section}{dot}", key)


def _unknown_key(root: type, prefix: str, key: str) -> str:
    """Say what an unknown key may have meant: one of its section first, then one of any other."""
    inside: dict[str, str] = {}
    anywhere: dict[str, str] = {}
    for dotted, f in leaves(root):
        for name in (f.name, *f.metadata["also"]):
            anywhere.setdefault(name.lower(), dotted)
            if prefix and dotted.startswith(prefix):
                inside.setdefault(name.lower(), dotted)
    sections = {} if prefix else {f.name: f.name for f in fields(root)}
    plain = key[:LONGEST_NAME].replace("-", "_").lower()
    if prefix == "algorithm." and plain in option_names():
        return (
            f"unknown setting {short(prefix + key)}; it is an option: set algorithm.options.{plain}"
        )
    if plain in OTHERS_WORDS:
        return f"unknown setting {short(prefix + key)}; {OTHERS_WORDS[plain]}"
    tables = (inside, sections, anywhere)
    exact = [meant[plain] for meant in tables if plain in meant]
    close = [meant[c] for meant in tables for c in get_close_matches(plain, meant, n=1)]
    meant = next(iter([*exact, *close]), None)
    way_out = f"did you mean {meant!r}?" if meant else "see 'coterie list settings'"
    return f"unknown setting {short(prefix + key)}; {way_out}"


def _checked(key: str, value: object, hint: Any, meta: Mapping[str, Any]) -> object:
    """Check one value against its type, its choices and its bounds."""
    if hint is Options:
        return _options(key, value)
    if get_origin(hint) is tuple:
        return _listed(key, value, meta)
    value = _typed(key, value, hint)
    if isinstance(value, str):
        if "\0" in value or len(value) > LONGEST_TEXT:
            rule = f"of at most {LONGEST_TEXT:,} characters, none of them NUL"
            raise ConfigError(f"{key} must be a text {rule}, got {short(value)}")
        is_path = meta["paths"] and ":" in value
        if meta["canon"]:
            value = str(meta["canon"](value))
        if meta["choices"] and value not in meta["choices"] and not is_path:
            own = " (or your own, 'package.module:function')" if meta["paths"] else ""
            raise ConfigError(unknown(key, value, meta["choices"]) + own)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} must be finite, got {value}")
        for rule, bound in meta["bounds"].items():
            sign, holds = BOUNDS[rule]
            if bound is not None and not holds(value, bound):
                way_out = f"; {meta['way_out']}" if meta["way_out"] else ""
                raise ConfigError(f"{key} must be {sign} {bound}, got {short(value)}{way_out}")
    return value


def _options(key: str, value: object) -> Options:
    """Check a table of plain values by name."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} is a table, such as {{mu = 0.1}}, got {short(value)}")
    for name, each in value.items():
        if isinstance(each, str) and len(each) > LONGEST_TEXT:
            raise ConfigError(f"{key}.{name} must be of at most {LONGEST_TEXT:,} characters")
        if type(each) not in TYPE_NAMES:
            raise ConfigError(f"{key}.{name} must be a number, a string or true or false")
        if isinstance(each, int | float) and not abs(each) <= MOST_OPTION:
            raise ConfigError(
                f"{key}.{name} must be finite and within ±{MOST_OPTION:g}, got {short(each)}"
            )
    return Options(value)


def _listed(key: str, value: object, meta: Mapping[str, Any]) -> tuple[str, ...]:
    """Check a list of words, each there once; a bare text has them between commas."""
    if isinstance(value, str):
        value = [word for word in value.split(",") if word.strip()]
    if not (isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)):
        raise ConfigError(f"{key} must be a list of strings, got {short(value)}")
    found = tuple(str(meta["canon"](word)) if meta["canon"] else word for word in value)
    names = [word.partition("/")[0] for word in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{key} has {name!r} twice; leave one out")
    return found


def _typed(key: str, value: object, hint: Any) -> object:
    """Return value as the hinted type, or say what was expected."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    literal = [w for o in options if get_origin(o) is Literal for w in get_args(o)]
    if isinstance(value, str) and value in literal:
        return value
    if isinstance(value, str) and str not in options and has_unit(value):
        value = _in_unit(key, value)
        if int in options and isinstance(value, float) and value.is_integer():
            value = int(value)
    if type(value) in options:
        return value
    if type(value) is int and float in options:
        return float(value) if abs(value) < 2**1023 else math.inf
    plain = [TYPE_NAMES[o] for o in options if o in TYPE_NAMES]
    if literal and isinstance(value, str) and not plain:
        raise ConfigError(unknown(key, value, literal))
    expected = " or ".join([*plain, *(repr(w) for w in literal)])
    raise ConfigError(f"{key} must be {expected}, got {short(value)}")


def _in_unit(key: str, text: str) -> object:
    """Return a number with a unit in the setting's own; a setting that has none keeps the text."""
    for ending, (kind, plain) in UNITS.items():
        if key.endswith(ending):
            try:
                return quantity(text, kind) / plain
            except ValueError as error:
                raise ConfigError(f"{key} {error}") from error
    return text
