"""Models by name in runs, by the task that they are for."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.data import Dataset
from coterie.models import make_model
from coterie.models.size import flops_per_example

FEW = {
    "partition": {"kind": "iid", "num_nodes": 4, "num_edges": 2},
    "algorithm": {"name": "fedavg", "tau2": 1},
    "train": {"steps": 2, "lr": 0.5, "batch_size": 4, "measure": ["accuracy"]},
}


def texts(n: int = 60, length: int = 6, vocabulary: int = 5) -> Dataset:
    """Texts in which each character is one more than the last."""
    rng = np.random.default_rng(0)
    text = (rng.integers(vocabulary, size=(n, 1)) + np.arange(length + 1)) % vocabulary
    return Dataset("texts", text[:, :-1], text[:, 1:], vocabulary, task="next-token")


def patients(task: str) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    if task == "regression":
        return Dataset("table", x, x[:, :2] - x[:, 1:], 2, task=task)
    return Dataset("table", x, (x.sum(axis=1) > 0).astype(np.int64), 2, task=task)


@pytest.mark.parametrize("name", ["char-lstm", "transformer"])
def test_a_model_of_text_trains_alike_on_every_engine(name: str) -> None:
    ends = []
    for engine in ("sequential", "vectorized"):
        content = deepcopy(FEW) | {"model": {"name": name}}
        content["train"]["engine"] = engine
        made = prepare(make_config(content), texts())
        trained = made.problem.engine
        state = trained.advance(trained.initial(), 0, 1, np.zeros(4, dtype=np.int64))
        ends.append(trained.advance(state, 1, 2, np.zeros(4, dtype=np.int64)).w)
        model = make_model(name, (6,), 5, tokens=True)
        assert made.size.flops_per_example == flops_per_example(model, (6,), tokens=True)
    assert torch.allclose(ends[0], ends[1], atol=2e-5)


@pytest.mark.parametrize(
    ("name", "task", "outputs"),
    [("logistic", "binary", 1), ("mlp", "binary", 1), ("mlp", "regression", 2)],
)
def test_a_model_of_tables_is_as_wide_as_the_task_asks_and_learns_it(
    name: str, task: str, outputs: int
) -> None:
    made = prepare(make_config(FEW | {"model": {"name": name}}), patients(task))
    engine = made.problem.engine
    *_, last = engine.export(engine.initial().w[0]).values()
    assert last.shape == (outputs,)
    state, z = engine.initial(), np.zeros(4, dtype=np.int64)
    before = engine.evaluate(state.w[0], "test").loss
    for t in range(10):
        state = engine.advance(state, t, t + 1, z)
    assert engine.evaluate(state.w[0], "test").loss < 0.8 * before
