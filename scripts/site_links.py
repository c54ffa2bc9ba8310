"""For the site: a link from a page to a file outside docs/ becomes its text; the site lacks it."""

import os
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave links that stay within docs/, and take the others away."""
    return without_links_outside(markdown, page.file.src_uri)


def without_links_outside(markdown: str, page: str) -> str:
    """Return the text of a page, whose path is below docs/, without links that leave docs/.

    >>> without_links_outside("[a](../b.md), [c](../../src/c.py)", "howto/page.md")
    '[a](../b.md), c'
    """

    def kept(link: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(page), link[2]))  # noqa: PTH118, PTH120
        return link[1] if target.startswith("..") else link[0]

    return LINK.sub(kept, markdown)
