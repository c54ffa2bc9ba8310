"""What every page and picture is made with.

A page is a value: a title, and sections of tables with a figure. `page_files` alone draws it.
"""

import base64
import hashlib
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from coterie.core.arrays import Ints
from coterie.core.errors import RecordError
from coterie.core.files import write_out
from coterie.partition.measure import relative_shares

NEW = "\n"  # a line of a title or foot; a name of a column is on one line
STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, .words td { text-align: left; }
td { white-space: nowrap; }
.wide { overflow-x: auto; background:
  linear-gradient(to right, Canvas 40%, transparent) 0 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to left, Canvas 40%, transparent) 100% 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to right, var(--line), transparent) 0 0 / .9rem 100% no-repeat scroll,
  linear-gradient(to left, var(--line), transparent) 100% 0 / .9rem 100% no-repeat scroll; }
img { width: 100%; min-width: 700px; background: white; border-radius: 6px; }
small { opacity: .75; }
@media print { * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .wide { overflow: visible; background: none; } img { min-width: 0; } td { white-space: normal; } }
"""


def digest(text: str) -> str:
    """Return what names a script or style in a page's policy: no other is run, or applied."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# No script at all, no request, this style alone, and pictures that the page carries itself.
POLICY = f"default-src 'none'; style-src {digest(STYLE)}; img-src data:; base-uri 'none'"


class Table(NamedTuple):
    """What a table says, on a page as in a terminal."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    foot: str
    words: bool = False  # in every column, and not figures


@dataclass(frozen=True)
class Section:
    """Tables about one thing, with a figure below the first, which is drawn when called."""

    tables: Sequence[Table]
    draw: Callable[[], Any]
    alt: str
    heading: str = ""
    notes: Sequence[str] = ()  # above the figure
    remarks: Sequence[str] = ()  # at the end, as a list
    beside: bool = True  # the picture is a file of its own, too


@dataclass(frozen=True)
class Page:
    """What a command shows, in a terminal and as a file; title and foot are HTML of ours."""

    title: str
    sections: Sequence[Section]
    foot: str = ""


def page_files(page: Page, path: Path | None) -> dict[Path, bytes]:
    """Draw a page as one self-contained HTML file, and PNGs of its figures beside it.

    Without a path nothing is drawn.
    """
    if path is None:
        return {}
    # A large figure takes a second, so that it is drawn once for both files.
    pictures = [png(section.draw()) for section in page.sections]
    sections = [_section(*pair) for pair in zip(page.sections, pictures, strict=True)]
    foot = f"<p><small>{page.foot}</small></p>" if page.foot else ""
    content = (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<link rel='icon' href='data:,'>"
        f"<title>{page.title}</title><style>{STYLE}</style>"
        f"<main><h1>{page.title}</h1>{''.join(sections)}{foot}</main></html>"
    )
    own = [p for section, p in zip(page.sections, pictures, strict=True) if section.beside]
    numbers = [f"-{nth}" for nth in range(1, len(own) + 1)] if len(own) > 1 else [""]
    names = [path.with_name(f"{path.stem}{number}.png") for number in numbers[: len(own)]]
    return {path.with_suffix(".html"): content.encode(), **dict(zip(names, own, strict=True))}


def fragment(sections: Sequence[Section]) -> str:
    """Write sections as HTML for a page of somebody else's, such as a notebook.

    A section whose figure has nothing to show is its tables alone.
    """
    written = []
    for section in sections:
        figure = section.draw()
        written.append(_section(section, None if figure is None else png(figure)))
    return f"<div>{''.join(written)}</div>"


def _section(section: Section, picture: bytes | None) -> str:
    heading = f"<h2>{html.escape(section.heading)}</h2>" if section.heading else ""
    first, *others = map(_table, section.tables)
    notes = "".join(f"<p>{html.escape(line)}</p>" for line in section.notes)
    remarks = "".join(f"<li>{html.escape(line)}</li>" for line in section.remarks)
    ending = f"<ul>{remarks}</ul>" if remarks else ""
    drawn = "" if picture is None else image(picture, section.alt)
    return "".join([heading, first, notes, drawn, *others, ending])


def _table(table: Table) -> str:
    """Write a table that scrolls where it is too wide, with what stands above and below it."""
    columns = "".join(f"<th>{html.escape(name.replace(NEW, ' '))}</th>" for name in table.head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    kind = " class='words'" if table.words else ""
    inside = f"<table{kind}><tr>{columns}</tr>{lines}</table>"
    foot = f"<p><small>{_broken(table.foot)}</small></p>" if table.foot else ""
    return f"<p>{_broken(table.title)}</p><div class='wide'>{inside}</div>{foot}"


def _broken(text: str) -> str:
    return html.escape(text).replace(NEW, "<br>")


def write(path: Path, content: bytes) -> None:
    """Write a page or picture, making its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_out(path, content)
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


def draw_shares(axis: Any, counts: Ints) -> Any:
    """Draw each class's share in a part over its share in the whole, from counts [K, C].

    White is like the whole; brown is less, down to none; purple is twice as much or more.
    """
    axis.set_xlabel("class")
    axis.tick_params(labelsize=7)
    look = {"cmap": "PuOr", "vmin": 0, "vmax": 2, "aspect": "auto", "interpolation": "none"}
    return axis.imshow(relative_shares(counts), **look)


def plain_log_x(axis: Any) -> None:
    """Make x logarithmic, with plain numbers at 1, 2 and 5 of every decade."""
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:.0e}"[0] in "25" else "")


def draw_scale(figure: Any, drawn: Any, axes: Any) -> None:
    """Add the colour bar of `draw_shares`."""
    bar = figure.colorbar(drawn, ax=axes, pad=0.02, extend="max")
    bar.ax.tick_params(labelsize=7)
    bar.set_label("share / share in the whole\n(brown: lacks the class)", fontsize=7)
