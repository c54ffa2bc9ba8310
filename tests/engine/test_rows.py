"""Modules written by hand are seen through where they are a row of layers, and only there."""

import pickle
import random
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import engines as few
from coterie.engine.kernels.dense import find_chain
from coterie.engine.kernels.rows import find_row
from coterie.engine.kernels.stages import find_net
from engines import engines, same, train
from hand_written import EXAMPLES, OTHERS, ROWS, Perceptron, Small, Turned, Usual
from sharding import sharded

CONVOLUTIONS = ["usual", "shared", "rows"]
CHAINS = ["perceptron", "small"]


@pytest.fixture(autouse=True)
def hand_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engines of a test know these, too."""
    for name, make in ROWS.items():
        monkeypatch.setitem(few.MODULES, name, make)


@pytest.mark.parametrize("batch_size", [3, 40])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_give_what_the_plain_engine_gives(name: str, batch_size: int) -> None:
    pytest.importorskip("numba", reason="Numba is not installed")
    same(*engines(name, batch_size, kernel="convolved"), tau1=2)


@pytest.mark.parametrize("kernel", ["dense", "compiled"])
@pytest.mark.parametrize("name", CHAINS)
def test_linear_layers_give_what_the_plain_engine_gives(name: str, kernel: str) -> None:
    if kernel == "compiled":
        pytest.importorskip("numba", reason="Numba is not installed")
    same(*engines(name, 5, kernel=kernel), tau1=2)


def test_a_row_has_the_digits_of_the_same_layers_in_a_sequential(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made() -> nn.Module:
        model = Perceptron()
        first, second, third = model.layers
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU(), third)

    monkeypatch.setitem(few.MODULES, "made", made)
    ours, theirs = (engines(name)[1] for name in ("perceptron", "made"))
    assert ours.choice()["kernel"] == theirs.choice()["kernel"] == "dense"
    assert torch.equal(train(ours, 3).w, train(theirs, 3).w)


def test_actors_see_through_it_as_well() -> None:
    oracle, engine, _ = sharded("small", 2, "dense")
    same(oracle, engine, tau1=2)


@pytest.mark.parametrize("name", ROWS)
def test_the_row_has_the_parameters_of_the_module_in_their_order(name: str) -> None:
    model = ROWS[name]()
    row = find_row(model, EXAMPLES)
    assert row is not None
    assert (find_net(row) is not None, find_chain(row) is not None) == (
        name in CONVOLUTIONS,
        name in CHAINS,
    )
    assert [id(w) for w in row.parameters()] == [id(w) for w in model.parameters()]
    x = torch.rand(2, *EXAMPLES.shape[1:])
    assert torch.equal(row.eval()(x), model.eval()(x))


@pytest.mark.parametrize("make", OTHERS, ids=lambda make: make.__name__)
def test_what_only_looks_like_a_row_is_left_to_the_module(make: Callable[[], nn.Module]) -> None:
    model = make()
    double = model.double()
    assert find_row(double, EXAMPLES, torch.float64) is None
    assert find_row(Small().double(), EXAMPLES, torch.float64) is not None


def test_what_is_in_another_order_or_shared_is_left_to_the_module() -> None:
    tied = Usual()
    tied.fc1, tied.fc2 = nn.Linear(1152, 1152), nn.Linear(1152, 1152)
    assert find_row(tied, EXAMPLES) is not None
    tied.fc2.weight = tied.fc1.weight
    row = find_row(tied, EXAMPLES)
    assert row is None or find_net(row) is None
    assert find_row(Turned(), EXAMPLES) is None


def test_a_row_of_layers_is_itself_and_tokens_have_none() -> None:
    row = nn.Sequential(nn.Linear(3, 2))
    assert find_row(row, torch.zeros(0, 3)) is row
    assert find_row(Small(), torch.zeros(3, 256, dtype=torch.int64)) is None


def test_nothing_is_left_behind() -> None:
    model = Usual().eval()
    model.fc1.train()
    before = pickle.dumps(vars(model)), random.getstate(), torch.get_rng_state()
    numpys = np.random.get_state()  # noqa: NPY002
    weights = [w.clone() for w in model.parameters()]
    assert find_row(model, EXAMPLES) is not None
    for make in OTHERS:
        find_row(make(), EXAMPLES)
        torch.set_rng_state(before[2])
    assert find_row(model, EXAMPLES) is not None
    assert before[:2] == (pickle.dumps(vars(model)), random.getstate())
    assert torch.equal(before[2], torch.get_rng_state())
    assert np.array_equal(numpys[1], np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    assert not model.conv1.training
    assert model.fc1.training


def test_modules_of_other_threads_go_on_meanwhile() -> None:
    other, x, failed = Usual().eval(), torch.rand(2, 1, 16, 16), []
    want, done = other(x), threading.Event()

    def use() -> None:
        try:
            while not done.is_set():
                if not torch.equal(other(x), want):
                    failed.append("other numbers")
        except Exception as error:
            failed.append(str(error))

    threads = [threading.Thread(target=use)]
    threads += [threading.Thread(target=lambda: find_row(Usual(), EXAMPLES)) for _ in range(4)]
    call = nn.Module.__call__
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    done.set()
    threads[0].join()
    assert failed == []
    assert nn.Module.__call__ is call
