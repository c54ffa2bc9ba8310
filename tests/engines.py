"""Engines on a few unequal nodes, and what it means that two of them agree."""

import copy
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from coterie.engine.contract import Engine, LocalSteps, Models
from coterie.engine.local_rule import LocalRule
from coterie.engine.memory import LAST
from coterie.engine.module import HeldSizes, Nodes
from coterie.engine.sequential import Sequential
from coterie.engine.server import after_mean
from coterie.engine.update import NOTHING, Update
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
    sampling: str = "epoch",
    kernel: str = "",
    dtype: torch.dtype = torch.float64,
    nudge: float = 0.0,
    held_sizes: HeldSizes | None = None,
) -> tuple[Sequential, Vectorized]:
    """Return the oracle and the engine under test on the same nodes and weights.

    In double precision, unless told: that two engines agree is then a fact about what they compute,
    not about how a processor rounds. `nudge` moves every weight up or down by that part of it.
    """
    torch.manual_seed(3)
    module, nodes, rule = MODULES[name]().to(dtype), nodes_of(), rule or LocalRule()
    _nudge(module, nudge)
    held_out = {"val": (nodes.x[:30], nodes.y[:30]), "test": (nodes.x, nodes.y)}
    lr = 0.02 if "cnn" in name else 0.1
    steps = LocalSteps(lr, 0.99, batch_size, unit, 3, sampling)  # type: ignore[arg-type]
    oracle = Sequential(
        copy.deepcopy(module),
        nodes,
        held_out,  # type: ignore[arg-type]
        steps,
        rule=rule,
        held_sizes=held_sizes,
    )
    fast = Vectorized(
        module,
        nodes,
        held_out,  # type: ignore[arg-type]
        steps,
        rule=rule,
        workers=workers,
        held_sizes=held_sizes,
    )
    if kernel:
        fast.choose({"kernel": kernel})
    return oracle, fast


def _nudge(module: nn.Module, part: float) -> None:
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for w in module.parameters():
            w.mul_(1 + part * (2.0 * torch.randint(2, w.shape, generator=random).double() - 1))


def train(
    engine: Engine, aggregations: int = 10, tau1: int = 1, update: Update = NOTHING
) -> Models:
    """Average by groups, and every third time globally; an update does what follows a mean."""
    models, p = engine.initial(), nodes_of().sizes / nodes_of().sizes.sum()
    d = len(models.memory[LAST]) if LAST in models.memory else models.w.shape[1]
    for r in range(aggregations):
        z = EVERYONE if r % 3 == 2 or r == aggregations - 1 else GROUPS
        models = engine.advance(models, r * tau1, (r + 1) * tau1, z)
        models = after_mean(update, models, d, p, GROUPS, 1.0, everyone=z is EVERYONE)
    return models


def same(
    a: Engine, b: Engine, tau1: int = 1, close: float = 1e-9, update: Update = NOTHING
) -> None:
    """Assert equal models, losses, scores and divergences after ten aggregations."""
    ma, mb = train(a, tau1=tau1, update=update), train(b, tau1=tau1, update=update)
    for key, array in ma.memory.items():
        assert float((mb.memory[key] - array).abs().max()) <= close * (float(array.abs().max()) + 1)
    wa, wb = ma.w, mb.w
    assert wa.dtype == wb.dtype == torch.float64
    assert wa.shape == wb.shape == (1, len(wa[0]))
    assert float((wa - wb).abs().max()) <= close * float(wa.abs().max())
    one, other = a.measure(wa[0], GROUPS), b.measure(wb[0], GROUPS)
    assert other.losses == pytest.approx(one.losses, rel=close)
    assert other.delta == pytest.approx(one.delta, rel=close)
    assert other.Delta == pytest.approx(one.Delta, rel=close)
    assert b.evaluate(wb[0], "test").loss == pytest.approx(
        a.evaluate(wa[0], "test").loss, rel=close
    )
    assert not torch.equal(wa[0], a.initial().w[0])


HALF_STEP = 2.0**-24  # of float32: the most that one rounding changes a number, relative to it
CERTAIN = 6.0  # standard deviations: 2 exp(-6^2 / 2) = 3e-8 is how often chance goes farther


def rounding(name: str, batch_size: int | None, aggregations: int, tau1: int) -> float:
    """Return how far a model in single precision may end from the one in double precision.

    The forward error is the condition of the computation times its backward error. The condition is
    measured: how far the oracle ends if its first weights move by half a step of float32, in double
    precision. The backward error of m roundings, of which every sum of k terms has k, is
    sqrt(m) CERTAIN half steps, as roundings are independent (Higham and Mary, SIAM J. Sci. Comput.
    41, 2019).
    """
    plain, nudged = (
        train(engines(name, batch_size, nudge=part)[0], aggregations, tau1).w[0]
        for part in (0.0, HALF_STEP)
    )
    terms = sum(w[0].numel() for w in MODULES[name]().parameters() if w.ndim > 1)
    most = int(nodes_of().sizes.max())
    batches = -(-most // batch_size) if batch_size else 1
    m = aggregations * tau1 * batches * 2 * terms  # there and back
    return CERTAIN * math.sqrt(m) * float((plain - nudged).norm())
