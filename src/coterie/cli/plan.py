"""`coterie plan`: who should train with whom, before anything is trained."""

import csv
import io
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coterie.cli.commands import loading, print_table, set_option
from coterie.errors import CoterieError

if TYPE_CHECKING:
    from coterie.planview import Point, View
    from coterie.report.network import Table
    from coterie.topology import Ints

UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0}
SUFFIXES = (".html", ".png")
MOST_GROUPS = 20  # printed
MOST_EDGES = 6  # named for a group


@click.command()
@click.argument("file")
@set_option
@click.option(
    "--methods", metavar="A,B,...", help="Ways to group ['coterie list groupings': all of them]."
)
@click.option(
    "--budget", metavar="TIME", help="How long to search with each weighting: 2s, 500ms, 1m."
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="Page to write; the picture goes beside it [plan-FILE.html].",
)
@click.option(
    "--save", type=click.Path(path_type=Path), help="CSV of node, group, server to write."
)
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    help="Plan to write for other systems, .json or .csv: groups, servers, schedule, times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead; a page only with --out.")
def plan(
    file: str,
    overrides: tuple[str, ...],
    methods: str | None,
    budget: str | None,
    out: Path | None,
    save: Path | None,
    export: Path | None,
    as_json: bool,
) -> None:
    """Say who should train with whom in the experiment FILE, before it is trained.

    \b
    coterie plan quickstart
    coterie plan quickstart --set algorithm.num_groups=10 --set network.topology=jellyfish
    coterie plan quickstart --methods coterie,edge,random
    coterie plan quickstart --budget 2s               look longer; Ctrl-C takes the best so far
    coterie plan quickstart --save groups.csv         node, group, server: for a deployment
    coterie plan quickstart --export plan.json        with schedule and times: docs/plan.md
    coterie plan quickstart --json                    everything, for a program

    FILE is a TOML file or the name of one that ships with coterie. Takes one training step, groups
    the nodes by every method on what that shows, and prints for each:

    \b
      Delta      how far the groups' gradients are from everyone's: 0 is groups that are alike
      d_group    one group mean: models up to the groups' servers, their mean back down
      cycle      transfers of a cycle: tau2 - 1 group means and a global one
      cost       alpha_iid * Delta + alpha_comm * cycle, each over what it ordinarily is
      planning   real time that the method took here

    A low Delta makes every step worth more, a low d_group makes it quicker, and one is paid for
    with the other. The front is every grouping that no other beats in both: the planner searches
    for it with several weights alpha_iid:alpha_comm, from Delta only, 1:0, to seconds only, 0:1.
    Chosen is the least cost with the experiment's own weights (algorithm.alpha_iid and alpha_comm),
    its number of groups and its limits. Draws all of it into an HTML page and a PNG.

    Of a sweep, the first run is planned that weighs both costs, else the first that searches.
    """
    from coterie.cli.experiments import experiment_path
    from coterie.config import load_experiment
    from coterie.planfile.writing import contents, plan_of
    from coterie.planview import plans
    from coterie.report.drawing import write
    from coterie.report.plan import render

    path = experiment_path(file)
    page = out or Path(f"plan-{path.stem}.html")
    paged = out is not None or not as_json
    if paged:
        _check_file("--out", page, "plan.html", also=SUFFIXES)
    _check_files(save, export, page if paged else None)
    budget_s = None if budget is None else seconds(budget)
    names = () if methods is None else _names(methods)
    configs = load_experiment(path, overrides)
    with loading(path.stem) as progress:
        view = plans(configs, methods=names, budget_s=budget_s, progress=progress)
        progress("drawing", 0, 0)
        tables = _tables(view)
        files = render(view, tables, page) if paged else {}
        if save is not None:
            files[save] = _csv(view)
        if export is not None:
            files[export] = contents(plan_of(view), export.suffix)
    for name, content in files.items():
        write(name, content)
    if as_json:
        click.echo(json.dumps(_plain(view), indent=1))
    else:
        for title, head, rows, foot in tables:
            print_table(title, head, rows, foot, wrap="group")
            click.echo()
    for name in sorted(files):
        click.echo(f"wrote {name}", err=as_json)


def _check_files(save: Path | None, export: Path | None, page: Path | None) -> None:
    """Refuse files besides the page that cannot be written, or that are one and the same."""
    from coterie.planfile.writing import check_suffix

    taken = {} if page is None else {page.absolute().with_suffix(s): "--out" for s in SUFFIXES}
    for option, path, example in (
        ("--save", save, "groups.csv"),
        ("--export", export, "plan.json"),
    ):
        if path is None:
            continue
        _check_file(option, path, example)
        if path.absolute() in taken:
            other = taken[path.absolute()]
            raise CoterieError(f"{option} and {other} must be different files, got {str(path)!r}")
        taken[path.absolute()] = option
    if export is not None:
        check_suffix(export)


def _check_file(option: str, path: Path, example: str, also: tuple[str, ...] = ()) -> None:
    """Refuse, before anything takes its time, a file that cannot be written."""
    named = path.name and not any(p.is_dir() for p in (path, *map(path.with_suffix, also)))
    if not named:
        raise CoterieError(f"{option} must name a file, such as {example}, got {str(path)!r}")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise CoterieError(f"{option} must be in a folder that can be written, got {str(path)!r}")


def seconds(text: str) -> float:
    """Read a time; a bare number is seconds.

    >>> seconds("2s"), seconds("500ms"), seconds("1m"), seconds("1.5")
    (2.0, 0.5, 60.0, 1.5)
    """
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+) *(ms|s|m|)", text.strip())
    said = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not said:
        raise CoterieError(f"--budget must be a time above 0 such as 2s, 500ms or 1m, got {text!r}")
    return said


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise CoterieError(f"--methods must be names such as coterie,edge, got {text!r}")
    return names


def _tables(view: "View") -> "list[Table]":
    """Write all that is said: the methods, the front, the chosen groups."""
    return [_methods(view), _front(view), _groups(view)]


def _methods(view: "View") -> "Table":
    from coterie.planview import label
    from coterie.report.network import Table
    from coterie.table import number

    c = view.algorithm
    title = (
        f"{view.title}\n{view.num_groups} groups, tau2 {c.tau2}, "
        f"d_global {number(view.global_s, 1e3)} ms, weights {label(*view.weights)}"
    )
    rows = [(*_figures(view, p), number(p.ms), _mark(view, p)) for p in view.methods]
    head = ("method", *HEAD, "planning\nms", "")
    foot = [
        f"Delta: by {view.seen} after one step; cost: weighted {label(*view.weights)} "
        "(alpha_iid:alpha_comm); front: nothing else beats it in both Delta and d_group"
    ]
    foot += [f"left out: {line}" for line in view.left_out]
    return Table(title, head, rows, "\n".join(foot))


HEAD = ("Delta", "d_group\nms", "cycle\ns", "cost", "group\nsizes")


def _figures(view: "View", point: "Point") -> tuple[str, ...]:
    from coterie.table import number, sizes

    figures = number(point.Delta), number(point.group_s, 1e3), number(view.cycle_s(point))
    return point.name, *figures, f"{point.cost:.4g}", sizes(point.sizes)


def _mark(view: "View", point: "Point") -> str:
    marks = ["chosen"] * (point is view.chosen) + ["front"] * point.on_front
    if point.breaks:
        marks.append(f"breaks {point.breaks}")
    return ", ".join(marks)


def _front(view: "View") -> "Table":
    from coterie.report.network import Table

    rows = [(*_figures(view, p), "chosen" * (p is view.chosen)) for p in view.front]
    foot = "a ratio: found by the planner's search with these weights of Delta and of seconds"
    if view.stopped:
        foot += "\nstopped early: this is the best so far"
    return Table("The front", ("found by", *HEAD, ""), rows, foot)


def _groups(view: "View") -> "Table":
    from coterie.report.network import Table

    groups = view.groups
    of = view.prepared.class_counts.shape[1]
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


def _why(view: "View") -> str:
    """Say who found the chosen groups, and how that compares with what a run would use."""
    from coterie.algorithms import ALGORITHMS
    from coterie.planview import label

    chosen, answer, cheaper, own = view.chosen, view.answer, view.cheaper, view.own
    by = chosen.name if chosen.by_method else f"found with weights {chosen.name}"
    said = f"{by}, the least cost with weights {label(*view.weights)}"
    if chosen is answer:
        said += "; a run uses it too"
    elif answer is not None:
        more = answer.cost / chosen.cost - 1 if chosen.cost else 0.0
        said += f"; a run uses {answer.name}, which costs {more:.2%} more"
    elif not ALGORITHMS[own.name].searched:
        said += f"; a run by {own.name} does not search ({ALGORITHMS[own.name].about})"
    if cheaper is not None:
        said += f"; {cheaper.name} costs less, but makes {len(cheaper.sizes)} groups"
    return said


def _edges(view: "View", counts: "Ints") -> str:
    """Write how many nodes are from which edges, most first.

    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> view = SimpleNamespace(prepared=SimpleNamespace(edge_names=()))
    >>> _edges(view, np.array([2, 2, 2])), _edges(view, np.array([0, 3, 1, 3]))
    ('2 of each', '3 of 1, 3; 1 of 2')
    """
    if counts.min() == counts.max() and len(counts) > 1:
        return f"{counts[0]} of each"
    names = view.prepared.edge_names
    words = []
    for count in sorted({int(count) for count in counts if count}, reverse=True):
        at = [int(edge) for edge in (counts == count).nonzero()[0]]
        named = ", ".join(names[edge] if names else str(edge) for edge in at[:MOST_EDGES])
        more = f" and {len(at) - MOST_EDGES} more" if len(at) > MOST_EDGES else ""
        words.append(f"{count} of {named}{more}")
    return "; ".join(words)


def _csv(view: "View") -> bytes:
    """Write the chosen groups: node, group, server."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("node", "group", "server"))
    grouping = view.chosen.grouping
    servers = [view.node_name(int(server)) for server in grouping.servers]
    rows.writerows((view.node_name(i), k, servers[k]) for i, k in enumerate(grouping.z.tolist()))
    return text.getvalue().encode()


def _plain(view: "View") -> dict[str, Any]:
    """Return everything as plain values."""
    grouping = view.chosen.grouping
    return {
        "title": view.title,
        "num_groups": view.num_groups,
        "tau2": view.algorithm.tau2,
        "d_global": view.global_s,
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
