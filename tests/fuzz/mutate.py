"""Files as nobody wrote them: good ones with bytes and values changed, each with a number."""

import gzip
import json
import random
import re
import struct
from copy import deepcopy
from typing import Any

TOKENS = (
    *(b"", b"\0", b"\xff", b"\n", b"\r\n", b",", b";", b'"', b"'", b"\x1c", b"\xef\xbb\xbf", b"="),
    *(b"[", b"]", b"{", b"}", b"[[", b"]]", b"{}", b"[]", b"null", b"true", b"nan", b"inf", b"NaN"),
    *(b"-1", b"0", b"1e308", b"1e400", b"-1e400", b"1e-400", b"1e100", b"0.1", b"-0.0", b"0x10"),
    *(b"2147483648", b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616"),
    *(b"9" * 400, b"9" * 5000, b"[" * 3000, b'{"a":' * 3000, b"a" * 300, b"a" * 70_000, b"a." * 99),
    *(b"|V0", b"<U0", b"<f8", b"|b1", b"|O", b"<M8[s]", b"(-1,)", b"(1<<62,)", b"()", b"True"),
    *(b"\xe2\x80\xa8", b"\xc2\xb2", b"\xd9\xa3", b"("),
    *(b"\\u0000", b"\\ud800", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"../..", b"/", b"\x1b[2J"),
    *(
        b"1979-05-27",
        b"os:system",
        b"<!DOCTYPE x [<!ENTITY a 'b'>]>",
        b"&a;",
        b"1_000",
        b"%s",
        b"MB",
    ),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63) - 1, 2**64, 10**400, 0.5, -0.5, 1e308),
    *(float("nan"), float("inf"), "", "x", "1", "a" * 300, "\0", "\ud800", "../x", "os:system"),
    *([], {}, [[]], [None], {"": None}, [0] * 50, [[[[[[[[[[0]]]]]]]]]], {"a": {"a": {"a": {}}}}),
)
WORD = re.compile(rb"[A-Za-z_][A-Za-z_0-9]*|-?[0-9.]+(?:e-?[0-9]+)?")
EXTREME = (0, 1, 0x7F, 0x80, 0xFF)
SIZES = (0, 1, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
LARGE = 1 << 20  # bytes; what is larger is not made larger still


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Change a file in one to four places."""
    data = bytearray(content)
    if rng.random() < 0.3 and (changed := _other_value(content, rng)) is not None:
        return changed
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        rng.choice(CHANGES)(data, rng)
    return bytes(data)


def repacked(content: bytes, rng: random.Random) -> bytes:
    """Gzip what was changed, so that its sum is right; now and then change that, too."""
    packed = gzip.compress(mutated(content, rng), 1, mtime=0)
    return mutated(packed, rng) if rng.random() < 0.3 else packed


def _flip(data: bytearray, rng: random.Random) -> None:
    """Turn a bit around."""
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    """Write extreme bytes over some: sizes of binary formats become small, large or negative."""
    if data:
        at, width = _place(data, rng), rng.choice((1, 2, 4, 8))
        data[at : at + width] = bytes([rng.choice(EXTREME)]) * min(width, len(data) - at)


def _size(data: bytearray, rng: random.Random) -> None:
    """Write a number that means too much in the place of a size."""
    form = rng.choice((">I", "<I", "<H", ">Q", "<Q"))
    value = rng.choice(SIZES) & ((1 << 8 * struct.calcsize(form)) - 1)
    at = _place(data, rng)
    data[at : at + struct.calcsize(form)] = struct.pack(form, value)


def _insert(data: bytearray, rng: random.Random) -> None:
    """Put in what is special somewhere."""
    if len(data) < LARGE:
        at = rng.randrange(len(data) + 1)
        data[at:at] = rng.choice(TOKENS)


def _delete(data: bytearray, rng: random.Random) -> None:
    """Take out a piece."""
    at = _place(data, rng)
    del data[at : at + rng.choice((1, 1, 2, 8, 100))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    """Write a piece twice, or its line."""
    if len(data) < LARGE:
        at = _place(data, rng)
        data[at:at] = data[at : at + rng.choice((1, 4, 30, 300))]


def _cut(data: bytearray, rng: random.Random) -> None:
    """Leave out the end, or the beginning."""
    at = _place(data, rng)
    if rng.random() < 0.8:
        del data[at:]
    else:
        del data[:at]


def _replace_word(data: bytearray, rng: random.Random) -> None:
    """Write something special in the place of a word or number."""
    if len(data) > LARGE:
        return
    words = list(WORD.finditer(data))
    if words:
        word = rng.choice(words)
        data[word.start() : word.end()] = rng.choice(TOKENS)


def _swap_lines(data: bytearray, rng: random.Random) -> None:
    """Exchange two lines, or leave one out."""
    lines = bytes(data).split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    if rng.random() < 0.3:
        del lines[i]
    data[:] = b"\n".join(lines)


CHANGES = (
    *(_flip, _flip, _overwrite, _size, _insert, _insert, _delete, _repeat, _cut),
    *(_replace_word, _replace_word, _replace_word, _swap_lines),
)


def _place(data: bytearray, rng: random.Random) -> int:
    """Choose a place, every other time near the start or the end, where headers are."""
    end, near = len(data) + 1, rng.random()
    if near < 0.15:
        return max(0, end - 1 - rng.randrange(160))
    return rng.randrange(min(end, 160) if near < 0.5 else end)


def _other_value(content: bytes, rng: random.Random) -> bytes | None:
    """Change a value of a JSON file, or of a line of one; None for other files."""
    if content[:1] not in (b"{", b"["):
        return None
    lines = content.split(b"\n")
    whole = len(lines) < 3 or lines[1][:1] not in (b"{", b"[")
    at = rng.randrange(len(lines))
    try:
        found = json.loads(content if whole else lines[at])
    except ValueError:
        return None
    for _ in range(rng.choice((1, 1, 2))):
        _change_within(found, rng)
    text = json.dumps(found).encode()
    if whole:
        return text
    return b"\n".join([*lines[:at], text, *lines[at + 1 :]])


def _change_within(value: Any, rng: random.Random) -> None:
    """Change, add or take away something inside lists and objects."""
    while isinstance(value, dict | list) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        inner = value[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            value = inner
            continue
        if rng.random() < 0.2:
            del value[key]
        elif rng.random() < 0.1 and isinstance(value, dict):
            value[rng.choice(("x", "", "a" * 300, "tag", "fields"))] = value.pop(key)
        else:
            value[key] = deepcopy(rng.choice(VALUES))
        return
