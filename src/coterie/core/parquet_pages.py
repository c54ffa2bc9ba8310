"""How much memory a Parquet file asks for, by its own headers, before any is given.

A page says how large it is when unpacked, and pyarrow takes that much memory before it looks
inside. Footer and headers are Thrift's compact protocol, which is read here by itself: pyarrow's
own view of a damaged footer can end the process.
"""

from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

MAGIC = b"PAR1"
TIMES, FREE = 100, 1 << 24  # of its file's size; nobody minds so many bytes
TRUE, BYTE, INTS, DOUBLE, BINARY, LISTS, STRUCT = 1, 3, (4, 5, 6), 7, 8, (9, 10), 12  # in Thrift
DEEPEST, LONGEST = 16, 10  # of structs within structs; bytes of a number
ROWS, GROUPS, COLUMNS, ABOUT = 3, 4, 1, 3  # fields: of the file, of a group, of a column
LENGTH, FIRST, DICTIONARY = 7, 9, 11  # of what is said about a column
UNPACKED, PACKED = 2, 3  # of a page's header
Fields = dict[int, Any]


def check_pages(path: Path) -> int:
    """Return how many rows a Parquet file has; a ValueError if its pages ask for too much."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        most = max(FREE, TIMES * len(content))
        footer = _footer(content)
        asked = sum(size for chunk in _chunks(footer) for size in _sizes(content, *chunk))
    if asked > most:
        raise ValueError(f"its pages unpack to {asked:,} bytes, of {most:,} at most")
    return int(_whole(footer, ROWS))


def _footer(content: mmap) -> Fields:
    """Read what a file says of itself, at its end."""
    length = int.from_bytes(content[-8:-4], "little")
    if content[-4:] != MAGIC or length + 12 > len(content):
        raise ValueError("it has no footer")
    return _struct(content, len(content) - 8 - length)[0]


def _chunks(footer: Fields) -> Iterator[tuple[int, int]]:
    """Yield where the pages of each column begin, and their bytes."""
    for group in _structs(footer, GROUPS):
        for column in _structs(group, COLUMNS):
            about = column.get(ABOUT)
            if not isinstance(about, dict):
                raise ValueError("a column is not described")
            start = DICTIONARY if DICTIONARY in about else FIRST
            yield _whole(about, start), _whole(about, LENGTH)


def _sizes(content: mmap, start: int, length: int) -> Iterator[int]:
    """Yield the unpacked size of every page of a column."""
    at, end = start, start + length
    if end > len(content):
        raise ValueError("a column lies outside the file")
    while at < end:
        header, at = _struct(content, at)
        at += _whole(header, PACKED)
        if at > end:
            raise ValueError("a page lies outside its column")
        yield _whole(header, UNPACKED)


def _whole(fields: Fields, number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"a header has {value!r} for a size")
    return value


def _structs(fields: Fields, number: int) -> list[Fields]:
    value = fields.get(number, [])
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("a header has something else for a list")
    return value


def _struct(content: mmap, at: int, depth: int = 0) -> tuple[Fields, int]:
    """Read a struct by its fields, and find where it ends; text is left out."""
    if depth > DEEPEST:
        raise ValueError("a header is nested too deeply")
    fields: Fields = {}
    number = 0
    while head := _byte(content, at):
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(content, at)
        kind = head & 15
        if kind > TRUE + 1:  # true and false are said by their kind
            fields[number], at = _value(content, at, kind, depth)
    return fields, at + 1


def _value(content: mmap, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Read a value that stands by itself, or in a list."""
    if kind in INTS:
        return _zigzag(content, at)
    if kind == BINARY:
        length, at = _varint(content, at)
        return None, at + length
    if kind == STRUCT:
        return _struct(content, at, depth + 1)
    if kind in LISTS:
        return _list(content, at, depth + 1)
    if kind in (TRUE, TRUE + 1, BYTE, DOUBLE):
        return None, at + (8 if kind == DOUBLE else 1)
    raise ValueError("a header has what none has")


def _list(content: mmap, at: int, depth: int) -> tuple[list[Any], int]:
    head = _byte(content, at)
    count, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(content, at + 1)
    if count > len(content) or depth > DEEPEST:  # each takes a byte at least
        raise ValueError("a header has a list that is too long")
    found = []
    for _ in range(count):
        value, at = _value(content, at, head & 15, depth)
        found.append(value)
    return found, at


def _zigzag(content: mmap, at: int) -> tuple[int, int]:
    value, at = _varint(content, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(content: mmap, at: int) -> tuple[int, int]:
    value = 0
    for count in range(LONGEST):
        byte = _byte(content, at + count)
        value |= (byte & 127) << (7 * count)
        if byte < 128:
            return value, at + count + 1
    raise ValueError("a header has a number that is too long")


def _byte(content: mmap, at: int) -> int:
    if at >= len(content):
        raise ValueError("a header has no end")
    return content[at]
