"""What every page and picture is made with."""

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.arrays import Ints
from coterie.core.errors import RecordError
from coterie.core.files import write_atomically

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
td { white-space: nowrap; } .wide { overflow-x: auto; }
img { width: 100%; min-width: 700px; background: white; border-radius: 6px; }
small { opacity: .75; }
"""


def page(title: str, parts: Sequence[str]) -> bytes:
    """Put parts of HTML on one page that needs nothing else."""
    content = (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{title}</title><style>{STYLE}</style>{''.join(parts)}</html>"
    )
    return content.encode()


def write(path: Path, content: bytes) -> None:
    """Write a page or picture, making its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise RecordError(f"{path}: cannot be written ({error.strerror})") from error


def png(figure: Any) -> bytes:
    """Return a figure as a PNG, the same bytes for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def image(picture: bytes, alt: str) -> str:
    """Return a PNG as an HTML image that carries its own data."""
    data = base64.b64encode(picture).decode()
    return f"<p class='wide'><img alt='{html.escape(alt)}' src='data:image/png;base64,{data}'></p>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table that scrolls where it is too wide."""
    columns = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<div class='wide'><table><tr>{columns}</tr>{lines}</table></div>"


def draw_shares(axis: Any, counts: Ints) -> Any:
    """Draw each class's share in a part over its share in the whole, from counts [K, C].

    White is like the whole; brown is less, down to none; purple is twice as much or more.
    """
    share = counts / counts.sum(axis=1, keepdims=True)
    whole = np.maximum(counts.sum(axis=0), 1) / counts.sum()
    axis.set_xlabel("class")
    axis.tick_params(labelsize=7)
    return axis.imshow(
        share / whole, cmap="PuOr", vmin=0, vmax=2, aspect="auto", interpolation="none"
    )


def draw_scale(figure: Any, drawn: Any, axes: Any) -> None:
    """Add the colour bar of `draw_shares`."""
    bar = figure.colorbar(drawn, ax=axes, pad=0.02, extend="max")
    bar.ax.tick_params(labelsize=7)
    bar.set_label("share / share in the whole\n(brown: lacks the class)", fontsize=7)
