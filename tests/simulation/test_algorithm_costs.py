"""What an algorithm costs besides its models: bytes that travel with them, and more work."""

from typing import Any

import numpy as np
import pytest

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.runs.execute import simulate
from coterie.simulation.problem import Problem
from coterie.simulation.state import State

NUMBER = 4  # bytes


def config(name: str, **algorithm: Any) -> Any:
    return make_config(
        {
            "data": {"sample": 0.1},
            "partition": {"kind": "iid", "num_nodes": 6, "num_edges": 2},
            "model": {"name": algorithm.pop("model", "sr")},
            "algorithm": {"name": name, "tau1": 1, "tau2": 2, "num_groups": 3, **algorithm},
            "train": {"steps": 4},
        }
    )


def problem(name: str, **algorithm: Any) -> Problem:
    return prepare(config(name, **algorithm)).problem


def moved(name: str, **algorithm: Any) -> list[int]:
    """Bytes over all links in each aggregation of a run."""
    totals = [sum(s.row.bytes_by_tier.values()) for s in simulate(config(name, **algorithm))]
    return np.diff(totals).tolist()


def test_what_travels_with_a_model_is_charged_by_where_it_goes() -> None:
    plain = problem("fedavg")
    model, d = plain.model_bytes, plain.d
    assert model == NUMBER * d
    expected = {
        "fedprox": (0, 0),
        "scaffold": (0, d),
        "hier-scaffold": (d, 2 * d),
        "feddyn": (0, 0),
        "fednova": (1, 1),
        "fedadam": (0, 0),
        "ditto": (0, 0),
    }
    for name, (in_group, in_all) in expected.items():
        found = problem(name)
        assert found.bytes_of("group") == model + NUMBER * in_group, name
        assert found.bytes_of("global") == model + NUMBER * in_all, name


def test_scaffold_doubles_the_bytes_of_global_means_alone() -> None:
    plain, scaffold, both = (
        moved(name, groups="edge") for name in ("fedavg", "scaffold", "hier-scaffold")
    )
    assert scaffold == [plain[0], 2 * plain[1], plain[2], 2 * plain[3]]
    assert both == [2 * plain[0], 3 * plain[1], 2 * plain[2], 3 * plain[3]]


def test_fedper_sends_what_does_not_stay_alone() -> None:
    plain, fedper = (problem(name, model="2nn") for name in ("fedavg", "fedper"))
    assert plain.model_bytes - fedper.model_bytes == NUMBER * (200 * 10 + 10)
    two = problem("fedper", model="2nn", options={"layers": 2})
    assert fedper.model_bytes - two.model_bytes == NUMBER * (200 * 200 + 200)
    assert moved("fedper", model="2nn")[0] < moved("fedavg", model="2nn")[0]


def test_dittos_second_model_doubles_the_work() -> None:
    plain, ditto = problem("fedavg"), problem("ditto")
    assert ditto.fleet.node_step_s is not None
    assert plain.fleet.node_step_s is not None
    shares = ditto.fleet.node_step_s / plain.fleet.node_step_s
    examples = ditto.fleet.class_counts.sum(axis=1) / plain.fleet.class_counts.sum(axis=1)
    assert shares == pytest.approx(2 * examples)


def last(name: str, **algorithm: Any) -> State:
    return list(simulate(config(name, **algorithm)))[-1]


def test_ifca_sends_all_models_down_and_one_up_and_looks_at_all() -> None:
    one, three = (moved("ifca", num_groups=K)[0] for K in (1, 3))
    assert three == pytest.approx(2 * one)  # 1 + 3 models over every link in place of 1 + 1
    looks = {}
    for K in (1, 3):
        ready = problem("ifca", num_groups=K)
        assert ready.fleet.node_turn_s is not None
        assert ready.fleet.node_step_s is not None
        looks[K] = ready.fleet.node_turn_s
        # A forward pass is a third of a gradient's work, of which a step of sr has one.
        assert ready.fleet.node_turn_s == pytest.approx(K / 3 * ready.fleet.node_step_s)
    assert looks[3] == pytest.approx(3 * looks[1])
    turns, steps = 2, 4
    state, fleet = last("ifca"), problem("ifca").fleet
    assert fleet.node_turn_s is not None
    expected = steps * fleet.step_s + turns * fleet.node_turn_s.max()
    assert state.clock.compute_s == pytest.approx(expected)
