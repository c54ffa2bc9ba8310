"""Kinds of command that faults are tried on: what each needs, what it does, how it goes on."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from coterie.runs.record import ROWS, RUNS
from datafiles import write_mnist

TINY: dict[str, Any] = {
    "data": {"sample": 0.1},
    "partition": {"num_nodes": 10, "num_edges": 10},
    "algorithm": {"name": "fedavg", "num_groups": 3, "tau1": 1, "tau2": 2},
    "train": {"steps": 10, "lr": 0.1},
}
FILE, OUT, DONE, OLD = "my.toml", "out", "done", b"what was there before\n"
LEFT = (FILE, DONE, "original")  # what a command finds, and has to leave as it is


@dataclass(frozen=True)
class Kind:
    """A command, and what there is before it: settings, a complete run, files to import."""

    name: str
    words: tuple[str, ...]
    settings: Mapping[str, Any] | None = None
    reads_run: bool = False
    imports: bool = False
    replaces: tuple[str, ...] = ()  # files that are there before, and are made anew
    trains: bool = False
    workers: bool = False  # processes of its own, which take seconds to load
    code: tuple[str, ...] = ()  # words that name one's own code again, as --resume wants it
    after: tuple[str, ...] = ()  # a command that is to make whole what a fault beside it left out

    def prepare(self, place: Path, done: Path) -> None:
        """Put into a new folder what the command needs; `done` is a complete run."""
        place.mkdir(parents=True)
        if self.settings is not None:
            (place / FILE).write_text(tomli_w.dumps(self.settings))
        if self.reads_run:
            shutil.copytree(done, place / DONE)
        if self.imports:
            write_mnist(place / "original", (1500, 300))
        for name in self.replaces:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(OLD)

    def again(self, place: Path) -> tuple[str, ...]:
        """Return the command to give after a fault: what was begun goes on.

        What `retime` has written is whole, and it writes over nothing: then it only has to be read.
        """
        begun = any((place / OUT / name).exists() for name in (ROWS, RUNS))
        if self.words[0] == "retime" and any((place / OUT).glob(f"*/{ROWS}")):
            return ("compare", OUT)
        on = ("run", "--resume", OUT, *self.code)
        return on if begun and self.words[0] == "run" else self.words


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with others over them, section by section."""
    return {**base, **{k: {**base.get(k, {}), **v} for k, v in more.items()}}


def _run(name: str, *words: str, workers: bool = False, **sections: Any) -> Kind:
    """Return a run that keeps a checkpoint after every mean."""
    said = ("run", FILE, "--out", OUT, "--checkpoint-every", "0", *words)
    return Kind(name, said, _merged(TINY, sections), trains=True, workers=workers)


def _sweep(name: str, *words: str, workers: bool = False) -> Kind:
    settings = {**TINY, "sweep": {"seed": [0, 1, 2]}}
    said = ("sweep", FILE, "--out", OUT, "--checkpoint-every", "0", *words)
    return Kind(name, said, settings, trains=True, workers=workers)


MEASURED = {"measure": ["accuracy", "nodes", "Delta/2"], "measure_groups": True}
REGROUPED = {"name": "fedavg-ic", "grouping": "reference", "regroup_every": 2}
PLANNED = {"algorithm": {"name": "fedavg-ic", "grouping": "reference"}}
SAVED = ("--save", "saved.csv", "--export", "plan.json", "--out", "page.html")
TRACKED = ("--track", "own_tracker:open=tracked")
CHEAP = ("--only", "seed=0", "--only", "algorithm.name=hierfavg")

KINDS = [
    _run("run"),
    _run("run, sequential engine", train={"engine": "sequential"}),
    _run("run, regrouped, nodes scored", algorithm=REGROUPED, train=MEASURED),
    _run("run, Ditto", algorithm={"name": "ditto"}, train=MEASURED),
    _run("run, FedPer", algorithm={"name": "fedper"}, model={"name": "2nn"}),
    _run("run, SCAFFOLD", algorithm={"name": "scaffold"}),
    _run("run, FedDyn", algorithm={"name": "feddyn"}),
    _run("run, FedAdam", algorithm={"name": "fedadam"}),
    _run("run, IFCA", algorithm={"name": "ifca"}),
    _run("run, participation", participation={"fraction": 0.7, "dropout": 0.2}),
    _run("run, auto", algorithm={"name": "fedavg-ic", "tau1": "auto", "tau2": "auto"}),
    replace(
        _run("run --track", *TRACKED, workers=True),
        code=TRACKED,
        after=("track", OUT, "--to", TRACKED[1]),
    ),
    _sweep("sweep", "--jobs", "1"),
    _sweep("sweep --jobs 2", "--jobs", "2", workers=True),
    Kind(
        "reproduce",
        ("reproduce", "costs", "--scale", "small", *CHEAP, "--out", OUT, "--jobs", "1"),
        trains=True,
    ),
    Kind(
        "plan --save",
        ("plan", FILE, "--methods", "reference,edge", *SAVED),
        _merged(TINY, PLANNED),
        replaces=("saved.csv", "page.html"),
    ),
    Kind("report", ("report", DONE, "-o", "page.html"), reads_run=True, replaces=("page.html",)),
    Kind("export", ("export", DONE, "-o", "rows.csv"), reads_run=True, replaces=("rows.csv",)),
    Kind(
        "figures",
        ("figures", DONE, "-o", OUT, "--format", "png"),
        reads_run=True,
        replaces=("out/accuracy-by-time.png", "out/comparison.csv"),
    ),
    Kind(
        "retime",
        ("retime", DONE, "--set", "network.link_mbytes_per_s=10", "--out", OUT),
        reads_run=True,
    ),
    Kind("data import", ("data", "import", "mnist-o", "original", "--trust"), imports=True),
]
BY_NAME: dict[str, Kind] = {kind.name: kind for kind in KINDS}
Chosen = Callable[[Kind], bool]
