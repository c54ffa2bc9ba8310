"""What bounds how far group learning strays, on problems made for it and on random ones."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.arrays import Floats, Ints
from coterie.engine.module import Nodes
from coterie.models import make_model
from coterie.simulation.schedule import Schedule
from coterie.theory.bounds import (
    Constants,
    Steps,
    distance,
    distances,
    loss_gap,
    printed_distance,
    printed_distances,
    smooth_distance,
)
from coterie.theory.estimate import curvature, slope, smoothness_between
from coterie.theory.oracle import ModuleOracle, Oracle, linear_smoothness
from coterie.theory.virtual import Trace, trace
from quadratics import Quadratics

SLACK = 1e-9


def random_quadratics(rng: np.random.Generator, n: int, d: int) -> Quadratics:
    """Convex losses of different curvature and centre, some of them flat in some directions."""
    half = rng.standard_normal((n, d, d)) * rng.choice([0.0, 0.3, 1.0], (n, 1, d))
    A = half @ half.transpose(0, 2, 1) / d
    p = rng.uniform(0.1, 1, n)
    centres = rng.standard_normal((n, d)) * 3
    # a linear part in the range of A keeps every loss bounded from below
    b = np.einsum("nij,nj->ni", A, rng.standard_normal((n, d)))
    return Quadratics(A, centres, b, p / p.sum())


def some_groups(rng: np.random.Generator, n: int, K: int) -> Ints:
    z = np.concatenate([np.arange(K), rng.integers(0, K, n - K)])
    return np.asarray(rng.permutation(z), dtype=np.int64)


def random_softmax(rng: np.random.Generator, n: int) -> tuple[ModuleOracle, float]:
    """Softmax regression on random numbers of random classes, and its smoothness."""
    sizes = rng.integers(3, 9, n)
    x = rng.standard_normal((int(sizes.sum()), 1, 2, 2)).astype(np.float32)
    y = np.repeat(rng.integers(0, 3, n), sizes)  # a class or so per node: as far apart as can be
    y[rng.random(len(y)) < 0.2] = 0
    nodes = Nodes(x, y.astype(np.int64), sizes)
    torch.manual_seed(int(sizes.sum()))  # the start does not depend on what ran before
    return ModuleOracle(make_model("sr", (1, 2, 2), 3), nodes), linear_smoothness(nodes, 0.5)


def check_all(oracle: Oracle, beta: float, found: Trace, best: Floats) -> None:
    """Every bound that is claimed, at every step; the last also for the loss."""
    schedule = found.schedule
    for steps in (found.steps(beta), found.worst(beta)):
        convex, smooth = distances(steps, schedule), distances(steps, schedule, convex=False)
        assert (found.apart <= convex + SLACK).all()
        assert (convex <= smooth + SLACK).all()
    assert (found.apart <= found.means + found.groups + SLACK).all()
    whole = schedule.tau1 * schedule.tau2
    one = np.zeros(len(oracle.p), dtype=np.int64)
    least = float(oracle.p @ oracle.at(best[None], one)[0])
    apart = distances(found.steps(beta), schedule)
    for end, start in zip(range(whole - 1, len(found.eta), whole), found.models, strict=False):
        far = float(np.linalg.norm(start - best))
        rates = found.eta[end + 1 - whole : end + 1]
        bound = loss_gap(rates, far, found.slope[end], apart[end])
        assert found.loss[end] - least <= bound + SLACK


def lowest(oracle: Oracle, start: Floats) -> Floats:
    from scipy.optimize import minimize

    one = np.zeros(len(oracle.p), dtype=np.int64)

    def whole(w: Floats) -> tuple[float, Floats]:
        losses, grads = oracle.at(w[None], one)
        return float(oracle.p @ losses), oracle.p @ grads

    return np.asarray(minimize(whole, start, jac=True, method="L-BFGS-B").x)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 8),
    K=st.integers(1, 4),
    tau1=st.integers(1, 6),
    tau2=st.integers(1, 6),
    rate=st.sampled_from([0.1, 0.5, 1.0]),
    decay=st.sampled_from([1.0, 0.95]),
)
def test_the_bounds_hold_on_convex_quadratics(
    seed: int, n: int, K: int, tau1: int, tau2: int, rate: float, decay: float
) -> None:
    rng = np.random.default_rng(seed)
    oracle = random_quadratics(rng, n, 3)
    beta = oracle.smoothness() or 1.0
    start = rng.standard_normal(3) * 2
    eta: Floats = np.float64(rate / beta) * decay ** np.arange(2 * tau1 * tau2, dtype=np.float64)
    z = some_groups(rng, n, min(K, n))
    found = trace(oracle, z, start, Schedule(tau1, tau2), eta)
    check_all(oracle, beta, found, lowest(oracle, start))


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), tau1=st.integers(1, 4), tau2=st.integers(1, 4))
def test_the_bounds_hold_on_softmax_regression(seed: int, tau1: int, tau2: int) -> None:
    rng = np.random.default_rng(seed)
    oracle, beta = random_softmax(rng, 5)
    eta = np.full(2 * tau1 * tau2, 1 / beta)
    found = trace(oracle, some_groups(rng, 5, 2), oracle.start, Schedule(tau1, tau2), eta)
    best = oracle.start
    for _ in range(100):
        _, grads = oracle.at(best[None], np.zeros(5, dtype=np.int64))
        best = best - oracle.p @ grads / beta
    check_all(oracle, beta, found, best)


def drifting(share: float, pairs: int = 2) -> tuple[Quadratics, Ints]:
    """Equal groups of a curved node with little data and a straight one; together at rest at 0.

    The groups are alike, so Delta = 0; nodes pull in opposite directions, so delta > 0; the whole
    is nearly flat, so that nothing brings back what the group intervals add.
    """
    n = 2 * pairs
    curved = np.arange(n) % 2 == 0
    A = np.where(curved, 1.0, 0.0)[:, None, None]
    centres = np.where(curved, -1 / share, 0.0)[:, None]
    b = np.where(curved, 0.0, -1 / (1 - share))[:, None]
    p = np.where(curved, share, 1 - share) / pairs
    return Quadratics(A, centres, b, p), np.arange(n) // 2


@pytest.mark.parametrize(("tau1", "tau2", "eta"), [(5, 20, 0.3), (2, 20, 1.0), (2, 100, 0.1)])
def test_the_printed_bound_does_not_hold_when_groups_average_often(
    tau1: int, tau2: int, eta: float
) -> None:
    oracle, z = drifting(0.02)
    schedule, beta = Schedule(tau1, tau2), oracle.smoothness()
    assert eta <= 1 / beta
    found = trace(oracle, z, np.zeros(1), schedule, np.full(tau1 * tau2, eta))
    assert found.Delta.max() < 1e-12
    worst = Constants(eta, beta, found.delta.max(), found.Delta.max())
    assert found.apart[-1] > 1.5 * printed_distance(worst, schedule)
    assert (found.apart > printed_distances(found.steps(beta), schedule) + SLACK).any()
    assert found.apart[-1] <= distance(worst, schedule)
    assert (found.apart <= distances(found.steps(beta), schedule) + SLACK).all()


@pytest.mark.parametrize(("tau1", "tau2"), [(1, 6), (6, 1)])
def test_the_printed_bound_holds_for_one_of_the_two_means(tau1: int, tau2: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        oracle = random_quadratics(rng, 6, 3)
        beta = oracle.smoothness()
        eta = np.full(tau1 * tau2, 1 / beta)
        schedule = Schedule(tau1, tau2)
        found = trace(oracle, some_groups(rng, 6, 2), np.ones(3), schedule, eta)
        assert (found.apart <= printed_distances(found.steps(beta), schedule) + SLACK).all()


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize(("tau1", "tau2"), [(1, 1), (1, 5), (4, 1), (3, 4)])
def test_closed_forms_are_what_the_steps_add_up_to(tau1: int, tau2: int, convex: bool) -> None:
    c, schedule = Constants(0.1, 2.0, 3.0, 0.5), Schedule(tau1, tau2)
    steps = Steps.constant(c, tau1 * tau2)
    closed = (distance if convex else smooth_distance)(c, schedule)
    assert distances(steps, schedule, convex=convex)[-1] == pytest.approx(closed)
    assert printed_distances(steps, schedule)[-1] == pytest.approx(printed_distance(c, schedule))


def test_one_step_between_means_leaves_nothing_of_the_local_divergence() -> None:
    rng = np.random.default_rng(3)
    oracle = random_quadratics(rng, 6, 3)
    z = some_groups(rng, 6, 2)
    found = trace(oracle, z, np.ones(3), Schedule(1, 5), np.full(10, 0.1))
    assert found.delta.min() > 0
    assert found.means.max() < 1e-12
    whole = trace(oracle, np.zeros(6, dtype=np.int64), np.ones(3), Schedule(1, 5), np.full(10, 0.1))
    assert whole.apart.max() < 1e-12
    assert whole.Delta.max() < 1e-12


def test_virtual_models_are_what_they_are_defined_to_be() -> None:
    rng = np.random.default_rng(1)
    oracle = random_quadratics(rng, 4, 2)
    z = np.array([0, 0, 1, 1])
    found = trace(oracle, z, np.ones(2), Schedule(2, 1), np.full(4, 0.2))
    v, one = np.ones(2), np.zeros(4, dtype=np.int64)
    for _ in range(2):
        v = v - 0.2 * (oracle.p @ oracle.at(v[None], one)[1])
    w = np.repeat(np.ones((1, 2)), 4, axis=0)
    for _ in range(2):
        w = w - 0.2 * oracle.at(w, np.arange(4))[1]
    assert found.apart[1] == pytest.approx(np.linalg.norm(oracle.p @ w - v))
    assert found.models[1] == pytest.approx(oracle.p @ w)
    assert found.virtual_loss[1] == pytest.approx(float(oracle.p @ oracle.at(v[None], one)[0]))


def test_smoothness_and_slope_are_estimated_from_below() -> None:
    rng = np.random.default_rng(0)
    oracle = random_quadratics(rng, 5, 4)
    most = np.linalg.eigvalsh(oracle.A)[:, -1]
    assert curvature(oracle, np.zeros(4), rng, 200) == pytest.approx(most, rel=1e-3)
    a, b = rng.standard_normal((2, 4))
    assert 0 < smoothness_between(oracle, a, b) <= oracle.smoothness() + SLACK
    assert smoothness_between(oracle, a, a) == 0
    soft, beta = random_softmax(rng, 4)
    assert 0 < curvature(soft, soft.start, rng).max() <= beta
    steep = slope(soft, soft.start)
    one = np.zeros(4, dtype=np.int64)
    assert steep == pytest.approx(max(map(np.linalg.norm, soft.at(soft.start[None], one)[1])))


def test_gradients_of_a_module_are_those_of_its_loss() -> None:
    oracle, _ = random_softmax(np.random.default_rng(5), 3)
    one: Any = np.zeros(3, dtype=np.int64)
    w = oracle.start + 0.1
    losses, grads = oracle.at(w[None], one)
    step = np.zeros_like(w)
    step[4] = 1e-6
    ahead, _ = oracle.at((w + step)[None], one)
    assert (ahead - losses) / 1e-6 == pytest.approx(grads[:, 4], abs=1e-5)
    along = np.repeat(step[None] * 1e6, 3, axis=0)
    _, moved = oracle.at((w + step)[None], one)
    assert (moved - grads) / 1e-6 == pytest.approx(oracle.curve(w, along), abs=1e-5)
