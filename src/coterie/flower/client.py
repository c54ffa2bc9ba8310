"""What a ClientApp answers: the contract with GroupStrategy, as a few plain functions."""

import math
import socket
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from coterie.engine.memory import OWN
from coterie.engine.update import Update
from coterie.flower import FlowerError
from coterie.flower.algorithm import FEDAVG, added
from coterie.flower.messages import (
    ALGORITHM,
    ARRAYS,
    BATCHES,
    CONFIG,
    EVIDENCE,
    KEEPS,
    KEPT,
    LABEL_COUNTS,
    MEAN_STEPS,
    METRICS,
    NODE,
    NUM_EXAMPLES,
    PLACES,
    ROUND_TRIPS_MS,
    SKETCH,
    SKETCH_SEED,
    SKETCH_SIZE,
    START,
    STOP,
    TRAINED,
    Arrays,
)
from coterie.simulation.algorithm import Algorithm

if TYPE_CHECKING:
    from torch import nn

    from coterie.flower.turn import Turn

NODE_ID, PARTITION_ID, PING = "node-id", "partition-id", "ping"  # entries of --node-config
TRIES, CONNECT_S = 5, 2.0
KEPT_AT = "coterie-kept-at"  # in a node's state: after which step what it keeps was renewed


def node_name(context: Context) -> str:
    """Return the node's id: `node-id` of its --node-config, or else its `partition-id`."""
    for key in (NODE_ID, PARTITION_ID):
        if key in context.node_config:
            return str(context.node_config[key])
    raise FlowerError("this SuperNode has no id; start it with --node-config 'node-id=\"a\"'")


def arrays_of(message: Message) -> dict[str, np.ndarray]:
    """Return the model that a message carries, as named arrays."""
    return {key: array.numpy() for key, array in message.content[ARRAYS].items()}


def steps_of(message: Message) -> tuple[int, int]:
    """Return the local steps that are asked for: from start+1 to stop."""
    config = message.content[CONFIG]
    return int(config[START]), int(config[STOP])


def answer_train(
    message: Message,
    arrays: Arrays,
    num_examples: int,
    metrics: Mapping[str, float] | None = None,
    kept: Arrays | None = None,
) -> Message:
    """Reply with the trained model, the examples that weigh it, and what an algorithm keeps."""
    content = RecordDict(
        {
            ARRAYS: _record(arrays),
            METRICS: MetricRecord({NUM_EXAMPLES: int(num_examples), **(metrics or {})}),
        }
    )
    if kept:
        content[KEPT] = _record(kept)
    return Message(content, reply_to=message)


def _record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({key: Array(np.asarray(a)) for key, a in arrays.items()})


@dataclass(frozen=True, eq=False)
class NodeTurn:
    """A node's local steps by an algorithm, between a message and its reply."""

    message: Message
    context: Context
    turn: "Turn"
    renews: bool

    def step(self) -> None:
        """Step along the gradients of a batch, as an optimiser does."""
        self.turn.step()

    def answer(self, num_examples: int, metrics: Mapping[str, float] | None = None) -> Message:
        """Reply with the trained model; keep what this node keeps for the next message."""
        model, own = self.turn.done()
        if own:
            state = self.context.state
            state[KEPT] = _record(own)
            state[KEPT_AT] = MetricRecord({STOP: steps_of(self.message)[1]})
        kept = own if self.renews else None
        return answer_train(self.message, model, num_examples, metrics, kept)


def local_update(
    message: Message,
    context: Context,
    net: "nn.Module",
    rates: Sequence[float],
    algorithm: str | Algorithm | Update = "fedavg",
    options: Mapping[str, Any] | None = None,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> NodeTurn:
    """Begin the local steps of a train message by an algorithm, the one that the server runs.

    The model that came is put into `net`, and `step` changes it. `rates` has the learning rate of
    every batch to come.
    """
    from coterie.flower.turn import Turn  # torch, which a node with its own steps does not need

    config, chosen = message.content[CONFIG], added(algorithm, options)
    runs = str(config.get(ALGORITHM, FEDAVG.name))
    if chosen.name != runs and (ALGORITHM in config or chosen.update.local):
        raise FlowerError(
            f"the server has its nodes run {runs}, and this node runs {chosen.name}; give both "
            "the same algorithm and options"
        )
    chosen = replace(chosen, trained=tuple(config.get(TRAINED, ())))
    turn = Turn(
        chosen if chosen.update.local else FEDAVG,
        arrays_of(message),
        _kept(message, context),
        net,
        rates,
        float(config.get(MEAN_STEPS, math.nan)),
        momentum=momentum,
        weight_decay=weight_decay,
    )
    return NodeTurn(message, context, turn, chosen.update.renew is not None)


def _kept(message: Message, context: Context) -> dict[str, np.ndarray]:
    """Return what came beside the model, and what this node keeps: its own, unless that came."""
    came: dict[str, np.ndarray] = {}
    if KEPT in message.content:
        came = {key: array.numpy() for key, array in message.content[KEPT].items()}
    names = [str(key) for key in message.content[CONFIG].get(KEEPS, ())]
    if all(f"{OWN}{key}" in came for key in names):
        return came
    state, start = context.state, steps_of(message)[0]
    if KEPT not in state or KEPT_AT not in state or state[KEPT_AT][STOP] != start:
        raise FlowerError(
            f"what this node keeps is not there as of step {start}, as after a restart; it will "
            "come with the next message"
        )
    return {**came, **{f"{OWN}{key}": state[KEPT][key].numpy() for key in names}}


def answer_query(
    message: Message,
    context: Context,
    num_examples: int,
    label_counts: Sequence[int] | None = None,
    gradient: Callable[[Arrays], np.ndarray] | None = None,
    batches: float | None = None,
) -> Message:
    """Reply who this node is, and what it shows of its data: only what was asked for.

    `gradient` returns the full gradient [d] at a model; it is sketched here, and only that leaves.
    `batches` is how many a local step has, for algorithms to which that matters.
    Round trips are measured to the places that this node's own `ping` names, and to no others.
    """
    asked = message.content.get(CONFIG, {})
    evidence = asked.get(EVIDENCE, "none")
    config: dict[str, str | list[str]] = {NODE: node_name(context)}
    metrics: dict[str, float | list[int] | list[float]] = {NUM_EXAMPLES: int(num_examples)}
    if ALGORITHM in asked and batches is not None:
        metrics[BATCHES] = float(batches)
    if evidence == "labels" and label_counts is not None:
        metrics[LABEL_COUNTS] = [int(count) for count in label_counts]
    if evidence == "sketch" and gradient is not None and ARRAYS in message.content:
        from coterie.divergences.sketch import (  # a second to load, which nobody else needs
            SIZE,
            Sketch,
        )

        sketch = Sketch(int(asked.get(SKETCH_SIZE, SIZE)), int(asked.get(SKETCH_SEED, 0)))
        metrics[SKETCH] = sketch.apply(gradient(arrays_of(message))).tolist()
    elif ping := str(context.node_config.get(PING, "")):
        places = parse_ping(ping)
        config[PLACES] = list(places)
        metrics[ROUND_TRIPS_MS] = [round_trip_ms(*address) for address in places.values()]
    content = RecordDict({METRICS: MetricRecord(metrics), CONFIG: ConfigRecord(config)})
    return Message(content, reply_to=message)


def parse_ping(text: str) -> dict[str, tuple[str, int]]:
    """Read `name=host:port` pairs, separated by commas.

    >>> parse_ping("east=10.0.0.1:8000,west=[::1]:8001")
    {'east': ('10.0.0.1', 8000), 'west': ('::1', 8001)}
    """
    places = {}
    for word in text.split(","):
        name, _, address = word.strip().partition("=")
        host, _, port = address.rpartition(":")
        if not (name and host and port.isdigit() and 0 < int(port) < 65536):
            raise FlowerError(f"ping must be such as 'east=10.0.0.1:8000', got {word.strip()!r}")
        places[name] = host.strip("[]"), int(port)
    return places


def round_trip_ms(host: str, port: int) -> float:
    """Return the median milliseconds of a few TCP handshakes; -1 if there is none."""
    taken = []
    for _ in range(TRIES):
        start = time.perf_counter()
        try:
            with socket.create_connection((host, port), timeout=CONNECT_S):
                taken.append(1e3 * (time.perf_counter() - start))
        except OSError:
            return -1.0
    return statistics.median(taken)
