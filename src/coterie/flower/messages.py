"""The nodes as a server sees them: what it asks, what they answer, and by which names.

The names below are the contract with a ClientApp (docs/howto/flower.md); nothing here imports
Flower.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = Mapping[str, Array]  # a model: named arrays
Kind = Literal["train", "query", "evaluate"]

# Records of a message and of its reply, as Flower's own strategies call them.
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
KEPT = "kept"  # beside a model: what an algorithm keeps
# Entries that a ClientApp reads from the config.
GROUP, SERVER_ROUND, START, STOP = "group", "server-round", "start", "stop"
LOCAL_STEPS, EVIDENCE = "local-steps", "evidence"
SKETCH_SIZE, SKETCH_SEED = "sketch-size", "sketch-seed"
# Entries of the config where an algorithm needs the nodes: its name, the arrays that it is about,
# what every node keeps, and how many batches those take on average who are averaged together.
ALGORITHM, TRAINED = "coterie-algorithm", "coterie-trained"
KEEPS, MEAN_STEPS = "coterie-keeps", "coterie-mean-steps"
# Entries of a reply: the name in its config, the others in its metrics.
NODE, NUM_EXAMPLES, LABEL_COUNTS = "node", "num-examples", "label-counts"
SKETCH, ROUND_TRIPS_MS, PLACES = "sketch", "round-trips-ms", "places"
BATCHES = "batches"  # that a node takes in a local step
# Of an edge, over the means of a round: answers of nodes that counted, and those that did not.
COUNTS = ("nodes-counted", "nodes-late", "nodes-failed", "nodes-rejected")


@dataclass(frozen=True, eq=False)
class Request:
    """What one node is asked: a model to start from, if any, settings, and what is kept."""

    arrays: Arrays | None
    config: Mapping[str, Any]
    kept: Arrays = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Answer:
    """What a node answered; `error` is empty unless its app failed or nothing can be read."""

    node_id: int
    arrays: Arrays | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    kept: Arrays = field(default_factory=dict)


class Crew(Protocol):
    """Connected nodes, by the numbers that Flower gave them."""

    def nodes(self) -> list[int]:
        """Return who is connected."""

    def ask(self, kind: Kind, asked: Mapping[int, Request], timeout_s: float) -> list[Answer]:
        """Ask each node, and return the answers that came in time."""
