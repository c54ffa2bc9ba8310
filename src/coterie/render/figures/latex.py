r"""The comparison as a LaTeX table for booktabs."""

import re
from collections.abc import Sequence

from coterie.analysis.compare import Block
from coterie.analysis.format import cells, chosen_keys, footing, has_nodes, heading

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
}
HEAD = (
    *("time", "to target", "speed"),
    *(rf"$d_\mathrm{{{what}}}$" for what in ("local", "group", "global")),
    *("", ""),
)
UNITS = ("s", "s", "up", "ms", "ms", "ms", r"$\Delta$", "group sizes")


def latex_table(blocks: Sequence[Block]) -> bytes:
    r"""Write all blocks as one tabular, each under what tells it from the others."""
    best, score = chosen_keys(blocks), blocks[0].score if blocks else "last"
    which = {"last": "accuracy", "best": "best accuracy"}.get(
        score, f"accuracy, last {score.partition(':')[2]}"
    )
    chosen = [escape(key.rpartition(".")[2]) for key in best]
    every = [line for block in blocks for line in block.lines]
    nodes = ("nodes", "worst tenth") if has_nodes(every) else ()
    head = ["", *("best" for _ in best), which, *nodes, *HEAD]
    units = ["", *chosen, r"\%", *(r"\%" for _ in nodes), *UNITS]
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{tabular}{l" + "r" * (len(head) - 2) + "l}",
        r"\toprule",
        " & ".join(head) + r" \\",
        " & ".join(units) + r" \\",
    ]
    written = iter(cells(every))
    for block in blocks:
        lines.append(r"\midrule")
        if len(blocks) > 1:
            said = escape(heading(block))
            lines.append(rf"\multicolumn{{{len(head)}}}{{l}}{{\textit{{{said}}}}} \\")
        lines += [" & ".join(_cells(next(written), len(best))) + r" \\" for _ in block.lines]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [f"% {_comment(foot)}" for foot in dict.fromkeys(map(footing, blocks))]
    return ("\n".join(lines) + "\n").encode()


def _cells(row: Sequence[str], texts: int) -> list[str]:
    """Write a row: its name, so many values of settings, and figures."""
    return [*map(escape, row[: 1 + texts]), *map(_figure, row[1 + texts :])]


def _figure(text: str) -> str:
    """Write a cell of digits: signs as LaTeX has them, a dash where there is nothing."""
    if text == "-":
        return "--"
    text = text.replace("±", r"$\pm$")
    return re.sub(r"(?<=\d)x(?=\d|$)", r"$\\times$", text)


def escape(text: str) -> str:
    r"""Write a user's text so that LaTeX prints it as it is.

    >>> print(escape("own_grouping:plan 50% -- {x}"))
    own\_grouping:plan 50\% -{}- \{x\}
    """
    line = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", " ", text)
    safe = "".join(SPECIAL.get(letter, letter) for letter in line)
    return re.sub(r"(?<=[-,?!])(?=[-,])", "{}", safe)  # -- would be one longer dash


def _comment(text: str) -> str:
    return " ".join(text.split())
