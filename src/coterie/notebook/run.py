"""One run, as a value: begun from Python, read back, and shown."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.analysis.compare import compare
from coterie.analysis.curves import main_quantity
from coterie.analysis.export import rows_table
from coterie.analysis.format import cells, columns
from coterie.config.objects import Experiment, OwnAlgorithm, OwnDataset, OwnGrouping, configured
from coterie.core.arguments import COUNT, FUNCTION, PATH, TEXT, check, renamed
from coterie.core.errors import RecordError
from coterie.core.printable import printable
from coterie.core.types import Json
from coterie.notebook.frames import frame
from coterie.notebook.shown import curves, html, seen, text
from coterie.render.page.html import Section, Table
from coterie.runs import record
from coterie.runs.execute import execute
from coterie.runs.node_scores import last_scores, read_table
from coterie.runs.record import RecordedRun
from coterie.runs.sweep import free_folder

if TYPE_CHECKING:
    from coterie.config.objects import OwnModel
    from coterie.simulation.state import State

RUNS = Path("runs")


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run that is over, read from its folder.

    `recorded` is what the folder holds. In a notebook, the run shows its line of the comparison
    and its accuracy by simulated time.
    """

    recorded: RecordedRun

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.recorded.folder

    @property
    def config(self) -> Json:
        """The settings, section by section."""
        return self.recorded.config

    @property
    def settings(self) -> Json:
        """The settings as one level of dotted keys, without the seed and where it ran."""
        return self.recorded.settings

    @property
    def meta(self) -> Json:
        """What the run was made with: versions, platform, engine."""
        return self.recorded.meta

    @property
    def rows(self) -> list[Json]:
        """The rows of rows.jsonl, one for every aggregation."""
        return self.recorded.rows

    @property
    def summary(self) -> Json:
        """How the run ended."""
        return self.recorded.summary

    @property
    def grouping(self) -> Json:
        """Who was in which group at the end."""
        return self.recorded.grouping

    def columns(self) -> dict[str, list[Any]]:
        """Return all rows as columns, as `coterie export` writes them."""
        return rows_table([self.recorded])

    def frame(self) -> Any:
        """Return all rows as a DataFrame of pandas, else of polars: one for every aggregation."""
        return frame(self.columns())

    def node_columns(self) -> dict[str, list[Any]]:
        """Return what is known of the nodes as columns: a line for every node.

        The last accuracy and loss are there where nodes were scored (`train.measure`).
        """
        grouping = self.grouping
        n = len(grouping["z"])
        known = {
            "node": list(range(n)),
            "name": list(grouping["nodes"]) or [str(i) for i in range(n)],
            "edge": list(grouping["edge_of"]),
            "group": list(grouping["z"]),
            "examples": np.asarray(grouping["class_counts"]).sum(axis=1).tolist(),
        }
        table = read_table(self.folder)
        if table is None:
            return known
        last = last_scores(table)
        order = {node: at for at, node in enumerate(last["node"])}
        if set(order) != set(range(n)):
            raise RecordError(f"{self.folder}: its scores are not of its {n} nodes")
        first = list(last).index("test_examples")
        scores = {key: last[key] for key in list(last)[first:]}
        return {**known, **{key: [v[order[i]] for i in range(n)] for key, v in scores.items()}}

    def nodes(self) -> Any:
        """Return what is known of the nodes as a DataFrame: their groups, edges and scores."""
        return frame(self.node_columns())

    def plot(self, y: str | None = None, x: str = "seconds") -> Any:
        """Draw a quantity of the rows as a matplotlib figure.

        `x` is "seconds" or "epoch", and y any number of a row, such as "train_loss" or
        "metrics.auc"; without one, the test accuracy, or the first metric of a task that has none.
        """
        check(TEXT.or_none, y=y)
        check(TEXT, x=x)
        y = main_quantity([self.recorded]) if y is None else y
        return seen(partial(self._draw, x, y), y)

    def _draw(self, x: str, y: str) -> Any:
        (block,) = compare([self.recorded])
        return curves({block.lines[0].algorithm: [self.recorded]}, x, y)

    def _table(self) -> Table:
        """Write the line that the run has in a comparison; of one that is not complete, its end."""
        summary = self.summary
        if summary["status"] != "complete":
            said = [("status", str(summary["status"])), ("steps", str(summary["steps"]))]
            return Table(str(self.folder), ("", ""), said, "", words=True)
        (block,) = compare([self.recorded])
        return Table(str(self.folder), columns([block]), cells(block.lines), "")

    def __repr__(self) -> str:
        """Write its line."""
        return text([self._table()])

    def _repr_html_(self) -> str:
        """Write its line, and draw accuracy by simulated time below."""
        y = main_quantity([self.recorded])
        alt = f"{y.replace('_', ' ')} by simulated seconds"
        return html([Section([self._table()], partial(self._draw, "seconds", y), alt)])


def read_run(folder: str | Path) -> Run:
    """Read a run folder; one without a summary (still running, or killed) is an error.

    A last row that a full disk cut off is left out, unless the run claims to be complete.
    """
    check(PATH, folder=folder)
    return Run(record.read_run(folder))


def run(
    experiment: Experiment,
    folder: str | Path | None = None,
    *,
    dataset: OwnDataset | str | None = None,
    model: "OwnModel | str | None" = None,
    algorithm: OwnAlgorithm | str | None = None,
    grouping: OwnGrouping | str | None = None,
    resume: bool = False,
    on_state: "Callable[[State], None]" = lambda state: None,
    say: Callable[[str], None] = lambda line: print(printable(line)),
    threads: int = 1,
) -> Run:
    """Run an experiment into a folder, and return it; with `resume`, go on with what is there.

    The experiment is a config, settings as a mapping, a file, or the name of one that ships. A
    dataset (or arrays x, y), a model (a module, or a function that makes one), an algorithm (or an
    update) and a grouping (a function of evidence and rng) take the place of what it names; so do
    names. The record names an object `object:NAME`: a run made of objects goes on only if they are
    passed again, and only first weights and label counts are checked to be the same. Without a
    folder, the run goes to the next free one in runs/.

    >>> from tempfile import TemporaryDirectory
    >>> settings = {"partition": {"kind": "iid", "num_nodes": 4}, "train": {"steps": 2}}
    >>> with TemporaryDirectory() as folder:
    ...     mine = run(settings, f"{folder}/mine", algorithm="fedavg", model="sr")
    >>> mine.summary["steps"], mine.node_columns()["group"], mine.columns()["t"]
    (2, [0, 0, 0, 0], [0, 2])
    """
    check(PATH.or_none, folder=folder)
    check(FUNCTION, on_state=on_state, say=say)
    check(COUNT, threads=threads)
    config, own = configured(
        experiment, dataset=dataset, model=model, algorithm=algorithm, grouping=grouping
    )
    if folder is None and resume:
        raise RecordError("resume needs the folder of the run; name it")
    if folder is None:
        place = free_folder(RUNS / _called(experiment, config.label or config.algorithm.name))
    else:
        place = Path(folder)
    with renamed({"another --out": "another folder"}):
        execute(config, place, own=own, resume=resume, on_state=on_state, say=say, threads=threads)
    return read_run(place)


def _called(experiment: Experiment, otherwise: str) -> str:
    """Name the folder of a run: as its file, else by its label or algorithm.

    >>> _called("experiments/demo.toml", ""), _called({}, "object:FedDyn, my own")
    ('demo', 'FedDyn-my-own')
    """
    if isinstance(experiment, str | Path):
        return Path(experiment).stem
    words = otherwise.rpartition(":")[2]
    letters = "".join(letter if letter.isalnum() or letter in "-_." else " " for letter in words)
    return "-".join(letters.split()).strip(".-") or "run"
