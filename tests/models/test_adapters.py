"""What is frozen stays as it begins, is not sent and not averaged; weights from a file."""

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from coterie.config.files import make_config
from coterie.config.prepare import first_model, prepare
from coterie.core.errors import ModelError
from coterie.data import load
from coterie.engine.contract import LocalSteps
from coterie.engine.module import HeldOut, Nodes
from coterie.engine.sequential import Sequential
from coterie.engine.vectorized import Vectorized
from coterie.models import make_model
from coterie.models.adapters import Adapted, with_adapters
from coterie.models.size import n_bytes, n_parameters
from coterie.models.weights import load_weights
from coterie.runs.execute import execute
from problems import some_nodes

IMAGE = (1, 28, 28)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draw the same numbers whatever ran before."""
    torch.manual_seed(0)


def test_a_model_with_adapters_begins_as_its_base() -> None:
    for name, shape, tokens in (("cnn", IMAGE, False), ("transformer", (9,), True)):
        base = make_model(name, shape, 10, tokens=tokens)
        x = torch.randint(10, (3, 9)) if tokens else torch.rand(3, *shape)
        expected = base(x)
        assert torch.allclose(with_adapters(base, 3)(x), expected, atol=1e-6)


def test_the_numbers_of_adapters_are_those_counted_by_hand() -> None:
    model = with_adapters(make_model("2nn", IMAGE, 10), 4)
    by_hand = 4 * (784 + 200) + 4 * (200 + 200) + 4 * (200 + 10)
    assert n_parameters(model) == by_hand
    assert n_bytes(model) == 4 * by_hand
    convolutions = with_adapters(make_model("cnn", IMAGE, 10), 2)
    dense = 2 * (1024 + 256) + 2 * (256 + 10)
    assert n_parameters(convolutions) == 2 * (25 + 64) + 2 * (64 * 25 + 64) + dense


def test_an_adapter_of_a_convolution_is_a_change_of_its_weights() -> None:
    layer = nn.Conv2d(3, 5, 3, stride=2, padding=1)
    adapted, x = Adapted(layer, 2), torch.rand(2, 3, 8, 8)
    nn.init.normal_(adapted.up.weight)  # type: ignore[arg-type]
    change = torch.einsum("orxy,rihw->oihw", adapted.up.weight, adapted.down.weight)
    expected = torch.conv2d(x, layer.weight + change, layer.bias, 2, 1)
    assert torch.allclose(adapted(x), expected, atol=1e-5)


def test_a_layer_in_two_places_has_one_adapter_and_torchs_attention_none() -> None:
    layer = nn.Linear(4, 4)
    model = with_adapters(nn.Sequential(layer, nn.ReLU(), layer), 1)
    assert model[0] is model[2]  # type: ignore[index]
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    named = with_adapters(attention, 1).named_modules()
    adapted = [name for name, module in named if type(module) is Adapted]
    assert adapted == ["linear1", "linear2"]
    with pytest.raises(ModelError, match="needs linear layers or convolutions"):
        with_adapters(nn.LSTM(3, 4), 1)


@pytest.mark.parametrize("kind", [Sequential, Vectorized])
def test_what_is_frozen_is_neither_sent_nor_averaged_nor_changed(
    kind: type[Sequential] | type[Vectorized],
) -> None:
    nodes = some_nodes(3)
    layers = nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3)
    model = with_adapters(nn.Sequential(*layers), 2)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    held: HeldOut = {"test": nodes[0], "val": nodes[0]}
    engine = kind(model, Nodes.of(nodes), held, LocalSteps(0.5, 1, 4, "epoch", 0))
    start = engine.initial()
    assert start.w.shape == (1, 2 * (16 + 6) + 2 * (6 + 3))
    after = engine.export(engine.advance(start, 0, 3, np.zeros(3, dtype=np.int64)).w[0])
    assert after.keys() == before.keys()
    for key, value in after.items():
        assert torch.equal(value, before[key]) == (".layer." in key), key


def test_engines_agree_on_a_model_with_adapters() -> None:
    nodes = some_nodes(4)
    held: HeldOut = {"test": nodes[0], "val": nodes[0]}
    model = with_adapters(nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Linear(6, 3)), 2)
    found = []
    for kind in (Sequential, Vectorized):
        engine = kind(deepcopy(model), Nodes.of(nodes), held, LocalSteps(0.1, 1, 4, "epoch", 0))
        state = engine.advance(engine.initial(), 0, 2, np.array([0, 0, 1, 1]))
        found.append(engine.advance(state, 2, 4, np.zeros(4, dtype=np.int64)).w)
    assert torch.allclose(found[0], found[1], atol=1e-6)


def test_an_experiment_trains_adapters_on_the_model_of_a_run(tmp_path: Path) -> None:
    content = {
        "model": {"name": "2nn"},
        "partition": {"kind": "iid", "num_nodes": 4, "num_edges": 2},
        "algorithm": {"name": "fedavg", "tau2": 1},
        "train": {"steps": 2, "lr": 0.1, "batch_size": 32},
    }
    execute(make_config(content), tmp_path / "base")
    tuned = {**content, "model": {"name": "2nn", "adapters": 2, "weights": str(tmp_path / "base")}}
    prepared = prepare(make_config(tuned))
    by_hand = 2 * (784 + 200) + 2 * (200 + 200) + 2 * (200 + 10)
    assert (prepared.size.n_parameters, prepared.problem.model_bytes) == (by_hand, 4 * by_hand)
    engine = prepared.problem.engine
    start = engine.export(engine.initial().w[0])
    base = prepare(make_config({**content, "model": {**tuned["model"], "adapters": 0}}))  # type: ignore[dict-item]
    ended = base.problem.engine.export(base.problem.engine.initial().w[0])
    assert torch.equal(start["1.layer.weight"], ended["1.weight"])
    state = engine.advance(engine.initial(), 0, 2, np.zeros(4, dtype=np.int64))
    first, last = (engine.evaluate(w.w[0], "val").loss for w in (engine.initial(), state))
    assert last < first


def test_weights_of_another_model_are_refused_in_one_line(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    file = tmp_path / "model.safetensors"

    def refused(says: str, where: Path = file) -> None:
        before = model.weight.clone()
        with pytest.raises(ModelError, match=says) as error:
            load_weights(where, model)
        assert "\n" not in str(error.value)
        assert torch.equal(model.weight, before)

    refused("there is no such file", tmp_path / "nothing")
    refused("there is no such file", tmp_path)
    save_file({"weight": torch.ones(2, 3)}, file)
    refused("lacks 'bias', unlike the model")
    save_file({"weight": torch.ones(2, 3), "bias": torch.ones(2), "more": torch.ones(1)}, file)
    refused("has 'more', unlike the model")
    save_file({"weight": torch.ones(2, 4), "bias": torch.ones(2)}, file)
    refused(r"'weight' is \[2, 4\], and the model's is \[2, 3\]")
    save_file({"weight": torch.full((2, 3), torch.nan), "bias": torch.ones(2)}, file)
    refused("'weight' has numbers that are not finite")
    file.write_bytes(b"\xff" * 40)
    refused("not a whole file of safetensors")
    refused("a device or pipe is no file|cannot be read", Path("/dev/zero"))
    save_file({"weight": torch.ones(2, 3), "bias": torch.ones(2)}, file)
    load_weights(tmp_path, model)
    assert torch.equal(model.weight, torch.ones(2, 3))


def test_nothing_trained_differs_where_there_are_no_adapters() -> None:
    data = load("mnist-f-mini")
    plain, _ = first_model(make_config({"model": {"name": "2nn"}}), data)
    torch.manual_seed(0)
    assert torch.equal(plain[1].weight, make_model("2nn", IMAGE, 10)[1].weight)  # type: ignore[index]
