"""What a person sees: pictures of the runs, and one HTML page that needs nothing else."""

from collections.abc import Sequence
from pathlib import Path

from coterie.record import RecordedRun
from coterie.report.drawing import write
from coterie.report.pagedata import Progress, page_data
from coterie.report.pictures import dots_figure, write_picture
from coterie.report.render import render
from coterie.reproduction import Table

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
) -> None:
    """Write one self-contained HTML page: tables, and for every setting its own and figures."""
    write(path, render(page_data(runs, target, left_out, progress, tables=tables)))
