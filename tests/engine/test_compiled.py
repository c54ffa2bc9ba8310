"""Compiled loops: they give what the written-out chain gives, on any number of cores."""

import math
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie.engine.vectorized as fast_engine
from coterie.core.errors import DivergenceError, ModelError
from coterie.engine.contract import LocalSteps
from coterie.engine.kernels import reasons
from coterie.engine.kernels.compiled import MUCH, why_not_compiled
from coterie.engine.local_rule import PLAIN, LocalRule
from coterie.engine.module import Nodes
from coterie.engine.vectorized import Vectorized
from coterie.simulation.algorithms import ALGORITHMS
from engines import CLASSES, EVERYONE, engines, nodes_of, rounding, same, train

pytest.importorskip("numba", reason="Numba is not installed")


@pytest.mark.parametrize("batch_size", [1, 3, 5, 7, 10, 19, 40])
@pytest.mark.parametrize("name", ["sr", "2nn"])
def test_every_batch_size_gives_what_the_plain_engine_gives(name: str, batch_size: int) -> None:
    for tau1 in (1, 3):
        same(*engines(name, batch_size, kernel="compiled"), tau1=tau1)


def test_single_batches_are_steps_too() -> None:
    same(*engines("2nn", 5, unit="batch", kernel="compiled"), tau1=3)


@pytest.mark.parametrize("name", ["fedprox", "scaffold", "feddyn", "fednova"])
def test_whatever_is_added_to_sgd_is_left_to_the_written_out_chain(name: str) -> None:
    update = ALGORITHMS[name].update
    same(*engines("2nn", 5, LocalRule(update=update), kernel="compiled"), tau1=2, update=update)
    same(*engines("2nn", 5, LocalRule(momentum=0.9), kernel="compiled"), tau1=2)


def test_single_precision_is_off_by_rounding_alone() -> None:
    double, _ = engines("2nn", 5)
    _, single = engines("2nn", 5, dtype=torch.float32, kernel="compiled")
    wide, narrow = train(double, 4, 2).w[0], train(single, 4, 2).w[0]
    assert narrow.dtype == torch.float32
    assert 0 < float((wide - narrow.double()).norm()) <= rounding("2nn", 5, 4, 2)


@pytest.mark.parametrize("name", ["sr", "2nn"])
def test_the_number_of_cores_changes_no_digit(name: str) -> None:
    found = [
        train(engines(name, 5, workers=n, kernel="compiled", dtype=torch.float32)[1], tau1=2).w
        for n in (1, 2, 3)
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("widths", [(256, 1), (256, 3, 17), (256, 33, 16, 5), (256, 2)])
def test_layers_of_any_width_with_and_without_biases(widths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Flatten()]
    for number, (into, out) in enumerate(zip(widths, (*widths[1:], CLASSES), strict=True)):
        layers += [nn.Linear(into, out, bias=number % 2 == 0)]
        layers += [nn.ReLU()] * (out != CLASSES)
    model, nodes = nn.Sequential(*layers).double(), nodes_of()
    held = {"val": (nodes.x, nodes.y), "test": (nodes.x, nodes.y)}
    steps = LocalSteps(0.1, 0.9, 4, "epoch", 0)
    found = []
    for kernel in ("single", "compiled"):
        engine = Vectorized(model, nodes, held, steps, kernel=kernel)  # type: ignore[arg-type]
        found.append(engine.advance(engine.initial(), 0, 2, EVERYONE).w)
    assert torch.allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


def test_data_that_are_numbers_are_taken_as_they_are() -> None:
    nodes = nodes_of()
    values = (nodes.x / 255.0).astype(np.float32)
    held = {"val": (values, nodes.y), "test": (values, nodes.y)}
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, CLASSES))
    steps = LocalSteps(0.1, 0.9, 4, "epoch", 0)
    found = []
    for kernel in ("dense", "compiled"):
        engine = Vectorized(model, Nodes(values, nodes.y, nodes.sizes), held, steps, kernel=kernel)  # type: ignore[arg-type]
        found.append(engine.advance(engine.initial(), 0, 2, EVERYONE).w)
    assert torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-6)
    assert not torch.equal(found[1], engine.initial().w)


def test_a_loss_that_is_no_number_is_named_by_node_and_step() -> None:
    _, engine = engines("2nn", 5, kernel="compiled")
    models = engine.initial()
    models.w[0, 7] = math.nan
    with pytest.raises(DivergenceError, match="the loss is nan at step 1 on node 0"):
        engine.advance(models, 0, 1, EVERYONE)


def test_a_model_that_diverged_leaves_nothing_behind() -> None:
    """Rows of an odd height are filled up, and 0 x nan is nan: it stayed there."""
    nodes = nodes_of()
    torch.manual_seed(0)
    values = nodes.x.astype(np.float64).reshape(len(nodes.y), -1)[:, :16]
    model = nn.Sequential(nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, CLASSES)).double()
    held = {"val": (values[:30], nodes.y[:30]), "test": (values[:30], nodes.y[:30])}
    steps = LocalSteps(0.1, 1.0, 2, "epoch", 0)
    engine = Vectorized(model, Nodes(values, nodes.y, nodes.sizes), held, steps, kernel="compiled")  # type: ignore[arg-type]
    good = engine.advance(engine.initial(), 0, 2, EVERYONE).w
    assert good.isfinite().all()
    bad = engine.initial()
    bad.w[0, 3] = math.nan
    with pytest.raises(DivergenceError):
        engine.advance(bad, 0, 1, EVERYONE)
    assert torch.equal(engine.advance(engine.initial(), 0, 2, EVERYONE).w, good)


def test_what_was_compiled_and_is_damaged_is_compiled_again(tmp_path: Path) -> None:
    from coterie.engine.kernels.loops import compiled

    file = tmp_path / "doubling.py"
    file.write_text("def double(x):\n    return 2 * x\n")

    def double() -> int:
        spec = spec_from_file_location("doubling", file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        function: Any = compiled
        return int(function(module.double)(21))

    assert double() == 42
    for kind in ("nbi", "nbc"):
        (kept,) = tmp_path.rglob(f"*.{kind}")
        kept.write_bytes(kept.read_bytes()[:20])
        assert double() == 42
        assert len(kept.read_bytes()) > 20  # kept anew


def test_they_are_chosen_where_there_is_much_to_train() -> None:
    steps = LocalSteps(0.1, 1.0, 10, "epoch", 0)
    assert why_not_compiled(steps, PLAIN, MUCH) == ""
    assert why_not_compiled(steps, PLAIN, 0.9 * MUCH) == reasons.SHORT
    assert why_not_compiled(steps, LocalRule(momentum=0.9), MUCH) == reasons.ADDED
    full = LocalSteps(0.1, 1.0, None, "epoch", 0)
    assert why_not_compiled(full, PLAIN, MUCH) == reasons.FULL


def test_a_numba_that_cannot_be_loaded_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coterie.engine.kernels.loops", None)
    steps = LocalSteps(0.1, 1.0, 10, "epoch", 0)
    assert why_not_compiled(steps, PLAIN, MUCH) == reasons.NOT_LOADED
    with pytest.raises(ModelError, match="which need Numba"):
        engines("2nn", 5, kernel="compiled")


def test_batches_larger_than_any_node_take_no_more_room() -> None:
    _, engine = engines("2nn", 10**9, kernel="compiled")
    same(*engines("2nn", 10**9, kernel="compiled"), tau1=2)
    assert train(engine, 1, 2).w.isfinite().all()


def test_a_run_that_was_begun_with_them_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_engine, "has_numba", lambda: False)
    with pytest.raises(ModelError, match=r"need Numba; install it: pip install 'coterie\[fast\]'"):
        engines("2nn", 5, kernel="compiled")


FRESH = """
import hashlib
import sys
import numpy as np
import torch
from coterie.engine.kernels.compiled import layers_in_memory
from coterie.engine.kernels.dense import Layer
from coterie.engine.kernels import loops

table, space = layers_in_memory([Layer(40, 48, 0, True, True), Layer(10, 40, 1960, True, False)],
                                10, torch.float32)
rng = np.random.default_rng(0)
shapes = 2370, (10, 48), (10, 48)
w, x, before = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
if len(sys.argv) > 1:  # something else is compiled, or loaded, first
    loops._forward(x, np.ones((40, 48), np.float32), np.empty((10, 40), np.float32))
loops.load(w, table, space)
loops.learn(table, space, x, np.arange(10), np.arange(10), np.float32(0.1), before)
print(hashlib.sha256(space.tobytes() + before.tobytes()).hexdigest())
"""


def test_what_is_compiled_just_now_gives_the_digits_of_what_was_kept(tmp_path: Path) -> None:
    """And so it is whatever else was compiled before in a process."""

    def digits(*words: str, cache: str = "one") -> str:
        env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / cache)}
        done = subprocess.run(
            [sys.executable, "-c", FRESH, *words],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    first = digits()
    assert len(first) == 65
    assert first == digits() == digits("other") == digits("other", cache="two")
