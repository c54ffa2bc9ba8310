"""Who is in the groups: a heat map of classes, on a scale whose middle is the whole."""

from typing import Any

import numpy as np

from coterie.partition.measure import pooled, relative_shares
from coterie.render.figures.curves import Lines
from coterie.render.figures.style import short

TWICE = 2.0  # the end of the scale: a class has twice its share in the whole, or more
MOST_TICKS = 12


def group_classes(lines: Lines, width: float) -> Any:
    """Each class's share in every group over its share in the whole, of each line's first seed."""
    from matplotlib.figure import Figure

    first = {name: runs[0].grouping for name, runs in lines.items()}
    shown = {name: grouping for name, grouping in first.items() if max(grouping["z"]) > 0}
    if not shown:
        return None
    columns = min(len(shown), 2 if width < 5 else 4)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(width, 1.5 * rows + 0.45), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    drawn: Any = None
    for at, axis in enumerate(axes.flat):
        if at >= len(shown):
            axis.set_visible(False)
            continue
        name, grouping = list(shown.items())[at]
        counts = pooled(np.array(grouping["class_counts"]), np.array(grouping["z"]))
        drawn = axis.imshow(
            relative_shares(counts),
            cmap="PuOr",
            vmin=0,
            vmax=TWICE,
            aspect="auto",
            interpolation="none",
        )
        axis.set_title(short(name))
        for one, length in ((axis.xaxis, counts.shape[1]), (axis.yaxis, counts.shape[0])):
            one.set_ticks(range(0, length, -(-length // MOST_TICKS)))
        if at % columns == 0:
            axis.set_ylabel("group")
        if at + columns >= len(shown):
            axis.set_xlabel("class")
    bar = figure.colorbar(
        drawn, ax=axes, location="bottom", extend="max", fraction=0.08, aspect=11 * width, pad=0.02
    )
    bar.set_label("share in the group / share in the whole")
    return figure
