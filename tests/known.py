"""Files that a test makes known, and the command line that takes them."""

import gzip
import hashlib
import tarfile
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coterie.cli import main
from coterie.data import DATASETS, Known


def coterie(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def quiet(what: str, done: int, of: int) -> None:
    pass


def pin(pins: Path, name: str, folder: Path) -> None:
    """Make the files in a folder the ones that are known."""
    lines = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        lines.append(f"{hashlib.sha256(data).hexdigest()}  {path.name.removesuffix('.gz')}\n")
    (pins / f"{name}.sha256").write_text("".join(lines))


def as_zip(folder: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, Path("top") / path.relative_to(folder))
    return target


def as_tar(folder: Path, target: Path) -> Path:
    with tarfile.open(target, "w:xz") as archive:
        archive.add(folder, "top")
    return target


def as_folder(folder: Path, target: Path) -> Path:
    return folder


def known(monkeypatch: pytest.MonkeyPatch, **ways: object) -> None:
    """Make mnist-o one that can be had in these ways only."""
    old = DATASETS["mnist-o"]
    given = {"about": old.about, "find": old.find, "read": old.read, "pins": "mnist-o"} | ways
    monkeypatch.setitem(DATASETS, "mnist-o", Known(**given))  # type: ignore[arg-type]
