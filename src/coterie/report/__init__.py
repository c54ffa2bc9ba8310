"""What a person sees: pictures of the runs, and one HTML page that needs nothing else."""

import html
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from coterie.algorithms import ALGORITHMS
from coterie.comparison import Block, compare, label
from coterie.partition.measure import pooled
from coterie.record import RecordedRun
from coterie.report.drawing import draw_scale, draw_shares, image, page, png, table, write
from coterie.table import COLUMNS, cells, footing, heading

# Okabe and Ito's colours, told apart with any colour vision; more lines than these repeat them.
PALETTE = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#D55E00", "#999999", "#CC79A7", "#0072B2")

DEFINITIONS = """
<details><summary>What the columns mean</summary><p><b>accuracy</b>: on the test part,
at the end. <b>sim s</b>: simulated seconds of the whole run, computation and transfers.
<b>s to target</b>: simulated seconds until the target accuracy was first measured.
<b>speed up</b>: FedAvg's time to target over this one's. <b>d_local, d_group,
d_global</b>: milliseconds of one local step, one group mean, one global mean.
<b>Delta</b>: how far the groups' gradients are from the whole's at the end; 0 is a
perfect miniature.</p></details>
"""

GROUPS_CAPTION = (
    "<p><b>Who is in the groups.</b> Each class's share in a group over its share in the whole "
    "(first seed; nodes in brackets): white is like the whole, brown less, purple more.</p>"
)


def write_report(runs: Sequence[RecordedRun], path: Path, target: float | None = None) -> None:
    """Write one self-contained HTML page: for every setting the table and the pictures."""
    blocks = compare(runs, target)
    parts = [f"<h1>Coterie: {len(runs)} runs</h1>", _shared(runs), DEFINITIONS]
    for block, members in zip(blocks, _members(runs, blocks), strict=True):
        parts += [f"<h2>{html.escape(heading(block))}</h2>", _table(block)]
        parts.append(image(accuracy_figure(members), "Test accuracy by simulated time and by step"))
        parts.append(GROUPS_CAPTION)
        parts.append(
            image(
                groups_figure(members),
                "Share of each class in every group over its share in the whole",
            )
        )
    parts.append(_provenance(runs))
    write(path, page("Coterie report", parts))


def write_picture(runs: Sequence[RecordedRun], path: Path) -> None:
    """Write one PNG with a row of accuracy curves per setting."""
    blocks = compare(runs)
    figure, axes = _canvas(len(blocks))
    for row, block, members in zip(axes, blocks, _members(runs, blocks), strict=True):
        _draw_accuracy(row, members, heading(block))
    write(path, png(figure))


def accuracy_figure(runs: Sequence[RecordedRun]) -> Any:
    """Draw test accuracy by simulated seconds and by step, mean over seeds."""
    figure, axes = _canvas(1)
    _draw_accuracy(axes[0], runs, "")
    return figure


def groups_figure(runs: Sequence[RecordedRun]) -> Any:
    """Draw each class's share in every group over its share in the whole, for the first seed."""
    from matplotlib.figure import Figure

    first = {name: members[0] for name, members in _by_label(runs).items()}
    shown = [name for name, run in first.items() if max(run.grouping["z"]) > 0]
    figure = Figure(figsize=(2.6 * max(len(shown), 1), 2.6), layout="constrained")
    axes, drawn = [], None
    for at, name in enumerate(shown):
        grouping = first[name].grouping
        z = np.array(grouping["z"])
        counts = pooled(np.array(grouping["class_counts"]), z)
        axes.append(figure.add_subplot(1, len(shown), at + 1))
        drawn = draw_shares(axes[-1], counts)
        axes[-1].set_title(name, fontsize=10)
        axes[-1].set_ylabel("group")
        labels = [f"{k} ({(z == k).sum()})" for k in range(len(counts))]
        axes[-1].set_yticks(range(len(counts)), labels)
    if axes:
        draw_scale(figure, drawn, axes)
    return figure


def _by_label(runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """Runs of every line, in the order of the table."""
    known = list(ALGORITHMS)
    found: dict[str, list[RecordedRun]] = {}
    for run in sorted(runs, key=lambda r: (known.index(r.config["algorithm"]["name"]), label(r))):
        found.setdefault(label(run), []).append(run)
    return found


def _members(runs: Sequence[RecordedRun], blocks: list[Block]) -> list[list[RecordedRun]]:
    """Runs of every block, found by the settings that tell the blocks apart."""
    return [
        [run for run in runs if block.setting.items() <= run.settings.items()] for block in blocks
    ]


def _canvas(rows: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4 * rows), layout="constrained")
    return figure, figure.subplots(rows, 2, squeeze=False, sharey="row")


def _draw_accuracy(axes: Any, runs: Sequence[RecordedRun], title: str) -> None:
    for number, (name, members) in enumerate(_by_label(runs).items()):
        measured = [
            [
                (r["seconds"], r["t"], r["test_accuracy"])
                for r in run.rows
                if r["t"] and r["test_accuracy"] is not None
            ]
            for run in members
        ]
        points = list(zip(*measured, strict=False))  # one entry a measurement, over the seeds
        colour = PALETTE[number % len(PALETTE)]
        dash = {"centralized": ":", "fedavg-ic": "--"}.get(name, "-")
        for axis, column in zip(axes, (0, 1), strict=True):
            xs = [mean(point[column] for point in points_at) for points_at in points]
            low, mid, high = (
                [f([100 * point[2] for point in points_at]) for points_at in points]
                for f in (min, mean, max)
            )
            axis.plot(xs, mid, dash, color=colour, label=name, linewidth=1.8)
            if len(measured) > 1:
                axis.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
    axes[0].set_xscale("log")
    axes[0].xaxis.set_major_formatter("{x:g}")
    axes[0].xaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:.0e}"[0] in "25" else "")
    axes[0].tick_params(which="minor", labelsize=8)
    axes[0].set_xlabel("simulated seconds")
    axes[1].set_xlabel("step")
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].set_title(title, loc="left", fontsize=10)
    axes[1].legend(fontsize=8, frameon=False, loc="lower right")
    for axis in axes:
        axis.grid(alpha=0.25)


def _table(block: Block) -> str:
    head = [name.replace("\n", " ") for name in COLUMNS]
    small = f"<small>{html.escape(footing(block))}</small>"
    return table(head, [cells(line) for line in block.lines]) + small


def _shared(runs: Sequence[RecordedRun]) -> str:
    """Say the settings that all runs have in common."""
    tables = [run.settings for run in runs]
    same = {k: v for k, v in tables[0].items() if v != "" and all(t.get(k) == v for t in tables)}
    said = html.escape(", ".join(f"{k} {v}" for k, v in same.items()))
    summary = "<summary>Settings of all runs</summary>"
    return f"<details open>{summary}<small>{said}</small></details>"


def _provenance(runs: Sequence[RecordedRun]) -> str:
    meta = runs[0].meta
    said = ", ".join(f"{k} {v}" for k, v in meta["versions"].items())
    seeds = sorted({run.config["seed"] for run in runs})
    commit = f", commit {meta['commit']}" if meta["commit"] else ""
    return f"<p><small>{html.escape(f'seeds {seeds}; {said}{commit}')}</small></p>"
