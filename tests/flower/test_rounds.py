"""Group rounds over nodes that answer messages: the simulator's results, and what goes wrong."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from coterie import Config
from coterie.config.prepare import prepare
from coterie.flower import FlowerError
from coterie.flower.groups import Groups, Planning, Shown
from coterie.flower.means import mean, sort_answers
from coterie.flower.messages import Answer, Kind, Request
from coterie.flower.roster import Roster, roll_call, wait_for
from coterie.flower.rounds import Terms, overall, rounds
from coterie.flower.state import State, load_state, save_state
from coterie.grouping import Evidence, Grouping
from coterie.preview.planfile import Plan as PlanFile
from coterie.preview.planfile import PlanError, PlannedNode, Predicted
from coterie.simulation.loop import rounds as simulated
from coterie.simulation.schedule import Schedule
from coterie.simulation.search import Search
from coterie.simulation.state import Plan
from crews import (
    TaskCrew,
    accuracy,
    close_calls,
    config_of,
    first_model,
    late,
    same_arrays,
    scalar_config,
)

N = 12
prepared = cache(prepare)


def terms_of(config: Config, **changes: Any) -> Terms:
    c = config.algorithm
    _, tau1, tau2 = c.usual
    shown: Shown = "sketch" if c.evidence == "sketch" else "labels"
    network = prepared(config).problem.fleet.network
    planning = Planning(3, shown, Search(c.grouping), network, sketch_size=c.sketch_size)
    terms = Terms(Schedule(tau1, tau2), config.train.steps, planning, timeout_s=1.0)
    return replace(terms, **changes)


def run(crew: TaskCrew, terms: Terms, state: State | None = None) -> list[State]:
    return list(rounds(crew, terms, state or State(0, (first_model(crew.config),))))


@pytest.mark.parametrize(
    "algorithm",
    [
        {"evidence": "labels", "grouping": "coterie", "tau2": 3},
        {"evidence": "sketch", "grouping": "coterie", "sketch_size": 64, "tau1": 2, "tau2": 2},
        {"evidence": "labels", "tau2": 12},
    ],
)
def test_nodes_that_answer_train_the_model_that_the_simulator_trains(
    algorithm: dict[str, Any],
) -> None:
    config = config_of(N, **algorithm)
    *before, last = run(TaskCrew(config, N), terms_of(config))
    _, *others, other = simulated(prepared(config).problem)
    assert [(s.t, s.plan.schedule) for s in before] == [(s.t, s.plan.schedule) for s in others]
    assert other.groups is not None
    grouping, planned = other.groups.grouping, last.plan.groups
    assert planned is not None
    assert planned.members == last.groups
    # Which group is the first may hang on the last digit of a sketch.
    assert dict(zip(planned.servers, last.groups, strict=True)) == {
        str(server): tuple(str(i) for i in np.flatnonzero(grouping.z == k))
        for k, server in enumerate(grouping.servers)
    }
    ours = np.concatenate([array.ravel() for array in last.models[0].values()])
    np.testing.assert_allclose(ours, other.models.w[0].numpy(), rtol=0, atol=2e-6)
    assert accuracy(config, last.models[0]) == pytest.approx(
        other.row.test_accuracy, abs=close_calls(config, last.models[0], 2e-6)
    )


def test_the_rows_follow_the_schedule() -> None:
    config = config_of(N, tau1=2, tau2=3)
    states = run(TaskCrew(config, N), terms_of(config))
    assert [(s.t, s.rows[-1]["event"]) for s in states] == [
        (1, "global"),
        (2, "group"),
        (4, "group"),
        (6, "global"),
        (8, "group"),
        (10, "group"),
        (12, "global"),
    ]
    assert [len(s.models) for s in states] == [1, 3, 3, 1, 3, 3, 1]
    assert [s.rows[-1]["round"] for s in states] == [1, 1, 1, 1, 2, 2, 2]


def test_labels_cost_no_message_of_their_own() -> None:
    config = config_of(N, tau2=3)
    crew = TaskCrew(config, N)
    run(crew, terms_of(config))
    assert [kind for kind, _ in crew.asked] == ["query"] + 12 * ["train"]


def broken(**arrays: Any) -> Any:
    def fault(kind: Kind, config: Mapping[str, Any], answer: Answer) -> Answer:
        if kind != "train" or config["stop"] == 1 or answer.arrays is None:
            return answer
        return replace(answer, arrays={**answer.arrays, **arrays})

    return fault


def raises(kind: Kind, config: Mapping[str, Any], answer: Answer) -> Answer:
    error = "Traceback (most recent call last):\n  ...\nValueError: no disk\n"
    return replace(answer, error=error) if kind == "train" else answer


NAN = {"1.bias": np.full(10, np.nan, np.float32)}


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        (late, "late", "no answer within the time limit"),
        (raises, "failed", "ValueError: no disk"),
        (broken(**NAN), "rejected", "'1.bias' is not finite"),
        (broken(**{"1.bias": np.zeros(9)}), "rejected", "'1.bias' has the shape (9,), not (10,)"),
        (broken(extra=np.zeros(1)), "rejected", "its arrays are not those it was sent: 'extra'"),
        (broken(**{"1.bias": np.array(10 * ["x"])}), "rejected", "'1.bias' is of type <U1"),
        (broken(**{"1.bias": np.zeros(10, bool)}), "rejected", "is of type bool, not float32"),
        (broken(**{"1.bias": np.zeros(10, int)}), "rejected", "is of type int64, not float32"),
        (broken(**{"1.bias": np.full(10, 1e300)}), "rejected", "'1.bias' is beyond float32"),
    ],
)
def test_a_node_at_fault_is_named_and_the_others_go_on(fault: Any, kind: str, reason: str) -> None:
    config = config_of(N, tau2=3)
    crew = TaskCrew(config, N, {5: fault})
    states = run(crew, terms_of(config))
    row = states[-1].rows[-1]
    assert row["counted"] == N - 1
    assert {k: row[k] for k in ("late", "failed", "rejected")}[kind] == 1
    assert row["dropped"][0]["node"] == "5"
    assert reason in row["dropped"][0]["reason"]
    without = TaskCrew(config, N, {5: late if fault is not raises else raises})
    assert same_arrays(states[-1].models[0], run(without, terms_of(config))[-1].models[0])


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), None, "7", 2**60])
def test_a_weight_that_is_none_is_rejected(weight: Any) -> None:
    def fault(kind: Kind, config: Mapping[str, Any], answer: Answer) -> Answer:
        wrong = {**answer.metrics, "num-examples": weight}
        return replace(answer, metrics=wrong) if kind == "train" else answer

    config = config_of(N, tau2=3)
    row = next(rounds(TaskCrew(config, N, {2: fault}), terms_of(config), start(config))).rows[-1]
    assert (row["rejected"], row["counted"]) == (1, N - 1)


def start(config: Config) -> State:
    return State(0, (first_model(config),))


def test_a_group_without_enough_nodes_keeps_its_model_and_then_ends_the_run() -> None:
    config = config_of(N, tau2=6)
    healthy = run(TaskCrew(config, N), terms_of(config))[0].groups
    assert healthy is not None
    ill = {int(name): late for name in healthy[1]}
    states: list[State] = []
    with pytest.raises(FlowerError) as ended:
        for state in rounds(TaskCrew(config, N, ill), terms_of(config), start(config)):
            states.append(state)
    assert "group 1: fewer than 1 nodes answered within 1 s, 3 times in a row" in str(ended.value)
    assert [s.rows[-1]["held"] for s in states] == [0, 1, 1]
    assert same_arrays(states[1].models[1], states[0].models[0])
    assert not same_arrays(states[1].models[0], states[0].models[0])


def test_a_minimum_per_group_is_kept() -> None:
    config = config_of(N, tau2=6)
    states = run(TaskCrew(config, N, {0: late}), terms_of(config, min_per_group=4, patience=99))
    groups = states[0].groups
    assert groups is not None
    home = next(k for k, names in enumerate(groups) if "0" in names)
    small = len(groups[home]) - 1 < 4
    assert states[1].rows[-1]["held"] == int(small)
    assert small, "with 12 nodes in 3 groups"


def test_two_nodes_with_one_id_are_refused() -> None:
    config = config_of(N)
    crew = TaskCrew(config, N, names=["a", *"bcdefghijk", "a"])
    with pytest.raises(FlowerError, match="two nodes have the id 'a'"):
        run(crew, terms_of(config))


def test_a_node_without_a_name_is_left_out() -> None:
    config = config_of(N)
    crew = TaskCrew(config, N, names=[" ", *"bcdefghijkl"])
    planning = Planning(3, search=Search("random"))
    state = next(rounds(crew, terms_of(config, planning=planning), start(config)))
    assert state.groups is not None
    assert sorted(name for names in state.groups for name in names) == [*"bcdefghijkl"]


def test_a_node_that_leaves_is_late_and_counts_again_when_it_is_back() -> None:
    config = config_of(N, tau2=3)
    crew = TaskCrew(config, N)
    counted = []
    for state in rounds(crew, terms_of(config), start(config)):
        counted.append(state.rows[-1]["counted"])
        crew.away = {3} if 2 <= state.t < 5 else set()
    assert counted == [12, 12, 11, 11, 11, *7 * [12]]


def test_a_saved_state_goes_on_to_the_same_model(tmp_path: Path) -> None:
    config = config_of(N, tau2=3)
    crew, terms = TaskCrew(config, N), terms_of(config)
    whole = run(crew, terms)
    for state in rounds(crew, terms, start(config)):
        save_state(tmp_path, state, {"seed": 0})
        if state.t == 5:
            break
    again = load_state(tmp_path, {"seed": 0}, start(config), terms.schedule)
    assert again.t == 5
    last = run(crew, terms, again)[-1]
    assert same_arrays(last.models[0], whole[-1].models[0])
    assert last.rows == whole[-1].rows
    assert last.groups == whole[-1].groups


def test_a_state_that_is_not_of_this_run_is_refused(tmp_path: Path) -> None:
    first, schedule = State(0, ({"w": np.zeros(3, np.float32)},)), Schedule(1, 3)
    assert load_state(tmp_path, {}, first, schedule) is first
    save_state(tmp_path, replace(first, t=1), {"seed": 0})
    with pytest.raises(FlowerError, match="is of a run with seed = 0, not 1"):
        load_state(tmp_path, {"seed": 1}, first, schedule)
    with pytest.raises(FlowerError, match="is of another model"):
        load_state(tmp_path, {"seed": 0}, State(0, ({"w": np.zeros(4)},)), schedule)
    with pytest.raises(FlowerError, match="damaged"):
        load_state(tmp_path, {"seed": 0}, State(0, ({"v": np.zeros(4)},)), schedule)
    path = tmp_path / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FlowerError, match="damaged"):
        load_state(tmp_path, {"seed": 0}, first, schedule)


def test_a_state_on_disk_has_its_groups_by_name_and_its_schedule_by_what_the_run_is(
    tmp_path: Path,
) -> None:
    first, groups = State(0, ({"w": np.zeros(1)},)), Groups((("a",), ("b", "c")), ("a", "switch"))
    plan = Plan(Schedule(2, 3), groups)
    weights, row = {"a": 2.0, "b": 1.0, "c": 1.0}, {"t": 4, "round": 1, "counted": 3}
    state = State(4, 2 * first.models, plan, weights, (row,), (0, 1), (2.0, 0.0))
    save_state(tmp_path, state, {"tau1": 2, "tau2": 3})
    with safe_open(tmp_path / "state.safetensors", "np") as file:
        found = json.loads(file.metadata()["coterie"])
        assert len(found.pop("sums")) == 2
        assert found == {
            "version": "2",
            "about": {"tau1": 2, "tau2": 3},
            "t": 4,
            "models": 2,
            "groups": [["a"], ["b", "c"]],
            "servers": ["a", "switch"],
            "weights": weights,
            "rows": [row],
            "short": [0, 1],
            "weighed": [2.0, 0.0],
        }
    again = load_state(tmp_path, {"tau1": 2, "tau2": 3}, first, plan.schedule)
    assert again.plan.schedule == plan.schedule
    assert again.plan.groups is not None
    assert vars(again.plan.groups) == vars(groups)
    for field in ("t", "weights", "rows", "short", "weighed"):
        assert getattr(again, field) == getattr(state, field)


def plan_of(names: list[str], groups: list[int]) -> PlanFile:
    servers = tuple(names[groups.index(k)] for k in range(max(groups) + 1))
    nodes = (PlannedNode(n, k, 5, 0.1) for n, k in zip(names, groups, strict=True))
    return PlanFile("", "", 1, 3, 12, 40, 0.0, Predicted(0, 0, 0, 0), servers, tuple(nodes))


def test_the_groups_of_a_plan_file_are_taken_as_they_are() -> None:
    config = config_of(N, tau2=3)
    z = [i % 3 for i in range(N)]
    plan = plan_of([str(i) for i in range(N)], z)
    last = run(TaskCrew(config, N), terms_of(config, planning=plan))[-1]
    assert last.groups == tuple(tuple(str(i) for i in range(k, N, 3)) for k in range(3))

    def planner(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        return Grouping(np.array(z), np.arange(3))

    *_, other = simulated(replace(prepared(config).problem, planner=planner))
    assert accuracy(config, last.models[0]) == other.row.test_accuracy


def test_a_plan_of_other_nodes_is_refused() -> None:
    config = config_of(N, tau2=3)
    few = plan_of([str(i) for i in range(N - 1)], (N - 1) * [0])
    with pytest.raises(PlanError, match="node '11' is not in the plan"):
        run(TaskCrew(config, N), terms_of(config, planning=few))
    many = plan_of([str(i) for i in range(N + 1)], (N + 1) * [0])
    with pytest.raises(PlanError, match="node '12' of the plan is missing"):
        run(TaskCrew(config, N), terms_of(config, planning=many))


def test_nodes_that_do_not_connect_are_waited_for_in_vain() -> None:
    crew = TaskCrew(config_of(N), N, away={0, 1})
    wait_for(crew, 10, 0.0)
    with pytest.raises(FlowerError, match=r"10 of 12 nodes connected within 0.01 s"):
        wait_for(crew, 12, 0.01, poll_s=0.02)


def test_a_mean_keeps_the_type_of_every_array() -> None:
    models = [
        {"w": np.array([1, 2], np.float32), "n": np.array([3])},
        {"w": np.array([3, 6], np.float32), "n": np.array([4])},
    ]
    found = mean(models, [1, 3])
    assert found["w"].tolist() == [2.5, 5.0]
    assert found["n"].tolist() == [4]
    assert found["w"].dtype == np.dtype(np.float32)
    assert found["n"].dtype == np.dtype(np.int64)


def answers(**arrays: Any) -> list[Answer]:
    """Nodes 1, 2, ... that answer with the array of their name."""
    each = enumerate(arrays.values(), 1)
    return [Answer(i, {"w": array}, {"num-examples": 1}) for i, array in each]


def test_an_answer_counts_in_the_type_that_was_sent() -> None:
    heard = sort_answers(
        {1: "a", 2: "b", 3: "c"},
        answers(
            a=np.array([0.5, 3.0]), b=np.array([0.5, 1.0], np.float32), c=np.array([True, False])
        ),
        {name: {"w": np.zeros(2, np.float32)} for name in "abc"},
    )
    assert [(node.node, node.fault) for node in heard.dropped] == [("c", "rejected")]
    models = [answer.arrays for answer in heard.used.values() if answer.arrays]
    found = mean(models, [1, 1])["w"]
    assert (found.dtype, found.tolist()) == (np.dtype(np.float32), [0.5, 2.0])


def test_a_whole_number_beyond_the_type_that_was_sent_is_rejected() -> None:
    sent = {"w": np.zeros(1, np.int8)}
    heard = sort_answers(
        {1: "a", 2: "b"}, answers(a=np.array([300]), b=np.array([7])), {"a": sent, "b": sent}
    )
    assert [node.reason for node in heard.dropped] == ["'w' is beyond int8"]
    assert list(heard.used) == ["b"]


def test_a_mean_that_is_not_finite_is_refused() -> None:
    most = {"w": np.array([np.finfo(np.float64).max])}
    with pytest.raises(FlowerError, match="the mean of 'w' is beyond float64"):
        mean(11 * [most], 11 * [1])


def test_a_model_with_a_scalar_array_is_averaged_saved_and_gone_on_with(tmp_path: Path) -> None:
    config = scalar_config(4, tau2=3)
    terms = terms_of(config, planning=Planning(2, search=Search("random")))
    crew = TaskCrew(config, 4)
    whole = run(crew, terms)
    for state in whole:
        assert [m["2.num_batches_tracked"].shape for m in state.models] == len(state.models) * [()]
        assert state.rows[-1]["counted"] == 4
    assert whole[-1].models[0]["2.num_batches_tracked"] == 12
    save_state(tmp_path, whole[4], {})
    again = load_state(tmp_path, {}, start(config), terms.schedule)
    assert same_arrays(run(crew, terms, again)[-1].models[0], whole[-1].models[0])


def shows(key: str, value: Any) -> Any:
    """A node that shows something of its own in place of its evidence."""

    def fault(kind: Kind, config: Mapping[str, Any], answer: Answer) -> Answer:
        if kind != "query" or key not in answer.metrics:
            return answer
        return replace(answer, metrics={**answer.metrics, key: value})

    return fault


@pytest.mark.parametrize(
    ("evidence", "key", "value"),
    [
        ("sketch", "sketch", [float("nan")] * 16),
        ("sketch", "sketch", [1.0] * 15),
        ("sketch", "sketch", [1e300] * 16),
        ("sketch", "sketch", 7.0),
        ("labels", "label-counts", [1, 2]),
        ("labels", "label-counts", [0.5] * 10),
        ("labels", "label-counts", [-1] * 10),
        ("labels", "label-counts", [10**400] * 10),
        ("labels", "label-counts", "many"),
    ],
)
def test_a_node_that_shows_rubbish_is_named_and_the_others_are_planned(
    evidence: Shown, key: str, value: Any
) -> None:
    config = config_of(6, tau2=3, evidence=evidence)
    planning = Planning(2, evidence, Search("random"), None, sketch_size=16)
    crew = TaskCrew(config, 6, {2: shows(key, value)})
    states = run(crew, terms_of(config, planning=planning))
    first = states[0]
    assert first.groups is not None
    assert sorted(name for names in first.groups for name in names) == ["0", "1", "3", "4", "5"]
    assert first.rows[0]["rejected"] == 1
    (dropped,) = first.rows[0]["dropped"]
    assert (dropped["node"], dropped["fault"]) == ("2", "rejected")
    assert f"{key} must be a list of {16 if evidence == 'sketch' else 10}" in dropped["reason"]
    assert states[-1].t == 12
    network = prepared(config).problem.fleet.network  # as an object, in the order of all nodes
    again = run(crew, terms_of(config, planning=replace(planning, network=network)))
    assert again[0].groups is not None
    assert sorted(name for names in again[0].groups for name in names) == ["0", "1", "3", "4", "5"]


def test_a_node_that_shows_no_sketch_in_time_is_named_and_the_others_are_planned() -> None:
    def fault(kind: Kind, config: Mapping[str, Any], answer: Answer) -> Answer | None:
        return None if "sketch" in answer.metrics else answer

    config = config_of(6, tau2=3, evidence="sketch", sketch_size=16)
    states = run(TaskCrew(config, 6, {2: fault}), terms_of(config))
    row = states[0].rows[0]
    assert [(d["node"], d["fault"]) for d in row["dropped"]] == [("2", "late")]
    assert states[-1].t == 12


def test_without_any_evidence_the_run_ends_and_says_why() -> None:
    config = config_of(4, tau2=3)
    planning = Planning(2, search=Search("random"))
    crew = TaskCrew(config, 4, dict.fromkeys(range(4), shows("label-counts", None)))
    with pytest.raises(FlowerError, match="no node shows what groups are planned on: label-counts"):
        run(crew, terms_of(config, planning=planning))


class Named:
    """Nodes that only say who they are."""

    def __init__(self, **names: str) -> None:
        self.names = {int(number[1:]): name for number, name in names.items()}

    def nodes(self) -> list[int]:
        return list(self.names)

    def ask(self, kind: Kind, asked: Mapping[int, Request], timeout_s: float) -> list[Answer]:
        return [Answer(i, None, {"num-examples": 5}, {"node": self.names[i]}) for i in asked]


def test_of_two_nodes_with_one_id_the_newer_counts_as_long_as_it_is_there() -> None:
    roster = roll_call(Named(n1="a", n2="b"), Roster(), "none", 1.0, {})
    both, found = Named(n1="a", n2="b", n3="a"), []
    for again in (False, True, True, False, True):
        roster = roll_call(both, roster, "none", 1.0, {}, again=again)
        found.append(dict(roster.ids))
    assert found == 5 * [{"a": 3, "b": 2}]
    roster = roll_call(Named(n1="a", n2="b"), roster, "none", 1.0, {})
    assert dict(roster.ids) == {"a": 1, "b": 2}, "the newer one has left"


def test_a_group_that_misses_the_global_mean_alone_is_in_it_with_its_model() -> None:
    config = config_of(N, tau2=3)
    healthy = run(TaskCrew(config, N), terms_of(config))
    groups = healthy[0].groups
    assert groups is not None

    def late_at(*steps: int) -> Any:
        def fault(kind: Kind, config: Mapping[str, Any], answer: Answer) -> Answer | None:
            return None if kind == "train" and config["stop"] in steps else answer

        return {int(name): fault for name in groups[1]}

    def after(step: int, states: list[State]) -> State:
        return next(state for state in states if state.t == step)

    states = run(TaskCrew(config, N, late_at(6)), terms_of(config))
    before, weights = after(5, states), before_weights(healthy[0])
    assert after(6, states).rows[-1]["held"] == 1
    each = [after(6, states).models[0]["1.bias"], before.models[1]["1.bias"]]
    whole = run(TaskCrew(config, N, late_at(4, 5, 6)), terms_of(config, patience=9))
    others = after(6, whole).models[0]["1.bias"]  # without that group, which trained in no mean
    w1, w = weights[1], sum(weights)
    expected = (others * (w - w1) + each[1] * w1) / w
    np.testing.assert_allclose(each[0], expected, rtol=0, atol=1e-6)
    assert not np.array_equal(others, each[0])


def before_weights(state: State) -> list[float]:
    return [sum(state.weights[name] for name in names) for names in state.groups or ()]


def test_several_models_are_one_by_the_examples_of_their_nodes() -> None:
    models = ({"w": np.array([1, 1], np.float32)}, {"w": np.array([9, 5], np.float32)})
    groups = Groups((("a",), ("b", "c")), ("a", "b"))
    plan = Plan(Schedule(2, 3), groups)
    state = State(4, models, plan, {"a": 2.0, "b": 1.0, "c": 5.0})
    assert overall(state)["w"].tolist() == [7.0, 4.0]
    assert overall(replace(state, models=models[:1])) is models[0]
