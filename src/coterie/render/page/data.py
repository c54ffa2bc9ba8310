"""Pictures of a partition: who holds which classes, on nodes, edges and groups."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from coterie.preview.data import COLUMNS, FOOTING, Survey, cells
from coterie.render.page.html import Page, Section, Table, draw_scale, draw_shares

MOST_LABELS = 30
EMD_CAPTION = (
    "EMD is the earth mover's distance between the class shares of a part and of all training "
    "examples: the sum over classes of |p_part - p_all|. 0 is a miniature of the whole."
)


def survey_page(surveys: Sequence[Survey]) -> Page:
    """Show who holds what in every partition."""
    sections = [
        Section(
            [Table(survey.facts, COLUMNS, [cells(part) for part in survey.parts], "")],
            partial(survey_figure, survey),
            "Class counts by node, node sizes, class shares",
            survey.title,
            survey.notes,
        )
        for survey in surveys
    ]
    return Page("Coterie: who holds what", sections, f"{FOOTING}. {EMD_CAPTION}")


def survey_figure(survey: Survey) -> Any:
    """Draw classes by node, node sizes below, then the class shares of edges and groups."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    nodes, *others = survey.parts
    order = np.argsort(survey.edge_of, kind="stable")
    figure = Figure(figsize=(10, 7.5), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=[3, 2])
    upper, lower = halves
    above, below = upper.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    counts = nodes.counts[order].T.astype(float)  # [C, n]
    scale = LogNorm(1, max(2, counts.max()))
    shown = np.where(counts > 0, counts, np.nan)
    seen = above.imshow(shown, aspect="auto", cmap="viridis", norm=scale, interpolation="none")
    bar = upper.colorbar(seen, ax=above, label="examples (white: none)", pad=0.01)
    bar.ax.yaxis.set_major_formatter("{x:g}")
    above.set_ylabel("class")
    title = f"Examples of each class on each node ({survey.title})"
    above.set_title(title, fontsize=10, parse_math=False)
    above.yaxis.set_major_locator(MaxNLocator(integer=True))
    below.bar(range(len(order)), nodes.sizes[order], width=1.0, color="#0072B2")
    below.set_ylabel("examples")
    below.set_xlabel("node number, in the order of the network edges (separated by lines)")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    below.xaxis.set_major_formatter(
        lambda at, _: str(order[int(at)]) if 0 <= at < len(order) else ""
    )
    for edge in np.flatnonzero(np.diff(survey.edge_of[order])):
        for axis in (above, below):
            axis.axvline(edge + 0.5, color="#999999", linewidth=0.5)
    axes = lower.subplots(1, len(others), squeeze=False)[0]
    for axis, parts in zip(axes, others, strict=True):
        drawn = draw_shares(axis, parts.counts)
        far = f"EMD {parts.distance:.2f}, at most {parts.distances.max():.2f}"
        axis.set_title(f"{parts.label}\n{far}", fontsize=9)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        what = parts.label.split(maxsplit=1)[0].removesuffix("s")
        axis.set_ylabel(what)
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
        if len(parts.nodes) <= MOST_LABELS:
            axis.set_ylabel(f"{what} (nodes)")
            labels = [f"{k} ({n})" for k, n in enumerate(parts.nodes)]
            axis.set_yticks(range(len(labels)), labels)
    draw_scale(lower, drawn, list(axes))
    return figure
