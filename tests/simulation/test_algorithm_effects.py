"""What algorithms are for: IFCA finds clusters of nodes, FedNova the optimum of unequal ones."""

from typing import Any

import numpy as np
from scipy.optimize import minimize

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.core.arrays import Floats
from coterie.data import Dataset
from coterie.engine.sequential import Sequential
from coterie.runs.execute import simulate
from coterie.simulation.loop import rounds
from coterie.simulation.state import State
from numpy_algorithms import softmax_regression


def on_rotated(name: str, seed: int) -> list[State]:
    """Run on 12 users, half of whom hold their pictures upside down."""
    config = make_config(
        {
            "seed": seed,
            "data": {"name": "own_parts:rotated", "split": "per-node"},
            "partition": {"kind": "natural", "num_edges": 3},
            "algorithm": {"name": name, "num_groups": 2, "tau1": 5, "tau2": 1},
            "train": {"steps": 60, "lr": 0.2, "lr_decay": 1.0},
        }
    )
    return list(simulate(config))


def test_ifca_finds_who_holds_pictures_upside_down_and_beats_fedavg() -> None:
    parted, found = [], []
    for seed in range(6):
        states, average = on_rotated("ifca", seed), on_rotated("fedavg", seed)[-1].row
        first, end = (groups(state) for state in (states[0], states[-1]))
        parted.append(len(set(first)) == 2)
        found.append(len(set(end[:6])) == len(set(end[6:])) == 1 and end[0] != end[6])
        score = states[-1].row.test_accuracy
        assert score is not None
        assert average.test_accuracy is not None
        assert not found[-1] or score > average.test_accuracy + 0.02
    # Where all nodes take the same of the first models, the other stays as it was: see the paper.
    assert found == parted
    assert sum(found) > 3


def groups(state: State) -> list[int]:
    assert state.groups is not None
    z: list[int] = state.groups.grouping.z.tolist()
    return z


DECAY = 0.05


def unequal() -> Dataset:
    """Four users, the last with ten times the examples of others and labels of its own."""
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(4), [60, 60, 60, 600])
    x = rng.normal(size=(len(users), 5)).astype(np.float32)
    rules = rng.normal(size=(4, 5, 3))
    y = np.einsum("nf,nfc->nc", x, rules[users]).argmax(axis=1)
    return Dataset("unequal", x, y, 3, users, tuple("abcd"))


def distance(name: str) -> float:
    """Distance to the optimum of the global objective after many rounds."""
    config = make_config(
        {
            "data": {"split": "per-node"},
            "partition": {"kind": "natural", "num_edges": 1},
            "algorithm": {"name": name, "tau1": 1, "tau2": 1},
            "train": {"steps": 200, "lr": 0.02, "lr_decay": 0.99, "batch_size": 12}
            | {"precision": "float64", "engine": "sequential", "eval_every": 100},
            "optimizer": {"weight_decay": DECAY},
        }
    )
    problem = prepare(config, unequal()).problem
    engine = problem.engine
    assert isinstance(engine, Sequential)
    nodes = [engine.shards.of(i) for i in range(len(engine.shards))]
    data = [(x.numpy().astype(np.float64), y.numpy()) for x, y in nodes]

    def objective(w: Floats) -> tuple[float, Floats]:
        parts = [softmax_regression(w, x, y) for x, y in data]
        losses, slopes = np.array([p[0] for p in parts]), np.array([p[1] for p in parts])
        p: Any = problem.fleet.p
        return float(p @ losses + DECAY / 2 * w @ w), p @ slopes + DECAY * w

    *_, end = rounds(problem)
    found = end.models.w[0].numpy()
    best = minimize(objective, np.zeros(len(found)), jac=True, tol=1e-12).x
    return float(np.linalg.norm(found - best))


def test_fednova_comes_nearer_to_the_optimum_where_steps_are_unequal() -> None:
    average, nova = distance("fedavg"), distance("fednova")
    assert nova < average / 2
