"""What a reproduction prints: tables of the paper's claims and what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from coterie.analysis.format import number
from coterie.paper.runs import Mean, Times

REPRODUCED, NOT_RUN, NEVER = "reproduced", "not run", "never"
WITHIN = 0.25  # of the printed figure, and on the same side of 1, is reproduced


@dataclass(frozen=True)
class Dots:
    """Numbers above 0 to look at: in every row a mark for each of some series; None is no mark."""

    name: str  # of its picture
    title: str
    axis: str
    rows: list[str] = field(default_factory=list)
    series: dict[str, list[float | None]] = field(default_factory=dict)

    def add(self, row: str, values: dict[str, float | None]) -> None:
        """Add a row with the values of its series; it need not have all of them.

        >>> dots = Dots("a", "A", "x")
        >>> dots.add("first", {"p": 1.0})
        >>> dots.add("second", {"q": 2.0})
        >>> dots.series
        {'p': [1.0, None], 'q': [None, 2.0]}
        """
        for name in values:
            self.series.setdefault(name, [None] * len(self.rows))
        for name, column in self.series.items():
            column.append(values.get(name))
        self.rows.append(row)


@dataclass(frozen=True)
class Table:
    """A table with a title, what has to be known to read it, and perhaps a picture of it."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[str]] = field(default_factory=list)
    foot: str = ""
    dots: Dots | None = None


def narrow(table: Table) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows with every verdict below its figure, if there are several of a row.

    >>> narrow(Table("T", ("a", "b", "verdict", "c", "verdict"), [["x", "1", "good", "", ""]]))
    (['a', 'b', 'c'], [['x', '1\\ngood', '']])
    >>> narrow(Table("T", ("a", "verdict"), [["x", "not run"]]))
    (['a', 'verdict'], [['x', 'not run']])
    """
    columns = list(table.columns)
    if columns.count("verdict") < 2:
        return columns, table.rows
    kept = [at for at, name in enumerate(columns) if name != "verdict"]

    def cell(row: list[str], at: int) -> str:
        said = row[at + 1] if at + 1 in range(len(columns)) and at + 1 not in kept else ""
        return f"{row[at]}\n{said}" if said and said != row[at] else row[at]

    return [columns[at] for at in kept], [[cell(row, at) for at in kept] for row in table.rows]


def percent(value: Mean | None) -> str:
    """Write an accuracy.

    >>> percent(Mean(0.8412, 0.003, 5)), percent(None)
    ('84.1 ± 0.3', 'not run')
    """
    if value is None:
        return NOT_RUN
    return f"{100 * value.value:.1f}" + (f" ± {100 * value.sd:.1f}" if value.sd is not None else "")


def figure(value: Mean | None, unit: float = 1.0) -> str:
    """Write a figure that has no target to reach."""
    return number(value.value if value else None, unit)


def points(gap: float | None) -> str:
    """Write a difference of accuracies in points.

    >>> points(0.174), points(None)
    ('+17.4', '-')
    """
    return "-" if gap is None else f"{100 * gap:+.1f}"


def seconds(found: Times) -> str:
    """Write seconds to a target; how many seeds got there, unless all did.

    >>> seconds(Times({0: 4.0, 1: 6.0})), seconds(Times({0: 4.0, 1: None, 2: 6.0}))
    ('5', '5 (2/3)')
    >>> seconds(Times({0: 4.0, 1: None})), seconds(Times({0: None})), seconds(Times({}))
    ('never (1/2)', 'never', 'not run')
    """
    if not found.by_seed:
        return NOT_RUN
    got, of = len(found.reached), len(found.by_seed)
    share = f" ({got}/{of})" if 0 < got < of else ""
    return (NEVER if found.mean is None else number(found.mean)) + share


def times_faster(ratio: float | None) -> str:
    """Write a speed-up."""
    return "-" if ratio is None else f"{ratio:.2f}x"


def verdict(ratio: float | None, printed: float | None) -> str:
    """Judge a measured speed-up by the printed one; None: never reached, or later than FedAvg.

    >>> verdict(8.0, 8.3), verdict(2.0, 8.3), verdict(0.95, 1.1), verdict(None, 2.0)
    ('reproduced', 'differs: 0.24 of it', 'differs: 0.86 of it', 'differs: never reached here')
    >>> verdict(None, None), verdict(0.9, None), verdict(3.0, None)
    ('reproduced', 'reproduced', 'differs: reached here')
    """
    if printed is None:
        return REPRODUCED if ratio is None or ratio < 1 else "differs: reached here"
    if ratio is None:
        return "differs: never reached here"
    share = ratio / printed
    alike = abs(share - 1) <= WITHIN and (ratio > 1) == (printed > 1)
    return REPRODUCED if alike else f"differs: {share:.2f} of it"


def at_least(measured: float | None, printed: float) -> str:
    """Judge what should be as good as printed, or better.

    >>> at_least(9.0, 8.3), at_least(2.0, 8.3), at_least(None, 8.3)
    ('at least', '0.24 of it', 'never reached')
    """
    if measured is None:
        return "never reached"
    return "at least" if measured >= printed else f"{measured / printed:.2f} of it"


def holds(claim: bool | None, but: str = "") -> str:
    """Judge a claim that is true or false; None if it was not measured.

    >>> holds(True), holds(False, "by 3 points"), holds(None)
    ('reproduced', 'differs: by 3 points', 'not run')
    """
    if claim is None:
        return NOT_RUN
    return REPRODUCED if claim else f"differs: {but}" if but else "differs"


def markdown(tables: Sequence[Table]) -> str:
    """Write tables as Markdown, with their pictures, which are files beside it.

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
        parts += [f"![{table.dots.title}]({table.dots.name}.png)", ""] if table.dots else []
    return "\n".join(parts)
