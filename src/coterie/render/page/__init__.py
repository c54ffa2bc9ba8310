"""What a person sees: pictures of the runs, and one HTML page that needs nothing else."""

from collections.abc import Sequence
from pathlib import Path

from coterie.analysis.lines import PLAIN, View
from coterie.core.types import Progress
from coterie.paper import Table
from coterie.render.page.html import write
from coterie.render.page.pagedata import page_data
from coterie.render.page.pictures import dots_figure, write_picture
from coterie.render.page.render import render
from coterie.runs.record import RecordedRun

__all__ = [
    "dots_figure",
    "page_data",
    "render",
    "write_picture",
    "write_report",
]


def write_report(
    runs: Sequence[RecordedRun],
    path: Path,
    target: float | None = None,
    left_out: Sequence[str] = (),
    progress: Progress = lambda what, done, of: None,
    tables: Sequence[Table] = (),
    view: View = PLAIN,
) -> None:
    """Write one self-contained HTML page: tables, and for every setting its own and figures."""
    write(path, render(page_data(runs, target, left_out, progress, tables=tables, view=view)))
