"""What `coterie plan` says: tables of the methods, the front and the chosen groups, and files."""

import csv
import io
import math
from dataclasses import asdict, replace
from typing import Any

from coterie.analysis.format import number, sizes
from coterie.core.amounts import duration, size
from coterie.core.arrays import Ints
from coterie.core.csv_rows import no_formula
from coterie.preview.advice import Advice
from coterie.preview.against_fedavg import Means, Times
from coterie.preview.operating import Bottleneck, Operating, Traffic
from coterie.preview.participants import Participants
from coterie.preview.plan import PlanView
from coterie.preview.pricing import Point, label
from coterie.render.page.advice import advice_tables, plain_advice
from coterie.render.page.html import Table

AUTO = " ".join(f"--set algorithm.{name}=auto" for name in ("num_groups", "tau1", "tau2"))
MOST_GROUPS = 20  # printed
MOST_SERVERS = 5  # named
MOST_EDGES = 6  # named for a group
HEAD = ("Delta", "d_group\nms", "cycle\ns", "cost", "over\nFedAvg", "group\nsizes")


def tables(view: PlanView) -> list[Table]:
    """Write all that is said: the answer, the methods, the front, the chosen groups."""
    answer = _answer(Operating(view))
    return [*advice_tables(Advice(view)), answer, _methods(view), _front(view), _groups(view)]


def _answer(o: Operating) -> Table:
    """Write what an operator asks first."""
    view, means = o.view, o.means
    title = f"The plan as it is set, with its own schedule: {_advice(o)}"
    servers = [view.node_name(int(server)) for server in view.chosen.grouping.servers]
    more = f" and {len(servers) - MOST_SERVERS} more" if len(servers) > MOST_SERVERS else ""
    rows = [
        ("groups", f"{len(servers)}, of {sizes(view.chosen.sizes)} nodes"),
        ("servers", f"{', '.join(servers[:MOST_SERVERS])}{more}; of all: {view.global_server}"),
        ("schedule", _schedule(means)),
        *([] if view.participants is None else _takes_part(view.participants)),
        ("a global round", _round(o)),
        ("over FedAvg", f"{o.over_fedavg} as fast to the same loss as {_best_fedavg(o)}"),
    ]
    if not o.pays:
        rows.append(("FedAvg instead", _fedavg_instead(o)))
    if not o.pays and view.by_choice:
        rows.append(("or try", f"other groups and schedules: {AUTO}"))
    if o.soonest is not None:
        rows.append(("sooner", f"{o.soonest[1]} as fast by {o.soonest[0]}: --by time takes it"))
    if o.other_way is not None:
        rows.append(("not combined" if o.combines else "if combined", _other_way(o, o.other_way)))
    if view.online is not None:
        rows.append(("online", _online(o)))
    if o.over_edges is not None:
        rows.append(("over edges", f"{o.over_edges} as fast as the network edges as groups"))
    rows += [("busiest links" if not at else "", _carries(t)) for at, t in enumerate(o.traffic[:3])]
    rows += [("waits for" if not at else "", _waits(b)) for at, b in enumerate(o.bottlenecks)]
    likely, least, most = (f"{_second(reach):.0%}" for reach in view.rivals.reaches)
    foot = (
        f"over: estimated, as if a node's second step alone counted {likely} of a step "
        f"({least} to {most}); a pilot of an experiment tells"
    )
    if not view.timed:
        foot += "\nhow long a local step takes is not known: FedAvg averages as often as groups do"
    return Table(title, ("", ""), rows, foot, words=True)


def _advice(o: Operating) -> str:
    """Say in a few words what it is worth."""
    if o.pays:
        return "faster than FedAvg"
    return "FedAvg is as fast, and simpler" if o.even else "FedAvg is faster"


def _fedavg_instead(o: Operating) -> str:
    """Write what a round of the best FedAvg takes."""
    _, means = o.fedavg
    steps_s = means.tau1 * o.view.rivals.step_s
    round_ = f", {duration(means.global_s + steps_s)} with local steps" if steps_s else ""
    return f"{_best_fedavg(o)}: {duration(means.global_s)} a mean{round_}"


def _other_way(o: Operating, times: Times) -> str:
    """Write what the same groups are worth if models are combined on their way, or are not."""
    if o.combines:
        return f"{times} as fast with models sent on one by one: --set network.combine=none"
    return f"{times} as fast with models combined at edges on their way: --set network.combine=all"


def _second(reach: float) -> float:
    """Part of a step that a node's second step counts."""
    return math.exp(-((1 / reach) ** 2))


def _schedule(means: Means) -> str:
    """Write how often means are taken.

    >>> _schedule(Means(1.0, 0.1, 0.2, 1, 5)), _schedule(Means(1.0, tau1=3))
    ('a group mean every step, a global mean every 5', 'a global mean every 3 steps')
    """
    steps = "every step" if means.tau1 == 1 else f"every {means.tau1} steps"
    if means.tau2 == 1:
        return f"a global mean {steps}"
    return f"a group mean {steps}, a global mean every {means.tau1 * means.tau2}"


def _takes_part(some: Participants) -> list[tuple[str, str]]:
    """Write who takes part in a round, and that it is not weighed while searching."""
    c = some.participation
    of = "every group" if c.sampled == "group" else "all nodes"
    who = f"{100 * c.fraction:g}% of {of}, at least one"
    who += f"; each vanishes with probability {c.dropout:g}" if c.dropout else ""
    who += "; participation.deadline_s is not weighed" if c.deadline_s else ""
    how = f"means over {some.draws} draws; groups are searched for as if all took part"
    return [("takes part", who), ("", how)]


def _round(o: Operating) -> str:
    steps_s = o.means.tau1 * o.means.tau2 * o.view.step_s
    if not steps_s:
        return f"{duration(o.round_s)} of transfers"
    return f"{duration(o.round_s)}, {duration(steps_s)} of it local steps"


def _online(o: Operating) -> str:
    if not o.day_s:
        return "never all nodes at once: no global mean has all of them; leave some out"
    return f"all nodes for {duration(o.day_s)} a day: {o.rounds_a_day:,.0f} rounds"


def _best_fedavg(o: Operating) -> str:
    name, means = o.fedavg
    word = name.replace("fedavg", "FedAvg").replace(", combined", " with models combined at edges")
    return f"{word}, {_schedule(means).removeprefix('a global ')}"


def _carries(t: Traffic) -> str:
    return f"{t.link}: {size(t.round_bytes)} a round, {size(t.day_bytes)} a day at most"


def _waits(b: Bottleneck) -> str:
    return f"{b.link}, busy for {b.busy:.0%} of a {b.mean}; twice as fast: rounds {b.twice:.2f}x"


def _methods(view: PlanView) -> Table:
    c = view.algorithm
    title = (
        f"{view.title}\n{view.num_groups} groups, tau1 {c.tau1}, tau2 {c.tau2}, "
        f"d_global {number(view.global_s, 1e3)} ms by {view.global_server}, "
        f"weights {label(*view.weights)}"
    )
    rows = [(*_figures(view, p), number(p.ms), _mark(view, p)) for p in view.methods]
    rows += [(*_fedavg(view, *each), "", "") for each in view.fedavg]
    head = ("method", *HEAD, "planning\nms", "")
    after = "" if view.algorithm.evidence == "labels" else " after one step"
    foot = [
        f"Delta: by {view.seen}{after}; cost: weighted {label(*view.weights)} "
        "(alpha_iid:alpha_comm); front: whatever is faster has a higher Delta"
    ]
    if not view.timed:
        foot.append("times are of transfers; how long a local step takes is not known: 0 s")
    foot += [f"left out: {line}" for line in view.left_out]
    foot += [f"note: {line}" for line in view.notes]
    return Table(title, head, rows, "\n".join(foot))


def _figures(view: PlanView, point: Point) -> tuple[str, ...]:
    figures = number(point.Delta), number(point.group_s, 1e3), number(view.cycle_s(point))
    times = f"{view.times(point).times:.2f}x"
    return point.name, *figures, f"{point.cost:.4g}", times, sizes(point.sizes)


def _fedavg(view: PlanView, name: str, mean_s: float, cost: float) -> tuple[str, ...]:
    """Write a row of FedAvg: every mean is global, and each has its own best schedule."""
    rivals = view.rivals
    own = replace(rivals, global_s={name: mean_s}).best()[1]
    cycle = number(view.algorithm.usual[2] * mean_s)
    times = f"{rivals.times(own).times:.2f}x"
    return name, "0", number(mean_s, 1e3), cycle, f"{cost:.4g}", times, str(view.fleet.n)


def _mark(view: PlanView, point: Point) -> str:
    marks = ["chosen"] * (point is view.chosen) + ["front"] * point.on_front
    if point.breaks:
        marks.append(f"breaks {point.breaks}")
    return ", ".join(marks)


def _front(view: PlanView) -> Table:
    rows = [(*_figures(view, p), "chosen" * (p is view.chosen)) for p in view.front]
    foot = (
        "a ratio: found by the planner's search with these weights of Delta and of seconds; "
        "#2: second best there"
    )
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
    least = "soonest at the same loss"
    if view.by == "cost":
        least = f"the least cost with weights {label(*view.weights)}"
    said = f"{by}, {least}"
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
    names = [no_formula(view.node_name(i)) for i in range(len(grouping.z))]
    servers = [names[int(server)] for server in grouping.servers]
    rows.writerows((names[i], k, servers[k]) for i, k in enumerate(grouping.z.tolist()))
    return text.getvalue().encode()


def _worth(o: Operating) -> dict[str, Any]:
    """Return what an operator asks first as plain values."""
    name, means = o.fedavg
    return {
        "pays": o.pays,
        "over_fedavg": asdict(o.over_fedavg),
        "over_edges": None if o.over_edges is None else asdict(o.over_edges),
        "sooner": None if o.soonest is None else {"name": o.soonest[0], **asdict(o.soonest[1])},
        "combined_instead": None if o.other_way is None else asdict(o.other_way),
        "best_fedavg": {"name": name, "tau1": means.tau1, "d_global": means.global_s},
        "assumed_reach": dict(zip(("likely", "least", "most"), o.view.rivals.reaches, strict=True)),
        "round_s": o.round_s,
        "rounds_a_day": o.rounds_a_day,
        "traffic": [asdict(each) for each in o.traffic],
        "waits_for": [asdict(each) for each in o.bottlenecks],
    }


def _participation(some: Participants) -> dict[str, Any]:
    """Return who takes part in a round, as far as it is weighed, as plain values."""
    heeded = ("fraction", "sampled", "dropout", "jitter")
    return {key: getattr(some.participation, key) for key in heeded} | {"draws": some.draws}


def plain(view: PlanView) -> dict[str, Any]:
    """Return everything as plain values."""
    grouping, some = view.chosen.grouping, view.participants
    return {
        "title": view.title,
        "num_groups": view.num_groups,
        "tau2": view.algorithm.tau2,
        "d_global": view.global_s,
        "step_s_known": view.timed,
        "participation": None if some is None else _participation(some),
        "alpha_iid": view.weights[0],
        "alpha_comm": view.weights[1],
        "Delta_by": view.seen,
        "stopped": view.stopped,
        "left_out": list(view.left_out),
        "notes": list(view.notes),
        "fedavg": [{"name": name, "d_global": s, "cost": cost} for name, s, cost in view.fedavg],
        "worth": _worth(Operating(view)),
        "advice": plain_advice(Advice(view)),
        "points": [
            {
                "name": p.name,
                "method": p.by_method,
                "Delta": p.Delta,
                "d_group": p.group_s,
                "cycle_s": view.cycle_s(p),
                "cost": p.cost,
                "over_fedavg": view.times(p).times,
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
