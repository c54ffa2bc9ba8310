"""Engines on a few unequal nodes, and what it means that two of them agree."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from coterie.engine import Engine, LocalSteps, Models
from coterie.engine.descent import LocalRule
from coterie.engine.module import Nodes
from coterie.engine.sequential import Sequential
from coterie.engine.server import Server
from coterie.engine.vectorized import Vectorized
from coterie.models import make_model

SHAPE = (1, 16, 16)
CLASSES = 4
GROUPS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
EVERYONE = np.zeros(10, dtype=np.int64)


class Tower(nn.Module):
    """A module of one's own: not a chain, examples apart."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(256, 12)
        self.out = nn.Linear(12, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.inside(x.flatten(1)))
        scores: torch.Tensor = self.out(hidden + hidden.square())
        return scores


def messy() -> nn.Module:
    """Batch norm and dropout: a batch matters, and so does the random stream."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(256, 8),
        nn.BatchNorm1d(8),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.Linear(8, CLASSES),
    )


MODULES: dict[str, Callable[[], nn.Module]] = {
    "sr": lambda: make_model("sr", SHAPE, CLASSES),
    "2nn": lambda: make_model("2nn", SHAPE, CLASSES),
    "cnn": lambda: make_model("cnn", SHAPE, CLASSES),
    "own": Tower,
    "messy": messy,
    "celeba-cnn": lambda: make_model("celeba-cnn", SHAPE, CLASSES),
}


def nodes_of() -> Nodes:
    """Ten nodes, unequal; sums are odd, as half of a group between two numbers would be a tie."""
    sizes = (7, 12, 3, 20, 9, 8, 15, 4, 14, 3)
    rng = np.random.default_rng(5)
    y = np.concatenate([np.full(s, i % CLASSES) for i, s in enumerate(sizes)])
    y = np.where(rng.random(len(y)) < 0.3, rng.integers(CLASSES, size=len(y)), y)
    x = rng.integers(0, 120, (len(y), *SHAPE)) + 30 * y[:, None, None, None]
    return Nodes(x.astype(np.uint8), y, np.array(sizes))


def engines(
    name: str,
    batch_size: int | None = 5,
    rule: LocalRule | None = None,
    *,
    workers: int = 1,
    unit: str = "epoch",
    kernel: str = "",
) -> tuple[Sequential, Vectorized]:
    """Return the oracle and the engine under test on the same nodes and weights."""
    torch.manual_seed(3)
    module, nodes, rule = MODULES[name](), nodes_of(), rule or LocalRule()
    held_out = {"val": (nodes.x[:30], nodes.y[:30]), "test": (nodes.x, nodes.y)}
    lr = 0.02 if "cnn" in name else 0.1  # a pool that changes its mind makes a rounding visible
    steps = LocalSteps(lr, 0.99, batch_size, unit, 3)  # type: ignore[arg-type]
    oracle = Sequential(copy.deepcopy(module), nodes, held_out, steps, rule=rule)  # type: ignore[arg-type]
    fast = Vectorized(module, nodes, held_out, steps, rule=rule, workers=workers)  # type: ignore[arg-type]
    if kernel:
        fast.choose({"kernel": kernel})
    return oracle, fast


def train(engine: Engine, aggregations: int = 10, tau1: int = 1) -> Models:
    """Average by groups, and every third time globally."""
    models = engine.initial()
    for r in range(aggregations):
        z = EVERYONE if r % 3 == 2 or r == aggregations - 1 else GROUPS
        models = engine.advance(models, r * tau1, (r + 1) * tau1, z)
        if z is EVERYONE:
            models = Server().after(models, nodes_of().sizes / nodes_of().sizes.sum())
    return models


def same(a: Engine, b: Engine, tau1: int = 1) -> None:
    """Assert equal losses, scores and divergences to 1e-5 after ten aggregations."""
    wa, wb = train(a, tau1=tau1).w, train(b, tau1=tau1).w
    assert wa.shape == wb.shape == (1, len(wa[0]))
    ma, mb = a.measure(wa[0], GROUPS), b.measure(wb[0], GROUPS)
    assert mb.losses == pytest.approx(ma.losses, rel=1e-5)
    assert mb.delta == pytest.approx(ma.delta, rel=1e-4)
    assert mb.Delta == pytest.approx(ma.Delta, rel=1e-3, abs=1e-6)
    assert b.evaluate(wb[0], "test").loss == pytest.approx(a.evaluate(wa[0], "test").loss, rel=1e-5)
    assert not torch.equal(wa[0], a.initial().w[0])
