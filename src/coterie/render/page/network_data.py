"""Where the nodes of a run are: its network rebuilt from its settings, ready to be drawn."""

import hashlib
import json
from dataclasses import replace

import numpy as np

from coterie.config.factories import make_network
from coterie.config.files import Stored, make_config
from coterie.config.settings import Config
from coterie.core.arrays import Ints
from coterie.core.errors import CoterieError
from coterie.core.types import Json
from coterie.partition.measure import pooled, relative_shares
from coterie.render.page.network import layout
from coterie.runs.record import RecordedRun
from coterie.topology import Topology

MOST_NODES = 500  # drawn one by one
MOST_LINKS = 6000
MOST_GROUPS, MOST_CLASSES, MOST_EDGES = 40, 100, 60  # rows and columns of a heat map
MOST_HELD = 12  # classes named for a node
NOT_DRAWN = ("routing", "clock", "tcp", "time_limit_s", "procedure", "combine")


def network_of(run: RecordedRun) -> Json:
    """Describe a run's network and who holds what in it, or say why it cannot be rebuilt."""
    try:
        net, kind = _rebuilt(run)
    except CoterieError as error:
        return {"problem": f"the network could not be rebuilt: {error}"}
    except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
        return {"problem": f"the network could not be rebuilt from these files ({error})"}
    n = net.n_devices
    file = run.config["network"].get("file")
    facts = {
        "kind": kind,
        "nodes": n,
        "switches": net.n_switches,
        "n_links": n + len(net.links),
        "seed": run.config["seed"],
        "file": file if kind in ("file", "matrix") else None,
    }
    return {**facts, "large": True} if n > MOST_NODES else {**facts, **_drawn(run, net, kind)}


def _rebuilt(run: RecordedRun) -> tuple[Topology, str]:
    config = _drawn_config(run)
    grouping = run.grouping
    edge_of = np.array(grouping["edge_of"], dtype=np.int64)
    names = tuple(grouping.get("nodes", ()))
    net = make_network(config, edge_of, names, config.algorithm.made).topology
    servers = grouping["servers"]
    if net.n_devices != len(grouping["z"]) or not all(0 <= s < net.n_vertices for s in servers):
        raise CoterieError(
            f"it has {net.n_devices} devices now and the run had {len(grouping['z'])} nodes"
        )
    return net, config.network.topology


def _drawn_config(run: RecordedRun) -> Config:
    """Return the settings that a network is made of; no algorithm has a part in that.

    So the network of a run by somebody's own algorithm is rebuilt without calling it, or what
    else its settings name: a function is never called because a folder says so.
    """
    told = {"seed": run.config["seed"], "network": run.config["network"]}
    config = make_config(Stored(told))
    return replace(config, network=replace(config.network, clock="flow"))


def _drawn(run: RecordedRun, net: Topology, kind: str) -> Json:
    """Places in the unit square (y down), links by tier, and the nodes one by one."""
    n = net.n_devices
    at = layout(kind, net)
    low, span = at.min(axis=0), np.ptp(at, axis=0)
    at = (at - low) / np.where(span > 0, span, 1.0) + np.where(span > 0, 0.0, 0.5)
    at[:, 1] = 1 - at[:, 1]
    counts = np.array(run.grouping["class_counts"])
    ends, tiers = net.ends, np.array(net.tier_of)
    shown = ends if len(ends) <= MOST_LINKS else ends[:n]
    of_tier = tiers[: len(shown)]
    given = run.grouping.get("nodes", ())
    named = given if len(given) == n else [net.name(i) for i in range(n)]
    return {
        "at": np.round(at, 4).tolist(),
        "links": {str(tier): shown[of_tier == tier].tolist() for tier in np.unique(tiers)},
        "links_left_out": len(ends) - len(shown),
        "names": [*map(str, named), *(net.name(v) for v in range(n, net.n_vertices))],
        "examples": counts.sum(axis=1).tolist(),
        "held": [_held(row) for row in counts],
        "square": not kind.endswith("fat-tree"),
    }


def _held(counts: Ints) -> list[list[int]]:
    """Classes of a node with their examples, most first; then how many more there are as [n]."""
    order = [int(c) for c in np.argsort(-counts, kind="stable") if counts[c] > 0]
    held = [[c, int(counts[c])] for c in order[:MOST_HELD]]
    return held + ([[len(order) - MOST_HELD]] if len(order) > MOST_HELD else [])


def groups_of(run: RecordedRun) -> Json | None:
    """Describe the groups: sizes, classes as share over share in the whole, edges by group.

    Where there are many, the largest groups and the most frequent classes are kept.
    """
    z = np.array(run.grouping["z"])
    counts = np.array(run.grouping["class_counts"])
    if z.max() == 0 or not counts.sum():
        return None
    by_group = pooled(counts, z)
    sizes = np.bincount(z, minlength=len(by_group))
    ratio = relative_shares(by_group)
    rows = _most(sizes, MOST_GROUPS)
    columns = _most(counts.sum(axis=0), MOST_CLASSES)
    edge_of = run.grouping.get("edge_of")
    return {
        "seed": run.config["seed"],
        "rows": rows,
        "columns": columns,
        "of_rows": len(sizes),
        "of_columns": counts.shape[1],
        "ratio": np.round(ratio[np.ix_(rows, columns)], 3).tolist(),
        "counts": by_group[np.ix_(rows, columns)].tolist(),
        "sizes": sizes.tolist() if len(sizes) <= MOST_NODES else sizes[rows].tolist(),
        "edges": _edges(run, z, np.array(edge_of), rows) if edge_of else None,
    }


def _edges(run: RecordedRun, z: Ints, edge_of: Ints, rows: list[int]) -> Json:
    """Count the nodes of every edge in every group."""
    table = np.zeros((int(edge_of.max()) + 1, int(z.max()) + 1), dtype=np.int64)
    np.add.at(table, (edge_of, z), 1)
    kept = _most(table.sum(axis=1), MOST_EDGES)
    names = run.grouping.get("edges") or [f"edge {e}" for e in range(len(table))]
    shown = table[np.ix_(kept, rows)].tolist()
    return {"names": [str(names[e]) for e in kept], "nodes": shown, "of_rows": len(table)}


def _most(values: Ints, most: int) -> list[int]:
    """Numbers of the largest, in their own order."""
    return sorted(int(at) for at in np.argsort(-values, kind="stable")[:most])


def key_of(run: RecordedRun) -> bytes:
    """Return what tells networks and who holds what in them apart, so that each is made once."""
    told = {k: v for k, v in run.config["network"].items() if k not in NOT_DRAWN}
    held = [run.grouping.get(key) for key in ("edge_of", "nodes", "class_counts")]
    told_apart = json.dumps([told, run.config["seed"], held], sort_keys=True)
    return hashlib.sha256(told_apart.encode()).digest()
