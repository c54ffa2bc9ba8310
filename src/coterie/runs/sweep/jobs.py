"""The runs of an experiment file: where each goes, what it is called, and what is written of it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.config.files import decides, flat
from coterie.config.settings import Config
from coterie.core.errors import CoterieError
from coterie.core.regular import MOST_BYTES, open_regular

OnRow = Callable[[str, dict[str, Any]], None]  # label of the run, the row
Tail = Iterator[list[dict[str, Any]]]  # each time the rows written since


@dataclass(frozen=True)
class Job:
    """A config, the folder its run goes to, and a short label for people.

    With `resume` the run goes on from what its folder holds, if anything, after waiting so long for
    a process that still writes it. `threads` are the cores it may use.
    """

    config: Config
    folder: Path
    label: str
    resume: bool = False
    wait_s: float = 0.0
    threads: int = 1


class RunsFailed(CoterieError):  # noqa: N818
    """Some runs of several, or the only one; the others are where they would be without them."""

    def __init__(self, failed: dict[str, CoterieError], of: int) -> None:
        """Say how many failed, and why the first did; `failed` has why each did, by label."""
        label, error = next(iter(failed.items()))
        many = f"{len(failed)} of {of} runs failed; {label}: {error}"
        super().__init__(str(error) if of == 1 else many)
        self.failed = failed


@dataclass(eq=False)
class Stop:
    """Whether runs should stop: asked for by a signal, looked at after every aggregation."""

    asked: bool = False
    midway: bool = False  # there is a step to finish; before that, stop at once

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.asked

    def ask(self, *_: object) -> None:
        """Finish the step first; the second time, and where nothing was begun, stop at once."""
        if self.asked or not self.midway:
            raise KeyboardInterrupt
        self.asked = True


def plan_jobs(configs: list[Config], out: Path) -> list[Job]:
    """Name a folder for every run after the settings in which the runs differ.

    >>> from coterie.config.files import expand
    >>> both = expand({"sweep": {"seed": [0, 1], "model.name": ["sr", "2nn"]}})
    >>> [job.folder.as_posix() for job in plan_jobs(both, Path("r"))]
    ['r/seed0-sr', 'r/seed0-2nn', 'r/seed1-sr', 'r/seed1-2nn']
    """
    if len(configs) == 1:
        return [Job(configs[0], out, configs[0].algorithm.name)]
    keys = varying(configs)
    labels = ["-".join(_word(key, flat(config)[key]) for key in keys) for config in configs]
    if len(set(labels)) != len(labels):
        labels = [f"{number:03}-{label}" for number, label in enumerate(labels)]
    return [Job(c, out / label, label) for c, label in zip(configs, labels, strict=True)]


def varying(configs: list[Config]) -> list[str]:
    """Keys in which the configs differ, without those that follow from an earlier one."""
    tables = [flat(config) for config in configs]
    kept: list[str] = []
    for key in filter(decides, tables[0]):
        values = {str(table[key]) for table in tables}
        follows = any(
            len({(str(table[other]), str(table[key])) for table in tables})
            == len({str(table[other]) for table in tables})
            for other in kept
        )
        if len(values) > 1 and not follows:
            kept.append(key)
    return kept


def free_folder(wanted: Path) -> Path:
    """Return the folder, or wanted-2, wanted-3 ... if it is taken."""
    folder, number = wanted, 2
    while folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        folder = wanted.with_name(f"{wanted.name}-{number}")
        number += 1
    return folder


def tail_of(path: Path) -> Tail:
    """Yield, each time it is asked, the rows that have been added to a file since."""
    at = 0
    while True:
        rows = []
        if path.exists():
            with open_regular(path) as file:
                file.seek(at)
                new = file.read(MOST_BYTES)
            whole = new[: new.rfind(b"\n") + 1]
            at += len(whole)
            rows = [json.loads(line) for line in whole.splitlines()]
        yield rows


def _word(key: str, value: object) -> str:
    """Short form of a setting for a folder's name.

    >>> _word("model.name", "sr"), _word("train.lr", 0.1), _word("algorithm.tau1", 5)
    ('sr', 'lr0.1', 'tau1=5')
    """
    leaf = key.rpartition(".")[2]
    text = str(value).replace(":", ".").replace("/", ".")
    if leaf in ("name", "kind", "topology", "grouping"):
        return text
    return f"{leaf}={text}" if leaf[-1].isdigit() else f"{leaf}{text}"
