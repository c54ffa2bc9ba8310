"""Sizes, rates and times as people write them: 5MB, 100Mbit, 20ms.

1 MB is 10^6 bytes and 1 MiB is 2^20. A number without a unit is in the unit of its place.
"""

import re
from typing import Literal

Kind = Literal["size", "rate", "time"]
TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40}
EXAMPLES: dict[Kind, str] = {
    "size": "a size such as 5MB or 5MiB",
    "rate": "a rate such as 100Mbit or 12.5MB",
    "time": "a time such as 2s, 500ms, 1m or 1.5h",
}
MOST_MODEL_BYTES = 10**12  # so that all links of 100,000 nodes are counted in 64 bits
LONGEST = 400  # characters, and a number of doubles' length with its unit has fewer
WRITTEN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?) *([A-Za-z]+(?:/s)?)", re.ASCII)
BYTES = re.compile(r"(?i:([kmgt]?|[kmgt]i)(?:bytes?))|([kKMGT]?|[kKMGT]i)B")
BITS = re.compile(r"(?i)([kmgt]?|[kmgt]i)(?:bits?|bps)")


def quantity(text: str, kind: Kind, plain: float = 1.0) -> float:
    """Read a size in bytes, a rate in bytes/s or a time in seconds.

    A number without a unit counts `plain` each. What cannot be read is a ValueError that says what
    can; a number may be negative, nan or inf, which is for the caller to judge.

    >>> quantity("5MB", "size"), quantity("5 MiB", "size"), quantity("512", "size")
    (5000000.0, 5242880.0, 512.0)
    >>> quantity("100Mbit", "rate"), quantity("1Gbps", "rate"), quantity("8", "rate", plain=1e6)
    (12500000.0, 125000000.0, 8000000.0)
    >>> quantity("20ms", "time"), quantity("1.5h", "time"), quantity("20", "time", plain=1e-3)
    (0.02, 5400.0, 0.02)
    >>> quantity("5Mb/s", "rate")
    Traceback (most recent call last):
    ValueError: must be a rate such as 100Mbit or 12.5MB, got '5Mb/s'
    """
    text = text.strip()
    try:
        return _times(plain_number(text), plain)
    except ValueError:
        pass
    found = WRITTEN.fullmatch(text) if len(text) <= LONGEST else None
    unit = _unit(found[2], kind) if found else None
    if found is None or unit is None:
        raise ValueError(f"must be {EXAMPLES[kind]}, got {text[:40]!r}")
    return _times(float(found[1]), unit)


def plain_number(text: str) -> float:
    """Read a number as everybody writes it: without underscores, and of no digits but 0 to 9.

    >>> plain_number("1e3")
    1000.0
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"must be a number, got {text[:40]!r}")
    return float(text)


def has_unit(text: str) -> bool:
    """Whether a text is a number with something behind it, known or not.

    >>> has_unit("5MB"), has_unit("5 parsec"), has_unit("5"), has_unit("1e6"), has_unit("fast")
    (True, True, False, False, False)
    """
    text = text.strip()
    return len(text) <= LONGEST and WRITTEN.fullmatch(text) is not None


def _times(number: float, unit: float) -> float:
    """Multiply, or divide where that rounds once only: 35 ms are 35 / 1000 s."""
    return number / round(1 / unit) if unit < 1 else number * unit


def _unit(name: str, kind: Kind) -> float | None:
    """Return a unit in bytes, bytes/s or seconds; Mb, which some take for bits, is none."""
    if kind == "time":
        return TIMES.get(name)
    if kind == "rate":
        name = name.removesuffix("/s")
        if bits := BITS.fullmatch(name):
            return (THOUSANDS | BINARY)[bits[1].lower()] / 8
    if found := BYTES.fullmatch(name):
        return (THOUSANDS | BINARY)[(found[1] or found[2] or "").lower()]
    return None
