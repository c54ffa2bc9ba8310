"""The relations that the paper states, each tested on pairs of runs of the same seed.

Runs are compared that differ in what is compared and in nothing else: not in scale, and not in
clock.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from coterie.analysis.compare import seconds_to
from coterie.analysis.format import number
from coterie.core.errors import RecordError
from coterie.paper.curves import FEDAVG_C, FEDAVG_I, POINTS
from coterie.paper.efficiency import PRINTED
from coterie.paper.paired import NOT_RUN, UNTOLD, Claim, Paired, judged, paired
from coterie.paper.runs import (
    CLOCKS,
    FEDAVG,
    HIERFAVG,
    THEIRS,
    Runs,
    accuracy,
    accuracy_at,
    budgets,
    ranges,
    targets,
)
from coterie.paper.tables import Table
from coterie.runs.record import RecordedRun

COLUMNS = ("relation", "work", "n", "by seed", "mean", "95% interval", "p", "verdict")
CLOCKED = "algorithm.charge_grouping"  # among the settings of an algorithm, and one of the clock
STEPS = "after as many steps"
HOW = (
    "Differences by seed, in the order of the seeds. p: exact, two-sided, by flipped signs; it "
    "cannot be below 2 / 2^n. "
)
FOOT = (
    f"{HOW}Points of accuracy. >= holds if the interval begins at most {100 * POINTS:g} point "
    "below 0, = if all of it is that near 0, > if all of it is above 0. By time: when FedAvg has "
    "taken its steps. FedAvg-C, -I and -IC grouped as the authors do."
)


@dataclass(frozen=True)
class Relation:
    """What the paper says of two algorithms."""

    upper: str
    lower: str
    claim: Claim

    def __str__(self) -> str:
        """Write it as the paper might."""
        return f"{self.upper} {_SIGNS[self.claim]} {self.lower}"


_SIGNS: dict[Claim, str] = {"more": ">", "not less": ">=", "level": "="}
AHEAD = (Relation(THEIRS, FEDAVG, "more"), Relation(THEIRS, HIERFAVG, "more"))
CHAIN = (
    Relation(THEIRS, FEDAVG_I, "not less"),
    Relation(FEDAVG_I, HIERFAVG, "not less"),
    Relation(HIERFAVG, FEDAVG, "not less"),
)
EQUAL = tuple(Relation(name, FEDAVG, "level") for name in (HIERFAVG, FEDAVG_I, THEIRS))
APART = Relation(FEDAVG_C, FEDAVG_I, "more")  # as the figure by epochs has them
BY_KIND = {"Dtt": (*AHEAD, *CHAIN, APART), "Dhh": EQUAL}


def of_printed_cells(runs: Runs) -> list[Table]:
    """Test who is above whom in every cell of the efficiency table, run or not."""
    parts = []
    for kind, model in PRINTED:
        some = runs.where(partition__kind=kind, model__name=model)
        parts += named(cells(some)) or [(f"{kind} {model}", some)]
    return _ordered(parts)


def of_curves(runs: Runs) -> list[Table]:
    """Test who is above whom wherever the figures of accuracy say so."""
    kinds = runs.where(partition__kind="Dtt"), runs.where(partition__kind="Dhh")
    return _ordered([part for some in kinds for part in named(cells(some))])


def _ordered(parts: Sequence[tuple[str, Runs]]) -> list[Table]:
    """Test the relations of each part, by steps and by every clock."""
    tables = [Table(f"Relations the paper states, {STEPS}", COLUMNS, foot=FOOT)]
    tables += [Table(f"Relations the paper states, {clock}", COLUMNS) for clock in CLOCKS]
    for work, some in parts:
        kind = next((kind for kind in BY_KIND if kind in work.split()), None)
        relations = [each for each in BY_KIND.get(kind or "", ()) if _belongs(each, some)]
        known = some.of(*{name for each in relations for name in (each.upper, each.lower)})
        _add(tables[0], relations, work, known, accuracy)
        for table, by in zip(tables[1:], CLOCKS.values(), strict=True):
            timed = by(known)
            ends = budgets(timed)

            def then(run: RecordedRun, ends: dict[int, float] = ends) -> float | None:
                end = ends.get(run.config["seed"])
                return None if end is None else accuracy_at(run, end)

            _add(table, relations, work, timed, then)
    return [table for table in tables if table.rows]


def _belongs(relation: Relation, runs: Runs) -> bool:
    """Leave out FedAvg-C and -I where an experiment has all others and not them."""
    needed = {FEDAVG_C, FEDAVG_I} & {relation.upper, relation.lower}
    return needed <= set(runs.labels) or THEIRS not in runs.labels


def _add(
    table: Table,
    relations: Sequence[Relation],
    work: str,
    runs: Runs,
    what: Callable[[RecordedRun], float | None],
) -> None:
    for each in relations:
        upper, lower = (by_seed(runs.of(name), what) for name in (each.upper, each.lower))
        found = paired(upper, lower)
        table.rows.append(_row(f"{each}", work, found, judged(found, each.claim, POINTS)))


def learning_steps(runs: Runs) -> list[Table]:
    """Test whether 25 steps between global means cost accuracy, and FedAvg the most."""
    table = Table(
        "Whom 25 learning steps cost accuracy, and whom the most",
        COLUMNS,
        foot=f"{HOW}Points of accuracy after as many steps. Loss: with 5 or (1, 5) less with 25 or "
        "(5, 5). FedAvg-IC grouped as the authors do.",
    )
    for work, some in named(cells(runs)):
        losses = {}
        for name in (FEDAVG, HIERFAVG, THEIRS):
            few, many = (
                by_seed(some.of(name).where(algorithm__tau1=tau1), accuracy) for tau1 in (1, 5)
            )
            found = paired(few, many)
            losses[name] = found.by_seed if found else {}
            table.rows.append(_row(f"loss of {name} > 0", work, found, judged(found, "more")))
        for name in (HIERFAVG, THEIRS):
            found = paired(losses[FEDAVG], losses[name])
            relation = f"loss of {FEDAVG} > {name}"
            table.rows.append(_row(relation, work, found, judged(found, "more")))
    return [table] if table.rows else []


def topologies(runs: Runs) -> list[Table]:
    """Test whether the jellyfish is faster than the fat tree."""
    table = Table(
        "Seconds that the jellyfish saves over the fat tree",
        COLUMNS,
        foot=f"{HOW}Seconds to FedAvg's final accuracy. Seeds on which one of both never gets "
        "there are left out; if more than half are not left, nothing is told apart. FedAvg-IC "
        "grouped as the authors do.",
    )
    for clock, by in CLOCKS.items():
        for work, some in named(cells(runs, "network.topology")):
            timed = by(some.of(FEDAVG, HIERFAVG, THEIRS))
            for name in (FEDAVG, HIERFAVG, THEIRS):
                tree, jelly = (
                    _seconds(timed.where(network__topology=each), name)
                    for each in ("fat-tree", "jellyfish")
                )
                both = tree.keys() & jelly.keys()
                found = paired(_reached(tree), _reached(jelly))
                said = judged(found, "more") if both else NOT_RUN
                if both and 2 * len(found.by_seed if found else {}) <= len(both):
                    said = UNTOLD
                relation = f"{name}: fat tree > jellyfish, {clock}"
                table.rows.append(_row(relation, work, found, said, 1, of=len(both)))
    return [table] if table.rows else []


def _seconds(runs: Runs, name: str) -> dict[int, float | None]:
    """Seconds of an algorithm to FedAvg's final accuracy, by seed; None: never."""
    wanted = targets(runs)
    own = {run.config["seed"]: run for run in runs.of(name).members}
    return {seed: seconds_to(own[seed], wanted[seed]) for seed in wanted if seed in own}


def _reached(took: dict[int, float | None]) -> dict[int, float]:
    return {seed: seconds for seed, seconds in took.items() if seconds is not None}


def cells(runs: Runs, *apart: str) -> list[Runs]:
    """Tell runs apart by all settings but those of the algorithm, and others that are compared.

    So a cell has one scale and one clock.
    """
    found: dict[frozenset[tuple[str, object]], list[RecordedRun]] = {}
    for run in runs.members:
        own = {
            (key, value)
            for key, value in run.settings.items()
            if key not in apart and (key == CLOCKED or not key.startswith("algorithm."))
        }
        found.setdefault(frozenset(own), []).append(run)
    return [Runs(tuple(members)) for members in found.values()]


def named(parts: Sequence[Runs]) -> list[tuple[str, Runs]]:
    """Name cells by diversity and model, then by data, then by all in which namesakes differ."""
    settings = [part.members[0].settings for part in parts]
    names = [" ".join(_words(own, settings)) for own in settings]
    shared = Counter(names)
    told = []
    for name, own, part in zip(names, settings, parts, strict=True):
        others = [each for n, each in zip(names, settings, strict=True) if n == name]
        differ = [k for k in own if any(own[k] != each.get(k) for each in others)]
        more = ", ".join(f"{key}={own[key]}" for key in differ) if shared[name] > 1 else ""
        told.append((f"{name} ({more})" if more else name, part))
    return told


def _words(own: dict[str, object], every: Sequence[dict[str, object]]) -> Iterator[str]:
    if len({each["data.name"] for each in every}) > 1:
        yield f"{own['data.name']}"
    yield f"{own['partition.kind']}"
    yield f"{own['model.name']}"


def by_seed(runs: Runs, what: Callable[[RecordedRun], float | None]) -> dict[int, float]:
    """Return something of the runs of one algorithm in one cell by seed, where it is known."""
    found: dict[int, float] = {}
    for run in runs.members:
        seed, value = run.config["seed"], what(run)
        if seed in found:
            raise RecordError(f"{run.folder}: seed {seed} must be there once, got it twice")
        if value is not None:
            found[seed] = value
    return found


def _row(
    relation: str, work: str, found: Paired | None, said: str, unit: float = 100, of: int = 0
) -> list[str]:
    """Write a row; figures in points, or in seconds if the unit is 1."""
    if found is None:
        return [relation, work, f"0/{of}" if of else "0", "", "-", "-", "-", said]

    def told(value: float) -> str:
        text = f"{unit * value:+.1f}" if unit != 1 else f"{'+' * (value >= 0)}{number(value)}"
        return text if float(text) else text.lstrip("+-")

    n = len(found.by_seed)
    alone = n < 2  # whose interval is everything
    span = "-" if alone else f"{told(found.low)} to {told(found.high)}"
    seeds = f"{', '.join(map(told, found.by_seed.values()))} (seeds {ranges(found.by_seed)})"
    count = f"{n}/{of}" if of and n < of else f"{n}"
    p = "-" if found.p is None else f"{found.p:.3g}"
    return [relation, work, count, seeds, told(found.mean), span, p, said]
