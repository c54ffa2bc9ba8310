"""Pages and files that a command writes: where they go, and that they were written."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli.commands import echo, print_table
from coterie.core.errors import CoterieError
from coterie.core.files import is_special, standard_stream

if TYPE_CHECKING:
    from coterie.render.page.html import Page

SUFFIXES = (".html", ".png")
RUNS = Path("runs")  # where commands write that are not told where


def page_path(command: str, name: str, out: Path | None, *, as_json: bool = False) -> Path | None:
    """Return where a page goes: --out, else COMMAND-NAME.html among the runs.

    With JSON there is one by --out alone.
    """
    page = out or (None if as_json else RUNS / f"{command}-{name}.html")
    if page is not None:
        check_file("--out", page, f"{command}.html", also=SUFFIXES)
        if any(map(is_special, (page, *map(page.with_suffix, SUFFIXES)))):
            raise CoterieError(
                f"--out must name a regular file, such as {command}.html, for a page and its "
                f"pictures, got {str(page)!r}"
            )
    return page


def check_file(option: str, path: Path, example: str, also: tuple[str, ...] = ()) -> None:
    """Refuse, before anything takes its time, a file that cannot be written."""
    named = path.name and not any(p.is_dir() for p in (path, *map(path.with_suffix, also)))
    if not named:
        raise CoterieError(f"{option} must name a file, such as {example}, got {str(path)!r}")
    if is_special(path):  # it is written through, whatever its folder allows
        if not os.access(path, os.W_OK):
            raise CoterieError(f"{option} must be what can be written, got {str(path)!r}")
        return
    place = Path(os.path.realpath(path))
    folder = next(parent for parent in place.parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise CoterieError(f"{option} must be in a folder that can be written, got {str(path)!r}")


def print_page(page: "Page", *, wrap: str = "group") -> None:
    """Print all that a page says but for its figures; columns that begin with `wrap` may wrap."""
    for section in page.sections:
        if section.heading:
            echo(section.heading)
        for table in section.tables:
            print_table(*table, wrap=wrap)
            echo()
        for line in section.remarks:
            echo(f"- {line}")


def write_files(files: Mapping[Path, bytes], *, err: bool = False) -> None:
    """Write files and say so; on stderr where stdout is for a program."""
    from coterie.render.page.html import write

    for path, content in files.items():
        write(path, content)
        echo(f"wrote {path}", err=err or standard_stream(path) == 1)
