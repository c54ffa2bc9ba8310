"""Pictures of runs for documents: accuracy curves, and marks on one axis."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.analysis.compare import block_of
from coterie.analysis.curves import curve
from coterie.analysis.format import heading
from coterie.analysis.lines import arrange
from coterie.analysis.palette import COLOURS, look_numbers
from coterie.paper import Dots
from coterie.render.page.html import plain_log_x, png, write
from coterie.runs.record import RecordedRun

MARKERS = ("o", "s", "^", "D", "X", "v", "P")


def write_picture(runs: Sequence[RecordedRun], path: Path) -> None:
    """Write one PNG with a row of accuracy curves per setting."""
    blocks = arrange(runs)
    number_of = look_numbers(name for block in blocks for name in block.lines)
    figure, axes = _canvas(len(blocks))
    for row, block in zip(axes, blocks, strict=True):
        _draw_accuracy(row, block.lines, number_of, heading(block_of(block, None)))
    write(path, png(figure))


def dots_figure(dots: Dots) -> Any:
    """Draw a row of marks for everything that was measured, on a logarithmic axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.3 + 0.55 * len(dots.rows)), layout="constrained")
    axis = figure.subplots()
    lanes = np.linspace(-0.28, 0.28, len(dots.series))
    for number, (name, values) in enumerate(dots.series.items()):
        there = [(value, at + lanes[number]) for at, value in enumerate(values) if value]
        if there:
            xs, ys = zip(*there, strict=True)
            colour, mark = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
            axis.plot(xs, ys, mark, color=colour, markersize=7, label=name)
    axis.axvline(1, color="#777777", linewidth=1)
    for between in range(1, len(dots.rows)):
        axis.axhline(between - 0.5, color="#dddddd", linewidth=0.8)
    axis.set_yticks(range(len(dots.rows)), dots.rows)
    axis.set_ylim(len(dots.rows) - 0.5, -0.5)
    axis.set_xscale("log")
    for set_formatter in (axis.xaxis.set_major_formatter, axis.xaxis.set_minor_formatter):
        set_formatter(lambda x, _: f"{x:g}x" if f"{x:.0e}"[0] in "125" else "")
    axis.set_xlabel(dots.axis)
    axis.set_title(dots.title, loc="left", fontsize=10)
    axis.grid(axis="x", which="both", alpha=0.25)
    figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    return figure


def _canvas(rows: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4 * rows), layout="constrained")
    return figure, figure.subplots(rows, 2, squeeze=False, sharey="row")


def _draw_accuracy(
    axes: Any,
    lines: Mapping[str, Sequence[RecordedRun]],
    number_of: Mapping[str, int],
    title: str,
) -> None:
    for name, members in lines.items():
        colour = COLOURS[number_of[name] % len(COLOURS)]
        dash = {"centralized": ":", "fedavg-ic": "--"}.get(name, "-")
        for axis, x in zip(axes, ("seconds", "t"), strict=True):
            line = curve(members, x, "test_accuracy", 100.0)
            axis.plot(line.x, line.mean, dash, color=colour, label=name, linewidth=1.8)
            if len(members) > 1:
                look = {"color": colour, "alpha": 0.15, "linewidth": 0}
                axis.fill_between(line.x, line.low, line.high, **look)
    plain_log_x(axes[0])
    axes[0].tick_params(which="minor", labelsize=8)
    axes[0].set_xlabel("simulated seconds")
    axes[1].set_xlabel("step")
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].set_title(title, loc="left", fontsize=10)
    axes[1].legend(fontsize=8, frameon=False, loc="lower right")
    for axis in axes:
        axis.grid(alpha=0.25)
