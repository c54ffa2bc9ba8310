"""Picture of predicted time over the number of groups and the schedule."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from coterie.preview.schedule import Explained
from coterie.render.page.html import Page, Section, Table


def explain_page(found: Explained, table: Table, why: Sequence[str]) -> Page:
    """Show what was chosen, what else there was, and why."""
    alt = "Predicted seconds by number of groups, tau1 and tau2"
    section = Section([table], partial(explain_figure, found), alt, remarks=why)
    return Page("Coterie: how many groups, and how often to average", [section])


def explain_figure(found: Explained) -> Any:
    """Draw the seconds to the target: groups by tau1 at the best tau2, and tau1 by tau2."""
    from matplotlib.figure import Figure

    tuning = found.choice.outlook.tuning
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    K = found.chosen.option.num_groups
    groups = [
        [_soonest(found, num_groups=k, tau1=tau1) for tau1 in tuning.tau1]
        for k in tuning.num_groups
    ]
    taus2 = tuning.tau2 if K > 1 else (1,)
    taus = [
        [_soonest(found, num_groups=K, tau1=tau1, tau2=tau2) for tau1 in tuning.tau1]
        for tau2 in taus2
    ]
    c = found.chosen
    _heat(left, groups, tuning.tau1, tuning.num_groups, (c.tau1, K))
    _heat(right, taus, tuning.tau1, taus2, (c.tau1, c.tau2))
    left.set_ylabel("groups")
    left.set_title("seconds to the target, at the best tau2", fontsize=9)
    right.set_ylabel("tau2")
    right.set_title(f"with {K} group{'s' * (K > 1)}", fontsize=9)
    return figure


def _soonest(found: Explained, num_groups: int, tau1: int, tau2: int | None = None) -> float:
    best = found.best(
        lambda f: (f.option.num_groups, f.tau1) == (num_groups, tau1) and tau2 in (None, f.tau2)
    )
    return math.inf if best is None else found.total_s(best)


def _heat(
    axis: Any,
    seconds: Sequence[Sequence[float]],
    across: Sequence[int],
    up: Sequence[int],
    chosen: tuple[int, int],
) -> None:
    """Draw a table of seconds, darker where it takes longer; never is a dash on grey."""
    values = np.array(seconds)
    known = values[np.isfinite(values)]
    shown = np.ma.masked_invalid(values)
    axis.set_facecolor("#dddddd")
    if len(known):
        axis.imshow(np.ma.log(shown), cmap="viridis_r", aspect="auto", origin="lower")
    else:
        axis.set_xlim(-0.5, len(across) - 0.5)
        axis.set_ylim(-0.5, len(up) - 0.5)
    middle = np.log(known).mean() if len(known) else 0.0
    for (row, column), value in np.ndenumerate(values):
        never = not math.isfinite(value)
        dark = not never and math.log(value) > middle
        ring = (across[column], up[row]) == chosen
        axis.text(
            column,
            row,
            "-" if never else f"{value:.3g}",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if dark else "black",
            bbox={"facecolor": "none", "edgecolor": "#D55E00", "linewidth": 2} if ring else None,
        )
    axis.set_xticks(range(len(across)), [str(x) for x in across], fontsize=8)
    axis.set_yticks(range(len(up)), [str(x) for x in up], fontsize=8)
    axis.set_xlabel("tau1")
