"""Which settings of a sweep are best, by the validation part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from coterie.analysis.lines import differing
from coterie.config.files import SELECT, decides
from coterie.core.errors import RecordError
from coterie.runs.record import RecordedRun


@dataclass(frozen=True)
class Candidate:
    """Settings that some runs have in common but for their seed, and how these did on average."""

    settings: dict[str, Any]  # those in which candidates differ
    value: float
    sd: float | None
    seeds: int


def rank(
    runs: Sequence[RecordedRun], select: str, also: Sequence[Mapping[str, Any]] = ()
) -> list[Candidate]:
    """List candidates, the best first; one with fewer complete seeds than others comes later.

    `also` are settings of runs that are not complete: what they differ in is told, too.
    """
    tables = [run.settings for run in runs]
    keys = [key for key in differing([*tables, *also]) if _tells(key)]
    found: dict[str, tuple[dict[str, Any], list[float]]] = {}
    for run, table in zip(runs, tables, strict=True):
        told = {key: table.get(key) for key in keys}
        found.setdefault(str(told), (told, []))[1].append(_value(run, select))
    candidates = [
        Candidate(told, mean(values), stdev(values) if len(values) > 1 else None, len(values))
        for told, values in found.values()
    ]
    sign = -1 if SELECT[select] == "most" else 1
    return sorted(candidates, key=lambda c: (-c.seeds, sign * c.value))


def _tells(key: str) -> bool:
    """Whether a setting can tell candidates apart: neither the seed, nor what decides nothing."""
    return key != "seed" and decides(key)


def _value(run: RecordedRun, select: str) -> float:
    found = run.summary.get(select)
    if found is None:
        raise RecordError(f"{run.folder}: its summary.json has no {select}; run it again")
    return float(found)
