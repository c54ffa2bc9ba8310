"""Local rules and what the server makes of a mean, against their formulas on small cases."""

import numpy as np
import pytest
import torch

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.core.errors import ConfigError
from coterie.engine.contract import LocalSteps, Models
from coterie.engine.descent import Descent
from coterie.engine.local_rule import LocalRule
from coterie.engine.memory import first_memory
from coterie.engine.server import after_mean
from coterie.engine.turns import Turns
from coterie.engine.update import At, Pull, Update
from coterie.runs.execute import simulate
from coterie.simulation.algorithms.fedopt import server_adam, server_momentum
from coterie.simulation.algorithms.fedprox import pulled

FEW: dict[str, dict[str, object]] = {
    "data": {"sample": 0.3},
    "partition": {"num_nodes": 20, "num_edges": 10},
}


def walk(rule: LocalRule, steps: int, pull: float | None = None) -> float:
    """Go down f(w) = w^2/2 from w = 1 with rate 0.1."""
    w, number = torch.ones(1, 1), torch.ones(1, 1)
    if pull is not None:
        offset = torch.full((1, 1), pull)
        rule = LocalRule(update=Update(pull=lambda at: Pull(offset=offset)))
    descent = Descent(rule, [w], At(w.clone(), {}, {}, {}, number, number, number))
    for _ in range(steps):
        descent.step([w.clone()], 0.1)
    return float(w)


def test_plain_descent_is_sgd() -> None:
    assert walk(LocalRule(), 3) == pytest.approx(0.9**3)


def test_momentum_weight_decay_and_both_are_torchs() -> None:
    for momentum, decay in ((0.9, 0.0), (0.0, 0.1), (0.5, 0.2)):
        w = torch.ones(1, requires_grad=True)
        theirs = torch.optim.SGD([w], lr=0.1, momentum=momentum, weight_decay=decay)
        for _ in range(4):
            theirs.zero_grad()
            torch.autograd.backward((w.square() / 2).sum())
            theirs.step()
        assert walk(LocalRule(momentum, decay), 4) == pytest.approx(w.item(), rel=1e-6)


def test_fedprox_pulls_to_where_the_node_began() -> None:
    w = 1.0
    for _ in range(5):
        w -= 0.1 * (w + 0.5 * (w - 1.0))
    assert walk(LocalRule(update=pulled(0.5)), 5) == pytest.approx(w, rel=1e-6)
    assert walk(LocalRule(update=pulled(8.0)), 200) == pytest.approx(8 / 9, rel=1e-4)


def test_an_offset_is_added_to_the_gradient() -> None:
    assert walk(LocalRule(), 1, pull=-1.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("batch_size", "unit", "start", "rates", "batches"),
    [
        (10, "epoch", 0, 3 * 0.5 + 3 * 0.25, 6),
        (10, "batch", 0, 0.75, 2),
        (None, "epoch", 1, 0.25, 1),
    ],
)
def test_rates_and_batches_of_a_turn_add_up(
    batch_size: int | None, unit: str, start: int, rates: float, batches: int
) -> None:
    steps = LocalSteps(0.5, 0.5, batch_size, unit, 0)  # type: ignore[arg-type]
    one = np.zeros(1, dtype=np.int64)
    models, sizes = Models(torch.zeros(1, 2), one), np.array([25])
    turns = Turns(
        LocalRule(update=pulled(1.0)), models, steps, start, 2, sizes, one, 2, np.ones(1), one
    )
    at = turns.begin(one).at
    assert at is not None
    assert (float(at.rates), float(at.steps)) == (rates, batches)


def test_scaffold_keeps_the_mean_of_the_corrections() -> None:
    config = make_config(
        {**FEW, "optimizer": {"scaffold": True}, "train": {"steps": 4, "batch_size": 8, "lr": 0.05}}
    )
    states = list(simulate(config))
    memory = states[-1].models.memory
    p = prepare(config).problem.fleet.p
    mean = torch.from_numpy(p).float() @ memory["own.c"]
    assert torch.allclose(memory["common.c"], mean, atol=1e-6)
    assert memory["own.c"].abs().max() > 0


def test_scaffold_brings_very_different_nodes_nearer_to_the_optimum() -> None:
    losses = {}
    for scaffold in (False, True):
        config = make_config(
            {
                "algorithm": {"name": "fedavg", "tau1": 10},
                "data": FEW["data"],
                "partition": {"kind": "pathological", "classes_per_node": 1, **FEW["partition"]},
                "train": {"steps": 100, "lr": 0.1, "lr_decay": 1.0, "eval_every": 10},
                "optimizer": {"scaffold": scaffold},
            }
        )
        losses[scaffold] = list(simulate(config))[-1].row.train_loss
    assert losses[True] < losses[False]  # type: ignore[operator]


def test_scaffold_sends_twice_the_bytes_in_a_global_mean_only() -> None:
    plain, twice = (
        prepare(make_config({"optimizer": {"scaffold": scaffold}})).problem
        for scaffold in (False, True)
    )
    assert twice.everyone.nbytes == 2 * plain.everyone.nbytes
    assert twice.everyone.transfer.seconds > plain.everyone.transfer.seconds
    assert twice.model_bytes == plain.model_bytes


def after(update: Update, means: list[float], d: int = 2) -> list[list[float]]:
    """Return the global models that follow means that lie so far from the model before."""
    z = np.zeros(1, dtype=np.int64)
    first = torch.zeros(1, 2)
    models = Models(first, z, first_memory(update, 1, first[0], d))
    found = []
    for way in means:
        moved = Models(models.w + torch.tensor([[way, way]]), z, models.memory)
        models = after_mean(update, moved, d, np.ones(1), z, 1.0, everyone=True)
        found.append(models.w[0].tolist())
    return found


def test_a_mean_is_taken_as_it_is() -> None:
    assert after(Update(), [1.0, 1.0]) == [[1.0, 1.0], [2.0, 2.0]]


def test_server_momentum_carries_on() -> None:
    assert after(server_momentum(1.0, 0.5), [1.0, 1.0])[1] == [2.5, 2.5]
    assert after(server_momentum(0.1, 0.5), [1.0, 1.0])[1] == pytest.approx([0.25, 0.25])


def test_server_adam_is_fedadam() -> None:
    found = [w for w, _ in after(server_adam(0.1, 0.9, 0.99, 1e-3), [1.0, 2.0])]
    m, v, w, expected = 0.0, 1e-3**2, 0.0, []
    for way in (1.0, 2.0):
        m, v = 0.9 * m + 0.1 * way, 0.99 * v + 0.01 * way**2
        w += 0.1 * m / (v**0.5 + 1e-3)
        expected.append(w)
    assert found == pytest.approx(expected, rel=1e-6)


def test_what_is_not_trained_is_averaged_and_not_stepped() -> None:
    assert after(server_momentum(0.5, 0.0), [1.0], d=1) == [[0.5, 1.0]]


OPTIMIZERS: list[dict[str, object]] = [
    {"momentum": 0.5},
    {"weight_decay": 0.01},
    {"fedprox": 0.1},
    {"scaffold": True},
    {"server": "momentum", "server_lr": 0.7},
    {"server": "adam", "server_lr": 0.01},
]
GROUPINGS = ["coterie", "edge", "random"]


@pytest.mark.parametrize(
    ("optimizer", "grouping"),
    [
        pytest.param(optimizer, grouping, marks=[] if i % 3 == j else [pytest.mark.long])
        for i, optimizer in enumerate(OPTIMIZERS)
        for j, grouping in enumerate(GROUPINGS)
    ],
    ids=str,
)
def test_every_optimiser_runs_with_every_grouping_and_in_both_engines(
    optimizer: dict[str, object], grouping: str
) -> None:
    losses = []
    train = {"steps": 4, "batch_size": 16, "lr": 0.05, "precision": "float64"}
    for engine in ("vectorized", "sequential"):
        config = make_config(
            {
                **FEW,
                "algorithm": {"grouping": grouping, "tau2": 2},
                "train": {**train, "engine": engine},
                "optimizer": optimizer,
            }
        )
        losses.append([s.row.train_loss for s in simulate(config) if s.row.train_loss])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert losses[0][-1] < losses[0][0]


def test_scaffold_with_momentum_is_refused() -> None:
    with pytest.raises(ConfigError, match="scaffold corrects plain SGD only"):
        make_config({"optimizer": {"scaffold": True, "momentum": 0.9}})
