"""What `coterie plan` says: tables of the methods, the front and the chosen groups, and files."""

import csv
import io
from typing import Any

from coterie.analysis.format import number, sizes
from coterie.core.arrays import Ints
from coterie.preview.plan import PlanView
from coterie.preview.pricing import Point, label
from coterie.render.page.html import Table

MOST_GROUPS = 20  # printed
MOST_EDGES = 6  # named for a group
HEAD = ("Delta", "d_group\nms", "cycle\ns", "cost", "group\nsizes")


def tables(view: PlanView) -> list[Table]:
    """Write all that is said: the methods, the front, the chosen groups."""
    return [_methods(view), _front(view), _groups(view)]


def _methods(view: PlanView) -> Table:
    c = view.algorithm
    title = (
        f"{view.title}\n{view.num_groups} groups, tau2 {c.tau2}, "
        f"d_global {number(view.global_s, 1e3)} ms by {view.global_server}, "
        f"weights {label(*view.weights)}"
    )
    rows = [(*_figures(view, p), number(p.ms), _mark(view, p)) for p in view.methods]
    head = ("method", *HEAD, "planning\nms", "")
    after = "" if view.algorithm.evidence == "labels" else " after one step"
    foot = [
        f"Delta: by {view.seen}{after}; cost: weighted {label(*view.weights)} "
        "(alpha_iid:alpha_comm); front: whatever is faster has a higher Delta"
    ]
    if not view.timed:
        foot.append("times are of transfers; how long a local step takes is not known: 0 s")
    foot += [f"left out: {line}" for line in view.left_out]
    return Table(title, head, rows, "\n".join(foot))


def _figures(view: PlanView, point: Point) -> tuple[str, ...]:
    figures = number(point.Delta), number(point.group_s, 1e3), number(view.cycle_s(point))
    return point.name, *figures, f"{point.cost:.4g}", sizes(point.sizes)


def _mark(view: PlanView, point: Point) -> str:
    marks = ["chosen"] * (point is view.chosen) + ["front"] * point.on_front
    if point.breaks:
        marks.append(f"breaks {point.breaks}")
    return ", ".join(marks)


def _front(view: PlanView) -> Table:
    rows = [(*_figures(view, p), "chosen" * (p is view.chosen)) for p in view.front]
    foot = "a ratio: found by the planner's search with these weights of Delta and of seconds"
    if view.stopped:
        foot += "\nstopped early: this is the best so far"
    return Table("The front", ("found by", *HEAD, ""), rows, foot)


def _groups(view: PlanView) -> Table:
    groups = view.groups
    of = view.fleet.class_counts.shape[1]
    rows = [
        (
            str(k),
            view.node_name(group.server),
            str(len(group.nodes)),
            f"{group.examples:,}",
            f"{group.classes} of {of}",
            f"{group.distance:.2f}",
            _edges(view, group.edges),
        )
        for k, group in enumerate(groups[:MOST_GROUPS])
    ]
    foot = ["EMD: distance of the group's class shares from all nodes', 0 to 2"]
    if len(groups) > MOST_GROUPS:
        foot.insert(0, f"and {len(groups) - MOST_GROUPS} more; --save and --json have all")
    head = ("group", "server", "nodes", "examples", "classes", "EMD", "group's nodes by edge")
    return Table(f"Chosen: {_why(view)}", head, rows, "\n".join(foot))


def _why(view: PlanView) -> str:
    """Say who found the chosen groups, and how that compares with what a run would use."""
    chosen, answer, cheaper, own = view.chosen, view.answer, view.cheaper, view.own
    by = chosen.name if chosen.by_method else f"found with weights {chosen.name}"
    said = f"{by}, the least cost with weights {label(*view.weights)}"
    if chosen is answer:
        said += "; a run uses it too"
    elif answer is not None:
        more = answer.cost / chosen.cost - 1 if chosen.cost else 0.0
        said += f"; a run uses {answer.name}, which costs {more:.2%} more"
    elif not own.made.searched:
        said += f"; a run by {own.name} does not search ({own.made.about})"
    if cheaper is not None:
        said += f"; {cheaper.name} costs less, but makes {len(cheaper.sizes)} groups"
    return said


def _edges(view: PlanView, counts: Ints) -> str:
    """Write how many nodes are from which edges, most first.

    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> view = SimpleNamespace(fleet=SimpleNamespace(edge_names=()))
    >>> _edges(view, np.array([2, 2, 2])), _edges(view, np.array([0, 3, 1, 3]))
    ('2 of each', '3 of 1, 3; 1 of 2')
    """
    if counts.min() == counts.max() and len(counts) > 1:
        return f"{counts[0]} of each"
    names = view.fleet.edge_names
    words = []
    for count in sorted({int(count) for count in counts if count}, reverse=True):
        at = [int(edge) for edge in (counts == count).nonzero()[0]]
        named = ", ".join(names[edge] if names else str(edge) for edge in at[:MOST_EDGES])
        more = f" and {len(at) - MOST_EDGES} more" if len(at) > MOST_EDGES else ""
        words.append(f"{count} of {named}{more}")
    return "; ".join(words)


def as_csv(view: PlanView) -> bytes:
    """Write the chosen groups: node, group, server."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("node", "group", "server"))
    grouping = view.chosen.grouping
    servers = [view.node_name(int(server)) for server in grouping.servers]
    rows.writerows((view.node_name(i), k, servers[k]) for i, k in enumerate(grouping.z.tolist()))
    return text.getvalue().encode()


def plain(view: PlanView) -> dict[str, Any]:
    """Return everything as plain values."""
    grouping = view.chosen.grouping
    return {
        "title": view.title,
        "num_groups": view.num_groups,
        "tau2": view.algorithm.tau2,
        "d_global": view.global_s,
        "step_s_known": view.timed,
        "alpha_iid": view.weights[0],
        "alpha_comm": view.weights[1],
        "Delta_by": view.seen,
        "stopped": view.stopped,
        "left_out": list(view.left_out),
        "points": [
            {
                "name": p.name,
                "method": p.by_method,
                "Delta": p.Delta,
                "d_group": p.group_s,
                "cycle_s": view.cycle_s(p),
                "cost": p.cost,
                "group_sizes": p.sizes,
                "planning_ms": p.ms,
                "front": p.on_front,
                "breaks": p.breaks,
            }
            for p in view.points
        ],
        "front": [p.name for p in view.front],
        "chosen": {
            "name": view.chosen.name,
            "used_by_a_run": view.answer.name if view.answer else None,
            "z": grouping.z.tolist(),
            "nodes": [view.node_name(i) for i in range(len(grouping.z))],
            "servers": [view.node_name(int(server)) for server in grouping.servers],
        },
    }
