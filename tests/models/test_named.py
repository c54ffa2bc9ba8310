"""Models by name: tables, small colour images, text."""

import warnings
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, group_norm, relu

from coterie.core.errors import ModelError
from coterie.engine.contract import LocalSteps
from coterie.engine.module import HeldOut, Nodes
from coterie.engine.sequential import Sequential
from coterie.engine.vectorized import Vectorized
from coterie.models import make_model
from coterie.models.size import n_parameters
from problems import some_nodes

PIXELS, PLACES = (3, 32, 32), (20,)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draw the same numbers whatever ran before."""
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("logistic", (13,), 1, 13 + 1),
        ("mlp", (13,), 1, 13 * 64 + 64 + 64 * 64 + 64 + 64 + 1),
        ("cifar-cnn", PIXELS, 10, 1_626_442),
        ("resnet18", PIXELS, 10, 11_173_962),
        ("char-lstm", PLACES, 80, 80 * 8 + 272_384 + 526_336 + 257 * 80),
        ("transformer", PLACES, 80, 80 * 128 + 20 * 128 + 2 * 198_272 + 256 + 129 * 80),
    ],
)
def test_a_model_has_the_parameters_counted_by_hand(
    name: str, shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    model = make_model(name, shape, 2, output=classes, tokens=shape == PLACES)
    assert n_parameters(model) == parameters


@pytest.mark.parametrize("name", ["char-lstm", "transformer"])
def test_a_model_of_text_sees_nothing_that_comes_later(name: str) -> None:
    model = make_model(name, PLACES, 9, tokens=True)
    x = torch.randint(9, (3, *PLACES))
    other = x.clone()
    other[:, 12:] = (x[:, 12:] + 1) % 9
    with torch.no_grad():
        scores, changed = model(x), model(other)
    assert torch.allclose(scores[:, :12], changed[:, :12], atol=1e-5)
    assert (scores[:, 12:] - changed[:, 12:]).abs().amax(dim=(0, 2)).min() > 1e-4


@pytest.mark.parametrize("name", ["char-lstm", "transformer"])
def test_a_model_of_text_learns_what_follows_what(name: str) -> None:
    x = (torch.randint(9, (16, 1)) + torch.arange(21)) % 9  # each is one more than the last
    model = make_model(name, PLACES, 9, tokens=True)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        adam.zero_grad()
        loss = cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        torch.autograd.backward(loss)
        adam.step()
    right = model(x[:, :-1]).argmax(dim=2) == x[:, 1:]
    assert right.float().mean() > 0.95


def test_the_cifar_cnn_is_pfls_layer_by_layer() -> None:
    model = make_model("cifar-cnn", PIXELS, 10).eval()
    x = torch.rand(2, *PIXELS)
    w = list(model.parameters())
    h = relu(torch.conv2d(relu(torch.conv2d(x, w[0], w[1])), w[2], w[3]))
    h = h.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2)).flatten(1)
    expected = relu(h @ w[4].T + w[5]) @ w[6].T + w[7]
    assert torch.allclose(model(x), expected, atol=1e-5)
    bound = (6 / (12_544 + 128)) ** 0.5  # of Glorot's first weights
    assert 0.99 * bound < float(w[4].detach().abs().max()) <= bound


def test_a_residual_block_is_the_formula() -> None:
    model = make_model("resnet18", PIXELS, 10)
    block = model[4]  # type: ignore[index]  # of 64 channels to 128, of 32 pixels to 16
    x, w = torch.rand(2, 64, 8, 8), [p.detach() for p in block.parameters()]
    h = relu(group_norm(torch.conv2d(x, w[0], stride=2, padding=1), 2, w[1], w[2]))
    h = group_norm(torch.conv2d(h, w[3], padding=1), 2, w[4], w[5])
    past = group_norm(torch.conv2d(x, w[6], stride=2), 2, w[7], w[8])
    assert torch.allclose(block(x), relu(h + past), atol=1e-5)


def test_resnet_treats_examples_one_by_one() -> None:
    model, x = make_model("resnet18", PIXELS, 10), torch.rand(3, *PIXELS)
    with torch.no_grad():
        assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-5)


def test_a_model_that_does_not_fit_the_examples_is_refused_in_one_line() -> None:
    for name, shape, tokens, says in (
        ("char-lstm", PIXELS, False, r"a row of tokens, got numbers of shape \[3, 32, 32\]"),
        ("transformer", (3, 4), True, r"a row of tokens, got whole numbers of shape \[3, 4\]"),
        ("resnet18", PLACES, True, r"images \[channels, height, width\], got \[20\]"),
        ("sr", PLACES, True, r"'sr' does not run on tokens \(20,\).*; char-lstm and transf"),
    ):
        with pytest.raises(ModelError, match=says) as error:
            make_model(name, shape, 10, tokens=tokens)
        assert "\n" not in str(error.value)


def test_a_models_output_is_as_wide_as_it_is_told() -> None:
    x = torch.rand(4, 13)
    assert make_model("logistic", (13,), 2, output=1)(x).shape == (4, 1)
    assert make_model("mlp", (13,), 10, output=3)(x).shape == (4, 3)
    with pytest.raises(ModelError, match=r"\[batch, 3\], got \[2, 5\]"):
        make_model("own", (13,), 10, nn.Linear(13, 5), output=3)


def test_a_users_model_of_tokens_scores_an_example_or_every_place() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(9, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.embedding(x).mean(dim=1)
            return scores

    assert make_model("own", PLACES, 3, Mean(), tokens=True)(torch.zeros(4, 20).long()).ndim == 2
    assert make_model("own", PLACES, 3, nn.Embedding(9, 3), tokens=True)
    with pytest.raises(ModelError, match=r"\[batch, 4\] or \[batch, length, 4\], got \[2, 20, 3\]"):
        make_model("own", PLACES, 4, nn.Embedding(9, 3), tokens=True)


class LastState(nn.Module):
    """An LSTM over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.lstm(x[:, 0])[0][:, -1])
        return scores


def test_an_lstm_trains_node_by_node_to_the_digits_of_the_plain_engine() -> None:
    nodes = some_nodes(4)
    held: HeldOut = {"test": nodes[0], "val": nodes[0]}
    model, found = LastState(), []
    for kind in (Sequential, Vectorized):
        steps = LocalSteps(0.5, 1, 4, "epoch", 0)
        engine = kind(deepcopy(model), Nodes.of(nodes), held, steps)
        assert engine.choice().get("kernel", "single") == "single"
        state = engine.advance(engine.initial(), 0, 2, np.array([0, 0, 1, 1]))
        found.append(engine.advance(state, 2, 4, np.zeros(4, dtype=np.int64)).w)
    assert torch.equal(found[0], found[1])


def test_nobody_is_told_of_ways_to_train_an_lstm_that_were_tried_and_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nothing is known from an earlier run
    nodes = some_nodes(4)
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            steps = LocalSteps(0.5, 1, 4, "epoch", 0)
            Vectorized(LastState(), Nodes.of(nodes), {"test": nodes[0], "val": nodes[0]}, steps)
    finally:
        torch.set_warn_always(False)
    assert [str(warning.message) for warning in told] == []
