"""Losses and scores by forward passes: every engine's are the plain ones, whoever holds what."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from coterie.core.errors import TrainingError
from coterie.engine.contract import Engine, HeldPart, Models, NodeScores
from coterie.engine.own_models import own_models
from engines import CLASSES, EVERYONE, GROUPS, MODULES, engines, nodes_of, train
from sharding import sharded

# Test examples of ten nodes, 95 in all; two nodes have none. The 30 of "val" are pooled.
OWN = np.array([12, 0, 20, 3, 9, 8, 18, 4, 21, 0])
PARTS = {"pooled": None, "own": {"test": OWN}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrations of tests stay in tests."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))


def several(engine: Engine) -> Models:
    """Three models, of groups that are not averaged in the end."""
    return engine.advance(engine.advance(engine.initial(), 0, 2, EVERYONE), 2, 5, GROUPS)


def close(a: NodeScores, b: NodeScores, rel: float = 1e-9) -> None:
    assert b.loss == pytest.approx(a.loss, rel=rel, nan_ok=True)
    assert b.right.tolist() == a.right.tolist()
    assert b.count.tolist() == a.count.tolist()
    assert a.class_right is not None and b.class_right is not None
    assert b.class_right.tolist() == a.class_right.tolist()


def by_class(engine: Engine, w: torch.Tensor, part: HeldPart) -> tuple[list[int], list[int]]:
    found = engine.evaluate(w, part)
    assert found.class_right is not None and found.class_count is not None
    assert found.class_right.sum() / found.class_count.sum() == found.accuracy
    return found.class_right.tolist(), found.class_count.tolist()


@pytest.mark.parametrize("name", MODULES)
def test_losses_are_those_that_come_with_gradients(name: str) -> None:
    for engine in engines(name):
        models = several(engine)
        found = engine.losses(models.w)
        assert found.shape == (10, 3)
        for k, w in enumerate(models.w):
            assert found[:, k] == pytest.approx(engine.measure(w, GROUPS).losses, rel=1e-9)
        assert engine.own_losses(models) == pytest.approx(found[np.arange(10), GROUPS], rel=1e-9)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", MODULES)
def test_every_engine_scores_nodes_as_the_plain_one(name: str, parts: str) -> None:
    oracle, fast = engines(name, held_sizes=PARTS[parts])  # type: ignore[arg-type]
    models = several(oracle)
    plain = oracle.score_nodes(models, "test")
    assert len({float(loss) for loss in plain.loss[plain.count > 0]}) >= 3
    for kernel in fast._kernels():
        fast.choose({"kernel": kernel})
        close(plain, fast.score_nodes(models, "test"))
        assert fast.losses(models.w) == pytest.approx(oracle.losses(models.w), rel=1e-9)
        assert fast.own_losses(models) == pytest.approx(oracle.own_losses(models), rel=1e-9)
        assert by_class(fast, models.w[1], "test") == by_class(oracle, models.w[1], "test")


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("actors", [1, 3, 10])
@pytest.mark.parametrize(
    ("name", "kernel"), [("2nn", "dense"), ("own", "stacked"), ("messy", "single")]
)
def test_any_number_of_actors_scores_as_the_plain_engine(
    name: str, kernel: str, actors: int, parts: str
) -> None:
    oracle, engine, _ = sharded(name, actors, kernel, held_sizes=PARTS[parts])  # type: ignore[arg-type]
    models = several(oracle)
    for part in ("val", "test"):
        close(oracle.score_nodes(models, part), engine.score_nodes(models, part))
        assert by_class(engine, models.w[0], part) == by_class(oracle, models.w[0], part)
    assert engine.losses(models.w) == pytest.approx(oracle.losses(models.w), rel=1e-9)
    assert engine.own_losses(models) == pytest.approx(oracle.own_losses(models), rel=1e-9)
    for each in (oracle, engine):
        assert [each.has_own(part) for part in ("val", "test")] == [False, parts == "own"]


@pytest.mark.parametrize("name", ["cnn", "messy"])
def test_scores_of_nodes_that_train_one_by_one_are_the_same_on_any_number_of_actors(
    name: str,
) -> None:
    one, four = (
        sharded(name, actors, "single", dtype=torch.float32, held_sizes={"test": OWN})[1]
        for actors in (1, 4)
    )
    models = several(one)
    a, b = one.score_nodes(models, "test"), four.score_nodes(models, "test")
    assert np.array_equal(a.loss, b.loss, equal_nan=True)
    assert np.array_equal(one.losses(models.w), four.losses(models.w))


def test_actors_get_the_models_of_their_nodes_where_every_node_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def personal(models: Models, nodes: np.ndarray) -> torch.Tensor:
        factor = 1 + torch.from_numpy(nodes).double()[:, None] / 10
        return models.w[models.of_node[nodes]] * factor

    for module in ("own_models", "sequential", "vectorized", "ray.engine"):
        monkeypatch.setattr(f"coterie.engine.{module}.own_models", personal)
    monkeypatch.setattr("coterie.engine.own_models.sharing", lambda models: np.arange(10))
    oracle, engine, _ = sharded("2nn", 3, "dense", held_sizes={"test": OWN})
    _, fast = engines("2nn", held_sizes={"test": OWN})
    models = several(oracle)
    plain = oracle.score_nodes(models, "test")
    assert len({float(loss) for loss in plain.loss[OWN > 0]}) == 8
    close(plain, engine.score_nodes(models, "test"))
    close(plain, fast.score_nodes(models, "test"))
    assert engine.own_losses(models) == pytest.approx(oracle.own_losses(models), rel=1e-9)
    for each in (oracle, fast, engine):
        close(oracle.score_nodes(models, "val"), each.score_nodes(models, "val"))


def test_own_parts_add_up_to_the_whole_for_one_model() -> None:
    for engine in engines("2nn", held_sizes={"test": OWN}):
        models = train(engine, 3)
        scores, whole = engine.score_nodes(models, "test"), engine.evaluate(models.w[0], "test")
        there = scores.count > 0
        assert scores.right.sum() / 95 == pytest.approx(whole.accuracy, rel=1e-12)
        assert scores.loss[there] @ scores.count[there] / 95 == pytest.approx(whole.loss, rel=1e-9)
        assert np.isnan(scores.loss[~there]).all()
        right, count = by_class(engine, models.w[0], "test")
        assert scores.class_right is not None and scores.class_count is not None
        assert scores.class_right.tolist() == right
        assert scores.class_count.tolist() == count
        assert count == np.bincount(nodes_of().y, minlength=CLASSES).tolist()
        assert sum(right) == scores.right.sum()


def test_pooled_parts_give_each_node_the_score_of_its_row() -> None:
    for engine in engines("own"):
        models = several(engine)
        scores = engine.score_nodes(models, "val")
        for i in range(10):
            whole = engine.evaluate(own_models(models, np.array([i]))[0], "val")
            assert scores.loss[i] == pytest.approx(whole.loss, rel=1e-9)
            assert scores.right[i] / scores.count[i] == pytest.approx(whole.accuracy)
        assert scores.count.tolist() == [30] * 10


@pytest.mark.parametrize("name", ["2nn", "cnn", "own"])
def test_the_number_of_cores_changes_no_digit_of_a_score(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.engine.module.CHUNK_VALUES", 7 * 256)  # several jobs
    monkeypatch.setattr("coterie.engine.module.CACHED_VALUES", 7 * 256)
    one, two = (
        engines(name, workers=workers, dtype=torch.float32, held_sizes={"test": OWN})[1]
        for workers in (1, 2)
    )
    two.choose(one.choice())
    models = several(one)
    a, b = one.score_nodes(models, "test"), two.score_nodes(models, "test")
    assert np.array_equal(a.loss, b.loss, equal_nan=True)
    assert np.array_equal(one.losses(models.w), two.losses(models.w))


def test_scoring_takes_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("a gradient was taken")

    both = engines("own", held_sizes={"test": OWN})
    ready = [(engine, several(engine)) for engine in both]
    monkeypatch.setattr("torch.autograd.grad", refuse)
    for engine, models in ready:
        engine.losses(models.w)
        engine.score_nodes(models, "test")
        with pytest.raises(TrainingError, match="a gradient was taken"):
            both[0].gradients(models.w[0])


SCORES_MANY = """
import resource
import numpy as np, torch
from coterie.engine.contract import LocalSteps
from coterie.engine.module import Nodes
from coterie.engine.vectorized import Vectorized
from coterie.models import make_model

def images(n):
    return np.zeros((n, 1, 28, 28), dtype=np.uint8), np.zeros(n, dtype=np.int64)

nodes = Nodes(*images(4), np.array([2, 2]))
parts = {"val": images(1280), "test": images(10_240)}
steps = LocalSteps(0.1, 1.0, 2, "epoch", 0)
engine = Vectorized(make_model("cnn", (1, 28, 28), 62), nodes, parts, steps)
w = engine.initial().w[0]
engine.evaluate(w, "val")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
engine.evaluate(w, "test")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_scores_of_many_pieces_take_no_more_memory() -> None:
    """Each result that was kept had cost the memory of a batch, some megabytes."""
    told = subprocess.run(
        [sys.executable, "-c", SCORES_MANY], check=True, capture_output=True, text=True
    )
    per_unit = 1024 if sys.platform == "linux" else 1  # bytes
    assert int(told.stdout) * per_unit < 50e6
