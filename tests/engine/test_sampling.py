"""Batches that are drawn anew: what they hold, and that every engine takes the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.config.factories import charged_examples, local_steps
from coterie.config.files import make_config
from coterie.core.arrays import Ints
from coterie.engine.contract import LocalSteps
from coterie.engine.turns import per_step
from engines import engines, same, train
from sharding import sharded


def drawn_by(steps: LocalSteps, t: int, i: int, n: int) -> list[Ints]:
    """The batches of a step; one of everything has all examples."""
    return [np.arange(n) if each is None else each for each in steps.batches(t, i, n)]


def anew(batch: int | None, seed: int = 0) -> LocalSteps:
    return LocalSteps(0.1, 1.0, batch, "epoch", seed, "reference")


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 9), st.integers(0, 9))
def test_as_many_batches_as_an_epoch_has_each_without_replacement(
    n: int, batch: int, t: int, i: int
) -> None:
    steps = anew(batch, 5)
    drawn = drawn_by(steps, t, i, n)
    assert len(drawn) == -(-n // batch) == per_step(steps, np.array([n]))[0]
    for each in drawn:
        assert len(each) == len(set(each.tolist())) == min(batch, n)
        assert set(each.tolist()) <= set(range(n))
    assert steps.taken(n) == sum(map(len, drawn))
    again = drawn_by(anew(batch, 5), t, i, n)
    assert all(np.array_equal(a, b) for a, b in zip(drawn, again, strict=True))


def test_every_example_is_as_likely_in_every_batch_and_a_step_may_leave_some_out() -> None:
    seen = [drawn_by(anew(4, seed), 1, 0, 10) for seed in range(3000)]
    for which in range(3):
        counts = np.bincount(np.concatenate([b[which] for b in seen]), minlength=10)
        assert np.abs(counts / 3000 - 0.4).max() < 0.04  # four standard deviations
    apart = np.mean([len(np.intersect1d(b[0], b[1])) for b in seen])
    assert apart == pytest.approx(4 * 4 / 10, abs=0.08)  # batches know nothing of each other


def test_a_step_of_one_batch_is_the_same_either_way() -> None:
    for steps in (anew(4), LocalSteps(0.1, 1.0, 4, "epoch", 0)):
        one = LocalSteps(0.1, 1.0, 4, "batch", 0, steps.sampling)
        order = np.random.default_rng([0, 3, 2]).permutation(10)
        assert drawn_by(one, 3, 2, 10)[0].tolist() == order[:4].tolist()
        assert one.taken(10) == 4
        assert steps.batches(3, 2, 4) == [None]


@pytest.mark.parametrize("kernel", ["dense", "stacked", "single"])
def test_every_kernel_takes_the_same_batches(kernel: str) -> None:
    same(*engines("2nn", 5, sampling="reference", kernel=kernel), tau1=2)


@pytest.mark.parametrize("name", ["own", "messy"])
def test_other_modules_take_the_same_batches(name: str) -> None:
    same(*engines(name, 5, sampling="reference"), tau1=2)


@pytest.mark.parametrize("batch_size", [1, 4, 7, 40])
def test_compiled_loops_take_the_same_batches(batch_size: int) -> None:
    pytest.importorskip("numba", reason="Numba is not installed")
    same(*engines("2nn", batch_size, sampling="reference", kernel="compiled"), tau1=2)


def test_actors_take_the_same_batches() -> None:
    oracle, engine, _ = sharded("2nn", 3, "dense", sampling="reference")
    same(oracle, engine, tau1=2)


def test_batches_that_are_drawn_anew_train_another_model() -> None:
    ends = [train(engines("sr", 5, sampling=how)[1]).w for how in ("epoch", "reference")]
    assert float((ends[0] - ends[1]).abs().max()) > 1e-6


def test_the_clock_charges_what_is_worked_through_and_the_papers_each_example_once() -> None:
    sizes, train_as = np.array([420, 128, 7]), {"sampling": "reference", "batch_size": 128}
    charged = {}
    for flops in ("analytic", "reference"):
        content = {"model": {"name": "2nn"}, "train": train_as, "compute": {"flops": flops}}
        config = make_config(content)
        steps = local_steps(config)
        worked = steps.examples_per_step(sizes)
        charged[flops] = charged_examples(config, steps, sizes, worked).tolist()
    assert charged == {"analytic": [512, 128, 7], "reference": [420, 128, 7]}
