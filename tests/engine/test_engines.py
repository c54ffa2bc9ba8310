"""Every way to compute local steps gives what the plain one gives."""

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from coterie.core.errors import DivergenceError, ModelError, TrainingError
from coterie.divergences.sketch import Sketch
from coterie.engine.contract import LocalSteps, Models
from coterie.engine.habits import treats_examples_alone
from coterie.engine.kernels import Kernel
from coterie.engine.kernels.dense import find_chain
from coterie.engine.local_rule import LocalRule
from coterie.engine.module import inputs
from coterie.engine.sequential import Sequential
from coterie.engine.update import NOTHING
from coterie.engine.vectorized import Vectorized
from coterie.models import make_model
from coterie.models.norm import LocalNorm
from coterie.simulation.algorithms import ALGORITHMS
from coterie.simulation.algorithms.fedprox import pulled
from coterie.simulation.algorithms.scaffold import CORRECTED
from engines import (
    CLASSES,
    EVERYONE,
    GROUPS,
    MODULES,
    SHAPE,
    engines,
    messy,
    nodes_of,
    rounding,
    same,
    train,
)
from needed import needs_gpu


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrations of tests stay in tests."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))


@pytest.mark.parametrize("tau1", [1, 2])
@pytest.mark.parametrize("batch_size", [5, None])
@pytest.mark.parametrize("name", MODULES)
def test_every_way_to_train_gives_what_the_plain_one_gives(
    name: str, batch_size: int | None, tau1: int
) -> None:
    oracle, fast = engines(name, batch_size)
    for kernel in fast._kernels():
        fast.choose({"kernel": kernel})
        same(oracle, fast, tau1)


@pytest.mark.parametrize("batch_size", [5, None])
@pytest.mark.parametrize("name", MODULES)
def test_single_precision_is_off_by_rounding_alone(name: str, batch_size: int | None) -> None:
    exact = train(engines(name, batch_size)[0], 2, 2).w[0]
    oracle, fast = engines(name, batch_size, dtype=torch.float32)
    bound = rounding(name, batch_size, 2, 2)
    way = float((exact - engines(name)[0].initial().w[0]).norm())
    assert bound < 0.1 * way  # a tenth of the work done wrong would show
    assert 0 < float((train(oracle, 2, 2).w[0].double() - exact).norm()) < bound
    for kernel in fast._kernels():
        fast.choose({"kernel": kernel})
        assert float((train(fast, 2, 2).w[0].double() - exact).norm()) < bound


@pytest.mark.parametrize(
    ("name", "kernel"),
    [("sr", "dense"), ("2nn", "dense"), ("cnn", "single"), ("messy", "single")]
    + [(name, kernel) for name in ("own", "2nn") for kernel in ("stacked", "single")],
)
def test_the_number_of_cores_changes_no_digit(
    name: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("dense", "stacked"):
        monkeypatch.setattr(f"coterie.engine.kernels.{module}.MOST_STACKED", 2)
    one, two = (
        engines(name, 5, workers=workers, kernel=kernel, dtype=torch.float32)[1]
        for workers in (1, 2)
    )
    assert len(two._jobs(np.arange(10))) >= 5
    for _ in range(3):
        assert torch.equal(train(one, 3).w, train(two, 3).w)
    w = one.initial().w[0]
    assert one.measure(w, GROUPS).Delta == two.measure(w, GROUPS).Delta
    assert one.evaluate(w, "test") == two.evaluate(w, "test")


def test_stacks_are_used_where_they_can_be() -> None:
    assert engines("2nn")[1].choice()["kernel"] == "dense"
    assert engines("messy")[1].choice()["kernel"] == "single"
    assert engines("own")[1].choice()["kernel"] in ("stacked", "single")
    with pytest.raises(ModelError, match="'stacked', which cannot train this model here"):
        engines("messy")[1].choose({"kernel": "stacked"})


def test_what_was_found_quickest_is_remembered_while_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"single": 1.0, "stacked": 2.0}
    tried: list[tuple[str, int]] = []

    def seconds(kernel: Kernel, *more: object) -> float:
        tried.append((kernel.name, int(str(more[-1]))))
        return quick[kernel.name]

    monkeypatch.setattr("coterie.engine.kernels.calibrate._seconds", seconds)
    assert engines("own")[1].choice()["kernel"] == "single"
    assert sorted(tried) == [("single", 3), ("stacked", 3)]
    quick["stacked"] = 0.5
    assert engines("own")[1].choice()["kernel"] == "single"
    assert tried[2:] == [("single", 1)]  # once, to see that it still can
    quick["single"] = math.inf
    assert engines("own")[1].choice()["kernel"] == "stacked"
    (tmp_path / "calibration.json").write_text("{torn")
    assert engines("own")[1].choice()["kernel"] == "stacked"


def test_only_modules_that_keep_examples_apart_are_stacked() -> None:
    x = inputs(torch.from_numpy(nodes_of().x))
    apart = {name: treats_examples_alone(make(), x) for name, make in MODULES.items()}
    alone = {"sr": True, "2nn": True, "cnn": True, "own": True}
    assert apart == {**alone, "messy": False, "celeba-cnn": False}
    hidden = nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(256, track_running_stats=False), nn.Linear(256, 4)
    )
    nn.init.zeros_(hidden[2].weight)  # type: ignore[arg-type]
    assert not treats_examples_alone(hidden, x)
    without_statistics = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(256, track_running_stats=False))
    assert not treats_examples_alone(without_statistics, x)
    assert not treats_examples_alone(nn.Sequential(nn.Flatten(), nn.Dropout(0.1)), x)
    random = messy()
    before = torch.default_generator.get_state()
    treats_examples_alone(random, x)
    assert torch.equal(before, torch.default_generator.get_state())


def test_a_chain_is_linear_layers_and_relus_and_nothing_else() -> None:
    layers = find_chain(make_model("2nn", SHAPE, CLASSES))
    assert layers is not None
    assert [(layer.rows, layer.relu) for layer in layers] == [(200, True), (200, True), (4, False)]
    twice = nn.Linear(4, 4)
    frozen = nn.Linear(4, 4)
    frozen.weight.requires_grad_(False)
    for other in (
        nn.Sequential(nn.Linear(4, 4), nn.Tanh()),
        nn.Sequential(twice, twice),
        nn.Sequential(frozen),
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
        nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)),
        nn.Linear(4, 4),
    ):
        assert find_chain(other) is None


@pytest.mark.parametrize("name", ["sr", "2nn", "own", "cnn"])
@pytest.mark.parametrize(("unit", "batch_size"), [("batch", 5), ("epoch", None)])
def test_one_gradient_per_group_equals_one_per_node(
    name: str, unit: str, batch_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = LocalRule(momentum=0.9, weight_decay=0.01, update=pulled(0.1))
    oracle, fast = engines(name, batch_size, rule, unit=unit)
    calls = []
    together = Vectorized._group_steps
    monkeypatch.setattr(
        Vectorized,
        "_group_steps",
        lambda *a: calls.append(1) or together(*a),  # type: ignore[func-returns-value]
    )
    same(oracle, fast)
    assert len(calls) == 10


def test_one_gradient_does_only_where_nodes_start_and_end_together() -> None:
    assert engines("sr", None)[1]._one_gradient_does(3, 4)
    assert not engines("sr", None)[1]._one_gradient_does(3, 5)  # two steps in between
    assert not engines("sr", 5)[1]._one_gradient_does(3, 4)  # several batches in a step
    assert engines("sr", 20)[1]._one_gradient_does(3, 4)  # batches that hold every node
    assert not engines("messy", None)[1]._one_gradient_does(3, 4)
    assert not engines("sr", None, LocalRule(update=CORRECTED))[1]._one_gradient_does(3, 4)


RULES = {
    "momentum": LocalRule(momentum=0.9),
    "decay": LocalRule(weight_decay=0.1),
    "fedprox": LocalRule(update=pulled(0.5)),
    "all": LocalRule(momentum=0.5, weight_decay=0.01, update=pulled(0.1)),
    **{
        name: LocalRule(update=algorithm.update)
        for name, algorithm in ALGORITHMS.items()
        if algorithm.update != NOTHING and name != "fedbn"
    },
}


@pytest.mark.parametrize("kernel", ["dense", "stacked", "single"])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_the_same_in_every_kernel(rule: str, kernel: str) -> None:
    update = RULES[rule].update
    same(*engines("2nn", 5, RULES[rule], kernel=kernel), tau1=2, update=update)


def test_batch_norms_that_stay_on_nodes_are_the_same_in_both_engines() -> None:
    update = ALGORITHMS["fedbn"].update
    oracle, fast = engines("celeba-cnn", 5, LocalRule(update=update))
    same(oracle, fast, update=update)
    kept = train(oracle, 2).memory["own.~part"]
    assert not torch.equal(kept[0], kept[1])


def test_a_node_that_is_not_there_neither_steps_nor_counts() -> None:
    for name in ("sr", "2nn", "messy"):
        for batch_size in (5, None):
            oracle, fast = engines(name, batch_size)
            present = np.array([0, 4, 9])
            a = oracle.advance(oracle.initial(), 0, 1, EVERYONE, present)
            b = fast.advance(fast.initial(), 0, 1, EVERYONE, present)
            assert torch.allclose(a.w, b.w, rtol=0, atol=1e-9)
            alone = oracle.advance(oracle.initial(), 0, 1, np.arange(10))
            p = nodes_of().sizes[present] / nodes_of().sizes[present].sum()
            expected = torch.from_numpy(p) @ alone.w[present]
            assert torch.allclose(a.w[0], expected, rtol=0, atol=1e-9)


def test_a_group_of_which_nobody_is_there_keeps_its_model() -> None:
    oracle, fast = engines("2nn")
    present = np.array([0, 1, 4])  # of groups 0, 1, 1
    for engine in (oracle, fast):
        before = engine.advance(engine.initial(), 0, 1, GROUPS)
        after = engine.advance(before, 1, 2, GROUPS, present)
        assert torch.allclose(after.w[2], before.w[2], rtol=0, atol=1e-12)
        assert not torch.allclose(after.w[0], before.w[0], atol=1e-4)
        nobody = engine.advance(before, 1, 2, EVERYONE, np.array([], dtype=np.int64))
        p = nodes_of().sizes / nodes_of().sizes.sum()
        mean = torch.from_numpy(p) @ before.w[before.of_node]
        assert torch.allclose(nobody.w[0], mean, rtol=0, atol=1e-12)


def test_a_loss_that_is_no_number_is_named_by_node_and_step() -> None:
    oracle, fast = engines("2nn")
    wild = Models(fast.initial().w * 1e300, EVERYONE)
    for engine in (oracle, fast):
        with pytest.raises(DivergenceError, match=r"the loss is .* at step 4 on node 0"):
            engine.advance(wild, 3, 4, GROUPS)


def test_a_module_that_fails_names_the_node() -> None:
    _, fast = engines("messy", 2)  # a last batch of one, which batch norm refuses
    with pytest.raises(TrainingError, match=r"the model failed at step 1 on node \d"):
        fast.advance(fast.initial(), 0, 1, GROUPS)


def test_planners_see_the_same_gradients() -> None:
    for name in ("sr", "own", "messy"):
        oracle, fast = engines(name)
        w = oracle.initial().w[0]
        a, b = oracle.gradients(w), fast.gradients(w)
        assert a.gram is not None and b.gram is not None
        assert a.last_layer is not None and b.last_layer is not None
        assert np.allclose(a.gram, b.gram, rtol=0, atol=1e-9 * a.gram.max())
        assert np.allclose(a.last_layer, b.last_layer, rtol=0, atol=1e-9)
        sketch = Sketch(16, 0)
        a, b = oracle.gradients(w, sketch), fast.gradients(w, sketch)
        assert a.gram is None and b.gram is None
        assert a.sketches is not None and b.sketches is not None
        assert np.allclose(a.sketches, b.sketches, rtol=0, atol=1e-9)


def test_gradients_that_are_not_kept_measure_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fast = engines("2nn")
    w = fast.initial().w[0]
    kept = fast.measure(w, GROUPS)
    monkeypatch.setattr("coterie.engine.gradients.KEPT_BYTES", 0)
    twice = fast.measure(w, GROUPS)
    assert (twice.delta, twice.Delta) == (kept.delta, kept.Delta)


@pytest.mark.parametrize("size", [1, 3, 5, 9])
def test_the_cheap_response_norm_and_its_gradient_are_torchs(size: int) -> None:
    x = torch.randn(3, 12, 4, 5, requires_grad=True, dtype=torch.double)
    ours, theirs = LocalNorm(size, 0.3, 1.5), nn.LocalResponseNorm(size, 0.3, 0.75, 1.5)
    assert torch.allclose(ours(x), theirs(x))
    g = torch.randn_like(x)
    mine, torchs = (torch.autograd.grad(f(x), x, g)[0] for f in (ours, theirs))
    assert torch.allclose(mine, torchs)
    last = x.detach().to(memory_format=torch.channels_last)
    assert torch.allclose(ours(last), theirs(x))
    with pytest.raises(ValueError, match="odd"):
        LocalNorm(4, 0.1)


@needs_gpu
@pytest.mark.parametrize("name", MODULES)
def test_a_gpu_gives_the_same(name: str) -> None:
    torch.manual_seed(3)
    module, nodes = MODULES[name]().double(), nodes_of()
    held_out = {"val": (nodes.x, nodes.y), "test": (nodes.x, nodes.y)}
    steps = LocalSteps(0.1, 0.99, 5, "epoch", 3)
    oracle = Sequential(copy.deepcopy(module), nodes, held_out, steps)  # type: ignore[arg-type]
    fast = Vectorized(module, nodes, held_out, steps, "cuda")  # type: ignore[arg-type]
    a, b = train(oracle, 3).w[0], train(fast, 3).w[0].cpu()
    if name != "messy":  # a GPU's dropout draws other numbers
        assert torch.allclose(a, b, rtol=0, atol=1e-9)
