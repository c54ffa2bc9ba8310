"""What runs cost: delays, seconds and bytes as bars, and groupings as a front."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from coterie.core.types import Json
from coterie.runs.record import RecordedRun

DELAYS = {"d_local": "d_local", "d_group": "d_group", "d_global": "d_global"}
SECONDS = {
    "compute_s": "local steps",
    "group_s": "group means",
    "global_s": "global means",
    "grouping_s": "planning",
}


def bars(lines: Sequence[Sequence[RecordedRun]]) -> list[Json]:
    """Bars of a block, for every line: means over its seeds, 0 where there is none.

    Parts of a whole are stacked. Delays have no sum, as one is taken more often than another: they
    stand `apart`.
    """
    tiers = dict.fromkeys(t for runs in lines for r in runs for t in _bytes(r))
    return [
        {
            "key": "seconds",
            "title": "Where the simulated seconds go",
            "unit": "s",
            "kinds": list(SECONDS.values()),
            "values": [[_mean(r.summary.get(k) for r in own) for k in SECONDS] for own in lines],
        },
        {
            "key": "delays",
            "title": "One local step, one group mean, one global mean",
            "unit": "ms",
            "apart": True,
            "kinds": list(DELAYS.values()),
            "values": [
                [_mean(r.summary.get(k) for r in own) * 1e3 for k in DELAYS] for own in lines
            ],
        },
        {
            "key": "bytes",
            "title": "Bytes over the links of each tier",
            "unit": "B",
            "kinds": list(tiers),
            "values": [[_mean(_bytes(r).get(t) for r in own) for t in tiers] for own in lines],
        },
    ]


def _bytes(run: RecordedRun) -> dict[str, float]:
    found = run.summary.get("bytes_by_tier")
    tiers = found.items() if isinstance(found, dict) else ()
    return {str(tier): nbytes for tier, nbytes in tiers if type(nbytes) in (int, float)}


def _mean(values: Any) -> float:
    return float(mean(value or 0.0 for value in values))


def pareto(runs: Sequence[tuple[int, str, str, RecordedRun]]) -> list[Json]:
    """Place every run's grouping by Delta when first measured, and milliseconds of a group mean.

    `runs` are the style, label and name of each run, and the run. A point is efficient if no other
    is as good in both and better in one. Runs without groups have no point.
    """
    points = [
        {"style": style, "label": label, "name": name, "seed": run.config["seed"], "x": x, "y": y}
        for style, label, name, run in runs
        if (x := run.summary.get("Delta_first")) is not None
        and (y := run.summary["d_group"]) is not None
    ]
    for point in points:
        point["y"] *= 1e3
    for point in points:
        point["efficient"] = not any(_beats(other, point) for other in points)
    return points


def _beats(a: Json, b: Json) -> bool:
    return bool(a["x"] <= b["x"] and a["y"] <= b["y"] and (a["x"] < b["x"] or a["y"] < b["y"]))
