"""Importing a dataset from files at hand into the cache.

Nothing is put in place before every file is known (or trusted) and has been read through.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coterie.core.cache_folder import cache_folder
from coterie.core.errors import DataError, unknown
from coterie.core.types import Progress
from coterie.data import DATASETS, Dataset, Known, check_exists, load
from coterie.data.archive import is_archive, unpack
from coterie.data.cache import (
    KEY,
    SCRATCH,
    content_key,
    kept_key,
    load_cached,
    source_folder,
)
from coterie.data.files import content_sha256, file_sha256

PINS = Path(__file__).parent / "pins"
TRUSTED = ".coterie-trusted"  # in a source: some of its files were taken with --trust
NOT_CHECKED = " (not checked against known files: imported with --trust)"
STALE_S = 86_400


def import_files(name: str, path: Path, *, trust: bool, progress: Progress) -> Dataset:
    """Take a dataset from a folder, .zip or .tar.* of its original files into the cache.

    A file whose sha256 is not known is refused unless it is trusted.
    """
    known = known_dataset(name)
    check_exists(path)
    if path.is_file() and not is_archive(path):
        raise DataError(f"{path}: must be a folder, .zip or .tar.* of {name}'s files")
    with staging_for(name, path) as staging:
        top, vouched = path, path if trust else None
        if path.is_file():
            top, is_pinned = unpacked_known(known, path, staging / "unpacked", progress)
            vouched = top if trust or is_pinned else None
        inner = next(top.rglob(known.packed), None) if known.packed else None
        if inner:
            beside = {text.name: text for text in top.rglob("*.txt")}
            if len(beside) < len(list(top.rglob("*.txt"))):
                raise DataError(f"{path}: has several .txt files of one name; keep one of each")
            top, is_pinned = unpacked_known(known, inner, staging / "together", progress)
            for text in beside.values():
                shutil.copyfile(text, top / text.name)
            pictures = top / inner.stem
            vouched = top if vouched else pictures if is_pinned else None
        return install(name, top, staging, progress, vouched=vouched, trust=trust)


def is_known(name: str) -> bool:
    """Tell whether the files in place were all known by their sha256, not taken with --trust."""
    return not (source_folder(name) / TRUSTED).exists()


def install(
    name: str,
    top: Path,
    staging: Path,
    progress: Progress,
    *,
    vouched: Path | None = None,
    trust: bool = False,
) -> Dataset:
    """Copy, check and read the files of a dataset, and only then put them in place.

    Files below the `vouched` folder are known to be right or trusted.
    """
    known = DATASETS[name]
    new, unsure = staging / "source", []
    files = known.find(top)
    for done, path in enumerate(files):
        progress("copying", done, len(files))
        target = new / path.relative_to(top)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if not (vouched and path.is_relative_to(vouched)):
            unsure.append(target)
    _check_pins(name, known, unsure, progress)
    staged = known.find(new)
    key = content_key(new, staged, progress)
    load_cached(name, new, staged, known.read, progress, key)
    (new / KEY).write_text(key, encoding="ascii")
    if trust:
        (new / TRUSTED).touch()
    old_key = kept_key(name)
    _swap(new, source_folder(name), staging / "old")
    if old_key and old_key != key:
        shutil.rmtree(source_folder(name).with_name("decoded") / old_key, ignore_errors=True)
    return load(name, progress=progress)


def _swap(new: Path, place: Path, old: Path) -> None:
    """Put a folder in place of another, which comes back if that fails."""
    try:
        if place.exists():
            place.rename(old)
        new.rename(place)
    except BaseException:
        if old.exists() and not place.exists():
            old.rename(place)
        raise


def unpacked_known(
    known: Known, archive: Path, into: Path, progress: Progress
) -> tuple[Path, bool]:
    """Unpack an archive, and tell whether it is one of those known to be right."""
    before = archive.stat()
    unpack(archive, into, tick=_counter(progress, "unpacking"))
    is_pinned = file_sha256(archive) in _pins(known).values()
    after = archive.stat()
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise DataError(f"{archive}: changed while it was read; try again")
    return into, is_pinned


def _check_pins(name: str, known: Known, files: list[Path], progress: Progress) -> None:
    """Refuse the first file whose content is not one of those known to be right."""
    pins = _pins(known)
    for done, path in enumerate(files):
        progress("checking", done, len(files))
        found = content_sha256(path)
        expected = pins.get(path.name.removesuffix(".gz"))
        if found != expected:
            known_as = f"it must be {expected[:16]}..." if expected else f"not known for {name}"
            other = next((n for n, k in DATASETS.items() if found in _pins(k).values()), name)
            way_out = (
                f"if you trust the file, use 'coterie data import {name} PATH --trust'"
                if other == name
                else f"it is a file of {other}: coterie data import {other} PATH"
            )
            raise DataError(f"{path}: sha256 is {found[:16]}..., {known_as}; {way_out}")


def _pins(known: Known) -> dict[str, str]:
    """Read the list of known files: name to sha256 of the content."""
    if not known.pins:
        return {}
    lines = (PINS / f"{known.pins}.sha256").read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def known_dataset(name: str) -> Known:
    """Look up a dataset that has files to get."""
    if name not in DATASETS:
        raise DataError(unknown("dataset", name, DATASETS))
    if name == "mnist-f-mini":
        raise DataError("mnist-f-mini is embedded in the package; there is nothing to get")
    if DATASETS[name].yours:
        raise DataError(f"your own {name} need no import; set data.path to the file or folder")
    return DATASETS[name]


@contextmanager
def staging_for(name: str, given: Path) -> Iterator[Path]:
    """Give a folder beside the dataset's; afterwards it, and folders left empty, are gone.

    What goes wrong in there is told of `given`, which is what the user knows.
    """
    home = cache_folder() / name
    absent = [p for p in (home / "decoded", home, home.parent) if not p.exists()]
    try:
        home.mkdir(parents=True, exist_ok=True)
        _remove_stale(home)
        staging = Path(tempfile.mkdtemp(dir=home, prefix=SCRATCH))
        try:
            yield staging
        except DataError as error:
            said = str(error)
            for inside in ("source", "unpacked", "together"):
                said = said.replace(str(staging / inside), str(given))
            raise DataError(said) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            remove_empty(*absent)
    except OSError as error:
        raise DataError(f"{error.filename or home}: {error.strerror or error}") from error


def _remove_stale(home: Path) -> None:
    """Remove what a process that was killed left behind a day ago or earlier."""
    for folder in [*home.glob(f"{SCRATCH}*"), *home.glob(f"decoded/{SCRATCH}*")]:
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > STALE_S:
                shutil.rmtree(folder, ignore_errors=True)


def remove_empty(*folders: Path) -> None:
    """Remove those folders that are empty."""
    for folder in folders:
        with suppress(OSError):  # it is not empty, or not there
            folder.rmdir()


def _counter(progress: Progress, what: str) -> Callable[[int], None]:
    """Add up bytes of an unknown total."""
    done = 0

    def tick(more: int) -> None:
        nonlocal done
        done += more
        progress(what, done, 0)

    return tick
