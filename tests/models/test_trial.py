"""What a model must be to be trained here; it is copied, and tried before anything is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import coterie
from coterie.core.errors import ConfigError, ModelError
from coterie.models import make_model
from coterie.models.adapters import Adapted
from coterie.models.size import counted_flops


def readings() -> coterie.Dataset:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 5)).astype(np.float32), rng.integers(0, 3, 60)
    return coterie.Dataset("readings", x, y, 3)


def settings(**sections: dict[str, Any]) -> dict[str, Any]:
    plain = {"name": "fedavg", "num_groups": 2}
    few = {"partition": {"kind": "iid", "num_nodes": 4}, "train": {"steps": 2}}
    return {**few, "algorithm": plain, **sections}


def refused(folder: Path, says: str, net: Any, **sections: dict[str, Any]) -> None:
    with pytest.raises(coterie.CoterieError, match=says) as error:
        coterie.run(settings(**sections), folder, dataset=readings(), model=net)
    assert "\n" not in str(error.value)
    assert not folder.exists()


class Through(nn.Module):
    """Scores are what a function makes of a layer and what comes in."""

    def __init__(self, layer: nn.Module, how: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.how = layer, how

    def forward(self, x: Tensor) -> Tensor:
        return self.how(self.layer, x)


def test_a_module_that_a_function_returns_stays_as_it_is(tmp_path: Path) -> None:
    kept = nn.Linear(5, 3)
    before = kept.weight.detach().clone()
    for adapters in (0, 2):
        content = settings(model={"adapters": adapters})
        first = [
            coterie.run(
                content, tmp_path / f"{adapters}{k}", dataset=readings(), model=lambda: kept
            ).rows[0]["train_loss"]
            for k in range(2)
        ]
        assert first[0] == first[1]
        assert torch.equal(kept.weight, before)
        assert kept.weight.requires_grad


def test_a_part_that_a_function_takes_from_elsewhere_stays_as_it_is() -> None:
    kept = nn.Linear(5, 4)
    made = make_model("own", (5,), 3, lambda: nn.Sequential(kept, nn.Linear(4, 3)))
    assert made[0] is not kept  # type: ignore[index]
    assert torch.equal(made[0].weight, kept.weight)  # type: ignore[index]


def test_a_module_that_keeps_what_it_computed_of_its_parameters_is_copied() -> None:
    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)
            self.twice = self.layer.weight * 2

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.layer(x)
            return scores

    made = make_model("own", (5,), 3, Keeping)
    assert torch.equal(made.twice, made.layer.weight * 2)  # type: ignore[arg-type, operator, union-attr]


def test_a_module_that_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    def locked() -> nn.Module:
        model = nn.Linear(5, 3)
        model.lines = (line for line in "ab")  # type: ignore[assignment]
        return model

    refused(tmp_path / "run", "'object:locked' cannot be copied", locked)


@pytest.mark.parametrize("model", [dict, int, str])
def test_a_type_without_a_signature_makes_no_model(tmp_path: Path, model: Any) -> None:
    refused(tmp_path / "run", f"'object:{model.__name__}' cannot be made", model)


@pytest.mark.parametrize("compute", [{}, {"flops_per_example": 10}])
@pytest.mark.parametrize(
    "how",
    [
        lambda layer, x: torch.zeros(len(x), 3),
        lambda layer, x: layer(x).detach(),
        lambda layer, x: torch.no_grad()(layer)(x),
        lambda layer, x: x[:, :3],
    ],
)
def test_scores_depend_on_what_is_trained(
    tmp_path: Path, how: Callable[[Any, Tensor], Tensor], compute: dict[str, Any]
) -> None:
    model = Through(nn.Linear(5, 3), how)
    refused(tmp_path / "run", "scores that do not depend on the parameters", model, compute=compute)


def test_a_module_may_have_gradients_in_training_alone() -> None:
    class InTraining(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with torch.set_grad_enabled(self.training):
                scores: Tensor = super().forward(x)
                return scores

    assert make_model("own", (5,), 3, InTraining(5, 3))


def cast(layer: Any, x: Tensor) -> Tensor:
    scores: Tensor = layer(x.to(layer.weight.dtype)).abs().float()
    return scores


@pytest.mark.parametrize("kind", [torch.complex64, torch.bfloat16, torch.float16])
def test_what_does_not_go_into_one_vector_of_real_numbers_is_refused(
    tmp_path: Path, kind: torch.dtype
) -> None:
    model = nn.Sequential(nn.Linear(5, 4), Through(nn.Linear(4, 3, dtype=kind), cast))
    name = str(kind).removeprefix("torch.")
    refused(
        tmp_path / "run", f"real numbers of one precision, and '1.layer.weight' is {name}", model
    )


def test_half_precision_alone_or_frozen_is_taken() -> None:
    halves = Through(nn.Linear(5, 3, dtype=torch.bfloat16), cast)
    assert make_model("own", (5,), 3, halves)
    frozen = Through(nn.Linear(5, 4, dtype=torch.bfloat16).requires_grad_(False), cast)
    assert make_model("own", (5,), 3, nn.Sequential(frozen, nn.Linear(4, 3)))


def test_sparse_gradients_are_refused_unless_they_are_frozen() -> None:
    with pytest.raises(ModelError, match="its Embedding '0' are sparse; use sparse=False"):
        make_model("own", (6,), 7, sparse(), tokens=True)
    assert make_model("own", (6,), 7, sparse(), tokens=True, adapters=2)


def sparse() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Linear(4, 7))


def test_a_forward_may_read_what_a_layer_with_an_adapter_has() -> None:
    def reads(layer: Any, x: Tensor) -> Tensor:
        scores: Tensor = layer(x.to(layer.weight.dtype))[:, : layer.out_features] + 0 * layer.bias
        return scores

    made = make_model("own", (5,), 3, Through(nn.Linear(5, 3), reads), adapters=2)
    assert type(made.layer) is Adapted
    assert made.layer.weight is made.layer.layer.weight


def test_an_adapter_has_the_precision_of_its_layer() -> None:
    made = make_model("own", (5,), 3, Through(nn.Linear(5, 3).double(), cast), adapters=2)
    assert {w.dtype for w in made.parameters()} == {torch.float64}


def test_a_frozen_model_may_have_adapters() -> None:
    assert make_model("own", (5,), 3, nn.Linear(5, 3).requires_grad_(False), adapters=2)


def typed(layer: Any, x: Tensor) -> Tensor:
    if type(layer) is not nn.Linear:
        raise TypeError("no linear layer")
    scores: Tensor = layer(x)
    return scores


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (lambda layer, x: nn.functional.linear(x, layer.weight), "scores that do not depend"),
        (typed, "does not run on inputs .*: TypeError: no linear layer"),
    ],
)
def test_a_model_is_tried_with_its_adapters(
    tmp_path: Path, how: Callable[[Any, Tensor], Tensor], says: str
) -> None:
    model = Through(nn.Linear(5, 3), how)
    assert make_model("own", (5,), 3, model)
    says = f"'object:Through' with model.adapters .*{says}"
    refused(tmp_path / "run", says, model, model={"adapters": 2})


IFCA = {"name": "ifca", "num_groups": 3}


def test_several_first_models_must_differ(tmp_path: Path) -> None:
    kept, sizes = nn.Linear(5, 3), iter(range(4, 9))
    base = coterie.run(settings(), tmp_path / "base", dataset=readings(), model="mlp")

    def grows() -> nn.Module:
        return nn.Sequential(nn.Linear(5, size := next(sizes)), nn.Linear(size, 3))

    for model, says, chosen in (
        (lambda: kept, "model 'object:lambda' makes the same one again", {}),
        ("mlp", "model.weights is one model; leave it out", {"weights": str(base.folder)}),
        ("mlp", "all begin as their base; use model.adapters = 0", {"adapters": 2}),
        (grows, "made one of 39 numbers, then one of 48", {}),
    ):
        told = f"ifca begins with 3 models .*{says}"
        refused(tmp_path / "run", told, model, model=chosen, algorithm=IFCA)
    with pytest.raises(ConfigError, match="makes the same one again"):
        coterie.run(
            settings(algorithm={**IFCA, "num_groups": 2}),
            tmp_path / "run",
            dataset=readings(),
            model=zeros,
        )


def zeros() -> nn.Module:
    model = nn.Linear(5, 3)
    for w in model.parameters():
        nn.init.zeros_(w)
    return model


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"algorithm": {"tau2": "never", "num_groups": 2}}, "has 2 models, one for each group"),
        ({"model": {"adapters": 2}}, "has a model with adapters, and model.weights is one without"),
    ],
)
def test_weights_say_which_run_they_are_of(
    tmp_path: Path, sections: dict[str, Any], says: str
) -> None:
    base = coterie.run(settings(**sections), tmp_path / "base", dataset=readings(), model="mlp")
    refused(tmp_path / "run", says, "mlp", model={"weights": str(base.folder)})


class Counting(nn.Module):
    """Buffers change in training; two are in no state_dict, one of which is made on the way."""

    kept: Tensor
    passing: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("kept", torch.zeros(1))
        self.register_buffer("passing", torch.zeros(1), persistent=False)
        self.register_buffer("late", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.kept.add_(0.5)
            self.passing.add_(0.5)
            self.late = torch.ones(1)
        scores: Tensor = self.layer(x)
        return scores


def test_counting_operations_leaves_all_buffers_as_they_were() -> None:
    model = Counting()
    counted_flops(model, (5,))
    assert (model.kept.item(), model.passing.item()) == (0, 0)


def test_a_saved_model_is_the_state_dict_of_its_module(tmp_path: Path) -> None:
    run = coterie.run(
        settings(train={"steps": 2, "engine": "sequential"}),
        tmp_path / "run",
        dataset=readings(),
        model=Counting,
    )
    saved = load_file(run.folder / "model.safetensors")
    assert saved.keys() == {"layer.weight", "layer.bias", "kept"}
    assert Counting().load_state_dict(saved)
