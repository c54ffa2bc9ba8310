"""Experiment files, a user's or one that ships with coterie, and the examples that do."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.core.errors import CoterieError, did_you_mean

if TYPE_CHECKING:
    from coterie.config.settings import Config


def experiments() -> Path:
    """Folder of the experiment files: inside an installed package, or beside the sources."""
    return _shipped("experiments")


def examples() -> Path:
    """Folder of the examples: inside an installed package, or beside the sources."""
    return _shipped("examples")


def _shipped(name: str) -> Path:
    package = Path(__file__).resolve().parents[1]
    inside = package / name
    return inside if inside.is_dir() else package.parents[1] / name


def scenarios() -> dict[str, Path]:
    """Experiment files of the gallery, by name."""
    return {p.stem: p for p in sorted((experiments() / "scenarios").glob("*.toml"))}


def shipped() -> dict[str, Path]:
    """Experiment files that ship with coterie, by name."""
    return {p.stem: p for p in sorted(experiments().glob("*.toml"))} | scenarios()


def read_configs(file: str, overrides: tuple[str, ...]) -> "tuple[str, list[Config]]":
    """Return the name of an experiment file and its configs, with some settings changed."""
    from coterie.config.files import load_experiment

    path = experiment_path(file)
    return path.stem, load_experiment(path, overrides)


def experiment_path(file: str) -> Path:
    """Find an experiment file by path, or by the name of one that ships with coterie."""
    path, there = Path(file), shipped()
    with suppress(OSError, ValueError):  # no name of a file: too long, or with NUL in it
        if path.exists() and not (path.is_dir() and file in there):  # runs of it, beside us
            return path
    if file in there:
        return there[file]
    raise CoterieError(f"{file:.200}: no such file{did_you_mean(path.stem[:200], there)}")
