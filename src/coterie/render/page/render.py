"""The page of runs: its data once, and what draws it, in one file that asks for nothing else."""

import json
from pathlib import Path
from typing import Any

from coterie.render.page.html import digest

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = (
    "core.js",
    "figure.js",
    "lines.js",
    "shapes.js",
    "dots.js",
    "network.js",
    "nodes.js",
    "page.js",
)
LIVE = "live.js"
NEEDS_SCRIPT = (
    "This page draws its tables and figures with JavaScript, which is off. "
    "The table is also printed by: coterie compare RUNS..."
)


def render(data: dict[str, Any]) -> bytes:
    """Write what `page_data` returns as one self-contained HTML page."""
    script, style = components()
    content = f"<script type='application/json' id='data'>{embedded(data)}</script>\n"
    return _page("Coterie report", script, style, content, policy(script))


def render_live() -> tuple[bytes, str]:
    """Return a page that asks its own server for data, and only that; and its policy."""
    script, style = components(live=True)
    rule = f"{policy(script)}; connect-src 'self'"
    return _page("Coterie watch", script, style, "", rule), rule


def policy(script: str) -> str:
    """Return what a page may do: the browser itself refuses any other script, and any request."""
    return (
        f"default-src 'none'; script-src {digest(script)}; style-src 'unsafe-inline'; "
        "img-src data: blob:"
    )


def _page(title: str, script: str, style: str, content: str, rule: str) -> bytes:
    page = (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{rule}">\n'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        "<link rel='icon' href='data:,'>\n"
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>"
        f"<noscript>{NEEDS_SCRIPT}</noscript></main>\n"
        f"{content}<script>{script}</script>\n</body>\n</html>\n"
    )
    return page.encode()


def components(*, live: bool = False) -> tuple[str, str]:
    """Return the script and the style that draw a page from its data."""
    names = (*SCRIPTS, LIVE) if live else SCRIPTS
    parts = [(ASSETS / name).read_text(encoding="utf-8") for name in names]
    script = '"use strict";\n{\n' + "\n".join(parts) + "}\n"
    return script, (ASSETS / "page.css").read_text(encoding="utf-8")


def embedded(data: object) -> str:
    r"""Write JSON that no name in it can end.

    >>> embedded({"name": "</script><b>"})
    '{"name":"\\u003c/script\\u003e\\u003cb\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
