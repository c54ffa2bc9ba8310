"""Nodes dealt to actors: the same as on one, whoever has which."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.errors import ConfigError, DivergenceError
from coterie.divergences.sketch import Sketch
from coterie.engine.local_rule import LocalRule
from coterie.engine.ray.engine import deal
from coterie.engine.update import NOTHING
from coterie.simulation.algorithms import ALGORITHMS
from engines import EVERYONE, GROUPS, same, train
from sharding import sharded


@pytest.mark.parametrize("actors", [1, 3, 10])
@pytest.mark.parametrize(
    ("name", "kernel"), [("2nn", "dense"), ("own", "stacked"), ("messy", "single")]
)
def test_any_number_of_actors_gives_what_the_plain_engine_gives(
    name: str, kernel: str, actors: int
) -> None:
    oracle, engine, _ = sharded(name, actors, kernel)
    same(oracle, engine)
    assert len(engine.dealt) == actors


@pytest.mark.parametrize("name", ["cnn", "messy"])
def test_no_digit_depends_on_the_number_of_actors_where_nodes_train_one_by_one(name: str) -> None:
    one, four = (sharded(name, actors, "single", dtype=torch.float32)[1] for actors in (1, 4))
    a, b = train(one, 4), train(four, 4)
    assert torch.equal(a.w, b.w)
    assert one.evaluate(a.w[0], "test") == four.evaluate(b.w[0], "test")


UPDATES = [name for name, a in ALGORITHMS.items() if a.update != NOTHING and name != "fedbn"]


@pytest.mark.parametrize("actors", [1, 3])
@pytest.mark.parametrize("name", UPDATES)
def test_what_an_algorithm_keeps_travels(name: str, actors: int) -> None:
    update = ALGORITHMS[name].update
    oracle, engine, _ = sharded("2nn", actors, "dense", LocalRule(update=update))
    same(oracle, engine, update=update)


@pytest.mark.parametrize("name", [*UPDATES, "fedbn"])
def test_no_digit_of_an_algorithm_depends_on_the_number_of_actors(name: str) -> None:
    update, found = ALGORITHMS[name].update, []
    model = "celeba-cnn" if name == "fedbn" else "2nn"
    for actors in (1, 2, 3):
        engine = sharded(model, actors, "single", LocalRule(update=update), dtype=torch.float32)[1]
        found.append(train(engine, 4, update=update))
    for other in found[1:]:
        assert torch.equal(other.w, found[0].w)
        for key, array in found[0].memory.items():
            assert torch.equal(other.memory[key], array), key


def test_one_question_a_mean_and_one_model_per_group_and_actor() -> None:
    _, engine, here = sharded("2nn", 3, "dense")
    models = engine.advance(engine.initial(), 0, 1, GROUPS)
    assert here.asked == ["advance"]
    d = models.w.shape[1]
    for nodes, sent in zip(engine.dealt, here.answers, strict=True):
        assert sent.groups.tolist() == sorted(set(GROUPS[nodes]))
        assert sent.sums.shape == (len(sent.groups), d)
    engine.advance(models, 1, 2, EVERYONE)
    assert here.asked == ["advance"] * 2
    assert [sent.sums.shape for sent in here.answers] == [(1, d)] * 3


def test_planners_see_the_same_gradients_and_sketches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.engine.ray.engine.GRAM_COLUMNS", 500)  # several pieces
    oracle, engine, _ = sharded("own", 3, "stacked")
    w = train(oracle, 2).w[0]
    a, b = oracle.gradients(w), engine.gradients(w)
    assert a.gram is not None and b.gram is not None
    assert a.last_layer is not None and b.last_layer is not None
    assert b.losses == pytest.approx(a.losses, rel=1e-9)
    assert np.allclose(a.gram, b.gram, rtol=0, atol=1e-9 * np.abs(a.gram).max())
    assert np.allclose(a.last_layer, b.last_layer, rtol=0, atol=1e-9)
    sketch = Sketch(16, 0)
    a, b = oracle.gradients(w, sketch), engine.gradients(w, sketch)
    assert a.sketches is not None and b.sketches is not None
    assert np.allclose(a.sketches, b.sketches, rtol=0, atol=1e-9)


def test_a_group_of_which_nobody_is_there_keeps_its_model() -> None:
    oracle, engine, _ = sharded("2nn", 3, "dense")
    present = np.array([0, 3, 4])  # of groups 0 and 1
    a, b = (each.advance(each.initial(), 0, 1, GROUPS) for each in (oracle, engine))
    a, b = (e.advance(m, 1, 2, GROUPS, present) for e, m in ((oracle, a), (engine, b)))
    assert torch.allclose(a.w, b.w, rtol=0, atol=1e-9)
    kept = engine.advance(engine.initial(), 0, 1, GROUPS).w[2]
    assert torch.allclose(b.w[2], kept, rtol=0, atol=1e-12)


def test_a_new_actor_in_the_middle_of_a_measure_gives_the_same() -> None:
    _, engine, here = sharded("2nn", 3, "dense")
    w = train(engine, 2).w[0]
    undisturbed = engine.measure(w, GROUPS)
    ask = here.ask

    def forgetful(method: str, *shared: object, each: object = None) -> list[object]:
        if method == "distances":
            here.members[1]._centres = None  # as in an actor that has just been started
        return ask(method, *shared, each=each)  # type: ignore[arg-type]

    here.ask = forgetful  # type: ignore[method-assign]
    found = engine.measure(w, GROUPS)
    assert (found.delta, found.Delta) == (undisturbed.delta, undisturbed.Delta)


def test_an_actor_names_the_node_that_diverges() -> None:
    _, engine, _ = sharded("2nn", 3, "dense", lr=1e6, dtype=torch.float32)
    models = engine.initial()
    with pytest.raises(DivergenceError, match=r"at step \d+ on node \d; lower train.lr"):
        for t in range(6):
            models = engine.advance(models, t, t + 1, GROUPS)


def test_a_device_that_an_actor_has_not_is_refused_with_the_knob_to_turn() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    _, engine, _ = sharded("2nn", 2, "dense")
    engine._work = engine._work.__class__(**{**vars(engine._work), "device": "cuda"})
    with pytest.raises(ConfigError, match=r"set ray\.gpus_per_actor"):
        engine.advance(engine.initial(), 0, 1, GROUPS)


def test_a_resumed_run_deals_as_it_did_before() -> None:
    _, engine, _ = sharded("2nn", 3, "dense")
    assert engine.choice() == {"kernel": "dense", "actors": "3"}
    engine.choose({"kernel": "single", "actors": "2"})
    assert engine.choice() == {"kernel": "single", "actors": "2"}
    assert len(engine.dealt) == 2


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 12))
def test_nodes_are_dealt_evenly_and_once(sizes: list[int], actors: int) -> None:
    parts = deal(np.array(sizes), actors)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(sizes)))
    assert len(parts) == min(actors, len(sizes)) and all(len(part) for part in parts)
    loads = [sum(sizes[i] for i in part) for part in parts]
    assert max(loads) - min(loads) <= max(sizes)
