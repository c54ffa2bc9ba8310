"""How values show themselves: as text by repr, as HTML and figures in a notebook."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from coterie.core.errors import RecordError
from coterie.core.printable import printable
from coterie.render.figures.curves import by
from coterie.render.figures.style import WIDTHS, looks, styled
from coterie.render.page.html import Section, Table, fragment, png
from coterie.runs.record import RecordedRun

PERCENT = ("test_accuracy", "val_accuracy", "node_mean", "node_sd", "node_worst")
AXES = ("seconds", "epoch")


def curves(
    lines: Mapping[str, Sequence[RecordedRun]],
    x: str,
    y: str,
    names: Sequence[str] | None = None,
) -> Any:
    """Draw a quantity of some lines' rows by simulated seconds or epochs; None if none has it.

    The looks of lines are those that they have among all `names`.
    """
    if x not in AXES:
        raise RecordError(f"x must be one of {', '.join(AXES)}, got {x!r}")
    percent = y in PERCENT
    what = f"{y.replace('_', ' ')}{' (%)' * percent}"
    with styled():
        return by(
            lines,
            looks(names or list(lines)),
            WIDTHS["page"],
            x=x,
            y=y,
            what=what,
            unit=100.0 if percent else 1.0,
        )


def seen(draw: Callable[[], Any], what: str) -> Any:
    """Return a figure that a notebook shows as it is, whichever backend matplotlib has."""
    figure = draw()
    if figure is None:
        raise RecordError(f"there is nothing to draw: no row has {what}")
    # Jupyter asks a value for its picture where no backend has told it how to draw figures.
    figure._repr_png_ = partial(_styled_png, figure)
    return figure


def _styled_png(figure: Any) -> bytes:
    with styled():
        return png(figure)


def html(sections: Sequence[Section]) -> str:
    """Write sections for a notebook, with all names escaped."""
    with styled():
        return fragment(sections)


def text(tables: Sequence[Table]) -> str:
    """Write tables for a terminal.

    >>> print(text([Table("all runs", ("line", "s"), [("fedavg", "0.5")], "target: none")]))
    all runs
    line      s
    fedavg  0.5
    target: none
    """
    return printable("\n\n".join(map(_text, tables)))


def _text(table: Table) -> str:
    head, *rows = ([cell.replace("\n", " ") for cell in row] for row in (table.head, *table.rows))
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if at and not table.words else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(line for line in (table.title, *lines, table.foot) if line)
