"""What a user would bring, named by import path in tests: planners, data, parts of a Flower app."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from coterie import Evidence, Grouping
from coterie.data import Dataset, load
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


def rotated() -> Dataset:
    """Pictures of 12 users, of whom the last six hold theirs upside down."""
    whole = load("mnist-f-mini")
    data = whole.take(np.random.default_rng(0).permutation(len(whole.y))[:1800])
    users = np.arange(1800) // 150
    turned = np.where((users >= 6)[:, None, None, None], data.x[:, :, ::-1, ::-1], data.x)
    names = tuple(f"u{i:02}" for i in range(12))
    x = np.ascontiguousarray(turned)
    return replace(data, name="rotated", x=x, users=users, user_names=names)
