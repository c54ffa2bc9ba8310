"""What a reproduction prints: tables of the paper's claims and what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from coterie.reproduction.runs import Mean

REPRODUCED, NOT_RUN = "reproduced", "not run"


@dataclass(frozen=True)
class Table:
    """A table with a title, and what has to be known to read it."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[str]] = field(default_factory=list)
    foot: str = ""


def percent(value: Mean | None) -> str:
    """Write an accuracy.

    >>> percent(Mean(0.8412, 0.003, 5)), percent(None)
    ('84.1 ± 0.3', '-')
    """
    if value is None:
        return "-"
    return f"{100 * value.value:.1f}" + (f" ± {100 * value.sd:.1f}" if value.sd is not None else "")


def verdict(ratio: float | None, printed: float | None, within: float = 0.25) -> str:
    """Judge a measured ratio by the printed one; None means that a target was never reached.

    >>> verdict(8.0, 8.3), verdict(2.0, 8.3), verdict(None, None), verdict(3.0, None)
    ('reproduced', 'differs: 0.24 of it', 'reproduced', 'differs: reached here')
    """
    if ratio is None or printed is None:
        if ratio == printed:
            return REPRODUCED
        return "differs: never reached here" if ratio is None else "differs: reached here"
    share = ratio / printed
    return REPRODUCED if abs(share - 1) <= within else f"differs: {share:.2f} of it"


def holds(claim: bool | None, but: str = "") -> str:
    """Judge a claim that is true or false; None if it was not measured.

    >>> holds(True), holds(False, "by 3 points"), holds(None)
    ('reproduced', 'differs: by 3 points', 'not run')
    """
    if claim is None:
        return NOT_RUN
    return REPRODUCED if claim else f"differs: {but}" if but else "differs"


def markdown(tables: Sequence[Table]) -> str:
    """Write tables as Markdown.

    >>> print(markdown([Table("T", ("a", "b"), [["1", "x|y"]], "note")]))
    ### T
    <BLANKLINE>
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    <BLANKLINE>
    note
    <BLANKLINE>
    """
    parts = []
    for table in tables:
        lines = [table.columns, ["---"] * len(table.columns), *table.rows]
        cells = [
            " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line)
            for line in lines
        ]
        parts += [f"### {table.title}", "", *(f"| {line} |" for line in cells), ""]
        parts += [table.foot, ""] if table.foot else []
    return "\n".join(parts)
