"""What a person sees: pictures of the runs, and one HTML page that needs nothing else."""

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from coterie.algorithms import ALGORITHMS
from coterie.comparison import Block, compare
from coterie.errors import RecordError
from coterie.record import RecordedRun, write_atomically
from coterie.table import COLUMNS, cells, heading

# Okabe and Ito's colours, told apart with any colour vision.
COLOURS = dict(
    zip(
        ALGORITHMS,
        ("#000000", "#E69F00", "#56B4E9", "#009E73", "#D55E00", "#999999"),
        strict=True,
    )
)

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; } img { max-width: 100%; background: white; border-radius: 6px; }
small { opacity: .75; }
"""


GROUPS_CAPTION = (
    "<p><b>Who is in the groups.</b> Each class's share in a group over its share in the whole "
    "(first seed; nodes in brackets): white is like the whole, orange less, purple more.</p>"
)


def write_report(runs: Sequence[RecordedRun], path: Path, target: float | None = None) -> None:
    """Write one self-contained HTML page: for every setting the table and the pictures."""
    blocks = compare(runs, target)
    parts = [f"<h1>Coterie: {len(runs)} runs</h1>"]
    for block, members in zip(blocks, _members(runs, blocks), strict=True):
        parts += [f"<h2>{html.escape(heading(block))}</h2>", _table(block)]
        parts.append(
            _image(accuracy_figure(members), "Test accuracy by simulated time and by step")
        )
        parts.append(GROUPS_CAPTION)
        parts.append(
            _image(
                groups_figure(members),
                "Share of each class in every group over its share in the whole",
            )
        )
    parts.append(_provenance(runs))
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Coterie report</title><style>{STYLE}</style>{''.join(parts)}</html>"
    )
    _write(path, page.encode())


def write_picture(runs: Sequence[RecordedRun], path: Path) -> None:
    """Write one PNG with a row of accuracy curves per setting."""
    blocks = compare(runs)
    figure, axes = _canvas(len(blocks))
    for row, block, members in zip(axes, blocks, _members(runs, blocks), strict=True):
        _draw_accuracy(row, members, heading(block))
    _write(path, _png(figure))


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise RecordError(f"{path}: cannot be written ({error.strerror})") from error


def accuracy_figure(runs: Sequence[RecordedRun]) -> Any:
    """Draw test accuracy by simulated seconds and by step, mean over seeds."""
    figure, axes = _canvas(1)
    _draw_accuracy(axes[0], runs, "")
    return figure


def groups_figure(runs: Sequence[RecordedRun]) -> Any:
    """Draw each class's share in every group over its share in the whole, for the first seed.

    White is like the whole; orange is less, down to none; purple is twice as much or more.
    """
    from matplotlib.figure import Figure

    first = {run.config["algorithm"]["name"]: run for run in reversed(runs)}
    shown = [name for name in ALGORITHMS if name in first and max(first[name].grouping["z"]) > 0]
    figure = Figure(figsize=(2.6 * max(len(shown), 1), 2.6), layout="constrained")
    for at, name in enumerate(shown):
        grouping = first[name].grouping
        counts = np.array(grouping["class_counts"])
        z = np.array(grouping["z"])
        table = np.array([counts[z == k].sum(axis=0) for k in range(z.max() + 1)])
        axis = figure.add_subplot(1, len(shown), at + 1)
        share = table / table.sum(axis=1, keepdims=True)
        whole = np.maximum(table.sum(axis=0), 1) / table.sum()
        axis.imshow(share / whole, cmap="PuOr", vmin=0, vmax=2, aspect="auto")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("class")
        axis.set_ylabel("group")
        axis.set_yticks(range(len(table)), [f"{k} ({(z == k).sum()})" for k in range(len(table))])
        axis.tick_params(labelsize=7)
    return figure


def _members(runs: Sequence[RecordedRun], blocks: list[Block]) -> list[list[RecordedRun]]:
    """Runs of every block, found by the settings that tell the blocks apart."""

    def value(run: RecordedRun, key: str) -> object:
        section, _, name = key.partition(".")
        return run.config[section][name]

    return [
        [run for run in runs if all(value(run, k) == v for k, v in block.setting.items())]
        for block in blocks
    ]


def _canvas(rows: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4 * rows), layout="constrained")
    return figure, figure.subplots(rows, 2, squeeze=False, sharey="row")


def _draw_accuracy(axes: Any, runs: Sequence[RecordedRun], title: str) -> None:
    by_name: dict[str, list[RecordedRun]] = {}
    for run in runs:
        by_name.setdefault(run.config["algorithm"]["name"], []).append(run)
    for name in (n for n in ALGORITHMS if n in by_name):
        measured = [
            [
                (r["seconds"], r["t"], r["test_accuracy"])
                for r in run.rows
                if r["t"] and r["test_accuracy"] is not None
            ]
            for run in by_name[name]
        ]
        points = list(zip(*measured, strict=False))  # one entry a measurement, over the seeds
        for axis, column in zip(axes, (0, 1), strict=True):
            xs = [mean(point[column] for point in points_at) for points_at in points]
            low, mid, high = (
                [f([100 * point[2] for point in points_at]) for points_at in points]
                for f in (min, mean, max)
            )
            dash = {"centralized": ":", "fedavg-ic": "--"}.get(name, "-")
            axis.plot(xs, mid, dash, color=COLOURS[name], label=name, linewidth=1.8)
            if len(measured) > 1:
                axis.fill_between(xs, low, high, color=COLOURS[name], alpha=0.15, linewidth=0)
    axes[0].set_xscale("log")
    axes[0].set_xlabel("simulated seconds")
    axes[1].set_xlabel("step")
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].set_title(title, loc="left", fontsize=10)
    axes[1].legend(fontsize=8, frameon=False, loc="lower right")
    for axis in axes:
        axis.grid(alpha=0.25)


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def _image(figure: Any, alt: str) -> str:
    data = base64.b64encode(_png(figure)).decode()
    return f"<p><img alt='{html.escape(alt)}' src='data:image/png;base64,{data}'></p>"


def _table(block: Block) -> str:
    head = "".join(f"<th>{html.escape(c.replace(chr(10), ' '))}</th>" for c in COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(line)) + "</tr>"
        for line in block.lines
    )
    target = html.escape(block.target)
    table = f"<table><tr>{head}</tr>{rows}</table>"
    return f"<div class='wide'>{table}</div><small>target: {target}</small>"


def _provenance(runs: Sequence[RecordedRun]) -> str:
    meta = runs[0].meta
    said = ", ".join(f"{k} {v}" for k, v in meta["versions"].items())
    seeds = sorted({run.config["seed"] for run in runs})
    commit = f", commit {meta['commit']}" if meta["commit"] else ""
    return f"<p><small>{html.escape(f'seeds {seeds}; {said}{commit}')}</small></p>"
