"""The figures of costs and clocks: what the paper says of each, and what was measured."""

from collections.abc import Callable

import numpy as np

from coterie.paper.runs import (
    CLOCKS,
    FEDAVG,
    HIERFAVG,
    OURS,
    THEIRS,
    Runs,
    Times,
    accuracy,
    spoken,
    targets,
    times,
)
from coterie.paper.tables import Table, figure, holds, percent, seconds, times_faster
from coterie.runs.record import RecordedRun
from coterie.runs.retime import problem_of

Cost = tuple[float, float]
COSTS = ("Delta", "hops", "d_group ms")


def costs(runs: Runs) -> list[Table]:
    """Cost analysis: FedAvg-IC has less divergence and less distance, on a front of its own."""
    some = runs.level("algorithm.alpha_comm")
    found = Table(
        "What groups cost",
        ("grouping", "alpha_comm", "n", "groups", *COSTS, "less than edges", "on the front"),
        foot="Delta after two steps, for all groupings alike; hops: mean distance of a node to its "
        "group's server; d_group: honest seconds of a group mean. The paper: FedAvg-IC's "
        "groups cost less in both Delta and hops than HierFAVG's (the network's edges), and form a "
        f"front, on which HierFAVG is not. {spoken(runs)}",
    )
    parts = [
        (name, weight, part)
        for name in some.labels
        for weight, part in some.of(name).each("algorithm.alpha_comm")
    ]
    spent = [_spent(part) for _, _, part in parts]
    edges = next(
        (c for c, (name, _, _) in zip(spent, parts, strict=True) if name == HIERFAVG), None
    )
    for (name, weight, part), cost in zip(parts, spent, strict=True):
        groups = ", ".join(
            f"{k}" for k in sorted({len(r.summary["group_sizes"]) for r in part.members})
        )
        told = f"{weight:g}" if name != HIERFAVG else ""
        cells = [figure(part.average(what)) for what in (_divergence, mean_hops)]
        cells += [figure(part.average(_group_s), 1e3)]
        row = [name, told, f"{len(part.members)}", groups, *cells]
        found.rows.append([*row, _less(name, cost, edges), _front(name, cost, spent)])
    return [found]


def _less(name: str, cost: Cost, edges: Cost | None) -> str:
    """Judge whether a grouping of FedAvg-IC costs less than the edges, in both."""
    if not name.startswith(OURS):
        return ""
    if edges is None:
        return holds(None)
    more = [what for what, a, b in zip(COSTS[:2], cost, edges, strict=True) if a >= b]
    return holds(not more, f"not in {' and '.join(more)}")


def _front(name: str, cost: Cost, every: list[Cost]) -> str:
    """Judge whether nothing costs less in both, of FedAvg-IC; and that something does, of edges."""
    beaten = any(other != cost and other[0] <= cost[0] and other[1] <= cost[1] for other in every)
    if name == HIERFAVG:
        return holds(beaten, "it is on it")
    return holds(not beaten, "it is not") if name.startswith(OURS) else ("no" if beaten else "yes")


def _spent(runs: Runs) -> Cost:
    Delta, hops = runs.average(_divergence), runs.average(mean_hops)
    return (Delta.value if Delta else np.inf, hops.value if hops else np.inf)


def combined(runs: Runs) -> list[Table]:
    """Combined aggregation: transfers take less time, global ones above all."""
    level = runs.level("network.combine")
    found = Table(
        "Seconds of a mean with and without combined aggregation",
        ("algorithm", "n", "mean", "none", "all", "drop", "verdict"),
        foot="The paper: FedAvg-IC's drop, the global mean's above all. Honest transfers: what "
        f"goes to the combining node under an edge is charged. {spoken(runs)}",
    )
    for name in level.labels:
        drops = {}
        for what in ("group", "global"):
            none, every = (
                level.of(name).where(network__combine=how).average(_told(f"d_{what}"))
                for how in ("none", "all")
            )
            if none is None or every is None:
                continue
            drops[what] = drop = 1 - every.value / none.value
            cells = [figure(none), figure(every), f"{drop:.0%}"]
            judged = holds(drop > 0.01, _change(drop)) if name == THEIRS else ""
            if name == THEIRS and what == "global" and drop <= drops.get("group", drop - 1):
                judged = holds(False, "the group mean's drops more")
            found.rows.append([name, f"{every.seeds}", what, *cells, judged])
    return [found]


def speeds(runs: Runs) -> list[Table]:
    """Links, processors and topology: faster ones reach FedAvg's accuracy sooner."""
    level = runs.level("network.topology")
    tables = []
    claims = Table(
        "What the paper says of links, processors and topologies",
        ("claim", *CLOCKS),
        foot="Of FedAvg-IC grouped as the authors do, wherever both get there; by the seconds to "
        "FedAvg's final accuracy.",
    )
    took = {}
    for clock in CLOCKS:
        table, took[clock] = _speeds(level, clock)
        tables.append(table)
    for claim, faster, slower in _CLAIMS:
        claims.rows.append([claim, *(_sooner(took[c], faster, slower) for c in CLOCKS)])
    return [*tables, claims]


Where = tuple[str, int, int]  # topology, MByte/s, GFLOPS
_TREE = [("fat-tree", link, gflops) for link in (10, 100) for gflops in (5, 250)]
_CLAIMS: list[tuple[str, Callable[[Where], Where], Callable[[Where], Where]]] = [
    ("100 MByte/s are faster than 10", lambda w: (w[0], 100, w[2]), lambda w: (w[0], 10, w[2])),
    ("250 GFLOPS are faster than 5", lambda w: (w[0], w[1], 250), lambda w: (w[0], w[1], 5)),
    ("the jellyfish is faster", lambda w: ("jellyfish", w[1], w[2]), lambda w: w),
]


def _speeds(runs: Runs, clock: str) -> tuple[Table, dict[Where, Times]]:
    found = Table(
        f"Seconds to FedAvg's final accuracy by links, processors and topology, {clock}",
        ("topology", "MByte/s", "GFLOPS", "n", *runs.labels, "FedAvg-IC's speed-up"),
        foot="The speed-up is with our planner ('fedavg-ic'), its groups planned for 100 MByte/s. "
        f"{spoken(runs)}",
    )
    took: dict[Where, Times] = {}
    for topology, some in runs.each("network.topology"):
        wanted = targets(some)
        for _, link, gflops in _TREE:
            changes = f"network.link_mbytes_per_s={link}", f"compute.gflops={gflops}"
            timed = CLOCKS[clock](some, *changes)
            each = {name: times(timed, name, wanted) for name in runs.labels}
            took[topology, link, gflops] = each.get(THEIRS, Times({}))
            base = each.get(FEDAVG, Times({})).reached
            told = times_faster(each.get(OURS, Times({})).over(base))
            where = [f"{topology}", f"{link}", f"{gflops}", f"{len(wanted)}"]
            found.rows.append([*where, *map(seconds, each.values()), told])
    return found, took


def _sooner(
    took: dict[Where, Times], faster: Callable[[Where], Where], slower: Callable[[Where], Where]
) -> str:
    """Judge a claim wherever both sides were run and got there."""
    places = dict.fromkeys((faster(where), slower(where)) for where in _TREE)
    known = [
        (a, (took[a].mean or 0) < (took[b].mean or 0))
        for a, b in places
        if a in took and b in took and took[a].mean is not None and took[b].mean is not None
    ]
    wrong = [f"{a[1]} MByte/s, {a[2]} GFLOPS" for a, right in known if not right]
    return holds(not wrong if known else None, f"not with {'; '.join(wrong)}")


def group_counts(runs: Runs) -> list[Table]:
    """How many groups; the paper prints no figures."""
    base = runs.of(FEDAVG, HIERFAVG)
    parts = [("", base.of(name)) for name in base.labels]
    searched = runs.of(*(name for name in runs.labels if name not in base.labels))
    parts += [(f"{value}", some) for value, some in searched.each("algorithm.num_groups")]
    found = _counts("groups", runs)
    for told, some in parts:
        found.rows.extend(_count(told, some, base))
    return [found]


def node_counts(runs: Runs) -> list[Table]:
    """How many nodes; the paper prints no figures."""
    found = _counts("nodes", runs)
    for value, every in runs.each("partition.num_nodes"):
        some = every.level()
        found.rows.extend(_count(f"{value}", some, some))
    return [found]


def _counts(what: str, runs: Runs) -> Table:
    return Table(
        "Accuracy and seconds to FedAvg's final accuracy, honest",
        (what, "algorithm", "n", "accuracy %", "s to target", "speed-up", "Delta"),
        foot=f"The paper prints no figures for these. Delta at the end. {spoken(runs)}",
    )


def _count(told: str, some: Runs, base: Runs) -> list[list[str]]:
    rows = []
    for name in some.labels:
        took = times(some, name, targets(base))
        faster = took.over(times(base, FEDAVG, targets(base)).reached)
        members = some.of(name)
        cells = [percent(members.average(accuracy)), seconds(took), times_faster(faster)]
        Delta = members.average(_divergence) if name != FEDAVG else None
        rows.append([told, name, f"{len(members.members)}", *cells, figure(Delta)])
    return rows


def mean_hops(run: RecordedRun) -> float:
    """Mean distance of a node to the server of its group."""
    z, servers = (np.array(run.grouping[key], dtype=np.int64) for key in ("z", "servers"))
    topology = problem_of(run).fleet.network.topology
    hops = topology.between(servers, np.arange(len(z)))
    return float(hops[z, np.arange(len(z))].mean())


def _change(drop: float) -> str:
    return "it takes longer" if drop < -0.01 else "it takes as long"


def _told(key: str) -> Callable[[RecordedRun], float | None]:
    def told(run: RecordedRun) -> float | None:
        found = run.summary[key]
        return None if found is None else float(found)

    return told


_divergence, _group_s = _told("Delta"), _told("d_group")
