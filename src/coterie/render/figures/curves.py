"""Curves over simulated time or epochs: the mean over the seeds, and a band of one deviation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from coterie.analysis.curves import Curve, curve
from coterie.render.figures.style import Look, legend, log_seconds, plain_log
from coterie.runs.record import RecordedRun

Lines = Mapping[str, Sequence[RecordedRun]]  # runs of each line, one a seed
Looks = Mapping[str, Look]
NEARLY_0 = 1e-6  # a Delta that is 0 but for rounding
DECADE = 10  # values further apart than this are drawn on a logarithmic axis


def loss(lines: Lines, looks: Looks, width: float) -> Any:
    """Training and test loss by simulated seconds, beside each other on a page, else below."""
    wide = width > 5
    figure = _figure(width, 2.3 if wide else 3.9)
    axes = figure.subplots(*((1, 2) if wide else (2, 1)), sharex=True, sharey=wide)
    drawn = [_draw(axis, lines, looks, "seconds", f"{part}_loss") for axis, part in _parts(axes)]
    if not any(drawn):
        return None
    for axis, part in _parts(axes):
        _value_axis(axis, f"{part} loss", [line for each in drawn for line in each.values()])
    for axis in axes:
        log_seconds(axis)
    if not wide:
        axes[0].set_xlabel("")
    _legend(figure, [name for name in lines if any(name in each for each in drawn)], looks)
    return figure


def _parts(axes: Any) -> Iterator[tuple[Any, str]]:
    return zip(axes, ("train", "test"), strict=True)


def delta_by_time(lines: Lines, looks: Looks, width: float) -> Any:
    """Delta by simulated seconds, of the lines in which it is not always 0."""
    some = {
        name: runs
        for name, runs in lines.items()
        if any((row.get("Delta") or 0) > NEARLY_0 for run in runs for row in run.rows)
    }
    return by(some, looks, width, x="seconds", y="Delta", what="Delta")


def by(
    lines: Lines, looks: Looks, width: float, *, x: str, y: str, what: str, unit: float = 1.0
) -> Any:
    """One quantity by simulated seconds, on a logarithmic axis, or by epochs of local work."""
    figure = _figure(width, 2.1 if width < 5 else 2.9)
    axis = figure.subplots()
    drawn = _draw(axis, lines, looks, x, y, unit)
    if not drawn:
        return None
    if y == "Delta":
        _value_axis(axis, what, list(drawn.values()))
    else:
        axis.set_ylabel(what)
    if x == "seconds":
        log_seconds(axis)
    else:
        axis.set_xlabel(x)
    _legend(figure, list(drawn), looks)
    return figure


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _draw(
    axis: Any, lines: Lines, looks: Looks, x: str, y: str, unit: float = 1.0
) -> dict[str, Curve]:
    """Draw every line that has something to draw, and return those."""
    curves = {name: line for name, runs in lines.items() if (line := curve(runs, x, y, unit)).x}
    for name, line in curves.items():
        axis.plot(line.x, line.mean, **looks[name].line())
        if any(line.sd):
            pairs = list(zip(line.mean, line.sd, strict=True))
            low, high = ([m + sign * sd for m, sd in pairs] for sign in (-1, 1))
            axis.fill_between(line.x, low, high, color=looks[name].colour, alpha=0.18, linewidth=0)
    axis.grid()
    return curves


def _value_axis(axis: Any, what: str, drawn: Sequence[Curve]) -> None:
    """Name y, and make it logarithmic where values are decades apart and all above 0."""
    values = [value for line in drawn for value in line.mean]
    axis.set_ylabel(what)
    if values and 0 < DECADE * min(values) < max(values):
        axis.set_yscale("log")
        axis.set_ylim(0.8 * min(values), 1.25 * max(values))
        plain_log(axis.yaxis)


def _legend(figure: Any, names: Sequence[str], looks: Looks) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **{**looks[name].line(), "markevery": None}) for name in names]
    legend(figure, handles, names)


_accuracy = partial(by, y="test_accuracy", what="test accuracy (%)", unit=100.0)
CURVES: dict[str, Callable[[Lines, Looks, float], Any]] = {
    "accuracy-by-time": partial(_accuracy, x="seconds"),
    "accuracy-by-epoch": partial(_accuracy, x="epoch"),
    "loss": loss,
    "delta-by-time": delta_by_time,
}
