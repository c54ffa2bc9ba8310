"""The roll call: which connected node has which name, and what it showed of its data."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.flower import FlowerError
from coterie.flower.means import last_line, wrong
from coterie.flower.messages import EVIDENCE, NODE, Answer, Crew, Request

log = logging.getLogger("coterie.flower")


@dataclass(frozen=True, eq=False)
class Roster:
    """Nodes by name: the number that Flower gave each, and its last answer to a roll call."""

    ids: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    left_out: frozenset[int] = frozenset()  # numbers of nodes that gave no usable name
    replaced: Mapping[int, str] = field(default_factory=dict)  # by newer ones of that name

    @property
    def names(self) -> list[str]:
        """Names in order: as numbers if all are, else as text."""
        return in_order(list(self.ids))

    def only(self, names: Sequence[str]) -> "Roster":
        """Return the roster of some of the nodes."""
        there = [name for name in names if name in self.ids]
        return Roster(
            {name: self.ids[name] for name in there}, {name: self.answers[name] for name in there}
        )


def in_order(names: Sequence[str]) -> list[str]:
    """Sort names as numbers if all are, else as text.

    >>> in_order(["10", "9"]), in_order(["n10", "n9"])
    (['9', '10'], ['n10', 'n9'])
    """
    numeric = all(name.isascii() and name.isdigit() for name in names)
    return sorted(names, key=(lambda name: (int(name[:4000]), name)) if numeric else None)


def wait_for(
    crew: Crew,
    least: int,
    wait_s: float,
    poll_s: float = 1.0,
    way_out: str = "raise wait_s, or lower min_nodes",
) -> None:
    """Wait until so many nodes are connected, or say that they are not."""
    deadline = time.monotonic() + wait_s
    while (there := len(crew.nodes())) < least:
        if time.monotonic() > deadline:
            raise FlowerError(
                f"{there} of {least} nodes connected within {wait_s:g} s; start the others, or "
                f"{way_out}"
            )
        time.sleep(poll_s)


def roll_call(
    crew: Crew,
    known: Roster,
    evidence: str,
    timeout_s: float,
    config: Mapping[str, Any],
    *,
    again: bool = True,
) -> Roster:
    """Ask the nodes that are not known yet who they are; forget those that have left.

    With `again`, nodes that were left out before are asked once more. Two nodes with one name are
    an error at the start; later on that is a node that was restarted, and the newer one counts, as
    long as it is connected.
    """
    connected = set(crew.nodes())
    ids = {name: i for name, i in known.ids.items() if i in connected}
    left_out = set[int]() if again else set(known.left_out)
    replaced = {i: name for i, name in known.replaced.items() if i in connected and name in ids}
    unknown = sorted(connected - set(ids.values()) - left_out - set(replaced))
    asked = {i: Request(None, {**config, EVIDENCE: evidence}) for i in unknown}
    found = crew.ask("query", asked, timeout_s) if asked else []
    answers = dict(known.answers)
    for answer in sorted(found, key=lambda a: a.node_id):
        name = _name(answer)
        if name is None:
            left_out.add(answer.node_id)
            continue
        if name in ids:
            if not known.ids:
                raise FlowerError(
                    f"two nodes have the id {name!r} (Flower's numbers {ids[name]} and "
                    f"{answer.node_id}); give every SuperNode its own node-id in --node-config"
                )
            log.warning("node %r was restarted: the newer one of that id counts", name)
            replaced[ids[name]] = name
        ids[name], answers[name] = answer.node_id, answer
    for i in set(unknown) - {answer.node_id for answer in found}:
        log.warning("node number %d is left out: it did not say who it is", i)
        left_out.add(i)
    if not ids and connected:
        why = next((_fault(answer) for answer in found), "no answer within the time limit")
        raise FlowerError(f"none of {len(connected)} nodes said who it is: {why}")
    return Roster(ids, {name: answers[name] for name in ids}, frozenset(left_out), replaced)


def _name(answer: Answer) -> str | None:
    """Return the name that a node gave, or None and a line in the log if it gave no usable one."""
    fault = _fault(answer)
    if fault:
        log.warning("node number %d is left out: %s", answer.node_id, fault)
        return None
    return str(answer.config[NODE])


def _fault(answer: Answer) -> str:
    """Say why an answer names no node; empty if it does."""
    fault = last_line(answer.error) if answer.error else wrong(answer, None)
    name = answer.config.get(NODE)
    if not fault and not (isinstance(name, str) and name.strip() and name.isprintable()):
        fault = f"its {NODE} must be a name, got {name!r}"
    return fault
