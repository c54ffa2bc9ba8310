"""What all commands share: errors in one line, and bars while something takes its time."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import extract_tb
from typing import Any

import click

from coterie.core.boundary import debugging
from coterie.core.errors import CoterieError, CoterieWarning, did_you_mean
from coterie.core.printable import printable
from coterie.core.unexpected import UnexpectedError, in_our_words

CLICK = Path(click.__file__).parent
OURS = (Path(__file__).parents[1], CLICK, CLICK.with_name("rich"))  # rich ends where a pipe does
SHOW = warnings.showwarning
ENDING = ("SIGTERM", "SIGHUP")  # told to end, and a terminal that was closed: as Ctrl-C


class Commands(click.Group):
    """Prints errors as one line, exit 2, or 130 for Ctrl-C, or 1 where coterie is to blame."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line."""
        for number in _heeded(ENDING):
            signal.signal(number, _as_ctrl_c)
        code = 2
        warnings.showwarning = _warned  # type: ignore[assignment]
        try:
            sys.exit(super().main(args, prog_name, complete_var, False, **extra) or 0)
        except click.ClickException as error:
            message = one_line(CoterieError(error.format_message()))
        except CoterieError as error:
            message = one_line(error)
            code = 1 if _to_blame(error) else 2
        except Stopped as stop:
            message, code = str(stop), 130
        except (click.Abort, KeyboardInterrupt):
            message, code = "stopped", 130
        except SystemExit as error:
            if _is_ours(error):
                raise
            message = str(in_our_words(error))
        except BaseException as error:
            if debugging():
                raise
            told = in_our_words(error)
            message, code = one_line(told), 1 if told.unforeseen else 2
        with suppress(OSError):  # a terminal that was closed
            echo(f"coterie: {message}", err=True)
        sys.exit(code)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Teach where no command is given: that is a question, not a mistake."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or say what it may have meant."""
        if args and args[0] not in self.commands:
            raise CoterieError(f"unknown command {args[0]!r}{did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


def one_line(error: CoterieError) -> str:
    """Say an error in a line, as names may hold line ends."""
    return str(error).strip().replace("\n", "\\n")


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a line, without what a terminal would obey in a name."""
    click.echo(printable(text), err=err)


def _warned(message: Warning | str, kind: type[Warning], *where: Any, **more: Any) -> None:
    """Say a warning of ours in one line; others as Python does."""
    if issubclass(kind, CoterieWarning):
        echo(f"coterie: {one_line(CoterieError(str(message)))}", err=True)
    else:
        SHOW(message, kind, *where, **more)


def _is_ours(end: SystemExit) -> bool:
    """Whether coterie, click or rich has ended the program, and not a user's code."""
    frames = extract_tb(end.__traceback__)
    return not frames or any(Path(frames[-1].filename).is_relative_to(top) for top in OURS)


def _to_blame(error: CoterieError) -> bool:
    """Whether coterie has failed, in one run of several at least."""
    runs = getattr(error, "failed", {})
    return any(isinstance(why, UnexpectedError) for why in (error, *runs.values()))


class Stopped(click.Abort):
    """Ctrl-C, and what it leaves."""


def _heeded(names: Sequence[str]) -> list[signal.Signals]:
    """Return those signals that there are here and that are not ignored, as under nohup."""
    there = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in there if signal.getsignal(number) != signal.SIG_IGN]


def _as_ctrl_c(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def loading(
    label: str, if_stopped: str = "nothing was written"
) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar while files are read or fetched; nothing where there is no terminal.

    `if_stopped` is what Ctrl-C leaves.
    """
    try:
        with _bar(label) as show:
            yield show
    except KeyboardInterrupt as stop:
        raise Stopped(f"stopped; {if_stopped}") from stop


@contextmanager
def stopping(ask: Callable[..., None]) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP ask first, instead of breaking in; say so on a terminal."""

    def handle(*_: object) -> None:
        ask()
        if sys.stderr.isatty():
            os.write(2, b"\nstopping after this step; Ctrl-C again stops at once\n")

    before = {s: signal.signal(s, handle) for s in _heeded(["SIGINT", *ENDING])}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _bars(*texts: str) -> Iterator[Any]:
    """Show bars on stderr, with some texts between a bar and the time it still takes."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        *map(TextColumn, texts),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield bars


@contextmanager
def _bar(label: str) -> Iterator[Callable[[str, int, int], None]]:
    if not sys.stderr.isatty():
        yield lambda what, done, of: None
        return
    with _bars("{task.fields[count]}") as bars:
        task = bars.add_task(printable(label), total=None, count="")
        last = ""

        def show(what: str, done: int, of: int) -> None:
            nonlocal last
            if what != last:
                bars.reset(task, total=of or None)
                last = what
            count = f"{done:,}/{of:,}" if of else f"{done:,}"
            now = {"completed": done, "total": of or None, "count": count}
            bars.update(task, description=printable(f"{label}: {what}"), **now)

        yield show


@contextmanager
def progress(
    steps: dict[str, int],
) -> Iterator[tuple[Callable[[str, dict[str, Any]], None], Callable[[str], None]]]:
    """Show live bars with accuracy, simulated time and ETA; without a terminal, runs that are done.

    Yields what to call with the label of a run and each row of it, and with a line to say.
    """
    if not sys.stderr.isatty():
        yield _logged(steps), (lambda line: echo(line, err=True))
        return
    total = sum(steps.values())
    with _bars("{task.completed:.0f}/{task.total:.0f}", "{task.fields[note]}") as bars:
        whole = bars.add_task(f"{len(steps)} runs" if len(steps) > 1 else "", total=total, note="")
        tasks: dict[str, Any] = {}
        at: dict[str, int] = {}

        def on_row(label: str, row: dict[str, Any]) -> None:
            if label not in tasks and len(steps) > 1:
                tasks[label] = bars.add_task(printable(label), total=steps[label], note="")
            note = f"{row['seconds']:.1f} sim s"
            if row["test_accuracy"] is not None:
                note = f"{row['test_accuracy']:.1%} at {note}"
            elif told := next((f"{k} {v:.4g}" for k, v in measured_by(row) if v is not None), ""):
                note = f"{told} at {note}"
            bars.advance(whole, row["t"] - at.get(label, 0))
            at[label] = row["t"]
            bars.update(
                tasks.get(label, whole), completed=row["t"] if label in tasks else None, note=note
            )
            if label in tasks and row["t"] == steps[label]:
                bars.remove_task(tasks[label])

        def say(line: str) -> None:
            bars.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)

        yield on_row, say


def measured_by(row: dict[str, Any]) -> list[tuple[str, float | None]]:
    """Return the metrics of a row by name, in their order.

    >>> measured_by({"t": 1, "metrics.mse": 0.5})
    [('mse', 0.5)]
    """
    from coterie.runs.validate import metrics_of

    return list(metrics_of(row).items())


def _logged(steps: dict[str, int]) -> Callable[[str, dict[str, Any]], None]:
    """Return what writes a line for every run of several that has come to its end."""
    done: list[str] = []

    def on_row(label: str, row: dict[str, Any]) -> None:
        if len(steps) > 1 and row["t"] == steps[label]:
            done.append(label)
            echo(f"{len(done)} of {len(steps)} runs done: {label}", err=True)

    return on_row


def print_table(
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    foot: str,
    words: bool = False,
    *,
    wrap: str = "",
) -> None:
    """Print a table, as wide as it needs to be where there is no terminal.

    The first column is text, the others figures unless they are words, too; those whose name begins
    with `wrap` may wrap.
    """
    from rich.cells import cell_len
    from rich.console import Console, JustifyMethod
    from rich.markup import escape
    from rich.table import Table

    head, *rows = [[printable(cell) for cell in row] for row in (head, *rows)]
    table = Table(
        title=escape(printable(title)),
        title_justify="left",
        box=None,
        header_style="bold",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for at, name in enumerate(head):
        wraps = bool(wrap) and name.startswith(wrap)
        lines = [line for cell in (name, *(row[at] for row in rows)) for line in cell.split("\n")]
        whole = None if wraps or sys.stdout.isatty() else max(map(cell_len, lines))
        justify: JustifyMethod = "right" if at and not words else "left"
        table.add_column(escape(name), justify=justify, no_wrap=not wraps, min_width=whole)
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console()
    if not sys.stdout.isatty():
        needed = Console(width=10_000).measure(table).minimum
        console = Console(width=max(120, needed))
    console.print(table)
    if foot:
        console.print(printable(foot), style="dim", highlight=False, markup=False)
