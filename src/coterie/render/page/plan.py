"""Picture of the ways to group nodes: how far groups are from the whole against how slow."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from coterie.preview.map import here, spots
from coterie.preview.plan import PlanView
from coterie.preview.pricing import Point, label
from coterie.render.page.html import Page, Section, Table, plain_log_x
from coterie.render.page.map import here_table, map_figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"
WIDTH, HEIGHT = 9.0, 5.6  # inches
DECADE = 10  # a longer axis is logarithmic
# Where a name may stand: its nearer end in points from its point, the nearest places first.
PLACES = [
    (side * (10 if up else 7), sign * up)
    for up in (0, 14, 25, 36, 47, 58, 69, 80)
    for sign in ((1, -1) if up else (1,))
    for side in (1, -1)
]
Box = tuple[float, float, float, float]


def plan_page(view: PlanView, tables: Sequence[Table]) -> Page:
    """Show every way to group the nodes, and the chosen one."""
    alt = "Delta and d_group of every grouping, the front, and the chosen one"
    sections = [Section(tables, partial(plan_figure, view), alt)]
    if (place := here(view)) is not None:
        draw = partial(map_figure, spots(), place)
        heading = "Where groups paid in what was measured"
        alt = "who is first by skew and network, with this fleet's place"
        table = here_table(place)
        sections.append(Section([table], draw, alt, heading, beside=False))
    return Page("Coterie: who should train with whom", sections)


def plan_figure(view: PlanView) -> Any:
    """Draw every point, Delta against milliseconds, the front as a line, the chosen one circled."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT))
    axis = figure.add_axes((0.08, 0.1, 0.88, 0.8))
    front = view.front
    steps: dict[str, Any] = {"where": "post", "color": BLUE, "linewidth": 1, "alpha": 0.6}
    axis.step(*_xy(front), **steps, label="front: nothing beats it in both")
    found = [p for p in view.points if not p.by_method and not p.breaks]
    fit = [p for p in view.methods if not p.breaks]
    broken = [p for p in view.methods if p.breaks]
    _dots(axis, found, 10, GREY, f"the planner with other weights ({len(found)})")
    _dots(axis, fit, 34, BLUE, "a method")
    _dots(axis, broken, 34, "white", "a method that breaks a limit", edgecolors=GREY)
    ring = {"edgecolors": ORANGE, "linewidths": 2, "zorder": 6}
    _dots(axis, [view.chosen], 170, "none", f"chosen: least cost, {label(*view.weights)}", **ring)
    _scale(axis, [p for p in view.points if p.by_method or not p.breaks])
    named = [*view.methods, *(p for p in front if not p.by_method)]
    if view.chosen not in named:
        named.append(view.chosen)
    _draw_names(axis, view.points, named)
    axis.set_title(view.title, fontsize=9, parse_math=False)
    axis.set_xlabel(f"Delta, by {view.seen}: how far groups are from the whole", fontsize=8)
    axis.set_ylabel("d_group: ms of a group mean", fontsize=8)
    axis.tick_params(which="both", labelsize=7)
    axis.grid(alpha=0.25)
    axis.legend(fontsize=7, frameon=False, loc="best")
    return figure


def _xy(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [p.Delta for p in points], [1e3 * p.group_s for p in points]


def _dots(
    axis: Any, points: Sequence[Point], size: int, colour: str, what: str, **more: object
) -> None:
    if points:
        look = {"s": size, "c": colour, "linewidths": 1, "zorder": 4, **more}
        axis.scatter(*_xy(points), **look, label=what)


def _scale(axis: Any, points: Sequence[Point]) -> None:
    """Fix the limits, so that names can be placed; x is logarithmic over more than a decade."""
    x, y = _xy(points)
    if 0 < DECADE * min(x) < max(x):
        plain_log_x(axis)
        room = (max(x) / min(x)) ** 0.12
        axis.set_xlim(min(x) / room, max(x) * room)
    else:
        room = 0.12 * (max(x) - min(x)) or 0.5 * max(x) or 1.0
        axis.set_xlim(min(x) - room, max(x) + room)
    room = 0.12 * (max(y) - min(y)) or 0.5 * max(y) or 1.0
    axis.set_ylim(min(y) - room, max(y) + room)


def _draw_names(axis: Any, points: Sequence[Point], named: Sequence[Point]) -> None:
    """Write each name at the nearest place where it covers neither a point nor another name."""
    inch = 72 / axis.figure.dpi
    at = {p: inch * axis.transData.transform((p.Delta, 1e3 * p.group_s)) for p in points}
    taken: list[Box] = [(x - 4, y - 4, x + 4, y + 4) for x, y in at.values()]
    for point in named:
        size = 8 if point.by_method else 6.5
        boxes = {place: _box(at[point], place, point.name, size) for place in PLACES}
        free = [place for place, box in boxes.items() if not any(_meet(box, t) for t in taken)]
        x, y = place = free[0] if free else PLACES[0]
        taken.append(boxes[place])
        axis.annotate(
            point.name,
            (point.Delta, 1e3 * point.group_s),
            xytext=place,
            textcoords="offset points",
            ha="left" if x > 0 else "right",
            va="center",
            fontsize=size,
            color="black" if point.by_method else GREY,
            parse_math=False,
            zorder=7,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5} if y else None,
        )


def _box(at: Any, place: tuple[float, float], name: str, size: float) -> Box:
    """Left, low, right and high ends of a name, in points."""
    width = 0.6 * size * len(name)
    left = float(at[0]) + place[0] - (width if place[0] < 0 else 0)
    middle = float(at[1]) + place[1]
    return left, middle - 0.55 * size, left + width, middle + 0.55 * size


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
