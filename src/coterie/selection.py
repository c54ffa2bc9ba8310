"""Which settings of a sweep are best, by the validation part."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from coterie.config import SELECT
from coterie.record import RecordedRun


@dataclass(frozen=True)
class Candidate:
    """Settings that some runs have in common but for their seed, and how these did on average."""

    settings: dict[str, Any]  # those in which candidates differ
    value: float
    sd: float | None
    seeds: int


def rank(runs: Sequence[RecordedRun], select: str) -> list[Candidate]:
    """List candidates, the best first; one with fewer complete seeds than others comes later."""
    tables = [run.settings for run in runs]
    keys = [k for k in tables[0] if len({str(t.get(k)) for t in tables}) > 1]
    found: dict[str, tuple[dict[str, Any], list[float]]] = {}
    for run, table in zip(runs, tables, strict=True):
        told = {key: table.get(key) for key in keys}
        found.setdefault(str(told), (told, []))[1].append(float(run.summary[select]))
    candidates = [
        Candidate(told, mean(values), stdev(values) if len(values) > 1 else None, len(values))
        for told, values in found.values()
    ]
    sign = -1 if SELECT[select] == "most" else 1
    return sorted(candidates, key=lambda c: (-c.seeds, sign * c.value))
