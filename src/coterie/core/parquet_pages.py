"""How much memory the pages of a Parquet file ask for, by their own headers, before any is given.

A page says how large it is when unpacked, and pyarrow takes that much memory before it looks
inside. The headers are Thrift's compact protocol, of which only lengths are read here.
"""

from collections.abc import Iterable, Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

TIMES, FREE = 100, 1 << 24  # of its file's size; nobody minds so many bytes
VARINTS, FIXED = (4, 5, 6), {1: 0, 2: 0, 3: 1, 7: 8}  # Thrift's types and their sizes
BINARY, STRUCT = 8, 12  # a page's header has no lists and no maps
UNPACKED, PACKED = 2, 3  # fields of a page's header
DEEPEST, LONGEST = 16, 10  # of structs within structs; bytes of a number


def check_pages(path: Path, chunks: Iterable[tuple[int, int]]) -> None:
    """Raise a ValueError if the pages of column chunks, (start, bytes) each, ask for too much."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        most = max(FREE, TIMES * len(content))
        asked = sum(size for start, length in chunks for size in _sizes(content, start, length))
    if asked > most:
        raise ValueError(f"its pages unpack to {asked:,} bytes, of {most:,} at most")


def _sizes(content: mmap, start: int, length: int) -> Iterator[int]:
    """Yield the unpacked size of every page of a column chunk."""
    at, end = start, start + length
    if start < 0 or length < 0 or end > len(content):
        raise ValueError("a column lies outside the file")
    while at < end:
        fields, at = _struct(content, at)
        unpacked, packed = fields.get(UNPACKED, -1), fields.get(PACKED, -1)
        if unpacked < 0 or packed < 0 or at + packed > end:
            raise ValueError("a page lies outside its column")
        at += packed
        yield unpacked


def _struct(content: mmap, at: int, depth: int = 0) -> tuple[dict[int, int], int]:
    """Read the whole numbers of a struct by their fields, and find where it ends."""
    if depth > DEEPEST:
        raise ValueError("a page's header is nested too deeply")
    fields: dict[int, int] = {}
    number = 0
    while head := _byte(content, at):
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(content, at)
        kind = head & 15
        if kind in VARINTS:
            fields[number], at = _zigzag(content, at)
        else:
            at = _skip(content, at, kind, depth)
    return fields, at + 1


def _skip(content: mmap, at: int, kind: int, depth: int) -> int:
    """Find where a value ends."""
    if kind in FIXED:
        return at + FIXED[kind]
    if kind == BINARY:
        length, at = _varint(content, at)
        return at + length
    if kind == STRUCT:
        return _struct(content, at, depth + 1)[1]
    raise ValueError("a page's header has what no page has")


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
    raise ValueError("a page's header has a number that is too long")


def _byte(content: mmap, at: int) -> int:
    if at >= len(content):
        raise ValueError("a page's header has no end")
    return content[at]
