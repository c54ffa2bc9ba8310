import bz2
import gzip
import io
import lzma
import stat
import sys
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import DataError
from coterie.data import archive
from coterie.data.archive import is_archive, unpack

Files = Iterable[tuple[str, bytes]]
Pack = Callable[[Files], bytes]

FILES = {"a/one.txt": b"1" * 700, "a/b/two.bin": bytes(range(256)) * 300, "empty": b""}


def entry(name: str, method: int = zipfile.ZIP_STORED, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("x")
    info.filename, info.compress_type, info.external_attr = name, method, mode << 16
    return info


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that is there twice
        for name, content in files:
            file.writestr(entry(name, method), content)
    return raw.getvalue()


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info


def tar_of(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as file:
        for info, content in members:
            file.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def tarred(files: Files, form: int = tarfile.PAX_FORMAT) -> bytes:
    return tar_of(*((member(name, len(data)), data) for name, data in files), form=form)


PACKS: dict[str, Pack] = {
    "zip": zipped,
    "stored-zip": lambda files: zipped(files, zipfile.ZIP_STORED),
    "tar": tarred,
    "tar.gz": lambda files: gzip.compress(tarred(files)),
    "tar.bz2": lambda files: bz2.compress(tarred(files)),
    "tar.xz": lambda files: lzma.compress(tarred(files)),
}
every_format = pytest.mark.parametrize("pack", PACKS.values(), ids=PACKS)
zip_and_tar = pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])


def found(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their path in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refuses(
    tmp_path: Path, content: bytes, says: str, *, max_bytes: int = 1 << 20, max_files: int = 99
) -> None:
    """Assert that an archive is refused in one line, and that nothing of it is left."""
    source = tmp_path / "source"
    source.write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        unpack(source, tmp_path / "out", max_bytes=max_bytes, max_files=max_files)
    assert str(caught.value).startswith(f"{source}: ")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [source]


@every_format
def test_every_format_is_known_by_its_content_and_unpacks_to_its_files(
    tmp_path: Path, pack: Pack
) -> None:
    source = tmp_path / "no-suffix"
    source.write_bytes(pack(FILES.items()))
    assert is_archive(source)
    ticks: list[int] = []
    unpack(source, tmp_path / "out", tick=ticks.append)
    assert found(tmp_path / "out") == FILES
    assert sum(ticks) == sum(map(len, FILES.values()))
    assert max(ticks) <= archive.CHUNK
    assert {path.name for path in tmp_path.iterdir()} == {"no-suffix", "out"}


@pytest.mark.skipif(
    sys.getfilesystemencoding() != "utf-8", reason="names of files are not UTF-8 in this locale"
)
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_survive_every_kind_of_tar(tmp_path: Path, form: int) -> None:
    files = {f"{'long' * 30}/{'name' * 20}.txt": b"1", "é/数.txt": b"2"}
    (tmp_path / "source").write_bytes(tarred(files.items(), form))
    unpack(tmp_path / "source", tmp_path / "out")
    assert found(tmp_path / "out") == files


def test_an_empty_folder_may_be_unpacked_into_and_a_full_one_or_a_file_may_not(
    tmp_path: Path,
) -> None:
    source, into = tmp_path / "source", tmp_path / "out"
    source.write_bytes(zipped(FILES.items()))
    into.mkdir()
    unpack(source, into)
    assert found(into) == FILES
    for full in (into, source):
        with pytest.raises(DataError, match="must be new or empty to unpack source into it"):
            unpack(source, full)
    assert found(into) == FILES


def test_folders_are_kept_whether_before_or_after_what_is_in_them(tmp_path: Path) -> None:
    folders = [(member(name, kind=tarfile.DIRTYPE), b"") for name in ("./", "a", "hollow/")]
    (tmp_path / "t").write_bytes(tar_of(folders[0], (member("a/x", 1), b"x"), *folders[1:]))
    unpack(tmp_path / "t", tmp_path / "from-tar")
    (tmp_path / "z").write_bytes(zipped([("./a/x", b"x"), ("a/", b""), ("hollow//", b"")]))
    unpack(tmp_path / "z", tmp_path / "from-zip")
    for out in (tmp_path / "from-tar", tmp_path / "from-zip"):
        assert found(out) == {"a/x": b"x"}
        assert list((out / "hollow").iterdir()) == []


def test_modes_and_times_of_the_archive_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    info = member("a/x", 1)
    info.mode, info.mtime = 0o4777, 1
    (tmp_path / "source").write_bytes(tar_of((info, b"x")))
    unpack(tmp_path / "source", tmp_path / "out")
    assert (tmp_path / "out/a/x").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "folder").stat().st_mode
    assert (tmp_path / "out/a/x").stat().st_mtime > 1


@zip_and_tar
def test_what_macos_adds_is_skipped(tmp_path: Path, pack: Pack) -> None:
    files = {"__MACOSX/a/._x": b"attributes", "a/._x": b"attributes", "a/x": b"x"}
    (tmp_path / "source").write_bytes(pack(files.items()))
    unpack(tmp_path / "source", tmp_path / "out")
    assert found(tmp_path / "out") == {"a/x": b"x"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"PK\3\4 and nothing",
        bytes(2048),
        gzip.compress(b"\0\0\x08\3" + bytes(4096), mtime=0),
        gzip.compress(bytes(1 << 20), mtime=0),
        b"\x1f\x8b and nothing",
        b"BZh and nothing",
        b"\xfd7zXZ\0 and nothing",
    ],
)
def test_a_gzipped_idx_and_other_files_are_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "images.tar.gz").write_bytes(content)
    assert not is_archive(tmp_path / "images.tar.gz")
    assert not is_archive(tmp_path / "missing")
    assert not is_archive(tmp_path)


def test_what_is_no_archive_or_not_there_is_refused(tmp_path: Path) -> None:
    refuses(tmp_path, gzip.compress(b"\0\0\x08\3" + bytes(4096)), "damaged or no archive")
    with pytest.raises(DataError, match=r"missing: cannot be unpacked .*No such file"):
        unpack(tmp_path / "missing", tmp_path / "out")


@zip_and_tar
@pytest.mark.parametrize(
    "name",
    [
        "/etc/x",
        "../x",
        "a/../../x",
        "a/..",
        "..",
        "C:/x",
        "a/c:x",
        "a\\..\\x",
        "\\x",
        "d/" * 33 + "x",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, pack: Pack, name: str) -> None:
    refuses(tmp_path, pack([("fine", b"1"), (name, b"2")]), r"'.+' must be a relative path without")


@zip_and_tar
@pytest.mark.parametrize("name", ["", ".", "a\0b"])
def test_a_name_that_is_no_name_is_refused(tmp_path: Path, pack: Pack, name: str) -> None:
    if pack is tarred and "\0" in name:  # a tar can hold a NUL in a pax header only
        info = member("x")
        info.pax_headers = {"path": name}
        content = tar_of((info, b""))
    else:
        content = pack([("fine", b"1"), (name, b"2")])
    refuses(tmp_path, content, "must be a relative path without")


@pytest.mark.parametrize(
    "kind",
    [
        *(tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE),
        *(tarfile.GNUTYPE_SPARSE, b"V"),
    ],
)
def test_a_tar_member_that_is_no_plain_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    content = tar_of((member("fine", 1), b"x"), (member("odd", kind=kind), b""))
    refuses(tmp_path, content, "'odd' must be a plain file or a folder")


@zip_and_tar
def test_what_the_data_filter_refuses_is_refused(
    tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def filtered(info: tarfile.TarInfo, into: Path) -> tarfile.TarInfo:
        if info.name == "a/odd":
            raise tarfile.TarError("odd is outside")
        return info

    monkeypatch.setattr(archive, "DATA_FILTER", filtered)
    content = pack([("fine", b"1"), ("./a//odd", b"2")])
    refuses(tmp_path, content, r"cannot be unpacked at or after 'a/odd' \(odd is outside\)")


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_a_zip_member_that_is_no_plain_file_is_refused(tmp_path: Path, mode: int) -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as file:
        file.writestr("fine", b"x")
        file.writestr(entry("odd", mode=mode | 0o777), b"/etc")
    refuses(tmp_path, raw.getvalue(), "'odd' must be a plain file or a folder")


def test_a_zip_folder_with_content_is_refused(tmp_path: Path) -> None:
    refuses(tmp_path, zipped([("a/", b"hidden")]), "'a/' must not be a folder with content")


@zip_and_tar
@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ("a", "a", "'a' must not meet 'a'"),
        ("a", "./a", "'./a' must not meet 'a'"),
        ("a/x", "A/X", "'A/X' must not meet 'a'"),
        ("a/x", "A/y", "'A/y' must not meet 'a'"),
        ("straße", "STRASSE", "'STRASSE' must not meet 'straße'"),
        ("\u00e9", "e\u0301", "must not meet"),
        ("a", "a/b", "'a/b' must not meet 'a'"),
        ("a/b", "a", "'a' must not meet 'a'"),
    ],
)
def test_two_members_at_one_path_are_refused(
    tmp_path: Path,
    pack: Pack,
    first: str,
    second: str,
    says: str,
) -> None:
    refuses(tmp_path, pack([(first, b"1"), (second, b"2")]), says)


def test_a_folder_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    refuses(tmp_path, zipped([("a/", b""), ("a/x", b""), ("a/", b"")]), "'a/' must not meet 'a'")


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped([("secret", b"x")]))
    content[6] |= 1
    content[content.index(b"PK\1\2") + 8] |= 1
    refuses(tmp_path, bytes(content), "'secret' must not be encrypted")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_method_without_a_bound_on_memory_is_refused(tmp_path: Path, method: int) -> None:
    content = zipped([("x", b"x")], method)
    refuses(tmp_path, content, f"'x' must be stored or deflated, not compressed by method {method}")


@every_format
def test_more_members_or_bytes_than_allowed_are_refused(tmp_path: Path, pack: Pack) -> None:
    content = pack([("a", b"1" * 60), ("b", b"2" * 40)])
    refuses(tmp_path, content, "'b' is one member more than the 1 allowed", max_files=1)
    refuses(tmp_path, content, "'b' makes it 100 bytes, 99 are allowed", max_bytes=99)
    unpack(tmp_path / "source", tmp_path / "out", max_files=2, max_bytes=100)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_an_archive_that_unpacks_to_much_more_is_refused_before_it_is_written(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    content = pack(tarred([("bomb", bytes(20_000_000))]))
    refuses(tmp_path, content, "'bomb' makes it 20000000 bytes, 16777216 are", max_bytes=1 << 33)


@pytest.mark.parametrize("declared", [10, 1 << 19])
def test_a_zip_bomb_that_lies_about_its_size_is_stopped(tmp_path: Path, declared: int) -> None:
    content = bytearray(zipped([("bomb", bytes(1 << 22))]))
    at = content.index(b"PK\1\2") + 24
    content[at : at + 4] = declared.to_bytes(4, "little")
    refuses(tmp_path, bytes(content), "cannot be unpacked at or after 'bomb'")


def test_a_zip_member_shorter_than_it_says_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped([("short", b"12345")]))
    content[content.index(b"PK\1\2") + 24] = 9
    refuses(tmp_path, bytes(content), "'short' .9 bytes are declared, 5 came out")


def test_a_tar_header_that_would_fill_the_memory_or_go_back_is_refused(tmp_path: Path) -> None:
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME):
        header = member("x", 1 << 40, kind).tobuf(tarfile.GNU_FORMAT)
        refuses(tmp_path, gzip.compress(header + bytes(1 << 20)), f"a header of {1 << 40} bytes")
    header = member("x", -1024).tobuf(tarfile.GNU_FORMAT)
    refuses(tmp_path, tarred([("fine", b"1")])[:1024] + header, "a header of -1024 bytes")
    endless = member("x", 512, tarfile.XGLTYPE).tobuf() + b"9 a=b\n".ljust(512, b"\0")
    refuses(tmp_path, endless * 2000, "cannot be unpacked")


def test_a_zip_directory_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped([("x", b"")]))
    content[-10:-6] = (archive.ZIP_DIRECTORY + 1).to_bytes(4, "little")
    with (tmp_path / "source").open("wb") as file:  # with a hole, for the size to be possible
        file.write(content[:4])
        file.seek(archive.ZIP_DIRECTORY + 1000)
        file.write(content)
    with pytest.raises(DataError, match=f"a directory of {archive.ZIP_DIRECTORY + 1} bytes"):
        unpack(tmp_path / "source", tmp_path / "out")


@every_format
def test_a_cut_archive_is_refused_wherever_it_is_cut(tmp_path: Path, pack: Pack) -> None:
    content = pack([("a", bytes(512)), ("b", b"2" * 512)])
    end = 2048 if pack is tarred else len(content)
    for cut in {*range(0, end, max(1, end // 9)), 1024, end - 1}:
        refuses(tmp_path, content[: min(cut, end - 1)], "cannot be unpacked")


@every_format
def test_a_damaged_archive_is_refused(tmp_path: Path, pack: Pack) -> None:
    content = bytearray(pack([("first", b"1" * 512), ("second", b"2" * 512)]))
    # the second header of a tar, the content of a zip, the checksum of what is compressed
    at = 1024 if pack is tarred else 40 if content.startswith(b"PK") else -6
    content[at] ^= 0xFF
    refuses(tmp_path, bytes(content), "cannot be unpacked")


def test_all_names_of_a_zip_are_checked_before_a_byte_is_written(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(zipped([("fine", b"1"), ("../bad", b"2")]))
    ticks: list[int] = []
    with pytest.raises(DataError, match=r"'\.\./bad'"):
        unpack(tmp_path / "source", tmp_path / "out", tick=ticks.append)
    assert ticks == []


@every_format
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, pack: Pack) -> None:
    def interrupt(n_bytes: int) -> None:
        assert any(tmp_path.glob("*/files/a/one.txt"))
        raise KeyboardInterrupt

    source, empty = tmp_path / "source", tmp_path / "empty"
    source.write_bytes(pack(FILES.items()))
    empty.mkdir()
    for into in (tmp_path / "new", empty):
        with pytest.raises(KeyboardInterrupt):
            unpack(source, into, tick=interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {"source", "empty"}
    assert list(empty.iterdir()) == []


def is_unpacked_inside_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        source, into = Path(name) / "source", Path(name) / "out"
        source.write_bytes(content)
        is_archive(source)
        try:
            unpack(source, into, max_bytes=1 << 20, max_files=50)
        except DataError:
            assert list(Path(name).iterdir()) == [source]
        else:
            assert sorted(Path(name).iterdir()) == [into, source]
            assert all(path.is_file() or path.is_dir() for path in into.rglob("*"))
            assert not any(path.is_symlink() for path in into.rglob("*"))


MAGIC = [b"", b"PK\3\4", b"PK\5\6", b"\x1f\x8b\x08\0", b"BZh9", b"\xfd7zXZ\0", b"x\0" * 128]


@settings(deadline=None)
@given(st.sampled_from(MAGIC), st.binary(max_size=2000))
def test_any_bytes_are_unpacked_inside_or_refused(magic: bytes, rest: bytes) -> None:
    is_unpacked_inside_or_refused(magic + rest)


SAMPLES = {name: pack([("a/b", b"12345"), ("c", b"678" * 9)]) for name, pack in PACKS.items()}


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(sorted(SAMPLES)),
    st.lists(st.tuples(st.integers(0, 2047), st.integers(0, 255)), max_size=5),
    st.integers(0, 3000),
)
def test_an_archive_with_flips_and_cuts_is_unpacked_inside_or_refused(
    name: str, flips: list[tuple[int, int]], cut: int
) -> None:
    content = bytearray(SAMPLES[name])
    for at, byte in flips:
        content[at % len(content)] ^= byte
    is_unpacked_inside_or_refused(bytes(content[: cut or None]))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.text(max_size=12), st.sampled_from([b"0", b"1", b"2", b"5"])), max_size=4)
)
def test_members_of_any_name_are_unpacked_inside_or_refused(names: list[tuple[str, bytes]]) -> None:
    with suppress(UnicodeError):
        is_unpacked_inside_or_refused(zipped((name, b"") for name, _ in names if name))
        is_unpacked_inside_or_refused(tar_of(*((member(n, kind=k), b"") for n, k in names)))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=2000), max_size=4), st.sampled_from(sorted(PACKS)))
def test_what_is_packed_comes_back(contents: list[bytes], name: str) -> None:
    files = {f"{i % 2}/{i}": content for i, content in enumerate(contents)}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.write_bytes(PACKS[name](files.items()))
        unpack(source, Path(folder) / "out")
        assert found(Path(folder) / "out") == files
