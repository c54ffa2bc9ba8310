"""Who takes part in a round, what that does to the mean, and what it does to the clock."""

import numpy as np
import pytest

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.network import Network
from coterie.runs.execute import simulate
from coterie.simulation.loop import first_evidence, rounds
from coterie.simulation.participation import Participation
from coterie.simulation.problem import Problem
from coterie.topology import fat_tree
from problems import fixed, make_problem, some_nodes

GROUPS = np.repeat([0, 1, 2], [4, 10, 6])
EVEN = np.ones(20)


def test_a_fraction_of_every_group_is_asked_and_at_least_one() -> None:
    for t in range(20):
        asked = Participation(0.2).at(t, GROUPS, EVEN, 0).asked
        assert np.bincount(GROUPS[asked]).tolist() == [1, 2, 1]
    asked = Participation(0.001, "all").at(1, GROUPS, EVEN, 0).asked
    assert len(asked) == 1
    assert len(Participation(0.5, "all").at(1, GROUPS, EVEN, 0).asked) == 10


def test_everybody_is_asked_about_as_often() -> None:
    times = np.zeros(20)
    for t in range(2000):
        times[Participation(0.25, "all").at(t, GROUPS, EVEN, 0).asked] += 1
    assert times.sum() == 2000 * 5
    assert np.abs(times - 500).max() < 5 * np.sqrt(500 * 0.75)


def test_who_is_there_depends_on_seed_and_step_only() -> None:
    a, b = (Participation(0.5, dropout=0.3, jitter=1.0).at(7, GROUPS, EVEN, 3) for _ in range(2))
    assert (a.asked == b.asked).all() and (a.counted == b.counted).all()
    assert a.compute_s == b.compute_s
    others = [Participation(0.5).at(t, GROUPS, EVEN, s).asked.tolist() for t, s in ((8, 3), (7, 4))]
    assert a.asked.tolist() not in others


def test_nodes_vanish_as_often_as_told() -> None:
    counted = [len(Participation(dropout=0.3).at(t, GROUPS, EVEN, 0).counted) for t in range(500)]
    assert np.mean(counted) == pytest.approx(14, abs=5 * np.sqrt(20 * 0.21 / 500))
    assert len(Participation(dropout=1.0).at(1, GROUPS, EVEN, 0).counted) == 0


def test_a_round_lasts_until_the_slowest_who_counts_or_the_deadline() -> None:
    work = np.array([1.0, 2.0, 5.0])
    z = np.zeros(3, dtype=np.int64)
    assert Participation(jitter=0.0, dropout=1e-12).at(1, z, work, 0).compute_s == 5.0
    late = Participation(deadline_s=3.0).at(1, z, work, 0)
    assert late.counted.tolist() == [0, 1]
    assert late.compute_s == 3.0
    in_time = Participation(deadline_s=9.0).at(1, z, work, 0)
    assert in_time.counted.tolist() == [0, 1, 2]
    assert in_time.compute_s == 5.0


def test_jitter_changes_paces_by_round() -> None:
    took = [Participation(jitter=0.5).at(t, GROUPS, EVEN, 0).compute_s for t in range(50)]
    assert len(set(took)) == 50
    assert min(took) > 1.0  # the slowest of twenty


def partly(participation: Participation, nodes: int = 8) -> Problem:
    problem = make_problem(some_nodes(nodes), fixed([0, 0, 0, 0, 1, 1, 1, 1]), 2, 3)
    return Problem(**{**vars(problem), "participation": participation})


def test_attendance_of_all_changes_nothing() -> None:
    plain = [s.row for s in rounds(partly(Participation()))]
    long_deadline = [s.row for s in rounds(partly(Participation(deadline_s=1e9)))]
    assert long_deadline == plain
    assert plain[-1].counted == 8


def test_fewer_nodes_move_fewer_bytes_in_less_time() -> None:
    everybody = list(rounds(partly(Participation())))[-1]
    few = list(rounds(partly(Participation(0.25))))[-1]
    assert few.row.counted == 2
    assert few.clock.seconds < everybody.clock.seconds
    assert sum(few.row.bytes_by_tier.values()) < sum(everybody.row.bytes_by_tier.values()) / 2


def test_a_run_where_nobody_ever_answers_ends_where_it_began() -> None:
    states = list(rounds(partly(Participation(dropout=1.0, deadline_s=2.0))))
    assert states[-1].row.train_loss == pytest.approx(states[0].row.train_loss, rel=1e-6)
    aggregations = len(states) - 1
    assert states[-1].clock.compute_s == 2.0 * aggregations
    assert states[-1].row.counted == 0


def test_an_asked_node_gets_a_model_even_if_it_then_vanishes() -> None:
    edges = np.zeros(4, dtype=np.int64)
    network = Network(fat_tree(edges), edges)
    z, servers = np.zeros(4, dtype=np.int64), np.array([0])
    some, none = np.array([1, 2, 3]), np.array([], dtype=np.int64)
    both = network.part(z, servers, 1000, some, some)
    down = network.part(z, servers, 1000, some, none)
    assert sum(both.bytes_by_tier.values()) == 2 * sum(down.bytes_by_tier.values())
    everyone = network.part(z, servers, 1000, np.arange(4), np.arange(4))
    assert everyone == network.aggregation(z, servers, 1000)


@pytest.mark.parametrize("combine", ["none", "all"])
def test_a_config_runs_with_a_tenth_of_the_nodes_and_with_every_engine(combine: str) -> None:
    rows = []
    for engine in ("vectorized", "sequential"):
        config = make_config(
            {
                "train": {"steps": 6, "engine": engine},
                "participation": {"fraction": 0.1, "dropout": 0.2, "jitter": 0.2},
                "network": {"combine": combine},
            }
        )
        rows.append([s.row for s in simulate(config)])
    for fast, plain in zip(*rows, strict=True):
        assert (fast.t, fast.event, fast.seconds) == (plain.t, plain.event, plain.seconds)
        assert (fast.counted, fast.bytes_by_tier) == (plain.counted, plain.bytes_by_tier)
        if plain.train_loss is not None:
            assert fast.train_loss == pytest.approx(plain.train_loss, rel=1e-5)
    assert 1 <= rows[0][-1].counted <= 10


@pytest.mark.parametrize("combine", ["none", "all"])
@pytest.mark.parametrize("name", ["fedavg", "hierfavg", "fedavg-ic"])
def test_rounds_that_nobody_comes_to_end_like_any_other(name: str, combine: str) -> None:
    config = make_config(
        {
            "train": {"steps": 4},
            "algorithm": {"name": name, "tau1": 2, "tau2": 2},
            "participation": {"deadline_s": 1e-9},
            "network": {"combine": combine},
            "optimizer": {"server": "momentum"},
        }
    )
    first, *_, last = (s.row for s in simulate(config))
    assert last.counted == 0
    assert last.train_loss == pytest.approx(first.train_loss, rel=1e-6)


def test_a_plan_sees_what_a_run_sees_whoever_comes() -> None:
    for section in ({"participation": {"fraction": 0.1}}, {"optimizer": {"server": "adam"}}):
        problem = prepare(make_config({"train": {"steps": 1}, **section})).problem
        state = list(rounds(problem))[-1]
        shown = problem.engine.gradients(state.models.w[0])
        planned = first_evidence(problem)
        assert shown.gram is not None and planned.gram is not None
        assert np.allclose(planned.gram, shown.gram)
