"""Who trains with whom, decided on what the nodes showed: the simulator's planner, unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from coterie.algorithms import Search
from coterie.flower import FlowerError
from coterie.flower.crew import LABEL_COUNTS, NUM_EXAMPLES, SKETCH, Answer
from coterie.flower.network import network_of
from coterie.flower.roll import Roster
from coterie.grouping import NO_LIMITS, Delays, Evidence, Limits, check_grouping
from coterie.grouping.baselines import single
from coterie.grouping.limits import broken, check_limits
from coterie.network import Network
from coterie.planfile import Plan, check_nodes
from coterie.problem import PLAN_STREAM
from coterie.sketch import centred
from coterie.topology import Ints

Shown = Literal["labels", "sketch"]


@dataclass(frozen=True, eq=False)
class Groups:
    """Names of the nodes of each group, and the name of its server."""

    members: tuple[tuple[str, ...], ...]
    servers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Planning:
    """How groups are found: how many, by which search, on which evidence and network."""

    num_groups: int
    tau2: int
    evidence: Shown = "labels"
    search: Search = field(default_factory=Search)
    network: Network | Path | str | None = None
    limits: Limits = NO_LIMITS
    seed: int = 0
    sketch_size: int = 256


def by_plan(plan: Plan, roster: Roster) -> Groups:
    """Take the groups of a plan file, whose nodes must all be connected, and no others."""
    check_nodes(plan, roster.names, "the connected SuperNodes")
    members = [tuple(node.node for node in plan.members(k)) for k in range(len(plan.servers))]
    return Groups(tuple(members), plan.servers)


def find_groups(
    planning: Planning, roster: Roster, sketches: Mapping[str, Answer], nbytes: int
) -> Groups:
    """Plan on the nodes' label counts, or on their sketches, as a simulated run does."""
    network, names = network_of(planning.network, roster)
    sizes = np.array([float(roster.answers[name].metrics[NUM_EXAMPLES]) for name in names])
    p, n = sizes / sizes.sum(), len(names)
    top = network.topology
    if not 1 <= planning.num_groups <= n:
        raise FlowerError(f"{planning.num_groups} groups need as many nodes, and there are {n}")
    check_limits(planning.limits, top, planning.num_groups)
    z, servers = _everyone(p, network)
    delays = Delays(network, nbytes, planning.tau2, network.aggregation(z, servers, nbytes).seconds)
    labels = sketch = None
    if planning.evidence == "labels":
        labels = _rows(names, roster.answers, LABEL_COUNTS).astype(np.int64)
    else:
        sketch = centred(_rows(names, sketches, SKETCH), p)
    shown = Evidence(
        planning.num_groups,
        p,
        network.edge_of,
        top,
        label_counts=labels,
        sketch=sketch,
        delays=delays,
        limits=planning.limits,
    )
    rng = np.random.default_rng([planning.seed, 0, PLAN_STREAM])
    found = check_grouping(planning.search.planner()(shown, rng), n, shown.places)
    if beyond := broken(shown, found):
        raise FlowerError(f"the planner's groups do not keep to {beyond}")
    members = [
        tuple(names[i] for i in np.flatnonzero(found.z == k)) for k in range(len(found.servers))
    ]
    called = [names[s] if s < n else top.name(int(s)) for s in found.servers]
    return Groups(tuple(members), tuple(called))


def _everyone(p: np.ndarray, network: Network) -> tuple[Ints, Ints]:
    bare = Evidence(1, p, network.edge_of, network.topology)
    whole = single(bare, np.random.default_rng(0))
    return whole.z, whole.servers


def _rows(names: list[str], answers: Mapping[str, Answer], key: str) -> np.ndarray:
    """Stack what the nodes showed [n, r]; name the first whose is not like the others'."""
    rows: list[np.ndarray] = []
    for name in names:
        value = answers[name].metrics.get(key) if name in answers else None
        row = np.array(value if isinstance(value, list) else [], dtype=np.float64)
        if not len(row) or not np.isfinite(row).all() or (rows and len(row) != len(rows[0])):
            length = f" of length {len(rows[0])}" if rows else ""
            raise FlowerError(
                f"node {name!r} must show {key}, a list of numbers{length}, got {str(value)[:60]}"
            )
        if key == LABEL_COUNTS and (row.min() < 0 or (row != np.floor(row)).any()):
            raise FlowerError(f"node {name!r}: {key} must be whole numbers from 0, got {value}")
        rows.append(row)
    return np.stack(rows)
