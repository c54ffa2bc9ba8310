"""Figures for a paper, one file each, and the comparison as LaTeX and CSV."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from coterie.analysis.compare import Block, accuracy_words, block_of, targets_of
from coterie.analysis.curves import metrics_of_runs
from coterie.analysis.export import comparison_table, to_csv
from coterie.analysis.format import heading
from coterie.analysis.lines import PLAIN, Arranged, View, arrange, baseline_of
from coterie.core.types import Progress
from coterie.render.figures.bars import bytes_by_tier, seconds_by_kind, time_to_target
from coterie.render.figures.curves import CURVES, Looks, by
from coterie.render.figures.groups import group_classes
from coterie.render.figures.latex import latex_table
from coterie.render.figures.style import METADATA, WIDTHS, looks, save, styled
from coterie.runs.record import RecordedRun
from coterie.simulation.row import METRICS

FORMATS = tuple(METADATA)

__all__ = ["FORMATS", "WIDTHS", "draw_figures"]


def draw_figures(
    runs: Sequence[RecordedRun],
    *,
    suffix: str = "pdf",
    width: str = "column",
    target: float | None = None,
    view: View = PLAIN,
    progress: Progress = lambda what, done, of: None,
) -> dict[str, bytes]:
    """Draw every figure of every block of settings; return files by name, all or none.

    A figure with nothing to show is left out. The same runs give the same bytes.
    """
    arranged = arrange(runs, view)
    blocks = [block_of(each, target, view) for each in arranged]
    names = list(dict.fromkeys(line.algorithm for block in blocks for line in block.lines))
    look = looks(names)
    files: dict[str, bytes] = {}
    for prefix, each in zip(_prefixes(blocks), arranged, strict=True):
        every = list(_drawings(each, look, WIDTHS[width], target, view))
        for at, (name, draw) in enumerate(every):
            progress(f"{prefix}{name}", at, len(every))
            with styled():
                figure = draw()
                if figure is not None:
                    files[f"{prefix}{name}.{suffix}"] = save(figure, suffix)
    files["comparison.tex"] = latex_table(blocks)
    files["comparison.csv"] = to_csv(comparison_table(blocks))
    return files


def _drawings(
    block: Arranged, look: Looks, width: float, target: float | None, view: View
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """All figures of a block by name, each drawn when called."""
    lines = block.lines
    targets = targets_of(block.shown, target, view, block.naming)
    baseline = baseline_of(lines, view) or view.baseline
    said = (
        f"{100 * target:g}% accuracy"
        if target is not None
        else accuracy_words(baseline, view.score)
    )
    for name, draw in CURVES.items():
        yield name, partial(draw, lines, look, width)
    for metric in metrics_of_runs([run for runs in lines.values() for run in runs]):
        plain = re.sub(r"[^A-Za-z0-9]+", "-", metric).strip("-") or "metric"
        drawn = partial(by, lines, look, width, x="seconds", y=f"{METRICS}{metric}", what=metric)
        yield f"{plain}-by-time", drawn
    yield "groups", partial(group_classes, lines, width)
    yield "seconds-by-kind", partial(seconds_by_kind, lines, width)
    yield "bytes-by-tier", partial(bytes_by_tier, lines, width)
    yield "time-to-target", partial(time_to_target, lines, width, targets, said)


def _prefixes(blocks: Sequence[Block]) -> list[str]:
    """Begin the names of a block's files with its settings; nothing where it is the only one.

    >>> _prefixes([Block({"model.name": name}, "", []) for name in ("sr", "../x y", "x?y")])
    ['sr-', 'x-y-', 'x-y-2-']
    """
    if len(blocks) == 1:
        return [""]
    taken: list[str] = []
    for block in blocks:
        words = heading(block).replace("model ", "")
        wanted = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")[:60] or "block"
        name, number = wanted, 2
        while name in taken:
            name, number = f"{wanted}-{number}", number + 1
        taken.append(name)
    return [f"{name}-" for name in taken]
