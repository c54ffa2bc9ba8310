"""Gradients of many nodes: several at once through a model, and in no more memory than needed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from coterie.core.arrays import Ints
from coterie.divergences.sketch import Sketch
from coterie.engine.kernels.dense import Dense
from engines import CLASSES, GROUPS, MODULES, engines


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrations of tests stay in tests."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take ten nodes for many."""
    monkeypatch.setattr("coterie.engine.kernels.dense.MANY", 10)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("examples", [1000, 19, 5])  # all at once; runs of some; most nodes alone
@pytest.mark.parametrize("kept", [0, 1 << 30])
@pytest.mark.parametrize("name", ["sr", "2nn", "narrow"])
def test_gradients_of_several_nodes_at_once_are_the_plain_ones(
    name: str, kept: int, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.engine.gradients.KEPT_BYTES", kept)
    monkeypatch.setattr("coterie.engine.gradients.JOB_EXAMPLES", 30)
    narrow = nn.Sequential(nn.Flatten(), nn.Linear(256, 3, bias=False), nn.Linear(3, CLASSES))
    monkeypatch.setitem(MODULES, "narrow", lambda: narrow)
    monkeypatch.setattr("coterie.engine.kernels.dense.PASS_VALUES", examples * 256)
    oracle, fast = engines(name, kernel="dense")
    w = oracle.initial().w[0]
    nodes = np.array([4, 0, 1, 9, 2, 3, 8])
    found, expected = w.new_full((7, len(w)), torch.nan), w.new_empty(7, len(w))
    losses = fast._kernel.gradients(w, nodes, found)
    plain = fast._single.gradients(w, nodes, expected)
    assert torch.allclose(losses, plain, rtol=1e-9, atol=0)
    assert torch.allclose(found, expected, rtol=0, atol=1e-9 * float(expected.abs().max()))
    one, other = oracle.measure(w, GROUPS), fast.measure(w, GROUPS)
    assert other.losses == pytest.approx(one.losses, rel=1e-9)
    assert (other.delta, other.Delta) == pytest.approx((one.delta, one.Delta), rel=1e-9)
    sketch = Sketch(16, 0)
    assert fast.gradients(w, sketch).sketches == pytest.approx(
        oracle.gradients(w, sketch).sketches, abs=1e-9
    )


@pytest.mark.parametrize(("most", "passes"), [(10, 5), (11, 10)])
def test_many_nodes_pass_the_model_together_and_few_one_by_one(
    most: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.engine.kernels.dense.MANY", most)
    _, fast = engines("2nn", kernel="dense")
    seen, forward = [], Dense._forward

    def counted(self: Dense, ws: list[torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
        seen.append(x.shape[1])
        return forward(self, ws, x)

    monkeypatch.setattr(Dense, "_forward", counted)
    fast.measure(fast.initial().w[0], GROUPS)
    assert len(seen) == passes  # of five jobs of two nodes each
    assert sum(seen) == 95


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("kept", [0, 1 << 30])
@pytest.mark.parametrize("name", ["sr", "2nn"])
def test_the_number_of_cores_changes_no_digit_of_a_divergence(
    name: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.engine.gradients.KEPT_BYTES", kept)
    one, three = (engines(name, workers=n, kernel="dense", dtype=torch.float32)[1] for n in (1, 3))
    w = one.initial().w[0]
    a = one.measure(w, GROUPS)
    for _ in range(5):
        b = three.measure(w, GROUPS)
        assert (a.delta, a.Delta) == (b.delta, b.Delta)
        assert a.losses.tolist() == b.losses.tolist()


def test_gradients_that_are_not_kept_take_the_memory_of_one_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, fast = engines("2nn", kernel="dense")
    places, gradients = [], Dense.gradients

    def noted(self: Dense, w: torch.Tensor, nodes: Ints, out: torch.Tensor) -> torch.Tensor:
        places.append(out.untyped_storage())
        return gradients(self, w, nodes, out)

    monkeypatch.setattr(Dense, "gradients", noted)
    for kept, jobs, memories in ((1 << 30, 5, 5), (0, 10, 1)):
        monkeypatch.setattr("coterie.engine.gradients.KEPT_BYTES", kept)
        places.clear()
        fast.measure(fast.initial().w[0], GROUPS)
        assert len(places) == jobs
        assert len({place.data_ptr() for place in places}) == memories
