"""What runs that choose their groups and schedule chose, in words."""

from collections.abc import Sequence

from coterie.record import RecordedRun

MOST_RUNS, MOST_CHANGES = 6, 5  # told one by one


def choices(label: str, runs: Sequence[RecordedRun]) -> list[str]:
    """Say of every run with something open what it took up, when, and what it first expected."""
    told = [run for run in runs if "tuned" in run.summary]
    said = [f"{label}, seed {run.config['seed']}, chose {_chosen(run)}" for run in told[:MOST_RUNS]]
    more = len(told) - MOST_RUNS
    return said + [f"{label} chose in {more} more runs; see their summary.json."] * (more > 0)


def _chosen(run: RecordedRun) -> str:
    tuned = run.summary["tuned"]
    K, schedules, expected = tuned["num_groups"], tuned["schedules"], tuned["expected"]
    steps = [f"({s['tau1']}, {s['tau2']}) from step {s['t']}" for s in schedules]
    if len(steps) > MOST_CHANGES:
        between = len(steps) - MOST_CHANGES
        steps = [*steps[: MOST_CHANGES - 1], f"{between} others", steps[-1]]
    what = f"{K} group{'s' * (K != 1)}, tau1 and tau2 {', '.join(steps)}"
    when, low, high = (expected[key] for key in ("seconds", "low_s", "high_s"))
    if when is None:
        sure = "was not expected to be" if low is None else "was thought to be perhaps not"
        accuracy, loss = expected.get("accuracy"), expected["loss"]
        ends = [f"an accuracy of about {accuracy:.3g}"] if accuracy is not None else []
        ends += [f"a loss of {loss:.3g}"] if loss is not None else []
        return f"{what}; its target {sure} reached, but {' and '.join(ends) or 'nothing'}."
    latest = "never" if high is None else f"{high:.3g}"
    return f"{what}; its target was expected at {when:.3g} s ({low:.3g} to {latest})."
