"""The page of runs: its data once, and what draws it, in one file that asks for nothing else."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("core.js", "figure.js", "lines.js", "shapes.js", "network.js", "page.js")
NEEDS_SCRIPT = (
    "This page draws its tables and figures with JavaScript, which is off. "
    "The table is also printed by: coterie compare RUNS..."
)


def render(data: dict[str, Any]) -> bytes:
    """Write what `page_data` returns as one self-contained HTML page."""
    script, style = components()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The browser itself refuses any other script, and any request.
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data: blob:"
    )
    page = (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        "<link rel='icon' href='data:,'>\n"
        f"<title>Coterie report</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>"
        f"<noscript>{NEEDS_SCRIPT}</noscript></main>\n"
        f"<script type='application/json' id='data'>{embedded(data)}</script>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
    return page.encode()


def components() -> tuple[str, str]:
    """Return the script and the style that draw a page from its data."""
    parts = [(ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS]
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
