"""The nodes behind Flower's grid: messages out, replies back, and who went away in the middle."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from coterie.flower.messages import ARRAYS, CONFIG, KEPT, METRICS, Answer, Arrays, Kind, Request

log = logging.getLogger("coterie.flower")
UNAVAILABLE = (3, 4)  # Flower's codes for a message or a reply that expired: the node was late
AWAY, CRASHED = 5, 8  # for a node that is offline, and for an app whose process is gone
BACK_S = 30.0  # how long a node that went away in the middle may take to come back
LOOK_S = 3.0  # between looks at who was started anew


@dataclass(frozen=True, eq=False)
class _Away:
    """A node that is offline: what is said of it unless it is back by then."""

    answer: Answer
    until: float


class GridCrew:
    """The nodes behind Flower's grid."""

    def __init__(self, grid: Grid, poll_s: float = 0.5, back_s: float = BACK_S) -> None:
        """Take the grid of a ServerApp, how often to look for replies, and who is waited for."""
        self._grid, self._poll_s, self._back_s = grid, poll_s, back_s

    def nodes(self) -> list[int]:
        """Return who is connected."""
        return list(self._grid.get_node_ids())

    def ask(self, kind: Kind, asked: Mapping[int, Request], timeout_s: float) -> list[Answer]:
        """Send every node its message, and return the replies that came in time, one a node.

        A node that was started anew while it had a message, or whose app's process is gone, has
        lost that message: it is asked once more, and what it may still send to the first is not
        read. One that is offline has `back_s` to come back for that.
        """
        begun, deadline = self._begun(), time.monotonic() + timeout_s
        waiting, look = self._push(kind, asked, timeout_s), time.monotonic() + LOOK_S
        answers, away, twice = list[Answer](), dict[int, _Away](), set[int]()
        while waiting or away:  # what is there is taken, however late it is when it is looked for
            lost = set[int]()
            for reply in self._grid.pull_messages(set(waiting)):
                node_id = waiting.pop(reply.metadata.reply_to_message_id, None)
                answer, code = answer_of(reply), reply.error.code if reply.has_error() else None
                if node_id is None or answer is None:
                    continue
                if node_id in twice or code not in (AWAY, CRASHED):
                    answers.append(answer)
                elif code == CRASHED:
                    lost.add(node_id)
                else:
                    away[node_id] = _Away(answer, time.monotonic() + self._back_s)
            now = time.monotonic()
            left_s = deadline - now
            if now >= look:
                there, look = self._begun(), now + LOOK_S
                lost |= {
                    i
                    for i in {*waiting.values(), *away} - twice
                    if i in there and i in begun and there[i] != begun[i]
                }
            if lost and left_s > 0:
                log.warning("asked once more, for they lost their message: %s", sorted(lost))
                twice |= lost
                waiting = {key: i for key, i in waiting.items() if i not in lost}
                waiting |= self._push(kind, {i: asked[i] for i in lost}, left_s)
            away = {i: node for i, node in away.items() if i not in lost}
            over = {i for i, node in away.items() if now >= node.until or left_s <= 0}
            answers += [away.pop(i).answer for i in sorted(over)]
            if left_s <= 0:
                break
            if waiting or away:
                time.sleep(min(self._poll_s, left_s))
        return answers

    def _push(self, kind: Kind, asked: Mapping[int, Request], timeout_s: float) -> dict[str, int]:
        """Send every node its message; return whom each is to, but for those that did not go."""
        records: dict[int, RecordDict] = {}  # nodes that are asked the same share one
        messages = []
        for node_id, request in asked.items():
            if id(request) not in records:
                records[id(request)] = content_of(request)
            content, ttl = records[id(request)], max(timeout_s, 1.0)
            messages.append(Message(content, dst_node_id=node_id, message_type=kind, ttl=ttl))
        keys = self._grid.push_messages(messages)
        return {key: node_id for key, node_id in zip(keys, asked, strict=False) if key}

    def _begun(self) -> dict[int, Any]:
        """Return since when each connected node is there, where Flower says so."""
        nodes: Iterable[Any] = getattr(self._grid, "get_nodes", list)()
        return {node.node_id: node.last_activated_at for node in nodes}


def content_of(request: Request) -> RecordDict:
    """Return what a message carries."""
    content = RecordDict({CONFIG: ConfigRecord(dict(request.config))})
    if request.arrays is not None:
        content[ARRAYS] = record_of(request.arrays)
    if request.kept:
        content[KEPT] = record_of(request.kept)
    return content


def answer_of(reply: Message) -> Answer | None:
    """Read a reply, whatever is in it; None if it only says that the node was late."""
    node_id = reply.metadata.src_node_id
    if reply.has_error():
        if reply.error.code in UNAVAILABLE:
            return None
        return Answer(node_id, error=str(reply.error.reason or f"code {reply.error.code}"))
    content = reply.content
    arrays = metrics = config = None
    kept: Arrays = {}
    try:
        if ARRAYS in content.array_records:
            arrays = numpy_of(content.array_records[ARRAYS])
        if KEPT in content.array_records:
            kept = numpy_of(content.array_records[KEPT])
        metrics = dict(content.metric_records.get(METRICS, {}))
        config = dict(content.config_records.get(CONFIG, {}))
    except Exception as error:  # whatever a node sends, the round goes on
        return Answer(node_id, error=f"its reply cannot be read: {error}")
    return Answer(node_id, arrays, metrics, config, kept=kept)


def numpy_of(record: ArrayRecord) -> Arrays:
    """Return named arrays; Flower reads them without pickle."""
    return {key: array.numpy() for key, array in record.items()}


def record_of(arrays: Arrays) -> ArrayRecord:
    """Return named arrays as Flower sends them."""
    return ArrayRecord({key: Array(np.asarray(array)) for key, array in arrays.items()})
