"""Byte mutations of a file, as many as one likes, the same for the same seed."""

import gzip
import random
import struct
from collections.abc import Callable, Sequence

Mutation = Callable[[random.Random, bytearray], None]
ODD = (0, 1, 2, 7, 8, 9, 10, 13, 0x1C, 0x22, 0x27, 0x2C, 0x2D, 0x30, 0x39, 0x7F, 0x80, 0xFE, 0xFF)
SIZES = (0, 1, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
WORDS = (
    *(b"", b"-1", b"1e999", b"1e308", b"NaN", b"-Infinity", b"null", b"true", b"[]", b"{}", b"[["),
    *(b"9" * 19, b"9" * 400, b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b"\0", b"\r", b"\n", b'"'),
    *(b"'", b",", b"../", b"/", b"\xe2\x80\xa8", b"\xc2\xb2", b"\xd9\xa3", b"\x1c", b"(", b"|O"),
    *(b"|V0", b"<U0", b"<f8", b"|b1", b"<M8[s]", b"(-1,)", b"(1<<62,)", b"()", b"True"),
)


def mutated(content: bytes, rng: random.Random, words: Sequence[bytes] = WORDS) -> bytes:
    """Return a content with one to six mutations, more often few than many."""
    changed = bytearray(content)
    for _ in range(min(6, 1 + int(rng.expovariate(0.7)))):
        rng.choice(MUTATIONS)(rng, changed)
        if rng.random() < 0.3:
            at = _place(rng, changed)
            changed[at : at + rng.choice((0, 1, 4, 8))] = rng.choice(words)
    return bytes(changed)


def repacked(content: bytes, rng: random.Random) -> bytes:
    """Gzip a mutated content, so that its checksum is right; now and then the packed bytes too."""
    packed = gzip.compress(mutated(content, rng), 1, mtime=0)
    return mutated(packed, rng) if rng.random() < 0.3 else packed


def _place(rng: random.Random, content: bytearray) -> int:
    """Choose a place, half of the time near the beginning or the end, where headers are."""
    near = rng.random()
    if near < 0.35:
        return rng.randrange(min(len(content), 160) + 1)
    if near < 0.5:
        return max(0, len(content) - rng.randrange(161))
    return rng.randrange(len(content) + 1)


def _flip(rng: random.Random, content: bytearray) -> None:
    for at in (_place(rng, content) for _ in range(rng.choice((1, 1, 2, 8)))):
        if at < len(content):
            content[at] ^= 1 << rng.randrange(8)


def _odd_byte(rng: random.Random, content: bytearray) -> None:
    at = _place(rng, content)
    content[at : at + 1] = bytes([rng.choice(ODD)])


def _size(rng: random.Random, content: bytearray) -> None:
    form = rng.choice((">I", "<I", "<H", ">Q", "<Q"))
    value = rng.choice(SIZES) & ((1 << 8 * struct.calcsize(form)) - 1)
    at = _place(rng, content)
    content[at : at + struct.calcsize(form)] = struct.pack(form, value)


def _cut(rng: random.Random, content: bytearray) -> None:
    del content[_place(rng, content) :]


def _remove(rng: random.Random, content: bytearray) -> None:
    at = _place(rng, content)
    del content[at : at + rng.choice((1, 2, 4, 16, 64))]


def _repeat(rng: random.Random, content: bytearray) -> None:
    at, size = _place(rng, content), rng.choice((1, 3, 16, 200))
    content[at:at] = content[at : at + size] * rng.choice((1, 2, 50))


def _move(rng: random.Random, content: bytearray) -> None:
    at, to, size = _place(rng, content), _place(rng, content), rng.choice((1, 4, 32))
    content[to : to + size] = content[at : at + size]


MUTATIONS: tuple[Mutation, ...] = (_flip, _odd_byte, _size, _cut, _remove, _repeat, _move)
