"""`coterie report`: runs as one page to put before a colleague."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coterie.cli.commands import Stopped, echo, loading
from coterie.cli.options import out_option, runs_argument, view_options
from coterie.core.files import standard_stream

if TYPE_CHECKING:
    from coterie.analysis.lines import View

PATIENCE_S = 2.0


@click.command()
@runs_argument
@out_option("PAGE", "Page to write [report.html].", default=Path("report.html"))
@view_options
def report(runs: tuple[Path, ...], out: Path, target: float | None, view: "View") -> None:
    """Write one HTML page about RUNS: run folders, or folders that hold some.

    \b
    coterie report runs/demo                           report.html
    coterie report runs/a runs/b -o page.html          any runs, side by side
    coterie report runs/ --target 0.8                  time to 80% instead of FedAvg's final
    coterie report runs/ --best train.lr               each line at its best learning rate

    The page is one file that needs no network: open it, mail it, put it on a server. For every
    setting it has

    \b
      learning curves   accuracy or loss along simulated time, wall time, epochs or steps; mean
                        and band over seeds; the target and when it was reached
      groups            the network with its groups, classes by group, sizes
      costs             seconds by what they went to, delays, bytes by tier, and the groupings
                        by divergence and seconds with the efficient ones joined
      divergence        Delta and delta over time

    with the table of 'coterie compare', what differs between the settings, and versions. Lines are
    those of the table, with the same options. Runs that differ in more than names lines are blocks
    of their own and never averaged. Every figure can be saved as PNG or SVG and its data as CSV.

    A run that is unfinished or damaged is left out; the page and this command say why, and how to
    go on with it. See docs/howto/report.md.
    """
    from coterie.render.page import write_report
    from coterie.runs.record import find_runs

    with _patient("report") as progress:
        found, left_out = find_runs(list(runs), progress)
        write_report(found, out, target, left_out, progress, view=view)
    for line in left_out:
        echo(f"left out: {line}", err=True)
    echo(f"report: {out}", err=standard_stream(out) == 1)


@contextmanager
def _patient(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for what takes longer than two seconds."""
    began = time.monotonic()
    shown: list[Callable[[str, int, int], None]] = []
    try:
        with ExitStack() as stack:

            def tell(what: str, done: int, of: int) -> None:
                if not shown and time.monotonic() - began > PATIENCE_S:
                    shown.append(stack.enter_context(loading(label)))
                for show in shown:
                    show(what, done, of)

            yield tell
    except KeyboardInterrupt as stop:
        raise Stopped("stopped; nothing was written") from stop
