"""What the report draws curves of, and their numbers as the page holds them."""

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any, NamedTuple

from coterie.analysis.align import aligned
from coterie.analysis.compare import first_reaching
from coterie.analysis.curves import STATISTICS, Column, metrics_of_runs, thin
from coterie.core.types import Json
from coterie.engine.update import NOTHING as PLAIN_STEPS
from coterie.runs.record import RecordedRun
from coterie.runs.validate import metrics_of
from coterie.simulation.algorithms import ALGORITHMS
from coterie.simulation.row import METRICS
from coterie.theory.bounds import Constants, simple_distance

Values = list[float] | None  # of every seed, if all have one


class Quantity(NamedTuple):
    """Something that rows measure: its key there, what it is called, its unit, its figure."""

    key: str
    label: str
    unit: str
    figure: str
    scale: float = 1.0


BOUND = "bound"  # not in a row, but made of what is
AXES = (
    Quantity("seconds", "simulated time", "s", "x"),
    Quantity("wall_s", "wall time", "s", "x"),
    Quantity("epoch", "epochs", "", "x"),
    Quantity("t", "steps", "", "x"),
)
QUANTITIES = (
    Quantity("test_accuracy", "test accuracy", "%", "curves", 100.0),
    Quantity("train_loss", "train loss", "", "curves"),
    Quantity("test_loss", "test loss", "", "curves"),
    Quantity("Delta", "Delta: groups from the whole", "", "divergence"),
    Quantity("delta", "delta: nodes from their group", "", "divergence"),
    Quantity("node_worst", "accuracy of the worst tenth of nodes", "%", "nodes", 100.0),
    Quantity("node_mean", "mean accuracy of nodes", "%", "nodes", 100.0),
    Quantity("node_sd", "standard deviation over nodes", "%", "nodes", 100.0),
    Quantity(BOUND, "bound: straying in the next round", "", "divergence"),
)
DIGITS, NOTHING = 6, 1e-12  # what is smaller is what rounding left of 0


def curve(runs: Sequence[RecordedRun], most: int) -> Json:
    """Average runs of a line at the steps that all of them measured, and keep `most` points.

    An x is the mean over seeds too, as seeds differ in seconds. `low` and `high` are the least and
    the most of the seeds, `sd` is their standard deviation; a single seed has none of them. Seeds
    that chose their schedules are averaged between the steps that they measured, too.
    """
    measured = [
        {row["t"]: {**row, BOUND: of(row)} for row in run.rows if _measured(row)}
        for run, of in ((run, bound(run)) for run in runs)
    ]
    shared, quantities = aligned(runs, measured), quantities_of(runs)
    columns = {
        each.key: [_column(rows, each) for rows in shared.values()] for each in (*AXES, *quantities)
    }
    shown = {
        each.key: columns[each.key]
        for each in quantities
        if any(values is not None for values in columns[each.key])
    }
    kept = _kept(list(shown.values()), len(shared), most)
    several = len(runs) > 1
    return {
        "x": {
            axis.key: _over(_some(columns[axis.key], kept), mean)
            for axis in AXES
            if None not in columns[axis.key]
        },
        "y": {key: _bands(_some(values, kept), several=several) for key, values in shown.items()},
        "points": len(shared),
        "unshared": len(set().union(*measured)) - len(shared),
        "between": len(shared) - len(set(measured[0]).intersection(*measured[1:])),
    }


def quantities_of(runs: Sequence[RecordedRun]) -> tuple[Quantity, ...]:
    """Return what curves can be of: what every run may measure, and the metrics of these."""
    own = (Quantity(f"{METRICS}{name}", name, "", "curves") for name in metrics_of_runs(runs))
    return (*QUANTITIES, *own)


def bound(run: RecordedRun) -> Callable[[Json], float | None]:
    """Bound ||w - v_[l]|| at the end of the global interval that begins with a row of a run.

    By Delta and delta as they are there; None where it does not hold: steps that are more than one
    gradient of all data, and models that are not convex.
    """
    told = run.settings
    more = [told.get(f"optimizer.{key}") for key in ("momentum", "fedprox", "scaffold")]
    if told.get("model.name") != "sr" or told.get("train.batch_size") != "full" or any(more):
        return lambda row: None
    taus = told["algorithm.tau1"], told["algorithm.tau2"]
    lr, decay = told["train.lr"], told["train.lr_decay"]
    algorithm = ALGORITHMS.get(told["algorithm.name"])
    known = all(isinstance(value, int | float) for value in (*taus, lr, decay))  # not auto
    given = told.get("algorithm.groups", "auto") == "auto"
    if algorithm is None or algorithm.update is not PLAIN_STEPS or not (known and given):
        return lambda row: None
    schedule = algorithm.schedule(*taus)

    def of(row: Json) -> float | None:
        if row.get("Delta") is None or row.get("delta") is None:
            return None
        eta = lr * decay ** row["t"]
        return simple_distance(Constants(eta, 0.0, row["delta"], row["Delta"]), schedule)

    return of


def _measured(row: Json) -> bool:
    """Whether anything was measured at a row: not all is in every one that has something."""
    return any(row.get(each.key) is not None for each in QUANTITIES) or bool(metrics_of(row))


def _column(rows: Sequence[Json], quantity: Quantity) -> Values:
    """One quantity at one step, of every seed; None unless all have it."""
    values = [row.get(quantity.key) for row in rows]
    return None if None in values else [quantity.scale * v for v in values if v is not None]


def _over(values: Sequence[Values], f: Any) -> Column:
    return [None if each is None else _short(f(each)) for each in values]


def _bands(values: Sequence[Values], *, several: bool) -> dict[str, Column]:
    return {key: _over(values, f) for key, f in STATISTICS.items() if several or key == "mean"}


def _kept(columns: Sequence[Sequence[Values]], points: int, most: int) -> list[int]:
    """Choose points by the least and the most of the seeds; means are worked out of those only."""
    if points <= most:
        return list(range(points))
    return thin([{"low": _over(c, min), "high": _over(c, max)} for c in columns], points, most)


def _some(column: list[Values], kept: list[int]) -> list[Values]:
    return [column[at] for at in kept]


def _short(value: float) -> float:
    return 0.0 if abs(value) < NOTHING else float(f"{value:.{DIGITS}g}")


def hit(runs: Sequence[RecordedRun], targets: dict[int, float]) -> Json | None:
    """Where runs first measured the target of their seed: the mean on every axis; None if none did.

    The mean is over those that did; `reached` says how many.
    """
    known = [(run, targets[run.config["seed"]]) for run in runs if run.config["seed"] in targets]
    firsts = [first_reaching(run, target) for run, target in known]
    rows = [row for row in firsts if row is not None]
    if not rows:
        return None
    columns = {axis.key: _column(rows, axis) for axis in AXES}
    at = {key: _short(mean(column)) for key, column in columns.items() if column is not None}
    return {**at, "reached": len(rows), "of": len(runs)}
