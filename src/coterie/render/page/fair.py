"""A picture of the time to a target: a mark for every method, with its interval and its seeds."""

from collections.abc import Sequence
from typing import Any

from coterie.analysis.fair import Reached, Target, interval
from coterie.analysis.palette import COLOURS


def fair_figure(methods: Sequence[Reached], target: Target) -> Any:
    """Draw seconds to a target by method, the quickest on top; who never is there has no mark."""
    from matplotlib.figure import Figure

    order = sorted(methods, key=lambda each: (not each.whole, _mean(each)))
    figure = Figure(figsize=(8, 1.2 + 0.4 * len(order)), layout="constrained")
    axis = figure.subplots()
    for at, each in enumerate(order):
        known = each.known
        if not known:
            continue
        colour = COLOURS[0] if each.whole else "#999999"
        axis.plot(known, [at] * len(known), "|", color=colour, alpha=0.5, markersize=9)
        span = interval(known)
        if len(known) > 1:
            axis.plot([max(span.low, 0.0), span.high], [at, at], color=colour, linewidth=1.8)
        axis.plot([span.mean], [at], "o", color=colour, markersize=6)
    axis.set_yticks(range(len(order)), [_name(each) for each in order])
    axis.set_ylim(len(order) - 0.5, -0.5)
    axis.set_xlim(left=0)
    axis.set_xlabel("simulated seconds; line: 95% interval of the mean, ticks: seeds")
    axis.set_title(f"time to {target}", loc="left", fontsize=10)
    axis.grid(axis="x", alpha=0.25)
    return figure


def _mean(each: Reached) -> float:
    return sum(each.known) / len(each.known) if each.known else float("inf")


def _name(each: Reached) -> str:
    there, seeds = len(each.known), len(each.seconds)
    return each.method if there == seeds else f"{each.method} ({there} of {seeds} seeds)"
