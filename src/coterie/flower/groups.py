"""Who trains with whom, decided on what the nodes showed: the simulator's planner, unchanged."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from coterie.divergences.sketch import centred
from coterie.flower import FlowerError
from coterie.flower.means import Dropped
from coterie.flower.messages import LABEL_COUNTS, NUM_EXAMPLES, SKETCH, Answer
from coterie.flower.network import MEASURED, network_of
from coterie.flower.roster import Roster
from coterie.grouping import NO_LIMITS, Limits
from coterie.grouping.limits import check_limits
from coterie.network import Network
from coterie.preview.planfile import Plan, check_nodes
from coterie.simulation.fleet import Fleet
from coterie.simulation.planning import asked
from coterie.simulation.search import Search

log = logging.getLogger("coterie.flower")
Shown = Literal["labels", "sketch"]
MOST = 2.0**53  # beyond this a count is not exact, and a sketch is of a model that diverged


@dataclass(frozen=True, eq=False)
class Groups:
    """Names of the nodes of each group, and the name of its server."""

    members: tuple[tuple[str, ...], ...]
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Planning:
    """How groups are found: how many, by which search, on which evidence and network."""

    num_groups: int
    evidence: Shown = "labels"
    search: Search = field(default_factory=Search)
    network: Network | Path | str | None = None
    limits: Limits = NO_LIMITS
    seed: int = 0
    sketch_size: int = 256


def about_planning(planning: Planning) -> dict[str, Any]:
    """Return all that groups depend on but the nodes, as JSON has it."""
    c, network = planning, planning.network
    if isinstance(network, Path | str) and network != MEASURED:
        try:
            network = f"file {digest(Path(network).read_bytes())}"
        except OSError as error:
            raise FlowerError(f"{network}: cannot be read ({error.strerror})") from error
    return {
        "num_groups": c.num_groups,
        "evidence": c.evidence,
        "sketch_size": c.sketch_size,
        "seed": c.seed,
        "grouping": c.search.method,
        "alpha_iid": c.search.alpha_iid,
        "alpha_comm": c.search.alpha_comm,
        "network": digest(network) if isinstance(network, Network) else network,
        "limits": digest(c.limits),
    }


def digest(value: object) -> str:
    """Name a value of dataclasses, arrays and plain values: the same name for the same value.

    >>> digest(NO_LIMITS) == digest(Limits()), digest(NO_LIMITS) == digest(Limits(min_size=2))
    (True, False)
    """
    found = hashlib.sha256()
    for part in _parts(value):
        found.update(part + b"\0")
    return found.hexdigest()[:16]


def _parts(value: object) -> Iterator[bytes]:
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode() + value.tobytes()
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield item.name.encode()
            yield from _parts(getattr(value, item.name))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _parts(item)
    elif callable(value):  # whose repr would be an address
        yield str(getattr(value, "__qualname__", type(value).__qualname__)).encode()
    else:
        yield repr(value).encode()


def by_plan(plan: Plan, roster: Roster) -> Groups:
    """Take the groups of a plan file, whose nodes must all be connected, and no others."""
    check_nodes(plan, roster.names, "the connected SuperNodes")
    members = [tuple(node.node for node in plan.members(k)) for k in range(len(plan.servers))]
    return Groups(tuple(members), plan.servers)


def find_groups(
    planning: Planning, tau2: int, roster: Roster, sketches: Mapping[str, Answer], nbytes: int
) -> tuple[Groups, list[Dropped]]:
    """Plan on the nodes' label counts, or on their sketches, as a simulated run does.

    A node that shows something else is left out and named; the others are planned.
    """
    by_labels = planning.evidence == "labels"
    key, answers = (LABEL_COUNTS, roster.answers) if by_labels else (SKETCH, sketches)
    shown_by = [name for name in roster.names if name in answers]
    rows, left_out = usable(shown_by, answers, key, None if by_labels else planning.sketch_size)
    network, names = network_of(planning.network, roster.only(list(rows)), roster.names)
    sizes = np.array([float(roster.answers[name].metrics[NUM_EXAMPLES]) for name in names])
    p, n = sizes / sizes.sum(), len(names)
    top = network.topology
    if not 1 <= planning.num_groups <= n:
        raise FlowerError(f"{planning.num_groups} groups need as many nodes, and there are {n}")
    check_limits(planning.limits, top, planning.num_groups)
    table = np.stack([rows[name] for name in names])  # [n, r]
    counts = table.astype(np.int64) if by_labels else np.zeros((n, 0), dtype=np.int64)
    fleet = Fleet(p, network.edge_of, network, counts, tuple(names))
    global_s = fleet.averaging(fleet.together(nbytes), nbytes).transfer.seconds
    bare = fleet.evidence(planning.num_groups, tau2, nbytes, global_s)
    data = {"label_counts": counts} if by_labels else {"sketch": centred(table, p)}
    shown = replace(bare, limits=planning.limits, **data)
    found = asked(planning.search.planner(), shown, planning.seed)
    members = [
        tuple(names[i] for i in np.flatnonzero(found.z == k)) for k in range(len(found.servers))
    ]
    called = [names[s] if s < n else top.name(int(s)) for s in found.servers]
    return Groups(tuple(members), tuple(called)), left_out


def usable(
    names: Sequence[str], answers: Mapping[str, Answer], key: str, length: int | None
) -> tuple[dict[str, np.ndarray], list[Dropped]]:
    """Return what each node showed [r], and the nodes whose cannot be used.

    Without `length` it is the one that most have.
    """
    values = {name: answers[name].metrics.get(key) for name in names}
    rows = {name: row for name in values if (row := _row(values[name], key)) is not None}
    if length is None and rows:
        length = Counter(len(row) for row in rows.values()).most_common(1)[0][0]
    fit = {name: row for name, row in rows.items() if len(row) == length}
    whole = "whole numbers from 0" if key == LABEL_COUNTS else "finite numbers"
    said = f"{key} must be a list of {length or 'some'} {whole}, got "
    dropped = [
        Dropped(name, "rejected", said + str(values[name])[:60])
        for name in names
        if name not in fit
    ]
    for node in dropped:
        log.warning("node %r is left out of the groups: %s", node.node, node.reason)
    if not fit:
        why = dropped[0].reason if dropped else "there is none"
        raise FlowerError(f"no node shows what groups are planned on: {why}")
    return fit, dropped


def _row(value: object, key: str) -> np.ndarray | None:
    """Return a list of numbers as an array [r], None if it is not one."""
    if not isinstance(value, list) or not all(isinstance(v, int | float) for v in value):
        return None
    try:
        row = np.array(value, dtype=np.float64)
    except OverflowError:
        return None
    counts = key == LABEL_COUNTS
    fits = len(row) and np.isfinite(row).all() and np.abs(row).max() <= MOST
    if not fits or (counts and (row.min() < 0 or (row != np.floor(row)).any())):
        return None
    return row
