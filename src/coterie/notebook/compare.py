"""Runs side by side, as a value: a table, a frame and a figure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from coterie.analysis.compare import Block, block_of
from coterie.analysis.curves import main_quantity
from coterie.analysis.export import comparison_table
from coterie.analysis.format import cells, columns, footing, heading
from coterie.analysis.lines import PLAIN, Arranged, View, arrange, read_view
from coterie.core.arguments import PATH, SHARE, TEXT, WHOLE, Rule, check, in_words, renamed
from coterie.core.errors import ConfigError, RecordError
from coterie.notebook.frames import frame
from coterie.notebook.run import Run
from coterie.notebook.shown import curves, html, seen, text
from coterie.render.page.html import Section, Table
from coterie.runs.record import RecordedRun, find_runs

Runs: TypeAlias = Run | RecordedRun | str | Path
RUNS = Rule(
    "runs, or paths of their folders, one or a list",
    lambda value: isinstance(value, Run | RecordedRun) or PATH.holds(value),
)
VIEW = Rule("a View", lambda value: isinstance(value, View))
OPTIONS = {f"--{name}": name for name in ("lines", "baseline", "best", "score")}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Complete runs side by side, as `coterie compare` prints them: a block for every setting.

    `blocks` are what is said, line by line, and can be gone through and counted as the comparison
    itself. `left_out` has a line about every run that is not complete.
    """

    blocks: tuple[Block, ...]
    arranged: tuple[Arranged, ...]
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Count the blocks."""
        return len(self.blocks)

    def __iter__(self) -> Iterator[Block]:
        """Go through the blocks."""
        return iter(self.blocks)

    def __getitem__(self, at: int) -> Block:
        """Return one of the blocks."""
        return self.blocks[at]

    @property
    def tables(self) -> list[Table]:
        """The tables of the blocks, written out."""
        return [
            Table(
                heading(block),
                columns([block]),
                cells(block.lines),
                "\n".join([footing(block), *(f"note: {note}" for note in block.notes)]),
            )
            for block in self.blocks
        ]

    def columns(self) -> dict[str, list[Any]]:
        """Return all lines with all their digits, as columns."""
        return comparison_table(self.blocks)

    def frame(self) -> Any:
        """Return all lines with all their digits, as a DataFrame of pandas, else of polars."""
        return frame(self.columns())

    def plot(self, y: str | None = None, x: str = "seconds", block: int = 0) -> Any:
        """Draw a quantity of rows, a curve for every line of a block, as a matplotlib figure.

        `x` is "seconds" or "epoch", and y any number of a row, such as "train_loss" or
        "metrics.auc"; without one, the test accuracy, or the first metric of a task that has none.
        """
        check(TEXT.or_none, y=y)
        check(TEXT, x=x)
        check(WHOLE, block=block)
        if not 0 <= block < len(self.blocks):
            raise RecordError(f"block must be 0 to {len(self.blocks) - 1}, got {block!r}")
        y = self._main(block) if y is None else y
        return seen(partial(self._draw, block, x, y), y)

    def _main(self, block: int) -> str:
        return main_quantity([run for runs in self.arranged[block].lines.values() for run in runs])

    def _draw(self, block: int, x: str, y: str) -> Any:
        names = [line.algorithm for each in self.blocks for line in each.lines]
        return curves(self.arranged[block].lines, x, y, list(dict.fromkeys(names)))

    def __repr__(self) -> str:
        """Write the tables."""
        return "\n".join([text(self.tables), *(f"left out: {line}" for line in self.left_out)])

    def _repr_html_(self) -> str:
        """Write the tables, with accuracy by simulated time below each."""
        alt = "test accuracy by simulated seconds"
        sections = [
            Section([table], partial(self._draw, at, "seconds", self._main(at)), alt)
            for at, table in enumerate(self.tables)
        ]
        *others, last = sections
        said = [f"left out: {line}" for line in self.left_out]
        return html([*others, Section(last.tables, last.draw, alt, remarks=said)])


def compare(
    runs: Runs | Sequence[Runs],
    target: float | None = None,
    view: View = PLAIN,
    *,
    lines: str = "",
    baseline: str = "",
    best: str = "",
    score: str = "last",
) -> Comparison:
    """Put complete runs side by side: runs, run folders, or folders of some.

    The target of each seed is the baseline's accuracy on it, FedAvg's, unless one is given.
    `lines`, `baseline`, `best` and `score` are those of `coterie compare`; a `view` has all four.

    >>> compare("no-such-folder")
    Traceback (most recent call last):
    coterie.core.errors.RecordError: no-such-folder: no such folder
    """
    check(SHARE.or_none, target=target)
    check(TEXT, lines=lines, baseline=baseline, best=best, score=score)
    check(VIEW, view=view)
    each: list[Any] = list(runs) if isinstance(runs, Iterable) and not RUNS.holds(runs) else [runs]
    for one in each:
        check(RUNS, runs=one)
    with renamed(OPTIONS):
        if (lines, baseline, best, score) != ("", "", "", "last"):
            if view != PLAIN:
                raise ConfigError("a view has lines, baseline, best and score; leave one out")
            view = read_view(lines, baseline, best, score)
        return _compared(each, target, view)


def _compared(each: Sequence[Runs], target: float | None, view: View) -> Comparison:
    found: list[RecordedRun] = []
    left_out: list[str] = []
    for one in each:
        if not isinstance(one, Run | RecordedRun):
            read, left = find_runs([Path(one)])
            found, left_out = [*found, *read], [*left_out, *left]
        else:
            found.append(one.recorded if isinstance(one, Run) else one)
    if not found:
        raise RecordError("there are no runs to compare; name runs, or folders of some")
    arranged = tuple(arrange(found, view))
    blocks = [block_of(part, target, view) for part in arranged]
    named = tuple(replace(b, target=in_words(OPTIONS, b.target)) for b in blocks)
    return Comparison(named, arranged, tuple(left_out))
