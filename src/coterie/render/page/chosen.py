"""What runs that choose their groups and schedule chose, in words."""

from collections.abc import Sequence

from coterie.runs.record import RecordedRun
from coterie.simulation.forecast import named_schedules, named_target

MOST_RUNS = 6  # told one by one


def choices(label: str, runs: Sequence[RecordedRun]) -> list[str]:
    """Say of every run with something open what it took up, when, and what it first expected."""
    told = [run for run in runs if "tuned" in run.summary]
    said = [f"{label}, seed {run.config['seed']}, chose {_chosen(run)}" for run in told[:MOST_RUNS]]
    more = len(told) - MOST_RUNS
    return said + [f"{label} chose in {more} more runs; see their summary.json."] * (more > 0)


def _chosen(run: RecordedRun) -> str:
    tuned = run.summary["tuned"]
    K, schedules, expected = tuned["num_groups"], tuned["schedules"], tuned["expected"]
    taken = named_schedules([(s["t"], s["tau1"], s["tau2"]) for s in schedules])
    what = f"{K} group{'s' * (K != 1)}, tau1 and tau2 {taken}"
    told = run.config["algorithm"]
    target = named_target(*(told.get(f"target_{key}", 0.0) for key in ("loss", "accuracy")))
    when, low, high = (expected[key] for key in ("seconds", "low_s", "high_s"))
    if when is None:
        sure = "was not expected to be" if low is None else "was thought to be perhaps not"
        accuracy, loss = expected.get("accuracy"), expected["loss"]
        ends = [f"an accuracy of about {accuracy:.3g}"] if accuracy is not None else []
        ends += [f"a loss of {loss:.3g}"] if loss is not None else []
        instead = " and ".join(ends) or "nothing"
        return f"{what}; its target, {target}, {sure} reached, but {instead}."
    latest = "never" if high is None else f"{high:.3g}"
    return f"{what}; its target, {target}, was expected at {when:.3g} s ({low:.3g} to {latest})."
