"""Writing a plan: the chosen groups of `coterie plan`, as JSON or CSV."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict

from coterie.core.files import json_bytes
from coterie.preview.plan import PlanView
from coterie.preview.planfile import (
    COLUMNS,
    FORMAT,
    SCHEDULE,
    VERSION,
    Plan,
    PlanError,
    PlannedNode,
    Predicted,
    checked,
)

SUFFIXES = (".json", ".csv")


def plan_of(view: PlanView) -> Plan:
    """Make a plan of the chosen groups, with what the network's and the nodes' clocks predict."""
    fleet, grouping = view.fleet, view.chosen.grouping
    (_, tau1, tau2), n = view.algorithm.usual, fleet.n
    sizes = fleet.class_counts.sum(axis=1)
    each_s = fleet.node_step_s if fleet.node_step_s is not None else np.full(n, fleet.step_s)
    nodes = [
        PlannedNode(view.node_name(i), int(grouping.z[i]), int(sizes[i]), float(each_s[i]))
        for i in range(n)
    ]
    times = Predicted(
        float(each_s.max()),
        view.chosen.group_s,
        view.global_s,
        tau1 * tau2 * view.step_s + view.cycle_s(view.chosen),
    )
    return checked(
        Plan(
            view.title,
            view.chosen.name,
            tau1,
            tau2,
            view.steps,
            view.model_bytes,
            view.chosen.Delta,
            times,
            tuple(view.node_name(int(server)) for server in grouping.servers),
            tuple(nodes),
        ),
        "the plan",
    )


def check_suffix(path: Path) -> None:
    """Refuse a name from which the kind of file cannot be told."""
    if path.suffix not in SUFFIXES:
        raise PlanError(f"--export must end in .json or .csv, got {str(path)!r}")


def contents(plan: Plan, suffix: str) -> bytes:
    """Write a plan as the file of that suffix has it."""
    if suffix == ".csv":
        return _rows(plan).encode()
    return json_bytes(as_json(plan))


def as_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as the schema has it."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": plan.title,
        "found_by": plan.found_by,
        "model_bytes": plan.model_bytes,
        "Delta": plan.Delta,
        "schedule": {key: getattr(plan, key) for key in SCHEDULE},
        "predicted": asdict(plan.predicted),
        "groups": [{"group": k, "server": server} for k, server in enumerate(plan.servers)],
        "nodes": [asdict(node) for node in plan.nodes],
    }


def _rows(plan: Plan) -> str:
    keys = (*SCHEDULE, "model_bytes", "Delta")
    shared = {**asdict(plan.predicted), **{key: getattr(plan, key) for key in keys}}
    text = io.StringIO()
    rows = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    rows.writeheader()
    for node in plan.nodes:
        server = plan.servers[node.group]
        rows.writerow({"version": VERSION, **shared, **asdict(node), "server": server})
    return text.getvalue()
