"""A run says why it does not train in compiled loops, where it does not."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie
from coterie.engine.contract import LocalSteps
from coterie.engine.kernels import compiled, reasons
from coterie.engine.local_rule import PLAIN, LocalRule
from coterie.engine.module import HeldOut, Nodes
from coterie.engine.ray.engine import Sharded
from coterie.engine.sequential import Sequential
from coterie.engine.task import REGRESSION
from coterie.engine.vectorized import Vectorized
from coterie.runs import execute
from coterie.simulation.algorithms import ALGORITHMS
from engines import CLASSES, MODULES, Tower, nodes_of
from hand_written import Small, Training, Usual
from sharding import Here

MUCH = 1e12  # examples
NODES = nodes_of()
HELD: HeldOut = {"val": (NODES.x[:9], NODES.y[:9]), "test": (NODES.x, NODES.y)}


@pytest.fixture(autouse=True)
def numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba is there, whether it is or not."""
    monkeypatch.setattr(compiled, "has_numba", lambda: True)
    monkeypatch.setattr(compiled, "loads", lambda: True)


def why(
    model: nn.Module | None = None,
    batch_size: int | None = 5,
    rule: LocalRule = PLAIN,
    work: float = MUCH,
    y: Any = NODES.y,
) -> str:
    steps = LocalSteps(0.1, 1.0, batch_size, "epoch", 0)
    nodes = Nodes(NODES.x, y, NODES.sizes)
    made = Vectorized(model or MODULES["2nn"](), nodes, HELD, steps, rule=rule, work=work)
    return made.choice().get("why", "")


def linear() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 5), nn.ReLU(), nn.Linear(5, CLASSES))


class Narrow(nn.Module):
    """A row of layers that is written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 6, 5), nn.Linear(864, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).flatten(1))  # type: ignore[no-any-return]


def frozen() -> nn.Module:
    model = linear()
    model[1].requires_grad_(False)
    return model


def hooked() -> nn.Module:
    model = linear()
    model[1].register_forward_hook(lambda *_: None)
    return model


def test_nothing_is_said_where_compiled_loops_train() -> None:
    pytest.importorskip("numba", reason="Numba is not installed")
    assert why() == why(MODULES["cnn"]()) == ""
    assert why(Small()) == why(Usual()) == ""  # classes that are written by hand


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 5), nn.GELU(), nn.Linear(5, 4)),
            "the model has GELU, which is not written out",
        ),
        (MODULES["messy"], "the model has BatchNorm1d, which is not written out"),
        (Tower, "the model's forward is not a row of layers"),
        (Training, "the model's forward is not a row of layers"),
        (Narrow, "the model has a convolution of 6 channels, not a multiple of 16"),
        (frozen, "a part of the model is frozen"),
        (hooked, "the model has hooks"),
        (
            lambda: nn.Sequential(nn.Conv2d(1, 6, 5), nn.Flatten(), nn.Linear(864, CLASSES)),
            "the model has a convolution of 6 channels, not a multiple of 16",
        ),
        (
            lambda: nn.Sequential(nn.Linear(16, 5), nn.Flatten(), nn.Linear(80, CLASSES)),
            "the model's layers, or their order, are not written out",
        ),
    ],
)
def test_what_of_a_model_is_in_the_way_is_named(make: Callable[[], nn.Module], reason: str) -> None:
    assert why(make()) == reason


def test_how_a_run_steps_can_be_in_the_way() -> None:
    assert why(batch_size=None) == reasons.FULL == "train.batch_size is 'full'"
    assert why(rule=LocalRule(momentum=0.9)) == reasons.ADDED
    assert why(rule=LocalRule(update=ALGORITHMS["fedprox"].update)) == reasons.ADDED
    weights = sum(w.numel() for w in MODULES["2nn"]().parameters())
    assert why(work=0.9 * compiled.MUCH / weights) == reasons.SHORT


def test_a_numba_that_is_missing_or_broken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "loads", lambda: False)
    assert why() == reasons.NOT_LOADED
    monkeypatch.setattr(compiled, "has_numba", lambda: False)
    assert why() == reasons.NO_NUMBA
    assert why(work=1.0) == reasons.SHORT  # Numba would not help


def test_what_is_trained_on_can_be_in_the_way() -> None:
    assert why(y=np.where(np.arange(len(NODES.y)) == 3, CLASSES, NODES.y)) == reasons.OTHER_LABELS
    assert why(linear().to(torch.bfloat16)) == reasons.OTHER_NUMBERS
    steps = LocalSteps(0.1, 1.0, 5, "epoch", 0)
    y = NODES.y.astype(np.float32)[:, None]
    held: HeldOut = {"val": (NODES.x, y), "test": (NODES.x, y)}
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 1))
    nodes = Nodes(NODES.x, y, NODES.sizes)
    made = Vectorized(model, nodes, held, steps, work=MUCH, task=REGRESSION)
    assert made.choice()["why"] == reasons.OTHER_TASK


def test_another_device_is_named() -> None:
    if not torch.cuda.is_available():
        made = Vectorized(linear(), NODES, HELD, LocalSteps(0.1, 1.0, 5, "epoch", 0), work=MUCH)
        made._device = torch.device("cuda")
        assert made._why_no_loops() == reasons.OTHER_DEVICE
        return
    steps = LocalSteps(0.1, 1.0, 5, "epoch", 0)
    made = Vectorized(linear(), NODES, HELD, steps, "cuda", work=MUCH)
    assert made.choice()["why"] == reasons.OTHER_DEVICE


def test_other_engines_say_it_too() -> None:
    steps = LocalSteps(0.1, 1.0, 5, "epoch", 0)
    assert Sequential(linear(), NODES, HELD, steps).choice() == {"why": reasons.SEQUENTIAL}
    engine = Sharded(linear(), NODES, HELD, steps, Here(), 2)
    assert engine.choice() == {"kernel": "dense", "actors": "2", "why": reasons.ON_RAY}
    engine.choose({"kernel": "single", "actors": "1"})
    assert engine.choice() == {"kernel": "single", "actors": "1"}


def test_an_engine_goes_on_with_what_was_said_or_was_not() -> None:
    made = Vectorized(linear(), NODES, HELD, LocalSteps(0.1, 1.0, 5, "epoch", 0), work=1.0)
    assert made.choice() == {"kernel": "dense", "why": reasons.SHORT}
    made.choose({"kernel": "single", "why": "it was so"})
    assert made.choice() == {"kernel": "single", "why": "it was so"}
    made.choose({"kernel": "single"})
    assert made.choice() == {"kernel": "single"}


@pytest.mark.parametrize("old", [False, True])
def test_a_run_goes_on_to_the_same_digits_whatever_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    config = coterie.make_config(
        {
            "model": {"name": "2nn"},
            "data": {"sample": 0.1},
            "partition": {"num_nodes": 20},
            "train": {"steps": 4, "batch_size": 10, "lr": 0.1},
        }
    )

    def engine(folder: str) -> dict[str, str]:
        found: dict[str, str] = json.loads((tmp_path / folder / "meta.json").read_text())["engine"]
        return found

    execute.execute(config, tmp_path / "whole")
    begun = engine("whole")
    assert begun == {"kernel": "dense", "why": reasons.SHORT}
    asked: Iterator[bool] = iter([False, True])
    with monkeypatch.context() as before:
        if old:
            del begun["why"]
            before.setattr(Vectorized, "choice", lambda _: begun)
        with pytest.raises(execute.Interrupted):
            execute.execute(config, tmp_path / "run", stop=lambda: next(asked))
    assert engine("run") == begun
    monkeypatch.setattr(compiled, "MUCH", 0.0)  # a version that would choose otherwise
    execute.execute(config, tmp_path / "run", resume=True)
    assert engine("run") == begun
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run"))
    assert one == other
