"""Text for a terminal: names of files and what is in them may hold anything."""

import re

# Controls but line ends and tabs; halves of characters, which stand for bytes that are no UTF-8;
# and what turns the direction of the text around it.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return a text with what a terminal would obey, or could not show, written as \x1b.

    >>> print(printable("runs/\x1b[2Jmy \udcff\n"), end="")
    runs/\x1b[2Jmy \udcff
    """
    return UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)
