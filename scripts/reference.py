"""Write the pages of docs/reference that the code knows best: settings.md and commands.md.

python scripts/reference.py            write both
python scripts/reference.py --check    say whether they are as they would be written
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import click

from coterie.cli import main as coterie
from coterie.config.schema import BOUNDS, default_of, words
from coterie.config.settings import Config

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
WIDTH = 96


def settings_page() -> str:
    """Write every setting of an experiment file, section by section."""
    kinds = get_type_hints(Config)
    alone = [f for f in fields(Config) if not is_dataclass(kinds[f.name])]
    sections = [f.name for f in fields(Config) if is_dataclass(kinds[f.name])]
    lines = [
        "# Settings",
        "",
        "An experiment is a TOML file that states what differs from these defaults.",
        "`--set KEY=VALUE` wins over the file, as in `--set algorithm.tau1=5`.",
        "`coterie list settings` prints the same. An import path is `package.module:function`,",
        "looked for in the current folder, too. Its code is run: read a file from somebody else",
        "before you run it. Python's own modules, such as `os`, are refused.",
        "",
        *_table("", alone),
    ]
    for name in sections:
        about = " ".join((kinds[name].__doc__ or "").split())
        rows = _table(f"{name}.", list(fields(kinds[name])))
        lines += ["", f"## {name}", "", about, "", *rows]
    return "\n".join([*lines, ""])


def _table(prefix: str, settings: list[Field[Any]]) -> list[str]:
    rows = [
        f"| `{prefix}{f.name}` | `{json.dumps(default_of(f))}` | {_values(f)} | "
        f"{f.metadata['about']} |"
        for f in settings
    ]
    return ["| setting | default | values | what it is |", "| --- | --- | --- | --- |", *rows]


def _values(f: Field[Any]) -> str:
    """Say which values a setting takes: its words, a number with bounds, an import path."""
    said = [f"`{word}`" for word in words(f)]
    if f.metadata["paths"]:
        said.append("import path")
    kinds = {"int": "whole number", "float": "number", "bool": "true or false", "str": "text"}
    plain = [kinds[part] for part in kinds if part in _plain_types(f)]
    if not f.metadata["choices"]:
        said = [kind + _bounds(f) * ("number" in kind) for kind in plain] + said
    return ", ".join(said)


def _plain_types(f: Field[Any]) -> set[str]:
    options = getattr(f.type, "__args__", (f.type,)) if not isinstance(f.type, type) else (f.type,)
    return {option.__name__ for option in options if isinstance(option, type)}


def _bounds(f: Field[Any]) -> str:
    said = [
        f" {BOUNDS[rule][0]} {bound:,.12g}" if abs(bound) < 2**53 else ""
        for rule, bound in f.metadata["bounds"].items()
        if bound is not None
    ]
    return ",".join(filter(None, said))


def commands_page() -> str:
    """Write the help of every command."""
    lines = [
        "# Commands",
        "",
        "What `--help` prints, command by command. An error is one line and exit code 2;",
        "Ctrl-C is exit code 130. Exit code 1 is a fault of Coterie itself: the line names a file",
        "with the traceback, for a report. `COTERIE_DEBUG=1` prints tracebacks as they are.",
    ]
    for path, text in _helps(coterie, "coterie"):
        level = "##" if path.count(" ") < 2 else "###"
        lines += ["", f"{level} {path}", "", "```text", text.rstrip(), "```"]
    return "\n".join([*lines, ""])


def _helps(
    command: click.Command, path: str, above: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the path and the help of a command and of those below it."""
    name = path.rpartition(" ")[2]
    kept = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, parent=above, info_name=name, **kept)
    yield path, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    if isinstance(command, click.Group):
        for each in sorted(command.commands):
            yield from _helps(command.commands[each], f"{path} {each}", context)


def main() -> None:
    """Write the pages, or check them."""
    for name, text in {"settings.md": settings_page(), "commands.md": commands_page()}.items():
        path = PAGES / name
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path} is not as it would be written; python scripts/reference.py")


if __name__ == "__main__":
    main()
