"""GroupStrategy with Flower's own messages, and the example app, without processes."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'coterie[flower]'")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.supercore.task_identity import TaskIdentity
from group_app import client_app, server_app, task

from coterie.core.errors import CoterieError
from coterie.flower import FlowerError, GroupStrategy
from coterie.flower.algorithm import added
from coterie.flower.client import answer_query, node_name, parse_ping, round_trip_ms
from coterie.flower.crew import GridCrew, answer_of
from coterie.flower.groups import Groups
from coterie.flower.messages import Answer, Request
from coterie.flower.network import by_round_trips, network_of
from coterie.flower.roster import Roster
from coterie.flower.rounds import rounds
from coterie.flower.state import State, save_state
from coterie.grouping import Limits
from coterie.network import Network
from coterie.preview.planfile import Plan, PlanError, PlannedNode
from crews import TaskCrew
from plans import EXAMPLE as PLAN

RUN: dict[str, Any] = {
    "num-server-rounds": 2,
    "num-groups": 2,
    "tau1": 1,
    "tau2": 2,
    "algorithm": "fedavg",
    "algorithm-options": "",
    "evidence": "labels",
    "grouping": "coterie",
    "plan": "",
    "network": "",
    "min-nodes": 4,
    "min-per-group": 1,
    "timeout": 5.0,
    "state-dir": "",
    "model": "sr",
    "partition": "dirichlet",
    "num-nodes": 4,
    "learning-rate": 0.1,
    "lr-decay": 0.99,
    "batch-size": 0,
    "seed": 0,
}


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say who sends: Flower's processes know it from their start."""
    for key, value in (("_run_id", 1), ("_task_id", 1), ("_node_id", 1)):
        monkeypatch.setattr(TaskIdentity, key, value, raising=False)


def answered(message: Message, context: Context) -> Message:
    """What the app replies, or what Flower says of an app that raised."""
    try:
        reply: Message = client_app.app(message, context)
    except FlowerError as error:
        return Message(Error(2, str(error)), reply_to=message)
    return reply


class Grid:
    """Flower's grid, with nodes that answer at once; some answers can be spoilt."""

    def __init__(self, n: int, run: dict[str, Any], spoilt: dict[int, Any] | None = None) -> None:
        self.n, self.run, self.spoilt = n, run, spoilt or {}
        self.replies: dict[str, Message] = {}
        self.sent: list[Message] = []
        self.states = [RecordDict() for _ in range(n)]  # what Flower keeps for every node

    def get_node_ids(self) -> list[int]:
        return [100 + i for i in range(self.n)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            self.sent.append(message)
            i = message.metadata.dst_node_id - 100
            key = f"m{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = key
            message.metadata.__dict__["_run_id"] = 1
            context = Context(
                run_id=1,
                node_id=100 + i,
                node_config={"partition-id": i, "num-partitions": self.n},
                state=self.states[i],
                run_config=self.run,
            )
            ids.append(key)
            if i in self.spoilt and message.metadata.message_type == "train":
                reply = self.spoilt[i](message)
            else:
                reply = answered(message, context)
            if reply is not None:
                self.replies[key] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self.replies.pop(key) for key in list(message_ids) if key in self.replies]


def first() -> ArrayRecord:
    return ArrayRecord({key: Array(a) for key, a in server_app.initial(RUN).items()})


def scored(round_: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord(server_app.evaluate(RUN, {k: a.numpy() for k, a in arrays.items()}))


def test_the_example_app_trains_in_groups(tmp_path: Path) -> None:
    strategy = server_app.strategy({**RUN, "state-dir": str(tmp_path)})
    grid = Grid(4, RUN)
    result = strategy.start(grid, first(), 2, timeout=5.0, evaluate_fn=scored)
    scores = [result.evaluate_metrics_serverapp[k]["accuracy"] for k in (0, 1, 2)]
    assert scores[2] > scores[0]
    assert result.train_metrics_clientapp[2]["counted"] == 4
    kinds = [m.metadata.message_type for m in grid.sent]
    assert kinds == 4 * ["query"] + 16 * ["train"]
    assert (tmp_path / "state.safetensors").exists()
    groups = {m.content["config"]["group"] for m in grid.sent if "arrays" in m.content}
    assert groups == {0, 1}
    again = Grid(4, RUN)
    after = server_app.strategy({**RUN, "state-dir": str(tmp_path)})
    other = after.start(again, first(), 2, timeout=5.0, evaluate_fn=scored)
    assert again.sent == [], "it was complete"
    for key, array in result.arrays.items():
        assert np.array_equal(array.numpy(), other.arrays[key].numpy())


def test_a_model_with_a_scalar_array_goes_through_flowers_messages() -> None:
    run = {**RUN, "model": "crews:with_batchnorm"}
    start = ArrayRecord({key: Array(a) for key, a in server_app.initial(run).items()})
    result = server_app.strategy(run).start(Grid(4, run), start, 2, timeout=5.0)
    assert result.train_metrics_clientapp[2]["counted"] == 4
    assert result.arrays["2.num_batches_tracked"].numpy() == 4
    assert result.arrays["2.num_batches_tracked"].shape == ()


def run_by(name: str, **changes: Any) -> dict[str, Any]:
    return {**RUN, "algorithm": name, "batch-size": 20, "learning-rate": 0.1, **changes}


OWN = "own_hooks:everything"


@pytest.mark.parametrize("name", ["scaffold", "hier-scaffold", "fednova", "fedadam", "feddyn", OWN])
def test_an_algorithm_goes_through_flowers_messages(name: str) -> None:
    run = run_by(name)
    strategy, grid = server_app.strategy(run), Grid(4, run)
    result = strategy.start(grid, first(), 2, timeout=5.0)
    kinds = [m.metadata.message_type for m in grid.sent]
    assert kinds == 4 * ["query"] + 16 * ["train"], "as many messages as FedAvg's"
    crew = TaskCrew(task.settings(run, 4), 4, added=added(name))
    state = State(0, (server_app.initial(run),))
    *_, last = rounds(crew, strategy.terms(2, 5.0, {}), state)
    for key, array in result.arrays.items():
        assert np.array_equal(array.numpy(), last.models[0][key])
    plain = server_app.strategy(run_by("fedavg")).start(Grid(4, run_by("fedavg")), first(), 2)
    assert not np.array_equal(plain.arrays["1.bias"].numpy(), result.arrays["1.bias"].numpy())


def test_fedavg_has_no_record_and_no_entry_of_an_algorithm() -> None:
    for run in (RUN, run_by("fedadam")):  # which the server steps by, alone
        grid = Grid(4, run)
        server_app.strategy(run).start(grid, first(), 1, timeout=5.0)
        for message in grid.sent:
            assert set(message.content) <= {"arrays", "config"}
            assert not [key for key in message.content["config"] if key.startswith("coterie-")]
        assert all(len(state) == 0 for state in grid.states)


def test_a_node_that_lost_what_it_keeps_misses_one_mean_and_is_sent_it() -> None:
    run = run_by("scaffold")
    grid = Grid(4, run)
    strategy = server_app.strategy(run)
    before = strategy.start(grid, first(), 2, timeout=5.0)
    assert [before.train_metrics_clientapp[k]["failed"] for k in (1, 2)] == [0, 0]
    losing = Losing(4, run)
    after = server_app.strategy(run).start(losing, first(), 2, timeout=5.0)
    assert [after.train_metrics_clientapp[k]["failed"] for k in (1, 2)] == [0, 1]
    assert after.train_metrics_clientapp[2]["counted"] == 4, "in the mean after it"


class Losing(Grid):
    """Node 1 loses what Flower keeps for it after the first round."""

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        if len(self.sent) == 4 + 2 * 4:
            self.states[1] = RecordDict()
        return super().push_messages(messages)


def test_a_node_of_another_algorithm_says_so() -> None:
    strategy = server_app.strategy(run_by("scaffold"))
    grid = Grid(4, run_by("feddyn", **{"algorithm-options": "alpha=0.2"}))
    with pytest.raises(FlowerError, match="group 0: fewer than 1 nodes"):
        strategy.start(grid, first(), 2, timeout=5.0)
    assert strategy.state is not None
    assert strategy.state.rows[0]["dropped"][0]["reason"] == (
        "the server has its nodes run scaffold, and this node runs feddyn(alpha=0.2); give both "
        "the same algorithm and options"
    )


def test_an_algorithm_that_cannot_be_is_refused_before_anybody_is_waited_for() -> None:
    for name in ("fedper", "ditto", "ifca"):
        with pytest.raises(FlowerError, match=f"{name} is not offered on Flower"):
            GroupStrategy(algorithm=name)
    with pytest.raises(CoterieError, match="alpha must be > 0"):
        GroupStrategy(algorithm="feddyn", options={"alpha": -1.0})
    with pytest.raises(FlowerError, match="algorithm-options must be such as"):
        server_app.strategy({**RUN, "algorithm": "feddyn", "algorithm-options": "alpha"})
    strategy, grid = GroupStrategy(algorithm="scaffold", trained=["w"]), Grid(0, RUN)
    with pytest.raises(FlowerError, match="trained: 'w' is not in the model"):
        strategy.start(grid, first(), 1)
    with pytest.raises(FlowerError, match="scaffold needs the messages of start"):
        strategy.configure_train(1, first(), ConfigRecord(), grid)


def of_bools(message: Message) -> Message:
    content = message.content
    arrays = {key: Array(np.ones(a.shape, bool)) for key, a in content["arrays"].items()}
    content = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 9})}
    return Message(RecordDict(content), reply_to=message)


def nan(message: Message) -> Message:
    arrays = {
        key: Array(array.numpy() * np.nan) for key, array in message.content["arrays"].items()
    }
    content = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 9})}
    return Message(RecordDict(content), reply_to=message)


def failing(message: Message) -> Message:
    return Message(Error(2, "ValueError: no disk"), reply_to=message)


def expired(message: Message) -> Message:
    return Message(Error(3, "Message Unavailable"), reply_to=message)


def nothing(message: Message) -> None:
    return None


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (nan, "rejected"),
        (of_bools, "rejected"),
        (failing, "failed"),
        (expired, "late"),
        (nothing, "late"),
    ],
)
def test_a_client_at_fault_is_counted_and_the_round_goes_on(fault: Any, kind: str) -> None:
    strategy = server_app.strategy(RUN)
    strategy.poll_s = 0.01
    result = strategy.start(Grid(4, RUN, {2: fault}), first(), 1, timeout=0.5)
    record = result.train_metrics_clientapp[1]
    assert record[kind] == 2, "once in either mean of the round"
    assert record["counted"] == 3
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())


def saved(tmp_path: Path, rounds: int, **changes: Any) -> GroupStrategy:
    """A strategy whose state is there after so many rounds."""
    strategy = GroupStrategy(2, 1, 3, state_dir=tmp_path, wait_s=0.0, poll_s=0.01, **changes)
    strategy.start(Grid(4, RUN), first(), rounds, timeout=5.0)
    return strategy


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"evidence": "sketch"}, "evidence = 'labels', not 'sketch'"),
        ({"alpha_comm": 7.0}, "alpha_comm = 1.0, not 7.0"),
        ({"alpha_iid": 7.0}, "alpha_iid = 1.0, not 7.0"),
        ({"network": "measured"}, "network = None, not 'measured'"),
        ({"limits": Limits(max_size=3)}, "limits = "),
        ({"sketch_size": 9}, "sketch_size = 256, not 9"),
        ({"grouping": "random"}, "grouping = 'coterie', not 'random'"),
    ],
)
def test_a_run_is_not_gone_on_with_by_other_means(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    saved(tmp_path, 1)
    with pytest.raises(FlowerError) as refused:
        saved(tmp_path, 2, **changes)
    assert f"is of a run with {said}" in str(refused.value)


def test_a_run_is_not_gone_on_with_by_another_network_file_or_train_config(tmp_path: Path) -> None:
    path, state = tmp_path / "net.csv", tmp_path / "state"
    path.write_text("node,latency_ms\n0,5\n1,5\n2,5\n3,50\n")
    saved(state, 1, network=path)
    saved(state, 1, network=path.rename(tmp_path / "same.csv"))
    path.write_text("node,latency_ms\n0,5\n1,5\n2,5\n3,5\n")
    with pytest.raises(FlowerError, match="is of a run with network = 'file "):
        saved(state, 2, network=path)
    with pytest.raises(FlowerError, match=r"net\.csv: cannot be read"):
        saved(state, 2, network=tmp_path / "no" / "net.csv")
    strategy = GroupStrategy(2, 1, 3, state_dir=state, network=tmp_path / "same.csv")
    with pytest.raises(FlowerError, match=r"train_config\.lr = None, not 0\.5"):
        strategy.start(Grid(4, RUN), first(), 2, train_config=ConfigRecord({"lr": 0.5}))


def test_a_train_config_may_hold_whatever_flowers_can(tmp_path: Path) -> None:
    for key, refused in ((b"a", False), (b"a", False), (b"b", True)):
        strategy = GroupStrategy(2, 1, 3, state_dir=tmp_path, poll_s=0.01)
        config = ConfigRecord({"key": key, "many": [1.0, 2.0]})
        with pytest.raises(FlowerError, match=r"config\.key") if refused else nullcontext():
            strategy.start(Grid(4, RUN), first(), 1, train_config=config)


def test_the_example_app_does_not_go_on_with_another_learning_rate(tmp_path: Path) -> None:
    def start(**changes: Any) -> None:
        run = {**RUN, "state-dir": str(tmp_path), **changes}
        sent = server_app.train_config(run)
        server_app.strategy(run).start(Grid(4, run), first(), 1, 5.0, sent)

    start()
    start(**{"num-server-rounds": 5, "timeout": 9.0})
    with pytest.raises(FlowerError, match=r"learning-rate = 0\.1, not 0\.9"):
        start(**{"learning-rate": 0.9})


def test_fewer_rounds_than_are_done_give_the_mean_of_all_groups(tmp_path: Path) -> None:
    strategy = saved(tmp_path, 2)
    done = strategy.state
    assert done is not None
    model = done.models[0]
    each = ({k: np.zeros_like(a) for k, a in model.items()}, {k: a + 4 for k, a in model.items()})
    state = replace(done, t=5, models=each, weights=dict.fromkeys("0123", 1.0))
    groups = Groups((("0",), ("1", "2", "3")))
    state = replace(state, plan=replace(done.plan, groups=groups))
    save_state(tmp_path, state, strategy.about(strategy.terms(2, 5.0, {})))
    result = GroupStrategy(2, 1, 3, state_dir=tmp_path).start(Grid(4, RUN), first(), 1)
    for key, array in model.items():
        found = result.arrays[key].numpy()
        np.testing.assert_allclose(found, (array + 4) * 0.75, rtol=1e-5, atol=1e-6)


def planned() -> Plan:
    nodes = tuple(PlannedNode(str(i), i % 2, 5, 0.1) for i in range(4))
    return replace(PLAN, servers=("0", "1"), nodes=nodes, tau1=1, tau2=3, steps=6)


class Without(Grid):
    """A grid whose last node is gone."""

    def get_node_ids(self) -> list[int]:
        return super().get_node_ids()[:-1]


def test_a_plan_is_gone_on_with_though_a_node_is_gone(tmp_path: Path) -> None:
    saved(tmp_path, 1, plan=planned())
    strategy = GroupStrategy(plan=planned(), state_dir=tmp_path, wait_s=0.0, poll_s=0.01)
    result = strategy.start(Without(4, RUN), first(), 2, timeout=5.0)
    assert result.train_metrics_clientapp[2]["counted"] == 3
    assert result.train_metrics_clientapp[2]["late"] == 3
    strict = GroupStrategy(
        plan=planned(), state_dir=tmp_path, wait_s=0.0, poll_s=0.01, min_per_group=2
    )
    with pytest.raises(FlowerError, match=r"3 of 4 nodes connected .* others, or raise wait_s$"):
        strict.start(Without(4, RUN), first(), 3, timeout=5.0)
    with pytest.raises(FlowerError, match="3 of 4 nodes connected"):
        GroupStrategy(plan=planned(), wait_s=0.0).start(Without(4, RUN), first(), 1)


def test_a_sketch_is_asked_for_at_the_mean_model() -> None:
    grid = Grid(4, RUN)
    strategy = server_app.strategy({**RUN, "evidence": "sketch"})
    strategy.start(grid, first(), 1, timeout=5.0)
    asked = [m for m in grid.sent if m.metadata.message_type == "query" and "arrays" in m.content]
    assert len(asked) == 4
    assert asked[0].content["config"]["sketch-size"] == 256


def test_flowers_own_way_to_call_a_strategy_works() -> None:
    strategy, grid = server_app.strategy(RUN), Grid(4, RUN)
    config = ConfigRecord({"start": 0, "stop": 1})
    messages = list(strategy.configure_train(1, first(), config, grid))
    grid.push_messages(messages)
    replies = list(grid.replies.values())
    arrays, metrics = strategy.aggregate_train(1, replies)
    assert arrays is not None
    assert metrics is not None
    assert "loss" in metrics
    odd = of_bools(messages[0])
    assert strategy.aggregate_train(1, [odd]) == (None, None), "not what was sent"
    assert strategy.aggregate_train(1, []) == (None, None)
    assert list(strategy.configure_evaluate(1, arrays, config, grid)) == []
    assert strategy.aggregate_evaluate(1, []) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tau2": 0}, "tau2 must be >= 1, got 0"),
        ({"num_groups": 0}, "num_groups must be >= 1"),
        ({"evidence": "gradients"}, "evidence must be 'labels' or 'sketch'"),
        ({"grouping": "coteri"}, "did you mean 'coterie'?"),
        ({"plan": "nothing.json"}, "nothing.json: cannot be read"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises((CoterieError, PlanError)) as refused:
        GroupStrategy(**wrong)
    assert said in str(refused.value)


def test_a_reply_that_cannot_be_read_is_an_error_of_its_node() -> None:
    message = Message(RecordDict(), dst_node_id=7, message_type="train")
    message.metadata.__dict__["_message_id"] = "m"
    torn = Array("float32", (2,), "numpy.ndarray", b"rubbish")
    reply = Message(RecordDict({"arrays": ArrayRecord({"w": torn})}), reply_to=message)
    answer = answer_of(reply)
    assert answer is not None
    assert answer.error.startswith("its reply cannot be read")


def test_only_what_was_asked_for_is_shown() -> None:
    grid = Grid(1, RUN)
    crew = GridCrew(grid, 0.01)
    answer = crew.ask("query", {100: Request(None, {"evidence": "none"})}, 1.0)[0]
    assert set(answer.metrics) == {"num-examples"}
    assert answer.config == {"node": "0"}


def context(**config: Any) -> Context:
    return Context(run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={})


def test_a_node_is_called_by_its_config() -> None:
    assert node_name(context(**{"node-id": "a", "partition-id": 3})) == "a"
    assert node_name(context(**{"partition-id": 3})) == "3"
    with pytest.raises(FlowerError, match="has no id"):
        node_name(context())


def test_round_trips_are_measured_to_the_nodes_own_places_only() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        message = Message(
            RecordDict({"config": ConfigRecord({"ping": "east=127.0.0.1:1"})}),
            dst_node_id=7,
            message_type="query",
        )
        message.metadata.__dict__["_message_id"] = "m"
        own = context(**{"node-id": "a", "ping": f"here=127.0.0.1:{port}"})
        reply = answer_query(message, own, 5)
        assert reply.content["config"]["places"] == ["here"]
        assert reply.content["metrics"]["round-trips-ms"][0] > 0
        assert round_trip_ms("127.0.0.1", port) > 0
    assert round_trip_ms("127.0.0.1", port) == -1
    with pytest.raises(FlowerError, match="ping must be such as"):
        parse_ping("nonsense")


def roster(*names: str, **more: Any) -> Roster:
    answers = {name: Answer(i, None, {"num-examples": 5}) for i, name in enumerate(names)}
    return Roster({name: i for i, name in enumerate(names)}, answers, **more)


def test_round_trips_make_a_network_of_places() -> None:
    rows = {"a": [2.0, 20.0], "b": [4.0, 40.0]}
    answers = [
        Answer(0, None, {"round-trips-ms": row}, {"places": ["east", "west"]})
        for row in rows.values()
    ]
    top = by_round_trips(list(rows), answers)
    assert top.n_devices == 2
    assert [top.name(int(v)) for v in top.place_vertices] == ["east", "west"]
    one, far = (
        Network(top).aggregation(np.zeros(2, np.int64), top.place_vertices[[k]], 1000).seconds
        for k in (0, 1)
    )
    assert far > 5 * one
    with pytest.raises(FlowerError, match="node 'b' cannot reach every place"):
        by_round_trips(
            ["a", "b"],
            [answers[0], Answer(1, None, {"round-trips-ms": [1.0, -1.0]}, answers[1].config)],
        )
    with pytest.raises(FlowerError, match="node 'a' measured no round trips"):
        network_of("measured", roster("a"))


NODES = "node,up_mbytes_per_s,latency_ms\na,10,5\nb,1,50\n"
PAIRS = ",b,a\nb,,10\na,10,\n"


def test_a_network_file_is_by_name(tmp_path: Path) -> None:
    path = tmp_path / "net.csv"
    path.write_text(NODES)
    network, names = network_of(path, roster("b", "a"))
    assert names == ["a", "b"]
    assert network.topology.latency_s[:2].tolist() == [0.005, 0.05]
    path.write_text(PAIRS)
    network, names = network_of(path, roster("a", "b"))
    assert names == ["b", "a"], "a matrix keeps its own order"
    for source in (path, network):
        less, names = network_of(source, roster("a"), ["b", "a"])
        assert (less.topology.n_devices, names) == (1, ["a"])
        assert less.topology.n_switches == network.topology.n_switches
    assert network_of(None, roster("a", "b", "c"))[0].topology.n_devices == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NODES, "node 'c' is missing; every node needs a row"),
        (PAIRS, "node 'c' is missing; every node needs a row"),
        (NODES + "a,1,1\n", "node 'a' is there twice"),
        ("node,speed\na,1\n", "unknown column 'speed'"),
    ],
)
def test_a_network_file_that_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "net.csv"
    path.write_text(text)
    with pytest.raises(CoterieError) as refused:
        network_of(path, roster("a", "b", "c"))
    assert said in str(refused.value)


def test_what_was_asked_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="coterie.flower"):
        GroupStrategy(2, 1, 3).summary()
    assert caplog.messages == ["2 groups by coterie on labels, tau1 1, tau2 3"]
