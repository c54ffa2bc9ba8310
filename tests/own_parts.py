"""What a user would bring, named by import path in tests: planners, and parts of a Flower app."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie import Evidence, Grouping
from coterie.flower.messages import Arrays


def odd_and_even(evidence: Evidence, rng: np.random.Generator) -> Grouping:
    """A planner of a user's own."""
    return Grouping(np.arange(len(evidence.p)) % 2, np.arange(2))


def no_planner(evidence: Evidence, rng: np.random.Generator) -> str:
    return "nothing"


def initial(run: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {"w": np.zeros(2, np.float32), "n": np.array(0)}


def evaluate(run: Mapping[str, Any], arrays: Arrays) -> dict[str, float]:
    return {"loss": float(run["loss"]), "w": float(arrays["w"][0])}


def failing(run: Mapping[str, Any], arrays: Arrays) -> dict[str, float]:
    raise RuntimeError("no test examples")
