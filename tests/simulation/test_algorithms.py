"""Every algorithm against plain NumPy written from its paper, and the limits that they have."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import numpy_algorithms as plain
from coterie.config.files import make_config
from coterie.config.prepare import Prepared, prepare
from coterie.core.arrays import Floats
from coterie.data import Dataset
from coterie.engine.own_models import own_models
from coterie.engine.sequential import Sequential
from coterie.simulation.loop import rounds
from coterie.simulation.state import State
from own_nets import HIDDEN

CLASSES, FEATURES = 4, 5
SIZES = (14, 33, 9, 21, 40, 17)
CLOSE = 1e-9
ENGINES = ["sequential", "vectorized"]


def dataset(sizes: tuple[int, ...] = SIZES) -> Dataset:
    """Users of unequal sizes, each with a way of its own to label what it sees."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(users), FEATURES)).astype(np.float32)
    rules = rng.normal(size=(FEATURES, CLASSES)) + rng.normal(size=(len(sizes), FEATURES, CLASSES))
    y = np.einsum("nf,nfc->nc", x, rules[users]).argmax(axis=1)
    names = tuple(f"u{i}" for i in range(len(sizes)))
    return Dataset("made-up", x, y, CLASSES, users, names)


def prepared(
    name: str,
    options: dict[str, Any] | None = None,
    data: Dataset | None = None,
    model: str = "sr",
    train: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
    **algorithm: Any,
) -> Prepared:
    """Six nodes under two edges; steps are epochs of unequal numbers of batches."""
    chosen = {"tau1": 2, "tau2": 3, "num_groups": 2, "options": options or {}, **algorithm}
    config = make_config(
        {
            "seed": 3,
            "data": {"split": "per-node"},
            "partition": {"kind": "natural", "num_edges": 2},
            "model": {"name": model},
            "algorithm": {"name": name, **chosen},
            "train": {"steps": 14, "lr": 0.2, "lr_decay": 0.97, "batch_size": 8}
            | {"precision": "float64", "engine": "sequential", **(train or {})},
            "optimizer": optimizer or {},
        }
    )
    return prepare(config, data or dataset())


def federation(ready: Prepared) -> plain.Federation:
    """Take what the plain versions need out of a problem, but nothing that it computes."""
    config, problem = ready.config, ready.problem
    alike = replace(config, train=replace(config.train, engine="sequential"))
    engine = prepare(alike, dataset()).problem.engine
    assert isinstance(engine, Sequential)
    xs, ys = zip(*(engine.shards.of(i) for i in range(len(engine.shards))), strict=True)
    _, tau1, tau2 = config.algorithm.usual
    grouped = config.algorithm.made.groups == "edge"
    z = problem.fleet.edge_of if grouped else np.zeros(len(ys), dtype=np.int64)
    return plain.Federation(
        [x.numpy().astype(np.float64) for x in xs],
        [y.numpy() for y in ys],
        z,
        tau1 if grouped else tau1 * tau2,
        tau2 if grouped else 1,
        problem.steps,
        engine._steps,
        engine._w0.numpy(),
        plain.softmax_regression if config.model.name == "sr" else plain.two_layers(HIDDEN),
    )


def last(ready: Prepared) -> State:
    """Run to the end."""
    return list(rounds(ready.problem))[-1]


def final(ready: Prepared) -> Floats:
    """The one model in the end."""
    w = last(ready).models.w.numpy()
    assert len(w) == 1
    result: Floats = w[0]
    return result


def personal(ready: Prepared) -> Floats:
    """The nodes' own models in the end."""
    models = last(ready).models
    result: Floats = own_models(models, np.arange(len(models.of_node))).numpy()
    return result


def furthest(one: Any, other: Any) -> float:
    """The largest difference of two arrays."""
    return float(np.abs(np.asarray(one) - np.asarray(other)).max())


ADAM = {"lr": 0.05, "beta1": 0.8, "beta2": 0.9, "epsilon": 0.01}
PLAIN: dict[str, tuple[dict[str, Any], Any]] = {
    "fedavg": ({}, plain.fedavg),
    "fedprox": ({"mu": 0.7}, lambda f: plain.fedprox(f, 0.7)),
    "scaffold": ({}, plain.scaffold),
    "feddyn": ({"alpha": 0.3}, lambda f: plain.feddyn(f, 0.3)),
    "fednova": ({}, plain.fednova),
    "fedavgm": (
        {"lr": 0.8, "momentum": 0.6},
        lambda f: plain.fedopt(f, plain.momentum(0.8, 0.6)),
    ),
    "fedadam": (ADAM, lambda f: plain.fedopt(f, plain.adaptive(0.05, 0.8, 0.9, 0.01, False))),
    "fedyogi": (ADAM, lambda f: plain.fedopt(f, plain.adaptive(0.05, 0.8, 0.9, 0.01, True))),
    "hier-fedprox": (
        {"mu_group": 0.5, "mu_global": 0.2},
        lambda f: plain.hier_fedprox(f, 0.5, 0.2),
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("groups", ["none", "edge"])
@pytest.mark.parametrize("name", PLAIN)
def test_an_algorithm_is_its_papers(name: str, groups: str, engine: str) -> None:
    options, by_hand = PLAIN[name]
    ready = prepared(name, options, train={"engine": engine}, groups=groups)
    assert furthest(final(ready), by_hand(federation(ready))) < CLOSE
    if name != "fedavg":
        assert furthest(final(ready), final(prepared("fedavg", groups=groups))) > 1e-4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batch_size", [8, "full"])
@pytest.mark.parametrize("tau2", [1, 3])
def test_hier_scaffold_is_its_papers(engine: str, batch_size: int | str, tau2: int) -> None:
    # The paper knows equal steps alone, and no rates that decay.
    train = {"engine": engine, "batch_size": batch_size, "step_unit": "batch", "lr_decay": 1.0}
    train |= {"steps": 12}
    ready = prepared("hier-scaffold", train=train, groups="edge", tau2=tau2)
    assert furthest(final(ready), plain.mtgc(federation(ready))) < CLOSE
    assert furthest(final(ready), final(prepared("hierfavg", train=train, tau2=tau2))) > 1e-3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("groups", ["none", "edge"])
def test_fedper_is_its_papers(engine: str, groups: str) -> None:
    train = {"engine": engine}
    ready = prepared("fedper", model="own_nets:two_layers", train=train, groups=groups)
    base = HIDDEN * (FEATURES + 1)
    found, expected = personal(ready), np.array(plain.fedper(federation(ready), base))
    assert furthest(found, expected) < CLOSE
    assert furthest(found[0][:base], found[5][:base]) == 0
    assert furthest(found[0][base:], found[5][base:]) > 1e-3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("groups", ["none", "edge"])
def test_ditto_is_its_papers(engine: str, groups: str) -> None:
    ready = prepared("ditto", {"lam": 0.8}, train={"engine": engine}, groups=groups)
    shared, own = plain.ditto(federation(ready), 0.8)
    assert furthest(final(ready), shared) < CLOSE
    assert furthest(personal(ready), own) < CLOSE
    assert furthest(personal(ready), np.stack([shared] * len(own))) > 1e-3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tau", [1, 2])
def test_models_of_nodes_go_with_fedprox(engine: str, tau: int) -> None:
    alike: dict[str, Any] = {"optimizer": {"fedprox": 0.6}, "tau1": tau, "tau2": 1}
    alike |= {"train": {"engine": engine, "batch_size": "full"}}
    ready = prepared("ditto", {"lam": 0.8}, **alike)
    shared, own = plain.ditto(federation(ready), 0.8, mu=0.6)
    assert furthest(final(ready), shared) < CLOSE
    assert furthest(personal(ready), own) < CLOSE
    ready = prepared("fedper", model="own_nets:two_layers", **alike)
    expected = plain.fedper(federation(ready), HIDDEN * (FEATURES + 1), mu=0.6)
    assert furthest(personal(ready), expected) < CLOSE


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tau2", [3, "never"])
def test_ifca_is_its_papers(engine: str, tau2: int | str) -> None:
    ready = prepared("ifca", train={"engine": engine}, num_groups=3, tau2=tau2)
    f = federation(ready)
    starts = ready.problem.starts
    assert starts is not None
    if tau2 == "never":
        f = replace(f, tau1=2)
    models, taken = plain.ifca(f, starts.numpy())
    assert len(set(taken)) > 1
    state = last(ready)
    assert furthest(state.models.w[state.models.of_node], [models[k] for k in taken]) < CLOSE
    assert furthest(state.models.memory["common.~models"], models) < CLOSE


def test_fednova_with_equal_steps_is_fedavg() -> None:
    train = {"step_unit": "batch"}
    equal, average = (final(prepared(name, train=train)) for name in ("fednova", "fedavg"))
    assert furthest(equal, average) < CLOSE
    assert furthest(final(prepared("fednova")), final(prepared("fedavg"))) > 1e-3


@pytest.mark.parametrize("groups", ["none", "edge"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedprox", {"mu": 0.0}),
        ("hier-fedprox", {"mu_group": 0.0, "mu_global": 0.0}),
        ("fedavgm", {"lr": 1.0, "momentum": 0.0}),
        ("ditto", {"lam": 3.0}),
    ],
)
def test_an_algorithm_whose_addition_is_nothing_is_fedavg(
    name: str, options: dict[str, float], groups: str
) -> None:
    found = final(prepared(name, options, groups=groups))
    assert furthest(found, final(prepared("fedavg", groups=groups))) < CLOSE


def test_one_pull_of_hier_fedprox_is_fedprox() -> None:
    one = final(prepared("hier-fedprox", {"mu_group": 0.4, "mu_global": 0.0}, groups="edge"))
    assert furthest(one, final(prepared("fedprox", {"mu": 0.4}, groups="edge"))) < CLOSE


def test_feddyn_without_a_penalty_is_fedavg_whose_server_goes_on_along_all_ways_so_far() -> None:
    # h / alpha is minus the sum of all ways from a global model to the mean, whatever alpha is.
    ready = prepared("feddyn", {"alpha": 1e-12})
    gone = [np.zeros_like(federation(ready).w0)]

    def all_ways(way: Floats) -> Floats:
        gone[0] = gone[0] + way
        return way + gone[0]

    assert furthest(final(ready), plain.fedopt(federation(ready), all_ways)) < CLOSE


def test_ifca_with_one_model_is_fedavg() -> None:
    one = final(prepared("ifca", num_groups=1))
    assert furthest(one, final(prepared("fedavg"))) < CLOSE


def test_dittos_own_models_under_an_endless_pull_are_what_nodes_were_given() -> None:
    states = list(rounds(prepared("ditto", {"lam": 1e12}).problem))
    given, end = states[-2].models, states[-1].models
    own = own_models(end, np.arange(len(end.of_node)))
    assert furthest(own, given.w[given.of_node]) < CLOSE


def test_dittos_own_models_without_a_pull_are_trained_alone() -> None:
    own = personal(prepared("ditto", {"lam": 0.0}))
    f = federation(prepared("ditto"))
    assert furthest(own, [f.trained(i, f.w0, 0, f.last) for i in range(f.n)]) < CLOSE


@pytest.mark.parametrize("groups", ["none", "edge"])
def test_fedper_that_keeps_no_layer_on_nodes_is_fedavg(groups: str) -> None:
    net = "own_nets:two_layers"
    none = prepared("fedper", {"layers": 0}, model=net, groups=groups)
    average = final(prepared("fedavg", model=net, groups=groups))
    assert furthest(final(none), average) < CLOSE
    assert furthest(personal(none), [average] * len(SIZES)) < CLOSE


@pytest.mark.parametrize("algorithm", [{"groups": "none"}, {"groups": "edge", "tau2": 1}])
def test_hier_scaffold_without_means_of_groups_is_scaffold(algorithm: dict[str, Any]) -> None:
    two, one = (final(prepared(name, **algorithm)) for name in ("hier-scaffold", "scaffold"))
    assert furthest(two, one) < CLOSE
