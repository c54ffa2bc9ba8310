"""Which runs of an experiment are not there, cell by cell."""

from collections.abc import Sequence
from dataclasses import asdict

from coterie.analysis.lines import name_of
from coterie.config.files import decides, flat
from coterie.config.settings import Config
from coterie.paper.runs import ranges
from coterie.paper.tables import Table

Settings = dict[str, object]


def not_run(wanted: Sequence[Config], there: Sequence[Config]) -> list[Table]:
    """List the runs of an experiment that are not among those that are there."""
    done = set(there)
    every = [(config, name_of(asdict(config)), *_apart(config)) for config in wanted]
    shared = _varying([work for *_, work, _ in every])
    apart = {
        name: _varying([own for _, other, _, own in every if other == name])
        for name in dict.fromkeys(name for _, name, *_ in every)
    }
    cells: dict[str, dict[str, list[Config]]] = {}
    for config, name, work, own in every:
        told = " ".join([name, *(f"{key.rpartition('.')[2]}={own[key]}" for key in apart[name])])
        cell = " ".join(f"{work[key]}" for key in shared) or "all"
        cells.setdefault(cell, {}).setdefault(told, []).append(config)
    table = Table(
        "What was not run",
        ("work", "runs", "there", "missing"),
        foot="Of this experiment at this scale. No table counts a run that is missing, or one that "
        "is not complete.",
    )
    for cell, members in cells.items():
        configs = [config for each in members.values() for config in each]
        count = sum(config in done for config in configs)
        left = {
            name: [config.seed for config in each if config not in done]
            for name, each in members.items()
        }
        if count < len(configs):
            told = "; ".join(f"{name}: seeds {ranges(s)}" for name, s in left.items() if s)
            missing = told if count else "all"
            table.rows.append([cell, f"{len(configs)}", f"{count}", missing])
    return [table] if table.rows else []


def _apart(config: Config) -> tuple[Settings, Settings]:
    """Return what decides a result but the seed: of the work, and of the algorithm."""
    settings = {k: v for k, v in flat(config).items() if decides(k) and k != "seed"}
    own = {k: v for k, v in settings.items() if k.startswith("algorithm.")}
    return {k: v for k, v in settings.items() if k not in own}, own


def _varying(every: Sequence[Settings]) -> list[str]:
    """Return the settings that have several values."""
    return [key for key in every[0] if len({each.get(key) for each in every}) > 1] if every else []
