"""Plays as plain text: a line `SPEAKER:`, what is said, an empty line. Users are the roles."""

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.core.boundary import reader
from coterie.core.errors import DataError
from coterie.core.types import Tick
from coterie.data.asked import Asked
from coterie.data.cache import Reader
from coterie.data.dataset import Dataset, Room
from coterie.data.files import find_all, unpacked
from coterie.data.targets import NOT_SCORED

TEXT = "input.txt"
MOST_BYTES = 1 << 27  # of text; all of Shakespeare has 6 MB
MOST_ROLE = 100  # letters of a role's name
MANY = 3  # lines that look like speakers and follow what is said
MOST_CHARACTERS = 1024  # different ones, which are the vocabulary


def find_shakespeare(path: Path) -> list[Path]:
    """Find input.txt in a folder, plain or gzipped; or take a file as it is."""
    return [path] if path.is_file() else find_all(path, {TEXT: (TEXT, f"{TEXT}.gz")})


@reader(DataError)
def read_shakespeare(files: list[Path], window: int = 80) -> Dataset:
    """Cut what every role says into windows x [N, L] of characters, y [N, L] the one after each.

    A role's speeches are joined by line ends, in the order of the text. Windows do not overlap. The
    last one of a role is filled up: there y is -1, which is not scored. The vocabulary is the
    characters that what is said has in it, in the order of their code points.
    """
    path = files[0]
    said = {role: "\n".join(parts) for role, parts in _speeches(path).items()}
    texts = {role: text for role, text in said.items() if len(text) > 1}
    if not texts:
        raise DataError(
            f"{path}: nobody says two characters; there must be lines SPEAKER: and text"
        )
    codes = {role: np.frombuffer(text.encode("utf-32-le"), "<u4") for role, text in texts.items()}
    known = np.unique(np.concatenate(list(codes.values())))
    if len(known) > MOST_CHARACTERS:
        raise DataError(
            f"{path}: has {len(known):,} different characters; at most {MOST_CHARACTERS:,} can be "
            "predicted one by one"
        )
    cut = [_windows(np.searchsorted(known, code), window) for code in codes.values()]
    x, y = (np.concatenate(side) for side in zip(*cut, strict=True))
    users = np.repeat(np.arange(len(cut)), [len(one) for one, _ in cut])
    return Dataset("", x, y, len(known), users, tuple(texts), task="next-token")


def reading_shakespeare(asked: Asked) -> Reader:
    """Return a reader that cuts windows of the length that is asked."""

    def read(files: list[Path], room: Room, tick: Tick) -> Dataset:
        return read_shakespeare(files, asked.window)

    return read


def _windows(tokens: NDArray[np.int64], window: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut a text into x and y [n, L].

    >>> x, y = _windows(np.array([5, 6, 7, 8]), 2)
    >>> x.tolist(), y.tolist()
    ([[5, 6], [7, 0]], [[6, 7], [8, -1]])
    """
    n = -(-(len(tokens) - 1) // window)
    x, y = np.zeros(n * window, np.int64), np.full(n * window, NOT_SCORED, np.int64)
    x[: len(tokens) - 1], y[: len(tokens) - 1] = tokens[:-1], tokens[1:]
    return x.reshape(n, window), y.reshape(n, window)


def _speeches(path: Path) -> dict[str, list[str]]:
    """Read what every role says, speech by speech."""
    found: dict[str, list[str]] = {}
    role, lines = "", list[str]()
    text = _lines(path)
    for number, line in enumerate([*text, ""], 1):
        if not line.strip():
            if lines:
                found.setdefault(role, []).append("\n".join(lines))
            role, lines = "", []
        elif role:
            lines.append(line)
        else:
            role = _role(line, path, number)
    if len(found) == 1:
        _refuse_joined(text, path)
    return found


def _refuse_joined(lines: list[str], path: Path) -> None:
    """Refuse one role where other speakers stand in what it says, as no empty line is before them.

    They are lines in capitals, or such as are there again, so that a verse may end with a colon.
    """
    often = Counter(lines)
    after = [number for number in range(1, len(lines)) if lines[number - 1].strip()]
    ends = [number for number in after if lines[number].rstrip().endswith(":")]
    found = [n for n in ends if lines[n].isupper() or often[lines[n]] > 1]
    if len(found) >= MANY:
        raise DataError(
            f"{path}: line {found[0] + 1} must follow an empty line if it is a speaker, as "
            f"{len(found):,} lines such as {lines[found[0]].strip()[:40]!r} may be, and one role "
            "says all; put an empty line before each"
        )


def _role(line: str, path: Path, number: int) -> str:
    """Return who speaks: the first line after an empty one."""
    role = line.strip().removesuffix(":").strip()
    if not line.rstrip().endswith(":") or not role or len(role) > MOST_ROLE:
        raise DataError(
            f"{path}: line {number} must be a speaker such as HAMLET: as it follows an empty line, "
            f"got {line[:40]!r}"
        )
    return role


def _lines(path: Path) -> list[str]:
    """Read the lines of a text, without characters that no text has."""
    content = unpacked(path, MOST_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise DataError(
            f"{path}: line {number}, byte {column}: is no UTF-8 ({error.reason})"
        ) from error
    lines = text.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.isprintable() and (odd := _odd(line)):
            column, letter = odd
            raise DataError(
                f"{path}: line {number}, column {column}: {letter!r} is no character of a text; "
                "the vocabulary has letters, digits, signs and spaces"
            )
    return lines


def _odd(line: str) -> tuple[int, str] | None:
    """Return the first character that neither prints nor is a tab, with its column."""
    places = enumerate(line, 1)
    return next(((at, c) for at, c in places if not c.isprintable() and c != "\t"), None)
