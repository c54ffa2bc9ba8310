"""Picture of how far a run strays from learning in one place, and of what bounds it."""

from typing import Any

import numpy as np

from coterie.theory.measure import Straying

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"


def bound_figure(found: Straying) -> Any:
    """Draw the distance from the virtual model, the gap to the lowest loss, and their bounds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    apart, gap = figure.subplots(1, 2)
    t = found.first + 1 + np.arange(len(found.bound))
    ends = found.first + 1 + np.array(found.ends)
    apart.plot(t, _shown(found.trace.apart), color=BLUE, label="measured")
    apart.plot(t, _shown(found.bound), color=ORANGE, label="bound that holds")
    apart.plot(t, _shown(found.printed), color=GREY, linestyle="--", label="bound as printed")
    apart.set_ylabel("||w(t) - v(t)||")
    gap.plot(ends, _shown(found.gap), color=BLUE, marker=".", label="measured")
    gap.plot(ends, _shown(found.gap_bound), color=ORANGE, marker=".", label="bound that holds")
    gap.set_ylabel("F(w) - F(w*)")
    for axis in (apart, gap):
        axis.set_xlabel("step")
        axis.set_yscale("log")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    return figure


def _shown(values: Any) -> Any:
    """Leave out what rounding has left of nothing, which has no place on a log axis."""
    return np.where(values > 1e-9, values, np.nan)
