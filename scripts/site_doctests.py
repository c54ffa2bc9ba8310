"""For the site: examples in docstrings are shown as code, not as quotations."""

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Fences the examples of every docstring that is read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """Put a fence around every paragraph that begins with a prompt.

    >>> print(fenced("Adds.").strip())
    Adds.
    """
    paragraphs = docstring.split("\n\n")
    return "\n\n".join(
        f"```pycon\n{each}\n```" if each.lstrip().startswith(">>>") else each for each in paragraphs
    )
