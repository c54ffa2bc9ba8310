"""Recorded runs on the terminal: which are complete, and their table."""

from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli.commands import echo, print_table
from coterie.core.types import Progress

if TYPE_CHECKING:
    from coterie.analysis.lines import View
    from coterie.runs.record import RecordedRun


def find_complete(
    paths: tuple[Path, ...], progress: Progress = lambda what, done, of: None
) -> "list[RecordedRun]":
    """Read complete runs and say which others were left out."""
    from coterie.runs.record import find_runs

    runs, left_out = find_runs(list(paths), progress)
    for line in left_out:
        echo(f"left out: {line}", err=True)
    return runs


def print_blocks(
    runs: "list[RecordedRun]", target: float | None, view: "View | None" = None
) -> None:
    """Print the comparison, a table for every setting."""
    from coterie.analysis.compare import compare as make_table
    from coterie.analysis.format import cells, columns, footing, heading
    from coterie.analysis.lines import PLAIN

    for block in make_table(runs, target, view or PLAIN):
        foot = "\n".join([footing(block), *(f"note: {note}" for note in block.notes)])
        print_table(heading(block), columns([block]), cells(block.lines), foot, wrap="group")
