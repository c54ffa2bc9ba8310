"""What a ClientApp answers: the contract with GroupStrategy, as a few plain functions."""

import socket
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from coterie.flower import FlowerError
from coterie.flower.messages import (
    ARRAYS,
    CONFIG,
    EVIDENCE,
    LABEL_COUNTS,
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
    Arrays,
)

NODE_ID, PARTITION_ID, PING = "node-id", "partition-id", "ping"  # entries of --node-config
TRIES, CONNECT_S = 5, 2.0


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
    message: Message, arrays: Arrays, num_examples: int, metrics: Mapping[str, float] | None = None
) -> Message:
    """Reply with the trained model, and the examples that weigh it."""
    content = RecordDict(
        {
            ARRAYS: ArrayRecord({key: Array(np.asarray(a)) for key, a in arrays.items()}),
            METRICS: MetricRecord({NUM_EXAMPLES: int(num_examples), **(metrics or {})}),
        }
    )
    return Message(content, reply_to=message)


def answer_query(
    message: Message,
    context: Context,
    num_examples: int,
    label_counts: Sequence[int] | None = None,
    gradient: Callable[[Arrays], np.ndarray] | None = None,
) -> Message:
    """Reply who this node is, and what it shows of its data: only what was asked for.

    `gradient` returns the full gradient [d] at a model; it is sketched here, and only that leaves.
    Round trips are measured to the places that this node's own `ping` names, and to no others.
    """
    asked = message.content.get(CONFIG, {})
    evidence = asked.get(EVIDENCE, "none")
    config: dict[str, str | list[str]] = {NODE: node_name(context)}
    metrics: dict[str, int | list[int] | list[float]] = {NUM_EXAMPLES: int(num_examples)}
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
