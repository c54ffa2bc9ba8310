"""The comparison as text: one place that decides how its figures are written."""

from coterie.analysis.compare import Block, Line

COLUMNS = (
    "algorithm",
    "accuracy\n%",
    "sim\ns",
    "s to\ntarget",
    "speed\nup",
    "d_local\nms",
    "d_group\nms",
    "d_global\nms",
    "Delta",
    "group\nsizes",
)  # broken where a narrow terminal needs it


def cells(line: Line) -> list[str]:
    """Write one line of the table."""
    accuracy = f"{100 * line.accuracy:.1f}"
    if line.accuracy_sd is not None:
        accuracy += f" ± {100 * line.accuracy_sd:.1f}"
    target = number(line.target_s)
    if line.target_s is not None and line.reached < line.seeds:
        target += f" ({line.reached}/{line.seeds})"
    return [
        line.algorithm,
        accuracy,
        number(line.seconds),
        target,
        f"{line.speed_up:.2f}x" if line.speed_up is not None else "-",
        number(line.d_local, 1e3),
        number(line.d_group, 1e3),
        number(line.d_global, 1e3),
        number(line.Delta),
        sizes(line.group_sizes),
    ]


def footing(block: Block) -> str:
    """Write what holds for all lines of a block: the target, and what its figures are.

    >>> footing(Block({}, "80.0%", []))
    'target: 80.0%'
    >>> footing(Block({}, "80.0%", [], repeated=2))
    'target: 80.0%; 2 runs repeat others with the same settings and seed: counted once'
    """
    seeds = max((line.seeds for line in block.lines), default=1)
    over = f"; {seeds} seeds, mean ± SD, group sizes of the first" if seeds > 1 else ""
    repeat = "run repeats another" if block.repeated == 1 else "runs repeat others"
    said = f"; {block.repeated} {repeat} with the same settings and seed: counted once"
    return f"target: {block.target}{over}{said if block.repeated else ''}"


def heading(block: Block) -> str:
    """Write what tells a block from the others.

    >>> heading(Block({"model.name": "sr", "train.lr": 0.5}, "", []))
    'model sr, lr 0.5'
    """
    words = []
    for key, value in block.setting.items():
        if value == "":
            continue
        section, _, name = key.partition(".")
        words.append(f"{section if name == 'name' else name} {value}")
    return ", ".join(words) or "all runs"


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
