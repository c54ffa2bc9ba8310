"""Plays as text: windows by role, and what is refused."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from coterie.config.factories import load_dataset
from coterie.config.files import make_config
from coterie.core.errors import ConfigError, DataError
from coterie.data import load
from coterie.data.shakespeare import find_shakespeare, read_shakespeare
from datafiles import PLAY, write_all


def shown(tokens: np.ndarray, letters: str) -> str:
    return "".join(letters[token] if token >= 0 else "." for token in tokens)


def test_every_role_is_cut_into_windows_and_the_next_character_is_predicted(
    tmp_path: Path,
) -> None:
    path = write_all(tmp_path, {"input.txt": PLAY.encode()}) / "input.txt"
    data = read_shakespeare([path], 4)
    letters = "".join(sorted(set("ab cde\nxyzzy")))
    assert data.task == "next-token"
    assert data.n_classes == len(letters)
    assert data.user_names == ("ANN", "First Lord")  # BOB says one character
    assert data.users is not None
    # ANN says "ab cd" and, after BOB, "e" and below it "d": ab cd\ne\nd
    assert data.users.tolist() == [0, 0, 1]
    assert [shown(row, letters) for row in data.x][:1] == ["ab c"]
    assert [shown(row, letters) for row in data.y] == ["b cd", "\ne\nd", "yzzy"]
    assert shown(data.x[1], letters) == "d\ne\n"
    assert [shown(row, letters) for row in read_shakespeare([path], 5).y] == [
        "b cd\n",
        "e\nd..",
        "yzzy.",
    ]


def test_line_ends_and_packing_do_not_matter(tmp_path: Path, cache: Path) -> None:
    plain = write_all(tmp_path / "a", {"input.txt": PLAY.encode()})
    dos = write_all(tmp_path / "b", {"input.txt.gz": gzip.compress(PLAY.encode())})
    found = load("shakespeare", plain)
    assert np.array_equal(found.x, load("shakespeare", dos).x)
    (plain / "input.txt").write_bytes(PLAY.replace("\n", "\r\n").encode())
    assert np.array_equal(found.x, load("shakespeare", plain).x)
    assert np.array_equal(found.x, load("shakespeare", plain / "input.txt").x)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "nobody says two characters"),
        (b"ANN:\na\n\nBOB:\n\n", "nobody says two characters"),
        (
            b"ANN:\nab\n\nno speaker\ncd\n",
            r"line 4 must be a speaker such as .*'no speaker'",
        ),
        (b":\nab\n", "line 1 must be a speaker"),
        (b"ANN:\nab\n\n" + b"B" * 101 + b":\ncd\n", "line 4 must be a speaker"),
        (b"ANN:\nab\ncd\x00e\n", r"line 3, column 3: '\\x00' is no character of a text"),
        (b"ANN:\nab\xff\n", r"line 2, byte 3: is no UTF-8"),
    ],
)
def test_what_is_no_play_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    folder = write_all(tmp_path, {"input.txt": content})
    with pytest.raises(DataError, match=says) as caught:
        read_shakespeare(find_shakespeare(folder))
    assert "\n" not in str(caught.value)
    assert str(folder / "input.txt") in str(caught.value)


def test_speakers_without_empty_lines_between_them_are_not_one_role(tmp_path: Path) -> None:
    joined = "Ann:\nab\nBob:\ncd\n" * 3
    folder = write_all(tmp_path, {"input.txt": joined.encode()})
    says = r"input\.txt: line 3 must follow an empty line .* 5 lines such as 'Bob:' .* put an empty"
    with pytest.raises(DataError, match=says):
        read_shakespeare(find_shakespeare(folder))
    (folder / "input.txt").write_text(joined.replace("Bob", "\nBob").replace("Ann", "\nAnn"))
    assert read_shakespeare(find_shakespeare(folder)).user_names == ("Ann", "Bob")
    verses = "ANN:\n" + "".join(f"and so it was {word}:\nab\n" for word in ("told", "sung", "sent"))
    (folder / "input.txt").write_text(verses)
    assert read_shakespeare(find_shakespeare(folder)).user_names == ("ANN",)


def test_too_many_different_characters_are_refused(tmp_path: Path) -> None:
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + 1100)))
    folder = write_all(tmp_path, {"input.txt": f"ANN:\n{letters}\n".encode()})
    with pytest.raises(DataError, match="1,100 different characters; at most 1,024"):
        read_shakespeare(find_shakespeare(folder))


def test_users_are_chosen_by_how_many_examples_they_have(tmp_path: Path, cache: Path) -> None:
    text = "".join(f"ROLE {i}:\n{'ab' * (i + 1)}\n\n" for i in range(6))
    folder = write_all(tmp_path, {"input.txt": text.encode()})
    what = {"name": "shakespeare", "path": str(folder), "window": 2}
    everybody = load_dataset(make_config({"data": what}))
    assert everybody.users is not None
    assert np.bincount(everybody.users).tolist() == [1, 2, 3, 4, 5, 6]
    few = load_dataset(make_config({"data": {**what, "min_examples": 3}}))
    assert few.user_names == ("ROLE 2", "ROLE 3", "ROLE 4", "ROLE 5")
    two = load_dataset(make_config({"data": {**what, "min_examples": 3, "num_users": 2}}))
    assert two.user_names == ("ROLE 4", "ROLE 5")
    assert two.users is not None
    assert two.users.tolist() == [0] * 5 + [1] * 6
    assert np.array_equal(two.x, everybody.x[10:])
    with pytest.raises(DataError, match="4 of 6 users have 3 examples or more, 5 must; lower"):
        load_dataset(make_config({"data": {**what, "min_examples": 3, "num_users": 5}}))


def test_choosing_users_where_there_are_none_is_refused() -> None:
    with pytest.raises(DataError, match=r"min_examples and num_users .* mnist-f-mini has none"):
        load_dataset(make_config({"data": {"num_users": 5}}))
    with pytest.raises(ConfigError, match=r"data\.window is read with .* 'shakespeare' only"):
        make_config({"data": {"window": 10}})
