from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, pad

from coterie.config.files import make_config
from coterie.config.prepare import first_model
from coterie.core.errors import ConfigError, ModelError
from coterie.data import Dataset, load
from coterie.engine.contract import LocalSteps
from coterie.engine.module import Nodes
from coterie.engine.sequential import Sequential
from coterie.models import make_model
from coterie.models.initial import draw_as_reference
from coterie.models.size import counted_flops, flops_per_example, n_bytes, n_parameters
from problems import some_nodes

IMAGE = (1, 28, 28)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draw the same numbers whatever ran before."""
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("name", "parameters", "flops"),
    [("sr", 7_850, 47_040), ("2nn", 199_210, 1_192_800), ("cnn", 369_098, 46_439_424)],
)
def test_the_papers_models_have_its_parameter_counts(
    name: str, parameters: int, flops: int
) -> None:
    model = make_model(name, IMAGE, 10)
    assert n_parameters(model) == parameters
    assert n_bytes(model) == 4 * parameters
    assert flops_per_example(model, IMAGE) == flops


def test_leafs_celeba_network_has_31202_parameters_which_are_124808_bytes() -> None:
    model = make_model("celeba-cnn", (3, 84, 84), 2)
    assert n_parameters(model) == 31_202
    assert n_bytes(model) == 124_808


def test_batch_norm_of_the_celeba_network_uses_the_batch_when_evaluating_too() -> None:
    model = make_model("celeba-cnn", (3, 84, 84), 2)
    assert not list(model.buffers())
    x = torch.rand(6, 3, 84, 84)
    trained, evaluated = model.train()(x), model.eval()(x)
    assert torch.equal(trained, evaluated)
    assert not torch.allclose(evaluated[:2], model(x[:2]), atol=1e-4)


def test_the_celeba_network_is_leafs_layer_by_layer() -> None:
    model = make_model("celeba-cnn", (3, 21, 21), 2)
    x = scores = torch.rand(4, 3, 21, 21)
    w = iter(model.parameters())
    for _ in range(4):
        scores = conv2d(scores, next(w), next(w), padding=1)
        mean, var = scores.mean((0, 2, 3)), scores.var((0, 2, 3), correction=0)
        scale, shift = next(w), next(w)
        scores = (scores - mean[:, None, None]) / (var + 1e-3).sqrt()[:, None, None]
        scores = scores * scale[:, None, None] + shift[:, None, None]
        side = scores.shape[-1]
        scores = pad(scores, (0, side % 2, 0, side % 2), value=-torch.inf)
        scores = scores.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2)).clamp(min=0)
    scores = scores.flatten(1) @ next(w).T + next(w)
    assert torch.allclose(model(x), scores, atol=1e-4)


def test_averaging_the_celeba_network_averages_scales_and_shifts_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    nodes = [
        (rng.integers(0, 256, (n, 3, 20, 20), dtype=np.uint8), rng.integers(0, 2, n))
        for n in (3, 6)
    ]
    torch.manual_seed(0)
    engine = Sequential(
        make_model("celeba-cnn", (3, 20, 20), 2),
        Nodes.of(nodes),
        {"test": nodes[0], "val": nodes[1]},
        LocalSteps(0.1, 1, None, "epoch", 0),
    )
    apart = engine.advance(engine.initial(), 0, 1, np.arange(2))
    mean = engine.advance(engine.initial(), 0, 1, np.zeros(2, dtype=np.int64))
    weighted = (apart.w[0] * 3 + apart.w[1] * 6) / 9
    assert torch.allclose(mean.w[0], weighted, atol=1e-6)
    assert set(engine.export(mean.w[0])) == set(
        dict(make_model("celeba-cnn", (3, 20, 20), 2).named_parameters())
    )


@pytest.mark.parametrize("name", ["sr", "2nn", "cnn", "celeba-cnn"])
def test_operations_of_known_layers_are_those_that_torch_counts(name: str) -> None:
    model = make_model(name, (1, 21, 21), 3)
    assert flops_per_example(model, (1, 21, 21)) == counted_flops(model, (1, 21, 21)).flops


def test_operations_of_a_strided_convolution_in_groups_worked_by_hand() -> None:
    layers = nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2), nn.Flatten(), nn.Linear(32, 5)
    forward = 2 * (8 * 2 * 3 * 3) * (2 * 2) + 2 * 32 * 5
    assert flops_per_example(nn.Sequential(*layers), (4, 4, 4)) == 3 * forward


def test_counting_operations_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.BatchNorm1d(3))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    flops_per_example(model, (1, 4, 4))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_operations_are_counted_for_layers_that_work_in_place() -> None:
    model = nn.Sequential(nn.Flatten(), nn.ReLU(inplace=True), nn.Linear(16, 3))
    assert flops_per_example(model, (1, 4, 4)) == 3 * 2 * 16 * 3


def test_the_cnns_response_norm_is_the_formula() -> None:
    norm = make_model("cnn", IMAGE, 10)[3]  # type: ignore[index]
    x = torch.rand(2, 64, 3, 3)
    channels = [x[:, max(0, c - 4) : c + 5].square().sum(dim=1) for c in range(64)]
    expected = x / (1 + 0.001 / 9 * torch.stack(channels, dim=1)) ** 0.75
    assert torch.allclose(norm(x), expected, atol=1e-6)


def test_a_users_model_is_found_by_its_import_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\n"
        "def make(n_classes): return nn.Sequential(nn.Flatten(), nn.Linear(784, n_classes))\n"
        "def narrow(): return nn.Sequential(nn.Flatten(), nn.Linear(784, 3))\n"
        "def wrong_input(): return nn.Linear(5, 10)\n"
        "def not_a_model(): return 3\n"
        "def raises(): raise ValueError('no such thing\\nsecond line')\n"
        "def anything(**given): return make(given['n_classes'])\n"
        "class Two(nn.Module):\n"
        "    def forward(self, x): return x, x\n"
        "def two(): return Two()\n"
    )
    monkeypatch.chdir(tmp_path)
    assert n_parameters(make_model("my_models:make", IMAGE, 10)) == 7_850
    assert n_parameters(make_model("my_models:anything", IMAGE, 10)) == 7_850
    for name, says in {
        "my_models:narrow": r"one number per class, \[batch, 10\], got \[2, 3\]",
        "my_models:wrong_input": "does not run on inputs",
        "my_models:not_a_model": "not a torch.nn.Module",
        "my_models:raises": r"n_classes\): \w+: no such thing \(my_models.py, line \d+\)$",
        "my_models:two": "got tuple for a batch of 2",
        "my_models:nothing": "has no function 'nothing'",
        "my_modles:make": "no module 'my_modles'",
        "ccn": "did you mean 'cnn'",
    }.items():
        with pytest.raises(ModelError, match=says):
            make_model(name, IMAGE, 10)


def test_running_statistics_are_averaged_like_parameters() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 3))
    nodes = some_nodes(2)
    engine = Sequential(
        model,
        Nodes.of(nodes),
        {"test": nodes[0], "val": nodes[0]},
        LocalSteps(0.1, 1, None, "epoch", 0),
    )
    after = engine.advance(engine.initial(), 0, 1, np.zeros(2, dtype=np.int64))
    running = engine.export(after.w[0])["1.running_mean"]
    p = np.array([len(y) for _, y in nodes]) / sum(len(y) for _, y in nodes)
    means = [x.reshape(len(x), 16).mean(axis=0) / 255 for x, _ in nodes]
    expected = 0.1 * (p[0] * means[0] + p[1] * means[1])
    assert torch.allclose(running, torch.tensor(expected, dtype=torch.float32), atol=1e-6)


@pytest.mark.parametrize("name", ["sr", "2nn", "cnn", "celeba-cnn"])
def test_every_model_learns_the_embedded_images(name: str) -> None:
    data = load("mnist-f-mini")
    nodes = [(data.x[i : i + 40], data.y[i : i + 40]) for i in (0, 40)]
    torch.manual_seed(0)
    engine = Sequential(
        make_model(name, data.input_shape, 10),
        Nodes.of(nodes),
        {"test": nodes[0], "val": nodes[1]},
        LocalSteps(0.05, 1, 20, "epoch", 0),
    )
    start = engine.initial()
    after = engine.advance(start, 0, 3, np.zeros(2, dtype=np.int64))
    assert engine.evaluate(after.w[0], "test").loss < engine.evaluate(start.w[0], "test").loss
    assert np.isfinite(engine.measure(after.w[0], np.zeros(2, dtype=np.int64)).delta)


@pytest.mark.parametrize("name", ["sr", "2nn"])
def test_perceptrons_begin_as_the_authors_did_with_normal_biases_of_sd_1(name: str) -> None:
    model = make_model(name, IMAGE, 10)
    torch.manual_seed(4)
    draw_as_reference(name, model)
    biases = torch.cat([w.detach() for w in model.parameters() if w.ndim == 1])
    assert float(biases.std()) == pytest.approx(1.0, abs=4 * (2 * len(biases)) ** -0.5)
    for w in (w.detach() for w in model.parameters() if w.ndim == 2):
        sd = w.shape[1] ** -0.5
        assert float(w.std()) == pytest.approx(sd, rel=4 * (2 * w.numel()) ** -0.5)
        assert abs(float(w.mean())) < 4 * sd * w.numel() ** -0.5
        assert float(w.abs().max()) > 2.5 * sd  # it is not cut


def test_the_cnn_begins_as_the_authors_did_cut_at_two_standard_deviations() -> None:
    model = make_model("cnn", IMAGE, 10)
    torch.manual_seed(4)
    draw_as_reference("cnn", model)
    for w in (w.detach() for w in model.parameters()):
        if w.ndim == 1:
            assert not w.any()
            continue
        assert float(w.abs().max()) <= 0.1
        # a normal cut at two of its standard deviations keeps 0.7737 of its variance
        assert float(w.var()) == pytest.approx(0.7737 * 0.05**2, rel=5 * w.numel() ** -0.5)
        assert abs(float(w.mean())) < 4 * 0.05 * w.numel() ** -0.5


def test_first_weights_are_drawn_by_the_seed_and_as_by_default_unless_said() -> None:
    dataset = Dataset("x", np.zeros((4, *IMAGE), dtype=np.uint8), np.arange(4), 10)

    def first(seed: int, init: str) -> torch.Tensor:
        config = make_config({"seed": seed, "model": {"name": "2nn", "init": init}})
        model, _ = first_model(config, dataset)
        return torch.cat([w.detach().reshape(-1) for w in model.parameters()])

    assert torch.equal(first(3, "reference"), first(3, "reference"))
    assert not torch.equal(first(3, "reference"), first(4, "reference"))
    torch.manual_seed(3)
    plain = torch.cat([w.reshape(-1) for w in make_model("2nn", IMAGE, 10).parameters()])
    assert torch.equal(first(3, "torch"), plain)
    with pytest.raises(ConfigError, match="known for sr, 2nn, cnn only, got model 'celeba-cnn'"):
        make_config({"model": {"name": "celeba-cnn", "init": "reference"}})
