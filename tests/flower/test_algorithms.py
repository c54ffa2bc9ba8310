"""Algorithms over nodes that answer messages: the simulator's models, and what goes wrong."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie
from coterie import Config
from coterie.config.prepare import prepare
from coterie.core.errors import ConfigError
from coterie.engine.contract import Models
from coterie.engine.server import after_mean
from coterie.flower import FlowerError
from coterie.flower.algorithm import FEDAVG, Added, added, trained_of
from coterie.flower.groups import Planning
from coterie.flower.memory import Memory, begin, follow
from coterie.flower.messages import Answer, Kind
from coterie.flower.rounds import Terms, rounds
from coterie.flower.state import State, load_state, save_state
from coterie.flower.turn import Turn
from coterie.simulation.algorithms import find_algorithm
from coterie.simulation.loop import rounds as simulated
from coterie.simulation.schedule import Event, Schedule
from coterie.simulation.search import Search
from crews import Fault, TaskCrew, config_of, first_model, same_arrays, scalar_config

N, K = 8, 3
prepared = cache(prepare)
STATEFUL = ["scaffold", "feddyn", "hier-scaffold"]
OWN = "own_hooks:everything"
ALL = [*STATEFUL, "fednova", "fedadam", "fedavgm", "fedprox", "hier-fedprox", OWN]


@cache
def config_for(name: str) -> Config:
    """Nodes of several batches a step, and not all of as many."""
    config = config_of(N, name=name, groups="search", tau1=2, tau2=2, num_groups=K)
    return replace(config, train=replace(config.train, batch_size=20, lr=0.1))


def terms_of(config: Config, name: str, **changes: Any) -> Terms:
    network = prepared(config).problem.fleet.network
    planning = Planning(K, "labels", Search(config.algorithm.grouping), network)
    terms = Terms(Schedule(2, 2), config.train.steps, planning, timeout_s=1.0, added=named(name))
    return replace(terms, **changes)


@cache
def named(name: str) -> Added:
    return added(name)


def crew_of(config: Config, name: str, faults: Mapping[int, Fault] | None = None) -> TaskCrew:
    return TaskCrew(config, N, faults or {}, added=named(name))


def start(config: Config) -> State:
    return State(0, (first_model(config),))


def run(crew: TaskCrew, terms: Terms, state: State | None = None) -> list[State]:
    return list(rounds(crew, terms, state or start(crew.config)))


def vector(model: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in model.values()])


def agree(ours: State, w: torch.Tensor, memory: Mapping[str, torch.Tensor]) -> None:
    """Models and all that is kept are the same to rounding, and there is as much of it."""
    assert ours.memory.arrays.keys() == memory.keys()
    for row, model in zip(w, ours.models, strict=True):
        np.testing.assert_allclose(vector(model), row.numpy(), rtol=0, atol=1e-6)
    for key, array in memory.items():
        np.testing.assert_allclose(ours.memory.arrays[key], array.numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", ALL)
def test_nodes_that_answer_train_the_model_that_the_simulator_trains(name: str) -> None:
    config = config_for(name)
    crew = crew_of(config, name)
    states = run(crew, terms_of(config, name))
    _, *others = simulated(prepared(config).problem)
    assert [s.t for s in states] == [s.t for s in others] == [1, 2, 4, 6, 8, 10, 12]
    for state, other in zip(states, others, strict=True):
        agree(state, other.models.w, other.models.memory)
    plain = run(TaskCrew(config, N), terms_of(config, "fedavg"))[-1]
    apart = np.abs(vector(plain.models[0]) - vector(states[-1].models[0])).max()
    assert apart > 1e-4, "and it is not FedAvg's"


def late_at(*steps: int) -> Fault:
    def fault(kind: Kind, config: Mapping[str, Any], answer: Answer) -> Answer | None:
        return None if kind == "train" and config["stop"] in steps else answer

    return fault


def by_hand(config: Config, z: np.ndarray, missing: Mapping[int, list[int]]) -> Iterator[Models]:
    """The simulator's engine and server, where some nodes are missing at some means."""
    problem = prepared(config).problem
    models, t, plan = problem.first_models, 0, Schedule(1, 1)
    everyone = np.zeros(N, dtype=np.int64)
    groups = everyone
    while t < problem.steps:
        stop, scope = plan.next_aggregation(t, problem.steps)
        together = scope is Event.GLOBAL
        there = np.array([i for i in range(N) if i not in missing.get(stop, [])])
        who = everyone if together else groups
        models = problem.engine.advance(models, t, stop, who, there)
        p = problem.fleet.p
        share = float(p[there].sum())
        models = after_mean(problem.update, models, problem.d, p, groups, share, everyone=together)
        yield models
        t, plan, groups = stop, Schedule(2, 2), z


@pytest.mark.parametrize("name", STATEFUL)
def test_a_node_that_drops_out_keeps_what_it_had(name: str) -> None:
    config = config_for(name)
    crew = crew_of(config, name, {2: late_at(4, 6, 10)})
    states = run(crew, terms_of(config, name))
    groups = states[0].groups
    assert groups is not None
    z = np.array([next(k for k, g in enumerate(groups) if str(i) in g) for i in range(N)])
    for state, other in zip(states, by_hand(config, z, {4: [2], 6: [2], 10: [2]}), strict=True):
        agree(state, other.w, other.memory)
    whole = run(crew_of(config, name), terms_of(config, name))[-1]
    assert not same_arrays(whole.models[0], states[-1].models[0])


def test_a_node_is_sent_what_it_keeps_only_if_its_last_answer_did_not_count() -> None:
    config = config_for("scaffold")
    crew = crew_of(config, "scaffold", {2: late_at(4)})
    run(crew, terms_of(config, "scaffold"))
    sent = [(t, i) for t, i, keys in crew.got if "own.c" in keys]
    assert sent == [*((0, i) for i in range(N)), (4, 2)]
    assert all("common.c" in keys for _, _, keys in crew.got)


def test_a_node_that_was_restarted_is_sent_what_it_keeps() -> None:
    config = config_for("scaffold")
    whole = run(crew_of(config, "scaffold"), terms_of(config, "scaffold"))[-1]
    crew, ids = crew_of(config, "scaffold"), {i: 1000 + i for i in range(N)}

    class Restarted(TaskCrew):
        def nodes(self) -> list[int]:
            return list(ids.values())

        def ask(self, kind: Kind, asked: Any, timeout_s: float) -> list[Answer]:
            own = {number: i for i, number in ids.items()}
            here = {1000 + own[number]: request for number, request in asked.items()}
            found = super().ask(kind, here, timeout_s)
            return [replace(a, node_id=ids[a.node_id - 1000]) for a in found]

    crew = Restarted(config, N, added=named("scaffold"))
    for state in rounds(crew, terms_of(config, "scaffold"), start(config)):
        if state.t == 6:
            ids[5] = 7777
            crew.own.pop(5)
    assert (6, 5, ["common.c", "own.c"]) in crew.got
    assert same_arrays(whole.models[0], state.models[0])


@pytest.mark.parametrize("name", [*STATEFUL, "fedadam", "fednova", OWN])
@pytest.mark.parametrize("stop", [4, 8])
def test_a_saved_state_goes_on_to_the_same_model(name: str, stop: int, tmp_path: Path) -> None:
    config, terms = config_for(name), terms_of(config_for(name), name)
    whole = run(crew_of(config, name), terms)[-1]
    for state in rounds(crew_of(config, name), terms, start(config)):
        save_state(tmp_path, state, {"algorithm": name})
        if state.t == stop:
            break
    again = load_state(tmp_path, {"algorithm": name}, start(config), terms.schedule)
    assert again.t == stop
    last = run(crew_of(config, name), terms, again)[-1]  # nodes that know nothing any more
    assert same_arrays(last.models[0], whole.models[0])
    assert same_arrays(last.memory.arrays, whole.memory.arrays)
    with pytest.raises(FlowerError, match=f"is of a run with algorithm = '{name}', not None"):
        load_state(tmp_path, {}, start(config), terms.schedule)


def test_without_an_algorithm_messages_and_the_state_have_nothing_more(tmp_path: Path) -> None:
    config = config_for("scaffold")
    crew = TaskCrew(config, N)
    last = run(crew, terms_of(config, "fedavg"))[-1]
    assert {tuple(keys) for *_, keys in crew.got} == {()}
    assert (last.memory.names, last.memory.arrays) == ((), {})
    save_state(tmp_path, last, {})
    assert b"kept" not in (tmp_path / "state.safetensors").read_bytes()


def test_a_server_that_works_alone_sends_nothing_but_models() -> None:
    config = config_for("fedadam")
    crew = TaskCrew(config, N)  # nodes that know of FedAvg alone
    states = run(crew, terms_of(config, "fedadam"))
    assert {tuple(keys) for *_, keys in crew.got} == {()}
    assert states[-1].memory.arrays.keys() == {"common.m", "common.v", "common.~last"}


def spoilt(**kept: Any) -> Fault:
    def fault(kind: Kind, config: Mapping[str, Any], answer: Answer) -> Answer:
        if kind != "train" or config["stop"] == 1:
            return answer
        return replace(
            answer, kept={k: v for k, v in {**answer.kept, **kept}.items() if v is not None}
        )

    return fault


d = 784 * 10 + 10


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ({"c": np.full(d, np.nan, np.float32)}, "of what it keeps, 'c' is not finite"),
        ({"c": np.zeros(3, np.float32)}, f"of what it keeps, 'c' has the shape (3,), not ({d},)"),
        ({"c": np.zeros(d, bool)}, "of what it keeps, 'c' is of type bool, not float32"),
        ({"c": np.full(d, 1e300)}, "of what it keeps, 'c' is beyond float32"),
        ({"c": None}, "what it keeps is not what is kept: 'c'"),
        ({"h": np.zeros(d, np.float32)}, "what it keeps is not what is kept: 'h'"),
    ],
)
def test_a_node_that_keeps_rubbish_is_named_and_the_others_go_on(
    kept: dict[str, Any], reason: str
) -> None:
    config = config_for("scaffold")
    terms = terms_of(config, "scaffold")
    states = run(crew_of(config, "scaffold", {5: spoilt(**kept)}), terms)
    row = states[-1].rows[-1]
    assert (row["rejected"], row["counted"]) == (1, N - 1)
    assert row["dropped"] == [{"node": "5", "fault": "rejected", "reason": reason}]
    without = run(crew_of(config, "scaffold", {5: late_at(*range(2, 13))}), terms)[-1]
    assert same_arrays(states[-1].models[0], without.models[0])


def says(batches: Any) -> Fault:
    def fault(kind: Kind, config: Mapping[str, Any], answer: Answer) -> Answer:
        return replace(answer, metrics={**answer.metrics, "batches": batches})

    return fault


def test_nodes_that_do_not_say_how_many_batches_they_take_are_refused_before_a_step() -> None:
    config = config_for("fednova")
    crew = crew_of(config, "fednova", {i: says(None) for i in range(N)})
    with pytest.raises(FlowerError, match="fednova needs to know how many batches a local step"):
        run(crew, terms_of(config, "fednova"))
    assert [kind for kind, _ in crew.asked] == ["query"]


@pytest.mark.parametrize("batches", [None, "many", -1, math.nan, math.inf])
def test_one_node_that_says_rubbish_of_its_batches_is_not_in_their_mean(batches: Any) -> None:
    config = config_for("fednova")
    states = run(crew_of(config, "fednova", {3: says(batches)}), terms_of(config, "fednova"))
    assert states[-1].t == 12
    assert states[-1].rows[-1]["counted"] == N


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fedper", "its nodes have models of their own"),
        ("fedbn", "its nodes have models of their own"),
        ("ditto", "its nodes have models of their own"),
        ("ifca", "it decides about groups and models itself"),
        ("centralized", "it trains on one node"),
        ("hierfavg", "its groups are fixed"),
        ("fedavg-c", "its groups are fixed"),
    ],
)
def test_what_cannot_run_on_flower_is_refused_in_one_line(name: str, why: str) -> None:
    with pytest.raises(FlowerError, match=f"^{name} is not offered on Flower: {why}") as refused:
        added(name)
    assert "\n" not in str(refused.value)


def test_options_are_checked_as_those_of_a_simulated_run() -> None:
    assert added("feddyn", {"alpha": 0.5}).name == "feddyn(alpha=0.5)"
    with pytest.raises(ConfigError, match="alpha must be > 0, got 0"):
        added("feddyn", {"alpha": 0})
    with pytest.raises(ConfigError, match="did you mean 'alpha'"):
        added("feddyn", {"alpa": 1})
    with pytest.raises(ConfigError, match="unknown algorithm 'fedavgg'; did you mean 'fedavg'"):
        added("fedavgg")
    with pytest.raises(FlowerError, match="options are not read"):
        added(coterie.Update(), {"alpha": 1})


def test_an_algorithm_can_be_a_value() -> None:
    config = config_for("scaffold")
    made = find_algorithm("scaffold")
    one, other = added(made), added(made.update)
    whole = run(crew_of(config, "scaffold"), terms_of(config, "scaffold"))[-1]
    for value in (one, other):
        crew = TaskCrew(config, N, added=value)
        last = run(crew, terms_of(config, "scaffold", added=value))[-1]
        assert same_arrays(last.models[0], whole.models[0])
    assert one.name == added(made).name != other.name
    assert added(coterie.Update()) is FEDAVG


def test_arrays_that_are_not_trained_are_averaged_and_no_more() -> None:
    config = replace(scalar_config(4, tau2=3), train=config_for("fedadam").train)
    net = TaskCrew(config, 4).net
    trained = tuple(name for name, _ in net.named_parameters())
    planning = Planning(2, search=Search("random"))
    plain = Terms(Schedule(1, 1), 1, planning, timeout_s=1.0)
    adam = replace(plain, added=replace(named("fedadam"), trained=trained))
    (one,), (other,) = (run(TaskCrew(config, 4), terms) for terms in (plain, adam))
    for key in one.models[0]:
        same = np.array_equal(one.models[0][key], other.models[0][key])
        assert same == (key not in trained), key


def test_names_of_arrays_that_are_none_are_refused() -> None:
    model: dict[str, np.ndarray] = {"w": np.zeros(2, np.float32), "n": np.zeros(1, np.int64)}
    assert trained_of(named("scaffold"), model) == ("w",)
    for name, why in (("v", "is not in the model"), ("n", "is not of floating-point numbers")):
        with pytest.raises(FlowerError, match=f"trained: '{name}' {why}; it has w"):
            trained_of(replace(named("scaffold"), trained=(name,)), model)
    with pytest.raises(FlowerError, match="scaffold needs floating-point arrays"):
        trained_of(named("scaffold"), {"n": model["n"]})


def test_a_server_whose_model_is_no_longer_finite_ends_the_run() -> None:
    wild = Added("wild", coterie.Update(server=lambda w, mean: (w * 1e30, {})))
    model = {"w": np.full(2, 1e20, np.float32)}
    memory = begin(wild, model, ["a"])
    with pytest.raises(FlowerError, match=r"^wild makes of a mean what is not finite"):
        follow(wild, memory, [model], [["a"]], {"a": 1.0}, ["a"], everyone=True)


def test_a_memory_of_some_nodes_has_their_rows_in_that_order() -> None:
    arrays = {
        "own.c": np.arange(6.0).reshape(3, 2),
        "own.n": np.arange(3.0),
        "common.c": np.ones(2),
    }
    some = Memory(("a", "b", "c"), arrays).only(["c", "a"])
    assert some.own("a")["c"].tolist() == [0.0, 1.0]
    assert some.own("c")["n"].tolist() == 2.0
    renewed = some.renewed({"c": {"c": np.full(2, 9.0), "n": np.array(7.0)}})
    assert renewed.arrays["own.c"].tolist() == [[9.0, 9.0], [0.0, 1.0]]
    assert renewed.arrays["own.n"].tolist() == [7.0, 0.0]
    assert arrays["own.c"][2].tolist() == [4.0, 5.0], "and the one before is as it was"


class Tied(nn.Module):
    """Two names, one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight


def turn_of(net: nn.Module, rates: list[float], **changes: Any) -> Turn:
    model = {key: value.numpy().copy() for key, value in net.state_dict().items()}
    prox = replace(named("fedprox"), trained=tuple(key for key, _ in net.named_parameters()))
    given: dict[str, Any] = {"added": prox, "model": model, **changes}
    more = {key: given.pop(key) for key in ("momentum",) if key in given}
    return Turn(given["added"], given["model"], {}, net, rates, 1.0, **more)


def test_a_turn_that_is_not_what_was_said_is_refused() -> None:
    net = nn.Linear(2, 2)
    with pytest.raises(FlowerError, match="0 of 2 batches were taken"):
        turn_of(net, [0.1, 0.1]).done()
    short = turn_of(net, [0.1])
    short.step()
    with pytest.raises(FlowerError, match="a turn of 1 batches is over"):
        short.step()
    with pytest.raises(FlowerError, match="rates must have the learning rate of every batch"):
        turn_of(net, [])
    with pytest.raises(FlowerError, match="the model that came has other arrays: bias"):
        turn_of(net, [0.1], model={"weight": np.zeros((2, 2), np.float32)})
    with pytest.raises(FlowerError, match="'bias' is trained on this node, unlike at the server"):
        turn_of(net, [0.1], added=replace(named("fedprox"), trained=("weight",)))
    net.bias.requires_grad_(False)
    with pytest.raises(FlowerError, match="'bias' is no parameter that is trained on this node"):
        turn_of(net, [0.1])
    with pytest.raises(FlowerError, match="two of the net's are one"):
        turn_of(Tied(), [0.1])
    with pytest.raises(FlowerError, match="scaffold corrects plain SGD only; set momentum to 0"):
        turn_of(net, [0.1], added=named("scaffold"), momentum=0.9)
