"""Operations of an example, forward and backward, against counts by hand: a multiply-add is two."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from coterie.cli import main
from coterie.config.files import make_config
from coterie.config.prepare import first_model, prepare
from coterie.core.arrays import Floats
from coterie.core.errors import ConfigError, CoterieWarning
from coterie.data import load
from coterie.models import make_model
from coterie.models.size import counted_flops, flops_per_example

L = 10  # places of a sequence


class Through(nn.Module):
    """A module whose scores are what a function makes of a layer and its input."""

    def __init__(self, layer: nn.Module, how: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.how = layer, how

    def forward(self, x: Tensor) -> Tensor:
        return self.how(self.layer, x)


def first(layer: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = layer(x)[0]
    return found


def whole(layer: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = layer(x)
    return found


def itself(layer: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = layer(x, x, x, need_weights=False)[0]
    return found


def attended(layer: nn.Module, x: Tensor) -> Tensor:
    """Two heads of width 8."""
    q = layer(x).view(len(x), L, 2, 8).transpose(1, 2)
    return scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)


# A gate reads the input and the state. The state before the first place is zero and has no
# gradient, which is one product less; oneDNN's LSTM does it all the same.
LSTM = 2 * L * 4 * 16 * (8 + 16) + 2 * L * 4 * 16 * (16 + 16)
BOTH_WAYS = 2 * (2 * L * 4 * 16 * (8 + 16))
HAND = {
    "linear": (nn.Linear(7, 5), whole, (7,), 3 * 2 * 7 * 5),
    "convolution over a row": (nn.Conv1d(4, 8, 3), whole, (4, 10), 3 * 2 * (4 * 8 * 3) * 8),
    "convolution in groups": (
        *(nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2), whole, (4, 4, 4)),
        3 * 2 * (8 * 2 * 3 * 3) * (2 * 2),
    ),
    "convolution that grows": (
        *(nn.ConvTranspose2d(4, 8, 3), whole, (4, 5, 5)),
        3 * 2 * (4 * 8 * 3 * 3) * (5 * 5),
    ),
    "lstm of two layers": (nn.LSTM(8, 16, 2, batch_first=True), first, (L, 8), 3 * LSTM),
    "lstm both ways": (
        *(nn.LSTM(8, 16, batch_first=True, bidirectional=True), first, (L, 8)),
        3 * BOTH_WAYS,
    ),
    "gru": (
        *(nn.GRU(8, 16, batch_first=True), first, (L, 8)),
        3 * 2 * L * 3 * 16 * (8 + 16) - 2 * 3 * 16 * 16,
    ),
    "rnn": (
        *(nn.RNN(8, 16, batch_first=True), first, (L, 8)),
        3 * 2 * L * 16 * (8 + 16) - 2 * 16 * 16,
    ),
    "multi-head attention": (
        *(nn.MultiheadAttention(16, 2, batch_first=True), itself, (L, 16)),
        3 * (4 * 2 * L * 16 * 16 + 2 * 2 * L * L * 16),
    ),
    "attention by itself": (
        *(nn.Linear(16, 16), attended, (L, 16)),
        3 * (2 * L * 16 * 16 + 2 * 2 * L * L * 16),
    ),
    "group norm": (nn.GroupNorm(2, 4), whole, (4, 5), 0),
    "layer norm": (nn.LayerNorm(7), whole, (7,), 0),
    "batch norm": (nn.BatchNorm1d(7), whole, (7,), 0),
}


@pytest.mark.parametrize("name", HAND)
def test_operations_of_a_layer_are_those_counted_by_hand(name: str) -> None:
    layer, how, shape, by_hand = HAND[name]
    assert flops_per_example(Through(layer, how), shape) == by_hand


def test_looking_up_an_embedding_is_no_operation() -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(4 * L, 3))
    assert flops_per_example(model, (L,), tokens=True) == 3 * 2 * 4 * L * 3


def test_operations_of_leafs_lstm_are_those_of_its_gates_and_its_scores() -> None:
    gates = 2 * 80 * 4 * 256 * ((8 + 256) + (256 + 256))
    model = make_model("char-lstm", (80,), 65, tokens=True)
    assert flops_per_example(model, (80,), tokens=True) == 3 * (gates + 2 * 80 * 256 * 65)


def test_operations_of_the_transformer_are_those_of_its_products() -> None:
    width, vocabulary = 128, 65
    dense = 2 * L * (3 + 1 + 4 + 4) * width * width
    attention = 2 * 2 * L * L * width
    model = make_model("transformer", (L,), vocabulary, tokens=True)
    by_hand = 3 * (2 * (dense + attention) + 2 * L * width * vocabulary)
    assert flops_per_example(model, (L,), tokens=True) == by_hand


def test_operations_of_resnet_are_those_of_its_convolutions() -> None:
    stages = [(64, 64, 32, 4), (128, 128, 16, 3), (256, 256, 8, 3), (512, 512, 4, 3)]
    forward = 2 * 3 * 9 * 64 * 32 * 32 + 2 * 512 * 10
    for i, o, side, number in stages:
        forward += number * 2 * i * 9 * o * side * side
    for i, o, side in ((64, 128, 16), (128, 256, 8), (256, 512, 4)):  # half the sides, and past it
        forward += 2 * i * (9 + 1) * o * side * side
    model = make_model("resnet18", (3, 32, 32), 10)
    assert flops_per_example(model, (3, 32, 32)) == 3 * forward


def test_a_frozen_layer_has_no_gradient_of_its_own_to_compute() -> None:
    layers = nn.Linear(7, 5).requires_grad_(False), nn.Linear(5, 3)
    by_hand = 2 * 2 * 7 * 5 + 3 * 2 * 5 * 3  # forward and the gradient of what comes in
    assert flops_per_example(nn.Sequential(*layers), (7,)) == by_hand


@pytest.mark.parametrize(
    "layer", [nn.GELU(), nn.Hardswish(), nn.PReLU(), nn.GLU(), nn.AdaptiveAvgPool1d(4), nn.ELU()]
)
def test_activations_and_pooling_are_known_and_free(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(6, 6), layer)
    assert counted_flops(model, (4, 6)) == replace(counted_flops(model, (4, 6)), unknown=())
    assert counted_flops(model, (4, 6)).flops == 3 * 2 * 4 * 6 * 6


def test_operators_that_are_not_counted_are_named_in_one_warning() -> None:
    def apart(layer: nn.Module, x: Tensor) -> Tensor:
        return torch.cdist(layer(x), layer(x)).mean(dim=1)

    with pytest.warns(CoterieWarning) as told:
        flops = flops_per_example(Through(nn.Linear(6, 6), apart), (4, 6))
    assert flops == 2 * 3 * 2 * 4 * 6 * 6
    assert [str(warning.message) for warning in told] == [
        "the operations of aten._cdist_backward, aten._cdist_forward are not counted, and "
        "simulated compute is too short by them; set compute.flops_per_example"
    ]


def test_operations_that_are_set_are_not_counted_and_nobody_is_warned() -> None:
    def apart(layer: nn.Module, x: Tensor) -> Tensor:
        return whole(layer, torch.cdist(x.flatten(2), x.flatten(2)).flatten(1))

    data, own = load("mnist-f-mini"), Through(nn.Linear(1, 10), apart)
    content = {"compute": {"flops_per_example": 1234}, "partition": {"num_nodes": 10}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, size = first_model(make_config(content), data, own)
    assert size.flops_per_example == 1234


def test_simulated_compute_goes_by_the_operations_that_are_set() -> None:
    def step_s(flops: int | str) -> Floats | float:
        return prepare(make_config({"compute": {"flops_per_example": flops}})).problem.fleet.step_s

    assert np.allclose(step_s(2 * 47_040), 2 * step_s("auto"))


def test_operations_are_set_or_charged_as_the_paper_did_but_not_both() -> None:
    with pytest.raises(ConfigError, match="flops_per_example takes the place of counting"):
        make_config({"compute": {"flops": "reference", "flops_per_example": 7}})
    with pytest.raises(ConfigError, match=r"flops_per_example must be >= 1, got 0"):
        make_config({"compute": {"flops_per_example": 0}})


def test_the_command_line_tells_of_them_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far.py").write_text(
        "import torch\n"
        "class Far(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(28, 10)\n"
        "    def forward(self, x):\n"
        "        return torch.cdist(self.layer(x[:, 0]), torch.eye(10)).mean(dim=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    keys = ("model.name=far:Far", "train.steps=1", "partition.num_nodes=10")
    settings = [word for key in keys for word in ("--set", key)]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(main, ["run", "quickstart", *settings, "-o", "run"])
    assert done.exit_code == 0, done.output
    assert done.output.count("coterie: the operations of aten.") == 1
