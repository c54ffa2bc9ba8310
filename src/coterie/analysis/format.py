"""The comparison as text: one place that decides how its figures are written."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from coterie.analysis.compare import Block, Line

MOST_MORE = 1  # decimals for the least of a column, beyond what three digits of the most need
TINY = 1e-6  # what is smaller is written as 0


@dataclass(frozen=True)
class Column:
    """A column of figures: what it is called, the field of a line, and how it is written.

    `decimals` are chosen by what a column holds if not given. Names are broken where a narrow
    terminal needs it. Deviations are over seeds if no other field has them.
    """

    name: str
    key: str
    unit: float = 1.0
    decimals: int | None = None
    sign: str = ""
    deviation: str = ""


_MS = partial(Column, unit=1e3)
FIGURES = (
    Column("accuracy\n%", "accuracy", 100.0, 1),
    Column("sim\ns", "seconds"),
    Column("s to\ntarget", "target_s"),
    Column("speed\nup", "speed_up", 1.0, 2, "x"),
    _MS("d_local\nms", "d_local"),
    _MS("d_group\nms", "d_group"),
    _MS("d_global\nms", "d_global"),
    Column("Delta", "Delta"),
)


NODES = (
    Column("nodes\n%", "node_mean", 100.0, 1, deviation="node_sd"),
    Column("worst\ntenth %", "node_worst", 100.0, 1),
)


def figures_of(lines: Sequence[Line]) -> tuple[Column, ...]:
    """Return the columns of figures of some lines; those about nodes if all lines have them."""
    accuracy, *rest = FIGURES
    names = dict.fromkeys(name for line in lines for name in line.metrics)
    has_accuracy = not names or any(line.accuracy is not None for line in lines)
    first = [accuracy] if has_accuracy else []
    metrics = [
        Column(name, f"metrics.{name}") for name in names if not (first and name == "accuracy")
    ]
    return (*first, *metrics, *(NODES if has_nodes(lines) else ()), *rest)


def has_nodes(lines: Sequence[Line]) -> bool:
    """Whether all of some lines have figures about their nodes."""
    return bool(lines) and all(line.node_mean is not None for line in lines)


def columns(blocks: Sequence[Block]) -> list[str]:
    """Name the columns of the tables of some blocks, which have the same ones.

    >>> columns([Block({}, "", [], score="mean:5")])[:3]
    ['algorithm', 'accuracy %\\nlast 5', 'sim\\ns']
    """
    first = blocks[0] if blocks else Block({}, "", [])
    every = [line for block in blocks for line in block.lines]
    shown, figures = figures_of(every), [column.name for column in figures_of(every)]
    if first.score != "last" and shown[0].key == "accuracy":
        count = first.score.partition(":")[2]
        figures[0] = f"accuracy %\nlast {count}" if count else "accuracy %\nbest"
    best = [f"best\n{_word(key)}" for key in chosen_keys(blocks)]
    return ["line" if first.named_by else "algorithm", *best, *figures, "group\nsizes"]


def chosen_keys(blocks: Sequence[Block]) -> list[str]:
    """Return the settings of which lines show their best value."""
    return list(dict.fromkeys(key for block in blocks for line in block.lines for key in line.best))


def cells(lines: Sequence[Line], shown: Sequence[Column] = ()) -> list[list[str]]:
    """Write the lines of a table; a column has as many decimals in all of them.

    Where tables share their head, `shown` are the columns of figures that it has.
    """
    figures = [_figures(lines, column) for column in shown or figures_of(lines)]
    keys = list(dict.fromkeys(key for line in lines for key in line.best))
    return [
        [
            line.algorithm,
            *("-" if (best := line.best.get(key)) is None else str(best) for key in keys),
            *(column[at] for column in figures),
            sizes(line.group_sizes),
        ]
        for at, line in enumerate(lines)
    ]


def _figures(lines: Sequence[Line], column: Column) -> list[str]:
    """Write one column, with deviations where one of them is to be seen at its decimals."""
    means = [_scaled(_figure(line, column.key), column) for line in lines]
    field, dot, name = column.key.partition(".")
    deviation = column.deviation or f"{field}_sd{dot}{name}"
    deviations = [_scaled(_figure(line, deviation), column) for line in lines]
    places = column.decimals if column.decimals is not None else decimals(means)
    seen = column.key == "accuracy" or any(
        sd is not None and round(sd, places) > 0 for sd in deviations
    )
    written = []
    for line, value, sd in zip(lines, means, deviations, strict=True):
        if value is None:
            written.append("-")
            continue
        text = f"{value:.{places}f}"
        if seen and sd is not None:
            text += f" ± {sd:.{places}f}"
        share = f" ({line.reached}/{line.seeds})" if line.reached < line.seeds else ""
        written.append(text + column.sign + (share if column.key == "target_s" else ""))
    return written


def _figure(line: Line, key: str) -> float | None:
    """Return a field of a line, or a metric in it: `metrics.auc`."""
    field, _, name = key.partition(".")
    found = getattr(line, field)
    return found.get(name) if name else found  # type: ignore[no-any-return]


def _scaled(value: float | None, column: Column) -> float | None:
    if value is None:
        return None
    return 0.0 if abs(value * column.unit) < TINY else value * column.unit


def decimals(values: Sequence[float | None]) -> int:
    """Choose the decimals of a column: three digits of its most, and of its least if one more does.

    >>> decimals([1234.5, 12.0]), decimals([3.74, 0.997]), decimals([97.6, 0.05]), decimals([0.0])
    (1, 3, 2, 0)
    """
    known = [abs(value) for value in values if value]
    if not known:
        return 0
    most, least = (math.floor(math.log10(f(known))) for f in (max, min))
    enough = max(0, 2 - most)
    return min(max(enough, 2 - least), enough + MOST_MORE)


def _word(key: str) -> str:
    return key.rpartition(".")[2]


def footing(block: Block) -> str:
    """Write what holds for all lines of a block: the target, and what its figures are.

    >>> footing(Block({}, "80.0%", []))
    'target: 80.0%'
    >>> footing(Block({}, "80.0%", [], repeated=2))
    'target: 80.0%; 2 runs repeat others with the same settings and seed: counted once'
    """
    said = [f"target: {block.target}"]
    seeds = max((line.seeds for line in block.lines), default=1)
    if seeds > 1:
        said.append(f"{seeds} seeds, mean ± SD, group sizes of the first")
    if has_nodes(block.lines):
        said.append("nodes: mean ± SD over nodes")
    said += [
        f"{_word(key)}: best of every line by the validation part" for key in chosen_keys([block])
    ]
    if block.score != "last":
        count = block.score.partition(":")[2]
        what = f"mean of the last {count} evaluations" if count else "best evaluation"
        said.append(f"accuracy: {what} of each run")
    if block.repeated:
        repeat = "run repeats another" if block.repeated == 1 else "runs repeat others"
        said.append(f"{block.repeated} {repeat} with the same settings and seed: counted once")
    return "; ".join(said)


def heading(block: Block) -> str:
    """Write what tells a block from the others.

    >>> heading(Block({"model.name": "sr", "train.lr": 0.5}, "", []))
    'model sr, lr 0.5'
    >>> heading(Block({"data.split": "per-node", "optimizer.momentum": None}, "", []))
    'split per-node'
    """
    words = []
    for key, value in block.setting.items():
        if value in ("", None):
            continue
        section, _, name = key.partition(".")
        words.append(f"{section if name == 'name' else name} {value}")
    return ", ".join(words) or ("other runs" if block.setting else "all runs")


def number(value: float | None, unit: float = 1.0) -> str:
    """Write a figure in some unit with three digits, or a dash.

    >>> number(1234.5), number(0.000423), number(None), number(0.0)
    ('1234', '0.000423', '-', '0')
    """
    if value is None:
        return "-"
    value *= unit
    if abs(value) < 1e-6:
        return "0"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def sizes(groups: list[int]) -> str:
    """Write group sizes with repeats folded.

    >>> sizes([60, 10, 10, 10, 10]), sizes([7])
    ('60, 4x10', '7')
    """
    words = []
    for size in dict.fromkeys(groups):
        count = groups.count(size)
        words.append(f"{count}x{size}" if count > 1 else f"{size}")
    return ", ".join(words)
