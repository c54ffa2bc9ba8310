"""Bars: where the seconds and bytes went, and how long each algorithm took to the target."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from coterie.analysis.compare import seconds_to
from coterie.analysis.format import number
from coterie.render.figures.curves import Lines
from coterie.render.figures.style import FILLS, HATCHES, label_below, legend, short

KINDS = {
    "compute_s": "local steps",
    "group_s": "group means",
    "global_s": "global means",
    "grouping_s": "grouping",
}
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
Parts = Mapping[str, Mapping[str, float]]  # of each bar: what -> how much


def seconds_by_kind(lines: Lines, width: float) -> Any:
    """Simulated seconds of whole runs by what they were spent on, means over the seeds."""
    parts = {
        name: {
            what: mean(float(run.summary.get(key) or 0) for run in runs)
            for key, what in KINDS.items()
        }
        for name, runs in lines.items()
    }
    return _stacked(parts, width, "simulated seconds")


def bytes_by_tier(lines: Lines, width: float) -> Any:
    """Bytes of whole runs by the tier of the network they crossed, means over the seeds."""
    every = [run.summary.get("bytes_by_tier") or {} for runs in lines.values() for run in runs]
    tiers = list(dict.fromkeys(tier for table in every for tier in table))
    parts = {
        name: {
            tier: mean((run.summary.get("bytes_by_tier") or {}).get(tier, 0) for run in runs)
            for tier in tiers
        }
        for name, runs in lines.items()
    }
    largest = max((sum(part.values()) for part in parts.values()), default=0)
    unit, what = next((unit for unit in BYTES if largest >= unit[0]), BYTES[-1])
    scaled = {n: {tier: v / unit for tier, v in part.items()} for n, part in parts.items()}
    return _stacked(scaled, width, f"{what} sent, by tier of the network")


def time_to_target(lines: Lines, width: float, targets: Mapping[int, float], said: str) -> Any:
    """Simulated seconds until the targets of the seeds: the mean of those that reached theirs."""
    if not targets:
        return None
    reached = {
        name: [s for run in runs if (s := seconds_to(run, targets[run.config["seed"]])) is not None]
        for name, runs in lines.items()
    }
    if not any(reached.values()):
        return None
    figure, axis = _canvas(lines, width)
    for at, (name, found) in enumerate(reached.items()):
        missing = len(found) < len(lines[name])
        share = f" ({len(found)}/{len(lines[name])})" if missing else ""
        if not found:
            axis.annotate("not reached", (0, at), **_beside)
            continue
        spread = stdev(found) if len(found) > 1 else 0.0
        bar = {"color": FILLS[4], "edgecolor": "black", "linewidth": 0.4, "height": 0.7}
        error = {"xerr": spread, "error_kw": {"elinewidth": 0.8, "capsize": 2}} if spread else {}
        axis.barh(at, mean(found), **bar, **error)
        axis.annotate(f"{number(mean(found))}{share}", (mean(found) + spread, at), **_beside)
    label_below(figure, axis, f"simulated seconds to {said}")
    return figure


_beside: dict[str, Any] = {
    "xytext": (3, 0),
    "textcoords": "offset points",
    "va": "center",
    "fontsize": 6,
}


def _stacked(parts: Parts, width: float, what: str) -> Any:
    """Draw a bar for every line, and a legend of the parts; nothing where all are 0."""
    from matplotlib.patches import Patch

    kinds = list(dict.fromkeys(kind for part in parts.values() for kind in part))
    kinds = [kind for kind in kinds if any(part.get(kind) for part in parts.values())]
    if not kinds:
        return None
    figure, axis = _canvas(parts, width)
    looks = [_look(at) for at in range(len(kinds))]
    for at, part in enumerate(parts.values()):
        left = 0.0
        for kind, look in zip(kinds, looks, strict=True):
            axis.barh(at, part.get(kind, 0.0), left=left, height=0.7, **look)
            left += part.get(kind, 0.0)
        axis.annotate(number(left), (left, at), **_beside)
    axis.set_xlabel(what)
    legend(figure, [Patch(**look) for look in looks], kinds)
    return figure


def _look(at: int) -> dict[str, Any]:
    fill, hatch = FILLS[at % len(FILLS)], HATCHES[at % len(HATCHES)]
    return {"facecolor": fill, "hatch": hatch, "edgecolor": "black", "linewidth": 0.4}


def _canvas(names: Sequence[str] | Mapping[str, Any], width: float) -> tuple[Any, Any]:
    """Make a figure with room for so many bars, the first on top."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.55 + 0.2 * len(names)), layout="constrained")
    axis = figure.subplots()
    axis.set_yticks(range(len(names)), [short(name) for name in names])
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.margins(x=0.14)
    axis.grid(axis="x")
    axis.set_axisbelow(True)
    return figure, axis
