"""What the accuracy of a run is: its last evaluation, its best, or a mean of its last ones."""

import re
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from coterie.core.errors import ConfigError, RecordError
from coterie.runs.record import RecordedRun


@dataclass(frozen=True)
class Score:
    """One way to read a run's accuracy off its evaluations; `count` is of a mean."""

    kind: Literal["last", "best", "mean"] = "last"
    count: int = 1

    def __str__(self) -> str:
        """Write it as `read_score` reads it."""
        return f"mean:{self.count}" if self.kind == "mean" else self.kind


def read_score(text: str) -> Score:
    """Read last, best or mean:K.

    >>> read_score("mean:5")
    Score(kind='mean', count=5)
    """
    if text in ("last", "best"):
        return Score("last" if text == "last" else "best")
    found = re.fullmatch(r"mean:([1-9]\d{0,5})", text)
    if found is None:
        raise ConfigError(f"--score must be last, best or mean:K, such as mean:5, got {text!r}")
    return Score("mean", int(found[1]))


def accuracy_of(run: RecordedRun, score: Score) -> float | None:
    """Return the test accuracy of a run; a mean of K needs K evaluations of a complete run.

    It is None of a task without one.
    """
    if run.summary["test_accuracy"] is None:
        return None
    if score.kind == "last":
        return float(run.summary["test_accuracy"])
    measured = [row["test_accuracy"] for row in run.rows if row["test_accuracy"] is not None]
    if score.kind == "best":
        return float(max(measured))
    if len(measured) < score.count and run.summary["status"] == "complete":
        raise RecordError(
            f"{run.folder}: --score {score} needs as many evaluations, it has {len(measured)}; "
            "lower K, or train.eval_every"
        )
    return float(mean(measured[-score.count :]))
