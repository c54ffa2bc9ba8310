"""Decoded data kept as memory-mapped arrays, under the sha256 of the files they come from.

    CACHE/NAME/source/            the original files, as fetched or imported, and their key
    CACHE/NAME/decoded/SHA256/    x.npy, y.npy, users.npy, test.npy, strata.npy, about.json
    CACHE/NAME/decoded/seen/      what `stat` said of other files when they were hashed

Files elsewhere are hashed again only when their size, time or place has changed.
"""

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.cache_folder import cache_folder
from coterie.core.errors import DataError
from coterie.core.files import write_atomically
from coterie.core.types import Progress, Tick
from coterie.data.dataset import Dataset, Room, check_dataset, in_memory
from coterie.data.files import file_sha256
from coterie.data.npy import open_npy
from coterie.data.targets import check_labels, check_target

FORM = "coterie decoded 2"  # changes when a reader decodes the same files to other arrays
HASHED = "coterie decoded 1"  # stays, so that arrays of an older form are replaced in their place
KEY = ".coterie-key"  # in a source that coterie made: the sha256 its arrays are under
SCRATCH = ".new-"
TRIES, WAIT_S = 20, 0.05  # to open arrays that were just kept
Reader = Callable[[list[Path], Room, Tick], Dataset]


def open_kept(name: str, source: Path) -> Dataset | None:
    """Open the arrays of what `import` or `fetch` put in place, if this is it and they are there.

    Its files are not even listed: the folder is coterie's own, and says which arrays are its.
    """
    key = kept_key(name) if source == source_folder(name) else None
    return _open(cache_folder() / name / "decoded" / key) if key else None


def source_folder(name: str) -> Path:
    """Return where the original files of a dataset go."""
    return cache_folder() / name / "source"


def kept_key(name: str) -> str | None:
    """Return the key of the files that `import` or `fetch` put in place."""
    return _read_key(source_folder(name) / KEY)


def load_cached(
    name: str,
    top: Path,
    files: list[Path],
    read: Reader,
    progress: Progress,
    key: str | None = None,
    how: str = "",
) -> Dataset:
    """Load what was decoded from these files before, or decode and keep it.

    Without a key that was just computed from the files they are hashed, unless `stat` says that
    they are as they were. `how` says what a reader was asked besides, where that is not the usual.
    """
    home = cache_folder() / name / "decoded"
    before = _stamp(files)
    key = key or _remembered_key(home / "seen" / before, top, files, progress)
    if how:
        key = hashlib.sha256(f"{key}\n{how}".encode(errors="surrogateescape")).hexdigest()
    if (there := _open(home / key)) is not None:
        return there
    tick = partial(progress, "decoding")
    try:
        home.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=home, prefix=SCRATCH))
    except OSError as error:
        logging.getLogger("coterie").warning(
            "%s: cannot be written (%s), so %s is decoded anew every time; set $COTERIE_DATA",
            home,
            error.strerror,
            name,
        )
        return _checked(read(files, in_memory, tick), top)
    try:
        made = _checked(read(files, partial(_room, scratch), tick), top)
        if _stamp(files) != before:
            raise DataError(f"{top}: changed while it was read; try again")
        _save(made, scratch)
        _keep(scratch, home / key)
    except OSError as error:
        raise DataError(f"{home}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for _ in range(TRIES):  # another process may be putting its own in this place
        if (kept := _open(home / key)) is not None:
            return kept
        time.sleep(WAIT_S)
    raise DataError(f"{home}: was changed by another process; try again")


def _checked(dataset: Dataset, top: Path) -> Dataset:
    """Check what a reader made; it is called after its files for the message."""
    check_dataset(replace(dataset, name=str(top)))
    return dataset


def content_key(top: Path, files: list[Path], progress: Progress) -> str:
    """Hash the names and contents of files."""
    digest = hashlib.sha256(HASHED.encode())
    for done, path in enumerate(files):
        progress("hashing", done, len(files))
        relative = path.relative_to(top).as_posix() if path != top else path.name
        digest.update(f"\n{file_sha256(path)} {relative}".encode(errors="surrogateescape"))
    progress("hashing", len(files), len(files))
    return digest.hexdigest()


def _remembered_key(seen: Path, top: Path, files: list[Path], progress: Progress) -> str:
    """Return the files' key, hashing them only if they are not as they were when seen before."""
    if key := _read_key(seen):
        return key
    key = content_key(top, files, progress)
    with suppress(OSError):  # without it the files are only hashed again
        seen.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(seen, key.encode())
    return key


def _read_key(path: Path) -> str | None:
    try:
        key = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return key if len(key) == 64 and set(key) <= set("0123456789abcdef") else None


def _stamp(files: list[Path]) -> str:
    digest = hashlib.sha256(f"{Path.cwd()}\n".encode(errors="surrogateescape"))
    for path in files:
        try:
            s = path.stat()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        line = f"{path}\0{s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}\n"
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _room(folder: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Make an array on disk for x, with its blocks, so that a full disk is an error here."""
    path = folder / "x.npy"
    x = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return x


def _save(dataset: Dataset, folder: Path) -> None:
    if not (folder / "x.npy").exists():  # the reader did not ask for room there
        np.save(folder / "x.npy", dataset.x)
    elif isinstance(dataset.x, np.memmap):
        dataset.x.flush()
    np.save(folder / "y.npy", dataset.y)
    if dataset.users is not None:
        np.save(folder / "users.npy", dataset.users)
    if dataset.test is not None:
        np.save(folder / "test.npy", dataset.test)
    if dataset.strata is not None:
        np.save(folder / "strata.npy", dataset.strata)
    about = {
        "form": FORM,
        "name": dataset.name,
        "n_classes": dataset.n_classes,
        "shape": list(dataset.x.shape),
        "user_names": list(dataset.user_names),
        "has_test": dataset.test is not None,
        "task": dataset.task,
        "has_strata": dataset.strata is not None,
    }
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def _keep(scratch: Path, folder: Path) -> None:
    """Rename a whole folder into place; one that another process put there meanwhile is as good."""
    for path in scratch.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for _ in range(2):
        if _open(folder) is not None:
            return
        with suppress(OSError):  # there is none, or another process was first
            folder.rename(scratch.with_name(f"{scratch.name}-broken"))
        shutil.rmtree(scratch.with_name(f"{scratch.name}-broken"), ignore_errors=True)
        with suppress(OSError):
            scratch.rename(folder)
            return


def _open(folder: Path) -> Dataset | None:
    """Open a decoded folder, or return None if it is not there or not whole."""
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        x = open_npy(folder / "x.npy", mapped=True)
        y = open_npy(folder / "y.npy", mapped=False)
        has_users = (folder / "users.npy").is_file()
        users = open_npy(folder / "users.npy", mapped=False) if has_users else None
        test = open_npy(folder / "test.npy", mapped=False) if about["has_test"] else None
        has_strata = about.get("has_strata", False)  # older ones were of classes alone
        strata = open_npy(folder / "strata.npy", mapped=False) if has_strata else None
        names, task = tuple(map(str, about["user_names"])), about.get("task", "classification")
        whole = about["form"] == FORM and list(x.shape) == about["shape"] and x.ndim > 1
        whole &= x.dtype in (np.uint8, np.float32, np.int64)
        whole &= users is None or _counts(users, len(x))
        whole &= strata is None or (_counts(strata, len(x)) and strata.min() >= 0)
        whole &= test is None or (test.dtype == np.bool_ and test.shape == x.shape[:1])
        n_classes, name = int(about["n_classes"]), str(about["name"])
        check_target(task, y, x, n_classes, folder)
        if users is not None and names:
            check_labels(users, len(names), folder)
    except (OSError, ValueError, KeyError, TypeError, DataError, RecursionError, OverflowError):
        return None
    if not whole:
        return None
    return Dataset(name, x, y, n_classes, users, names, test, task, strata)


def _counts(values: NDArray[Any], n: int) -> bool:
    """Whether there is a whole number for each of n examples."""
    return values.dtype == np.int64 and values.shape == (n,)
