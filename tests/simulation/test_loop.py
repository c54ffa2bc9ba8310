from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from coterie.core.errors import DivergenceError, TrainingError
from coterie.engine.contract import LocalSteps
from coterie.grouping import Evidence, Grouping
from coterie.grouping.baselines import by_edge, single
from coterie.models import make_model
from coterie.network.flows import flow_seconds
from coterie.network.values import Flows
from coterie.simulation.loop import rounds
from coterie.simulation.problem import Problem
from coterie.simulation.view import View
from coterie.topology import Topology
from problems import (
    CLASSES,
    SHAPE,
    final_model,
    fixed,
    make_engine,
    make_problem,
    some_nodes,
)

NODES = some_nodes()
TWO_GROUPS = fixed([0, 1, 0, 1, 0, 1, 0, 1])


def test_tau2_of_one_makes_grouping_irrelevant() -> None:
    one = final_model(make_problem(NODES, TWO_GROUPS, tau1=3, tau2=1))
    other = final_model(make_problem(NODES, fixed([0, 0, 0, 1, 1, 1, 2, 2]), tau1=3, tau2=1))
    assert np.array_equal(one, other)


def test_grouping_matters_otherwise() -> None:
    one = final_model(make_problem(NODES, TWO_GROUPS, tau1=1, tau2=3))
    other = final_model(make_problem(NODES, fixed([0, 0, 0, 0, 1, 1, 1, 1]), tau1=1, tau2=3))
    assert np.abs(one - other).max() > 1e-4


def test_the_global_mean_is_timed_once() -> None:
    problem = make_problem(some_nodes(), single, 1, 2)
    timed = []

    def clock(topology: Topology, flows: Flows) -> NDArray[np.float64]:
        timed.append(len(flows))
        return flow_seconds(topology, flows)

    network = replace(problem.fleet.network, clock=clock)
    problem = replace(problem, fleet=replace(problem.fleet, network=network))
    list(rounds(problem))
    assert problem.everyone.transfer.seconds > 0
    assert len(timed) == 2  # up and down: the one group of the planner is everybody, too


def test_one_group_equals_fedavg() -> None:
    grouped = final_model(make_problem(NODES, single, tau1=2, tau2=3))
    fedavg = final_model(make_problem(NODES, single, tau1=2, tau2=1))
    assert grouped == pytest.approx(fedavg, abs=1e-6)


def test_averaging_every_step_with_full_batch_is_centralised_descent() -> None:
    """Against plain torch on the pooled data, written out here."""
    federated = final_model(make_problem(NODES, TWO_GROUPS, tau1=1, tau2=1, steps=15))
    torch.manual_seed(7)
    model = make_model("sr", SHAPE, CLASSES)
    x = torch.from_numpy(np.concatenate([x for x, _ in NODES])).float() / 255
    y = torch.from_numpy(np.concatenate([y for _, y in NODES]))
    weights = list(model.parameters())
    for t in range(15):
        grads = torch.autograd.grad(cross_entropy(model(x), y), weights)
        with torch.no_grad():
            for w, g in zip(weights, grads, strict=True):
                w.sub_(g, alpha=0.5 * 0.99**t)
    central = torch.cat([w.detach().reshape(-1) for w in weights]).numpy()
    assert federated == pytest.approx(central, abs=1e-5)


def test_the_group_equation_step_by_step() -> None:
    """eq:w_GroupFL computed node by node for six steps of (tau1, tau2) = (2, 3)."""
    p = np.array([len(y) for _, y in NODES]) / sum(len(y) for _, y in NODES)
    z = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    engines = [make_engine([node], lr=0.5) for node in NODES]
    w = [e.initial().w[0].double() for e in engines]
    alone = np.zeros(1, dtype=np.int64)
    for t in range(1, 7):
        for i, engine in enumerate(engines):
            before = engine.initial()
            before.w[0] = w[i]
            w[i] = engine.advance(before, t - 1, t, alone).w[0].double()
        for members in [np.arange(8)] if t % 6 == 0 else [np.flatnonzero(z == k) for k in (0, 1)]:
            if t % 2 == 0:
                mean = sum(p[i] * w[i] for i in members) / p[members].sum()
                for j in members:
                    w[j] = mean
    found = final_model(make_problem(NODES, TWO_GROUPS, tau1=2, tau2=3, steps=6))
    assert found == pytest.approx(w[0].numpy(), abs=1e-6)


def test_duplicating_every_example_changes_nothing() -> None:
    twice = [(np.repeat(x, 2, axis=0), np.repeat(y, 2)) for x, y in NODES]
    once = final_model(make_problem(NODES, TWO_GROUPS, tau1=2, tau2=2))
    assert final_model(make_problem(twice, TWO_GROUPS, tau1=2, tau2=2)) == pytest.approx(
        once, abs=1e-6
    )


def test_permuting_the_nodes_permutes_the_result() -> None:
    order = np.random.default_rng(1).permutation(8)
    edge_of = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    plain = list(rounds(make_problem(NODES, by_edge, 1, 4, steps=7, edge_of=edge_of)))
    moved = list(
        rounds(
            make_problem([NODES[i] for i in order], by_edge, 1, 4, steps=7, edge_of=edge_of[order])
        )
    )
    for a, b in zip(plain, moved, strict=True):
        mine, theirs = a.models.w[a.models.of_node], b.models.w[b.models.of_node]
        assert theirs.numpy() == pytest.approx(mine[order].numpy(), abs=1e-6)
        assert a.row.Delta == pytest.approx(b.row.Delta, abs=1e-6)


def test_the_log_of_a_searched_run_is_algorithm_1() -> None:
    seen: list[Evidence] = []

    def spy(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        seen.append(evidence)
        return TWO_GROUPS(evidence, rng)

    problem = make_problem(NODES, spy, 1, 5, steps=11, searched=True)
    states = list(rounds(problem))
    log = [(s.t, s.row.event, s.row.group_sizes) for s in states]
    assert log == [
        (0, "start", [8]),
        (1, "global", [4, 4]),  # tau1 = tau2 = 1 until the first global mean, and the plan there
        (2, "group", [4, 4]),
        (3, "group", [4, 4]),
        (4, "group", [4, 4]),
        (5, "global", [4, 4]),
        (6, "group", [4, 4]),
        (7, "group", [4, 4]),
        (8, "group", [4, 4]),
        (9, "group", [4, 4]),
        (10, "global", [4, 4]),
        (11, "global", [4, 4]),  # the last step is always a global mean
    ]
    assert len(seen) == 1
    gradients = problem.engine.gradients(states[1].models.w[0])
    assert gradients.gram is not None
    assert np.allclose(seen[0].inner, gradients.gram)
    assert [len(s.models.w) for s in states[:4]] == [1, 1, 2, 2]


def test_a_planner_that_may_not_see_gradients_sees_none() -> None:
    seen: list[Evidence] = []

    def spy(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        seen.append(evidence)
        return TWO_GROUPS(evidence, rng)

    base = make_problem(NODES, spy, 1, 5, searched=True)
    list(rounds(Problem(**{**base.__dict__, "view": View(needs="nothing")})))
    assert len(seen) == 1
    assert seen[0].gram is None
    assert not seen[0].inner.any()


def test_the_clock_adds_compute_and_transfers() -> None:
    problem = make_problem(NODES, TWO_GROUPS, tau1=2, tau2=2, steps=4)
    states = list(rounds(problem))
    assert [s.t for s in states] == [0, 2, 4]
    group = problem.fleet.network.aggregation(
        states[0].groups.grouping.z,  # type: ignore[union-attr]
        states[0].groups.grouping.servers,  # type: ignore[union-attr]
        problem.model_bytes,
    )
    assert states[1].clock.seconds == pytest.approx(2 * 0.25 + group.seconds)
    assert states[1].clock.group_s == pytest.approx(group.seconds)
    assert states[2].clock.compute_s == pytest.approx(1.0)


def test_uploading_the_gradients_is_charged_once() -> None:
    free = list(rounds(make_problem(NODES, TWO_GROUPS, 1, 5, searched=True)))
    base = make_problem(NODES, TWO_GROUPS, 1, 5, searched=True)
    charged_problem = Problem(**{**base.__dict__, "view": View(charged_bytes=10_000_000)})
    charged = list(rounds(charged_problem))
    gaps = [b.clock.seconds - a.clock.seconds for a, b in zip(free, charged, strict=True)]
    assert gaps[0] == 0
    assert gaps[1] > 0.7  # seven uploads of 10 MB over one link of 100 MB/s
    assert gaps[1:] == pytest.approx([gaps[1]] * len(gaps[1:]))
    parts = charged[-1].clock
    assert parts.grouping_s == pytest.approx(gaps[1])
    together = parts.compute_s + parts.group_s + parts.global_s + parts.grouping_s
    assert parts.seconds == pytest.approx(together)


def test_a_run_goes_on_from_any_of_its_states() -> None:
    problem = make_problem(NODES, TWO_GROUPS, 1, 3, steps=9, searched=True)
    states = list(rounds(problem))
    for state in states[:-1]:
        assert [s.row for s in rounds(problem, state)] == [
            s.row for s in states[states.index(state) + 1 :]
        ]


def test_rows_are_measured_at_global_means_only_and_as_often_as_asked() -> None:
    base = make_problem(NODES, TWO_GROUPS, 1, 2, steps=9)
    every_second = Problem(**{**base.__dict__, "eval_every": 2})
    measured = [s.t for s in rounds(every_second) if s.row.test_accuracy is not None]
    assert measured == [0, 4, 8, 9]


def test_a_loss_that_is_no_number_stops_the_run_and_names_the_step() -> None:
    engine = make_engine(NODES, lr=1e38, decay=1.0)
    problem = make_problem(NODES, TWO_GROUPS, 1, 2, engine=engine)
    seen = []
    with pytest.raises(
        DivergenceError,
        match=r"the (loss is (nan|inf)|gradient is not finite)( on node \d+)? (at|after) step \d+",
    ):
        for state in rounds(problem):
            seen.append(state.t)
    assert seen[:1] == [0]


def test_mini_batches_depend_on_seed_step_and_node_only() -> None:
    engine = make_engine(NODES, batch_size=2)
    z = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    whole = engine.advance(engine.initial(), 0, 3, z)
    first = engine.advance(engine.initial(), 0, 2, np.arange(8))
    parts = engine.advance(first, 2, 3, z)
    assert whole.w.numpy() == pytest.approx(parts.w.numpy(), abs=1e-6)


def test_dropout_does_not_depend_on_what_ran_before() -> None:
    torch.manual_seed(0)
    engine = make_engine(NODES, model="dropout_model:make")
    torch.rand(13)
    one = engine.advance(engine.initial(), 0, 2, np.arange(8))
    torch.rand(29)
    assert torch.equal(one.w, engine.advance(engine.initial(), 0, 2, np.arange(8)).w)


@pytest.mark.parametrize("model", ["dropout_model:make", "dropout_model:cumulative_norm"])
def test_an_engine_keeps_nothing_between_calls(model: str) -> None:
    """Random layers and batch-norm counters must not carry over from what ran before."""
    problem = make_problem(NODES, TWO_GROUPS, 1, 3, steps=6, engine=make_engine(NODES, model=model))
    states = list(rounds(problem))
    assert [s.row for s in rounds(problem)] == [s.row for s in states]
    assert [s.row for s in rounds(problem, states[2])] == [s.row for s in states[3:]]


def test_a_model_that_fails_on_a_nodes_data_names_the_node() -> None:
    one_example = [(x[:1], y[:1]) for x, y in NODES]
    engine = make_engine(one_example, model="dropout_model:cumulative_norm")
    with pytest.raises(
        TrainingError, match="failed at step 1 on node 0 with a batch of 1: Expected"
    ):
        engine.advance(engine.initial(), 0, 1, np.arange(8))


def test_a_parameter_that_is_not_used_stays_as_it_is() -> None:
    engine = make_engine(NODES, model="dropout_model:unused")
    before = engine.export(engine.initial().w[0])["spare"]
    after = engine.advance(engine.initial(), 0, 2, np.zeros(8, dtype=np.int64))
    assert torch.equal(engine.export(after.w[0])["spare"], before)
    assert np.isfinite(engine.measure(after.w[0], np.zeros(8, dtype=np.int64)).delta)


def test_a_batch_step_is_one_batch_and_an_epoch_all_of_them() -> None:
    sizes = np.array([3, 10, 25])
    batch, epoch = (LocalSteps(0.1, 1.0, 10, unit, 0) for unit in ("batch", "epoch"))
    assert [len(b) for b in batch.batches(1, 2, 25) if b is not None] == [10]
    assert [len(b) for b in epoch.batches(1, 2, 25) if b is not None] == [10, 10, 5]
    whole = np.concatenate([b for b in epoch.batches(1, 2, 25) if b is not None])
    assert sorted(whole.tolist()) == list(range(25))
    assert batch.batches(1, 1, 10) == epoch.batches(1, 1, 10) == [None]
    assert batch.examples_per_step(sizes).tolist() == [3, 10, 10]
    assert epoch.examples_per_step(sizes).tolist() == [3, 10, 25]


def test_no_stream_of_the_seed_is_a_nodes_batches() -> None:
    streams = [(5, 0, k) for k in (1, 2, 3, 4)] + [(5, t, i) for t in (1, 2, 3, 4) for i in (0, 1)]
    drawn = {tuple(np.random.default_rng(s).integers(1 << 40, size=4)) for s in streams}
    assert len(drawn) == len(streams)
