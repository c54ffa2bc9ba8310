"""A plan as a file: who trains with whom, under which server, when, and how long it should take.

JSON by `plan-1.schema.json` beside this module, or CSV with a row for every node
(docs/reference/plan-file.md).
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from coterie.core.errors import CoterieError, short

VERSION = 1
FORMAT = "coterie-plan"
SCHEMA = Path(__file__).parent / f"plan-{VERSION}.schema.json"
SCHEDULE = ("tau1", "tau2", "steps")
NODE = ("node", "group", "examples", "step_s")
SHARED = (*SCHEDULE, "model_bytes", "Delta", "group_s", "global_s", "round_s")
COLUMNS = ("version", *NODE, "server", *SHARED)  # of a CSV
MOST = 2**53  # beyond this a whole number is not exact in every program that reads JSON
LONGEST_NAME = 255  # characters: names go into the commands of processes
Least0 = Annotated[int, Meta(ge=0, le=MOST)]
Least1 = Annotated[int, Meta(ge=1, le=MOST)]
Amount = Annotated[float, Meta(ge=0, le=sys.float_info.max)]


class PlanError(CoterieError):
    """A plan file that cannot be read, or is not for these nodes."""


class PlannedNode(Struct, frozen=True, forbid_unknown_fields=True):
    """A node: its group, its examples, and the seconds that one local step should take it."""

    node: str
    group: Least0
    examples: Least1
    step_s: Amount


class Predicted(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of the slowest node's step, a group mean, a global mean, and a global round.

    A global round is tau1 * tau2 local steps, tau2 - 1 group means and a global one.
    """

    step_s: Amount
    group_s: Amount
    global_s: Amount
    round_s: Amount


class _Schedule(Struct, frozen=True, forbid_unknown_fields=True):
    tau1: Least1
    tau2: Least1
    steps: Least1


class _Group(Struct, frozen=True, forbid_unknown_fields=True):
    group: Least0
    server: str


class PlanFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A plan as JSON has it."""

    format: str
    version: int
    title: str
    found_by: str
    model_bytes: Least1
    Delta: Amount
    schedule: _Schedule
    predicted: Predicted
    groups: Annotated[list[_Group], Meta(min_length=1)]
    nodes: Annotated[list[PlannedNode], Meta(min_length=1)]


@dataclass(frozen=True)
class Plan:
    """Groups 0..K-1 with their servers, nodes with their groups, the schedule, and predictions."""

    title: str
    found_by: str
    tau1: int
    tau2: int
    steps: int
    model_bytes: int
    Delta: float
    predicted: Predicted
    servers: tuple[str, ...]  # of each group
    nodes: tuple[PlannedNode, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All nodes, in their order."""
        return tuple(node.node for node in self.nodes)

    def members(self, group: int) -> list[PlannedNode]:
        """Nodes of a group, in their order."""
        return [node for node in self.nodes if node.group == group]


def checked(plan: Plan, where: str) -> Plan:
    """Return a plan whose parts fit together, or say in one line what does not."""
    for i, node in enumerate(plan.nodes):
        _check_name(node.node, f"{where}: nodes[{i}].node")
    for k, server in enumerate(plan.servers):
        _check_name(server, f"{where}: groups[{k}].server")
    names: set[str] = set()
    for node in plan.nodes:
        if node.node in names:
            raise PlanError(f"{where}: node {node.node!r} is there twice; every node needs one id")
        names.add(node.node)
        if not node.group < len(plan.servers):
            raise PlanError(
                f"{where}: node {node.node!r} is in group {node.group}, and there are "
                f"{len(plan.servers)}, counted from 0"
            )
    groups = {node.node: node.group for node in plan.nodes}
    used = set(groups.values())
    for k, server in enumerate(plan.servers):
        if k not in used:
            raise PlanError(f"{where}: group {k} has no node; number the groups that have some")
        home = groups.get(server, k)
        if home != k:
            raise PlanError(
                f"{where}: group {k} has the server {server!r}, which is a node of group {home}"
            )
    return plan


def _check_name(name: str, where: str) -> None:
    """Refuse what cannot be a name everywhere: on a terminal, in a file and in a command."""
    if not (name.strip() and name.isprintable() and len(name) <= LONGEST_NAME):
        rule = f"must be a name of 1 to {LONGEST_NAME} printable letters"
        raise PlanError(f"{where} {rule}, got {short(name)}")


def check_nodes(plan: Plan, names: list[str], where: str) -> None:
    """Refuse nodes that a plan does not know, and a plan whose nodes are not all there."""
    known, here = set(plan.names), set(names)
    for name in names:
        if name not in known:
            raise PlanError(f"{where}: node {name!r} is not in the plan; plan again with it")
    missing = [name for name in plan.names if name not in here]
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise PlanError(f"{where}: node {missing[0]!r} of the plan is missing{more}")
