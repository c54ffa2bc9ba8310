"""`coterie plan`: who should train with whom, before anything is trained."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coterie.cli.commands import echo, loading
from coterie.cli.options import (
    DRAWS_BY_OUT,
    OUT,
    Number,
    Quantity,
    json_option,
    out_option,
    own_files,
    own_or_file,
    set_option,
)
from coterie.cli.pages import SUFFIXES, check_file, page_path, print_page, write_files
from coterie.config.shipped import read_configs
from coterie.core.errors import CoterieError

if TYPE_CHECKING:
    from coterie.preview.plan import PlanView

ALGORITHM = "algorithm"


@click.command()
@click.argument("file", required=False)
@own_files
@set_option()
@click.option(
    "--methods", metavar="A,B,...", help="Ways to group [all of 'coterie list groupings']."
)
@click.option(
    "--budget",
    "budget_s",
    type=Quantity("time"),
    metavar="TIME",
    help="Time to search with each weighting, such as 2s, 500ms or 1m.",
)
@click.option(
    "--by",
    type=click.Choice(["cost", "time"]),
    help="What the chosen groups have least of: cost, or time to the same loss, estimated "
    "[cost; time where something is auto].",
)
@click.option(
    "--keep-regions",
    is_flag=True,
    help="With --nodes: no group has nodes of two regions (column region).",
)
@click.option(
    "--epsilon",
    type=Number(1e-9, 1e9),
    help="With --nodes: plan by label counts to which every node adds Laplace noise of scale "
    "1/EPSILON.",
)
@out_option("PAGE", "Page to write, with a picture beside it [runs/plan-FILE.html, or -NODES].")
@click.option("--save", type=OUT, help="CSV to write, of node, group and server.")
@click.option(
    "--export",
    type=OUT,
    help="Plan to write for other systems, .json or .csv: groups, servers, schedule, times.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Choose the number of groups, tau1 and tau2 by a pilot, and say why "
    "[docs/explanation/theory.md].",
)
@click.option(
    "--trials",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Train in simulation: N trials each of FedAvg, the network edges and searched groups, and "
    "advise what is soonest [docs/explanation/fair.md].",
)
@json_option(DRAWS_BY_OUT)
def plan(
    file: str | None,
    nodes: Path | None,
    network: Path | None,
    model_bytes: int | None,
    overrides: tuple[str, ...],
    methods: str | None,
    budget_s: float | None,
    by: str | None,
    keep_regions: bool,
    epsilon: float | None,
    out: Path | None,
    save: Path | None,
    export: Path | None,
    explain: bool,
    trials: int | None,
    as_json: bool,
) -> None:
    """Say who should train with whom in the experiment FILE, before it is trained; or among your
    own nodes, by their label counts.

    \b
    coterie plan quickstart
    coterie plan quickstart --set algorithm.num_groups=10 --set network.topology=jellyfish
    coterie plan quickstart --methods coterie,edge,random
    coterie plan quickstart --by time                 groups that are soonest at the same loss
    coterie plan quickstart --budget 2s               look longer; Ctrl-C takes the best so far
    coterie plan quickstart --save groups.csv         node, group, server: for a deployment
    coterie plan quickstart --export plan.json        with times: docs/reference/plan-file.md
    coterie plan quickstart --json                    everything, for a program
    coterie plan quickstart --explain                 how many groups, how often to average, and why
    coterie plan quickstart --explain --set algorithm.tau1=auto --set algorithm.target_accuracy=0.8
    coterie plan factories --trials 12                by training in simulation

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
    its number of groups and its limits; with --by time, what is soonest at the same loss. Draws all
    of it into an HTML page and a PNG.

    Of a sweep, the first run is planned that weighs both costs, else the first that searches.

    With --explain a pilot of seven steps is run, and the seconds to the target are forecast for
    every number of groups, tau1 and tau2 that the file leaves open ("auto"), or for all.

    With --trials runs are trained in simulation, on the data of FILE: FedAvg, the network edges and
    searched groups with N learning rates and schedules each, and the best with four seeds. It takes
    some minutes for a small model. Stopped with Ctrl-C, the same command goes on where it was.

    \b
    Without data, model or gradients, from two files of your own:
      coterie plan --nodes nodes.csv --network net.csv --model-bytes 5MB
    nodes.csv            net.csv: MByte/s           or net.csv: links, .graphml, .json
      node,edge,cat,dog    ,cam 1,cam 2,cam 3         a,b,mbytes_per_s
      cam 1,north,90,10    cam 1,,12,3                cam 1,switch,10
      cam 2,north,0,80     cam 2,12,,3                cam 2,switch,10
      cam 3,south,40,0     cam 3,3,3,                 cam 3,switch,2

    Nodes are known by their names, in any order; column edge may be left out. Delta is how far the
    groups' label shares are from everyone's. Nothing is trained. Without algorithm.num_groups there
    are 5 groups. A local step counts 0 s unless column step_s tells how long each node takes.
    Column online tells when a node is there: 22-6. --set takes network.*, algorithm.*,
    participation.* (but deadline_s), train.steps and seed; algorithm.num_groups, tau1 and tau2 may
    be auto: soonest at the same loss.

    \b
    All that a plan is compared with has servers chosen by seconds. FedAvg has two rows: with the
    network as it is, and with models combined under edges on their way. over FedAvg: how many times
    as fast to the same loss as the better of the two, with its best schedule.
    """
    from coterie.preview.auto_plan import soonest
    from coterie.preview.planfile.writing import contents, plan_of
    from coterie.render.page.html import page_files
    from coterie.render.page.plan import plan_page
    from coterie.render.page.plan_tables import as_csv, plain, tables

    more = {"keep_regions": keep_regions or None, "epsilon": epsilon}
    more = {key: value for key, value in more.items() if value is not None}
    if trials is not None:
        others = (nodes, network, model_bytes, methods, budget_s, save, export, *more.values())
        _try(file, overrides, trials, out, as_json, (*others, by, explain or None))
        return
    if explain:
        others = (nodes, network, model_bytes, methods, budget_s, save, export, *more.values())
        others += (by,)
        _explain(file, overrides, out, as_json, others)
        return
    if more and nodes is None:
        raise CoterieError(f"--{next(iter(more)).replace('_', '-')} needs --nodes")
    name, find = _what(file, overrides, nodes, network, model_bytes)
    path = page_path("plan", name, out, as_json=as_json)
    _check_files(save, export, path, {"--nodes": nodes, "--network": network})
    names = () if methods is None else _names(methods)
    with loading(name) as progress:
        view = find(methods=names, budget_s=budget_s, progress=progress, **more)
        view = soonest(view) if by == "time" else view
        progress("drawing", 0, 0)
        page = plan_page(view, tables(view))
        files = page_files(page, path)
        if save is not None:
            files[save] = as_csv(view)
        if export is not None:
            files[export] = contents(plan_of(view), export.suffix)
    if as_json:
        echo(json.dumps(plain(view), indent=1))
    else:
        print_page(page)
    write_files(files, err=as_json)
    if export is not None:
        for line in _not_exported(view):
            echo(f"note: {line}", err=as_json)


def _not_exported(view: "PlanView") -> list[str]:
    """Say what a plan was priced by and an exported one does not tell a deployment."""
    notes = []
    if view.participants is not None:
        notes.append("a deployment asks all nodes in every round: the file has no participation.*")
    if view.network.combine:
        notes.append("a deployment combines no models at edges: the file has no network.combine")
    return notes


def _what(
    file: str | None,
    overrides: tuple[str, ...],
    nodes: Path | None,
    network: Path | None,
    model_bytes: int | None,
) -> "tuple[str, Callable[..., PlanView]]":
    """Name what is planned, and return what plans it: an experiment, or nodes of one's own."""
    from coterie.preview.from_labels import plans_by_labels
    from coterie.preview.plan import plans

    own = own_or_file("plan", file, nodes, network, model_bytes)
    if own is not None:
        return own[0].stem, partial(plans_by_labels, *own, overrides)
    assert file is not None  # or there would be files of one's own
    name, configs = read_configs(file, overrides)
    return name, partial(plans, configs)


def _explain(
    file: str | None,
    overrides: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    others: tuple[object, ...],
) -> None:
    from coterie.cli.explain import explain_plan
    from coterie.preview.schedule import opened

    if file is None or any(other is not None for other in others):
        raise CoterieError("--explain takes FILE, --set, --out and --json only")
    late = tuple(text for text in overrides if text.startswith(f"{ALGORITHM}."))
    name, configs = read_configs(file, tuple(text for text in overrides if text not in late))
    page = page_path("explain", name, out, as_json=as_json)
    explain_plan(name, opened(configs, late), page, as_json)


def _try(
    file: str | None,
    overrides: tuple[str, ...],
    trials: int,
    out: Path | None,
    as_json: bool,
    others: tuple[object, ...],
) -> None:
    from coterie.cli.trials import try_plan

    if file is None or any(other is not None for other in others):
        raise CoterieError("--trials takes FILE, --set, --out and --json only")
    name, configs = read_configs(file, overrides)
    page = page_path("trials", name, out, as_json=as_json)
    again = ["coterie", "plan", file, "--trials", str(trials)]
    again += [word for text in overrides for word in ("--set", text)]
    again += [] if out is None else ["--out", str(out)]
    again += ["--json"] if as_json else []
    try_plan(file, configs, trials, page, as_json=as_json, again=again)


def _check_files(
    save: Path | None, export: Path | None, page: Path | None, read: dict[str, Path | None]
) -> None:
    """Refuse files besides the page that cannot be written, or that are one and the same."""
    from coterie.preview.planfile.writing import check_suffix

    taken = {} if page is None else {page.absolute().with_suffix(s): "--out" for s in SUFFIXES}
    taken |= {path.absolute(): option for option, path in read.items() if path is not None}
    for option, path, example in (
        ("--save", save, "groups.csv"),
        ("--export", export, "plan.json"),
    ):
        if path is None:
            continue
        check_file(option, path, example)
        if path.absolute() in taken:
            other = taken[path.absolute()]
            raise CoterieError(f"{option} and {other} must be different files, got {str(path)!r}")
        taken[path.absolute()] = option
    if export is not None:
        check_suffix(export)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise CoterieError(f"--methods must be names such as coterie,edge, got {text!r}")
    return names
