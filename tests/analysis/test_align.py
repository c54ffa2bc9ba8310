"""Seeds at the same steps: where all measured, and between where schedules were chosen."""

from dataclasses import replace

from coterie.analysis.align import aligned
from coterie.analysis.curves import curve as figure_curve
from coterie.render.page.curve_data import curve
from coterie.runs.record import RecordedRun
from recorded import recorded


def seed_of(seed: int, steps: list[int], *, chose: bool) -> RecordedRun:
    """A run whose accuracy is a hundredth of its step, and its seconds twice that step."""
    run = recorded([(2.0 * t, t / 100) for t in steps], seed, {"tuned": {}} if chose else {})
    rows = [{**row, "t": t, "epoch": float(t)} for row, t in zip(run.rows, steps, strict=True)]
    return replace(run, rows=rows)


def pair(*, chose: bool) -> list[RecordedRun]:
    return [seed_of(0, [0, 10, 30, 40], chose=chose), seed_of(1, [0, 20, 30, 50], chose=chose)]


def test_given_schedules_are_averaged_where_all_seeds_measured() -> None:
    found = curve(pair(chose=False), 100)
    assert found["x"]["t"] == [0, 30]
    assert (found["unshared"], found["between"]) == (4, 0)
    assert figure_curve(pair(chose=False), "t", "test_accuracy").x == [30]


def test_chosen_schedules_are_averaged_between_measurements_too() -> None:
    found = curve(pair(chose=True), 100)
    assert found["x"]["t"] == [0, 10, 20, 30, 40]  # not beyond where the first seed ends
    assert found["x"]["seconds"] == [0, 20, 40, 60, 80]
    assert found["y"]["test_accuracy"]["mean"] == [0, 10, 20, 30, 40]
    assert found["y"]["test_accuracy"]["sd"] == [0] * 5
    assert (found["unshared"], found["between"]) == (1, 3)
    drawn = figure_curve(pair(chose=True), "seconds", "test_accuracy", 100)
    assert drawn.x == [20, 40, 60, 80]  # but for the start
    assert drawn.mean == drawn.low == drawn.high == [10, 20, 30, 40]
    assert drawn.sd == [0] * 4


def test_what_one_of_two_neighbours_lacks_is_not_made_up() -> None:
    runs = pair(chose=True)
    lacking = [{t: {**row, "Delta": None} for t, row in _by_step(runs[0]).items()}]
    first, second = aligned(runs, [*lacking, _by_step(runs[1])])[20]
    assert first["Delta"] is None
    assert first["test_accuracy"] == 0.2
    assert second == runs[1].rows[1]


def test_a_seed_without_measurements_leaves_nothing_to_average() -> None:
    assert aligned(pair(chose=True), [{}, {0: {"t": 0}}]) == {}


def _by_step(run: RecordedRun) -> dict[int, dict[str, object]]:
    return {row["t"]: row for row in run.rows}
