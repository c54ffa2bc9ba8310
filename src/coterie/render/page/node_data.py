"""How the nodes of a line fare: the spread of their accuracies, and where they are."""

from collections.abc import Sequence

import numpy as np

from coterie.core.arrays import Floats
from coterie.core.errors import RecordError
from coterie.core.types import Json
from coterie.render.page.network_data import MOST_EDGES, MOST_NODES
from coterie.runs.node_scores import accuracies, last_scores, read_table
from coterie.runs.record import RecordedRun
from coterie.simulation.measuring import worst_of

BINS = 20  # of the accuracies from 0 to 1


def nodes_of(runs: Sequence[RecordedRun]) -> Json | None:
    """Describe the nodes of a line at the last step that they were scored; None if they were not.

    The spread is over the nodes of all seeds, and the map is of the first seed.
    """
    try:
        tables = [table for run in runs if (table := read_table(run.folder)) is not None]
        first = read_table(runs[0].folder)
        if not tables or first is None:
            return None
        own = _own(runs[0], last_scores(first))
    except RecordError as error:
        return {"problem": str(error)}
    found = np.sort(np.concatenate([accuracies(table) for table in tables]))
    if not len(found):
        return None
    counts, _ = np.histogram(found, bins=BINS, range=(0.0, 1.0))
    few = len(own) <= MOST_NODES
    return {
        "seed": runs[0].config["seed"],
        "seeds": len(tables),
        "t": max(first["t"]),
        "counts": counts.tolist(),
        "of": len(found),
        "mean": _short(found.mean()),
        "sd": _short((found - found[0]).std()),
        "worst": _short(worst_of(found)),
        "own": [None if np.isnan(value) else _short(value) for value in own] if few else None,
        "edges": _edges(runs[0], own),
    }


def _own(run: RecordedRun, scores: dict[str, list[float | None]]) -> Floats:
    """Accuracy of every node [n], nan without test examples."""
    n = len(run.grouping.get("z", ()))
    if sorted(i for i in scores["node"] if i is not None) != list(range(n)):
        raise RecordError(f"{run.folder}: its scores are not of its {n} nodes")
    found = np.empty(n)
    found[np.array(scores["node"], dtype=np.int64)] = [
        np.nan if value is None else value for value in scores["accuracy"]
    ]
    return found


def _edges(run: RecordedRun, own: Floats) -> Json:
    """Mean and least accuracy of the nodes under every edge, of the largest edges."""
    edge_of = np.array(run.grouping.get("edge_of") or [0] * len(own), dtype=np.int64)
    there = np.flatnonzero(~np.isnan(own))
    nodes = np.bincount(edge_of[there], minlength=int(edge_of.max()) + 1)
    names = run.grouping.get("edges") or [f"edge {e}" for e in range(len(nodes))]
    order = np.argsort(-nodes, kind="stable")[:MOST_EDGES]
    kept = sorted(int(e) for e in order if nodes[e])
    of_edge = [own[there[edge_of[there] == e]] for e in kept]
    return {
        "names": [str(names[e]) for e in kept],
        "nodes": [int(nodes[e]) for e in kept],
        "mean": [_short(values.mean()) for values in of_edge],
        "least": [_short(values.min()) for values in of_edge],
        "of": int(np.count_nonzero(nodes)),
    }


def _short(value: float) -> float:
    return round(float(value), 4)
