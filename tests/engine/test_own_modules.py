"""Modules of all kinds that users bring: what they may do, and what is refused."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from coterie.core.errors import ModelError, TrainingError
from coterie.engine.contract import LocalSteps
from coterie.engine.kernels.dense import find_chain
from coterie.engine.local_rule import LocalRule
from coterie.engine.module import FlatModule, Nodes, inputs
from coterie.engine.sequential import Sequential
from coterie.engine.vectorized import Vectorized
from coterie.models import make_model
from coterie.simulation.algorithms.scaffold import CORRECTED
from engines import (
    CLASSES,
    GROUPS,
    MODULES,
    SHAPE,
    engines,
    nodes_of,
    same,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrations of tests stay in tests."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))


class Viewer(nn.Module):
    """The commonest way to flatten, which channels-last tensors do not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Conv2d(1, 4, 3)
        self.out = nn.Linear(4 * 14 * 14, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inside(x)
        scores: torch.Tensor = self.out(hidden.view(hidden.size(0), -1))
        return scores


def test_a_convolution_that_is_viewed_trains_too() -> None:
    MODULES["viewer"] = Viewer
    try:
        for kernel in ("single", "stacked"):
            same(*engines("viewer", 5, kernel=kernel))
    finally:
        del MODULES["viewer"]


def test_batch_norm_is_as_exact_as_it_can_be() -> None:
    torch.manual_seed(0)
    model = make_model("celeba-cnn", (3, 20, 20), 2)
    x, y = torch.rand(96, 3, 20, 20), torch.randint(0, 2, (96,))
    double = copy.deepcopy(model).double()
    exact = torch.autograd.grad(
        nn.functional.cross_entropy(double(x.double()), y), list(double.parameters())
    )
    module = FlatModule(model)
    loss = nn.functional.cross_entropy(module.scores(x), y)
    for found, true in zip(module.gradient(loss), exact, strict=True):
        if true.norm() > 1e-9:  # a bias before batch norm has none
            assert (found - true).norm() / true.norm() < 1e-3


class Sum(nn.Module):
    """Two parameters that are added have one gradient between them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(CLASSES, 256) / 16) for _ in range(2))
        self.v = nn.Parameter(torch.ones(CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = nn.functional.linear(x.flatten(1), self.a + self.b) + self.v.sum()
        return scores * torch.ones(CLASSES)


def test_parameters_that_share_a_gradient_decay_each_on_its_own() -> None:
    nodes = nodes_of()
    torch.manual_seed(1)
    model = Sum()
    theirs = copy.deepcopy(model)
    held_out = {"val": (nodes.x[:7], nodes.y[:7]), "test": (nodes.x[:7], nodes.y[:7])}
    one = Nodes(nodes.x[:7], nodes.y[:7], np.array([7]))
    rule, steps = LocalRule(momentum=0.5, weight_decay=0.2), LocalSteps(0.1, 1.0, None, "epoch", 0)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1, momentum=0.5, weight_decay=0.2)
    x, y = inputs(torch.from_numpy(one.x)), torch.from_numpy(one.y)
    for _ in range(5):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(theirs(x), y))
        optimizer.step()
    expected = torch.cat([w.detach().reshape(-1) for w in theirs.parameters()])
    z = np.zeros(1, dtype=np.int64)
    for make in (Sequential, Vectorized):
        engine = make(copy.deepcopy(model), one, held_out, steps, rule=rule)  # type: ignore[arg-type]
        found = engine.advance(engine.initial(), 0, 5, z).w[0]
        assert torch.allclose(found, expected, atol=1e-5)


def test_hooks_are_kept_or_refused() -> None:
    def halve(module: nn.Module, given: object, out: torch.Tensor) -> torch.Tensor:
        return out / 2

    hooked = make_model("2nn", SHAPE, CLASSES)
    hooked[2].register_forward_hook(halve)  # type: ignore[index]
    assert find_chain(hooked) is None
    masked = make_model("2nn", SHAPE, CLASSES)
    next(masked.parameters()).register_hook(lambda g: g * 0)  # type: ignore[no-untyped-call]
    nodes = nodes_of()
    held_out = {"val": (nodes.x, nodes.y), "test": (nodes.x, nodes.y)}
    steps = LocalSteps(0.1, 1.0, 5, "epoch", 0)
    with pytest.raises(ModelError, match="hooks on its parameters"):
        Vectorized(masked, nodes, held_out, steps)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_size", [5, None])
@pytest.mark.parametrize("name", ["sr", "2nn", "messy"])
def test_nobody_may_come_to_a_round_of_several_steps(name: str, batch_size: int | None) -> None:
    nobody = np.array([], dtype=np.int64)
    for engine in engines(name, batch_size):
        start = engine.initial()
        after = engine.advance(start, 0, 3, GROUPS, nobody)
        assert torch.allclose(after.w, start.w.expand(3, -1), atol=1e-6)


def test_a_module_that_works_in_place_does_not_change_the_data() -> None:
    rng = np.random.default_rng(0)
    nodes = Nodes(
        rng.normal(size=(20, 6)).astype(np.float32), rng.integers(0, 3, 20), np.array([9, 11])
    )
    before = nodes.x.copy()
    held_out = {"val": (nodes.x, nodes.y), "test": (nodes.x, nodes.y)}
    steps = LocalSteps(0.1, 1.0, None, "epoch", 0)
    for make in (Sequential, Vectorized):
        model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3))
        engine = make(model, nodes, held_out, steps)  # type: ignore[arg-type]
        w = engine.advance(engine.initial(), 0, 2, np.zeros(2, dtype=np.int64)).w[0]
        engine.evaluate(w, "test")
        engine.measure(w, np.zeros(2, dtype=np.int64))
        assert (nodes.x == before).all()


def test_a_rate_that_vanishes_leaves_scaffold_as_it_is() -> None:
    for engine in engines("sr", 5, LocalRule(update=CORRECTED)):
        late = engine.advance(engine.initial(), 9000, 9001, GROUPS)
        assert torch.isfinite(late.memory["own.c"]).all()


class Turning(nn.Module):
    """Does as it should, until it does not."""

    turned: Callable[[torch.Tensor], object] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, CLASSES)

    def forward(self, x: torch.Tensor) -> object:
        scores = self.layer(x.flatten(1))
        return scores if Turning.turned is None else Turning.turned(scores)


def raising(error: Exception) -> Callable[[torch.Tensor], object]:
    def turned(_: torch.Tensor) -> object:
        raise error

    return turned


@pytest.mark.parametrize(
    ("turned", "says"),
    [
        (lambda scores: None, r"forward must return .*\[\d+, classes\], got NoneType"),
        (lambda scores: scores.sum(), r"forward must return .*, got \[\] of float64"),
        (lambda scores: scores.long(), r"forward must return .*, got \[\d+, 4\] of int64"),
        (raising(FileNotFoundError(2, "gone", "x")), r"FileNotFoundError: \[Errno 2\] gone: 'x'"),
        (raising(StopIteration(1)), "StopIteration: 1"),
        (raising(ExceptionGroup("two", [ValueError("a")])), "ExceptionGroup: two"),
        (raising(KeyError("edge")), "KeyError: 'edge'"),
    ],
)
def test_a_module_that_fails_on_its_way_is_to_blame(
    monkeypatch: pytest.MonkeyPatch, turned: Callable[[torch.Tensor], object], says: str
) -> None:
    monkeypatch.setitem(MODULES, "turning", Turning)
    oracle, single = engines("turning", kernel="single")
    stacked = engines("turning", kernel="stacked")[1]
    begun = [(engine, engine.initial()) for engine in (oracle, single, stacked)]
    monkeypatch.setattr(Turning, "turned", staticmethod(turned))
    for engine, models in begun:
        with pytest.raises(TrainingError, match=f"the model failed .*: {says}"):
            engine.advance(models, 0, 1, GROUPS)
        with pytest.raises(TrainingError, match=f"the model failed .*: {says}"):
            engine.gradients(models.w[0])
        with pytest.raises(TrainingError, match=f"the model failed .*: {says}"):
            engine.evaluate(models.w[0], "test")
