"""The command line: one file for every command, or for several that belong together."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from coterie.cli.bound import bound
from coterie.cli.commands import Commands, echo
from coterie.cli.data import data_commands
from coterie.cli.examples import examples
from coterie.cli.exports import export, figures
from coterie.cli.fair import fair
from coterie.cli.flower import flower
from coterie.cli.network import network_command
from coterie.cli.options import (
    PATH,
    jobs_option,
    json_option,
    out_option,
    runs_argument,
    set_option,
    view_options,
)
from coterie.cli.plan import plan
from coterie.cli.reports import report
from coterie.cli.retime import retime
from coterie.cli.running import Pace, begin, go_on, run_all, runs_at_once
from coterie.cli.scenarios import scenarios_command
from coterie.cli.sweeps import reproduce, sweep
from coterie.cli.tables import find_complete, print_blocks
from coterie.cli.track import targets_of, track, track_option
from coterie.cli.watch import watch
from coterie.config.shipped import shipped
from coterie.core.errors import CoterieError, did_you_mean

if TYPE_CHECKING:
    from coterie.analysis.lines import View


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="coterie")
def main() -> None:
    """Group federated learning: who should train together, and what that does to accuracy and time.

    \b
    Start here:
      coterie demo                          six algorithms on real images, in a minute
      coterie run quickstart                one run of an experiment file that ships with coterie
      coterie run my.toml --set algorithm.tau2=10 --set model.name=2nn
      coterie sweep my.toml                 many runs, done once each, also after a crash
      coterie watch runs/my                 runs under way, on a page in the browser
      coterie compare runs/                 the table of any runs
      coterie retime runs/ --set network.link_mbytes_per_s=10    the same on slower links
      coterie figures runs/ -o figures      for a paper: PDF, SVG or PNG, and the table for LaTeX
      coterie export runs/ -o rows.csv      all rows of any runs in one table
      coterie track runs/ --to mlflow       in TensorBoard, MLflow or Weights & Biases
      coterie data show my.toml             who holds what, before anything is trained
      coterie network my.toml               what a mean costs: delays, full links, late flows
      coterie scenarios                     networks with measured speeds, to begin with
      coterie plan my.toml                  who should train with whom, by every method
      coterie fair my.toml --help           every method at its best: who is first, beyond noise
      coterie bound my.toml                 how far groups stray from learning in one place
      coterie flower up plan.json           a plan as a deployment of Flower, edge by edge
      coterie reproduce efficiency          the paper's tables and figures, beside its own
      coterie examples mine                 examples to change: own model, data, algorithm, notebook
      coterie list                          algorithms, datasets, models, topologies, settings
    """


main.add_command(bound)
main.add_command(fair)
main.add_command(data_commands)
main.add_command(network_command)
main.add_command(examples)
main.add_command(figures)
main.add_command(export)
main.add_command(track)
main.add_command(plan)
main.add_command(flower)
main.add_command(report)
main.add_command(retime)
main.add_command(scenarios_command)
main.add_command(sweep)
main.add_command(reproduce)
main.add_command(watch)


@main.command()
@out_option("DIR", "Folder for the runs [runs/demo].")
@jobs_option
def demo(out: Path | None, jobs: int | None) -> None:
    """Compare six algorithms on embedded Fashion-MNIST images and write an HTML report."""
    from coterie.render.page import write_picture, write_report
    from coterie.runs.record import find_runs

    folder, todo = begin("demo", (), out)
    run_all(folder, todo, Pace(jobs))
    runs, _ = find_runs([job.folder for job in todo])
    print_blocks(runs, None)
    write_report(runs, folder / "report.html")
    write_picture(runs, folder / "accuracy.png")
    echo(f"\nreport: {folder / 'report.html'}\npicture: {folder / 'accuracy.png'}")


@main.command()
@click.argument("file", required=False)
@set_option()
@out_option("DIR", "Folder for the run [runs/NAME].")
@runs_at_once
@click.option(
    "--resume",
    type=PATH,
    metavar="DIR",
    help="Go on with the run or sweep in DIR, as it was begun; code that DIR names must be named "
    "again, by FILE or --set.",
)
@track_option
def run(
    file: str | None,
    overrides: tuple[str, ...],
    out: Path | None,
    resume: Path | None,
    track: tuple[str, ...],
    pace: Pace,
) -> None:
    """Run the experiment in FILE, a TOML file or the name of one that ships with coterie.

    \b
    What other projects call it:
      tau1  num_local_update, kappa1, local epochs
      tau2  num_edge_aggregation, kappa2, group_comm_round
      num_groups  group_num;   num_nodes  num_clients

    A [sweep] table in FILE lists several values of a setting; every combination is run. FILE can
    name code by import path, such as model.name = "my_pkg.models:make", which is then run.

    \b
    Stopped with Ctrl-C, killed, or out of disk, a run goes on where it was, and ends as if nothing
    had happened, to the last bit:
      coterie run my.toml --checkpoint-every 60    a long run; a crash costs a minute at most
      coterie run --resume runs/my                 what is complete stays, the rest goes on
    """
    from coterie.runs.record import find_runs

    pace = replace(pace, track=targets_of(track, resume))
    if resume is not None:
        folder, (every, ended) = resume, go_on(resume, file, overrides, out, pace)
    elif file is not None:
        ended = []
        folder, every = begin(file, overrides, out)
        run_all(folder, every, pace)
    else:
        raise click.UsageError("Missing argument 'FILE' (or --resume DIR)")
    runs, left_out = find_runs([job.folder for job in every])
    for line in (f"left out: {line}" for line in left_out) if left_out else ended:
        echo(line, err=True)
    print_blocks(runs, None)
    page = f"coterie report {quote(str(folder))} -o {quote(str(folder / 'report.html'))}"
    echo(f"\nrun folder: {folder}\nas a page: {page}")


@main.command()
@runs_argument
@view_options
@json_option()
def compare(runs: tuple[Path, ...], target: float | None, view: "View", as_json: bool) -> None:
    """Print runs side by side: accuracy, time to a target, delays, Delta, group sizes.

    \b
    coterie compare runs/my                          lines by label, else by algorithm
    coterie compare runs/my --target 0.8             time to 80% instead of FedAvg's final
    coterie compare runs/my --best train.lr          each line at its best learning rate
    coterie compare runs/my --baseline hierfavg      target and speed-ups by another line
    coterie compare runs/my --score mean:5           accuracy: mean of the last 5 evaluations
    coterie compare runs/my --lines algorithm.name,algorithm.tau1

    RUNS are run folders, or folders that hold some. Runs that differ only in their seed are one
    line, mean and standard deviation. The time to target is in simulated seconds; the target of
    each seed is what FedAvg ends with on it, unless --target or --baseline is given.

    A line has the label of its runs, label = "..." in the experiment file, or else the name of the
    algorithm and what else of [algorithm] and [optimizer] differs: 'fedavg (fedprox = 0.1)'.
    Runs that differ in other settings are in tables of their own. Settings in --lines name lines
    instead and split no tables; those in --best do neither. The best value of a setting is that
    with the best mean accuracy on the validation part, or loss of a task without an accuracy.

    Where all runs of a table measure their nodes, it has their accuracy, mean and standard
    deviation over nodes, and the mean of the worst tenth. See docs/howto/runs.md.
    """
    from coterie.analysis.compare import compare as make_table

    found = find_complete(runs)
    if as_json:
        blocks = make_table(found, target, view)
        echo(json.dumps([asdict(block) for block in blocks], indent=1))
    else:
        print_blocks(found, target, view)


@main.command(name="list")
@click.argument("what", required=False)
def list_(what: str | None) -> None:
    """List what there is: algorithms, groupings, datasets, partitions, tasks, models, topologies,
    routings, clocks, tcp, reproductions, experiments, settings.
    """
    from coterie import models, network, paper, partition, topology
    from coterie.config import files
    from coterie.data import DATASETS
    from coterie.data.targets import TARGETS
    from coterie.simulation import algorithms, search

    tables: dict[str, Callable[[], dict[str, str]]] = {
        "algorithms": algorithms.described,
        "groupings": lambda: search.GROUPINGS,
        "datasets": lambda: {k: d.about for k, d in DATASETS.items()},
        "partitions": lambda: {k: p.about for k, p in partition.PARTITIONS.items()},
        "tasks": lambda: {k: t.described for k, t in TARGETS.items()},
        "models": lambda: {k: about for k, (about, _) in models.MODELS.items()},
        "topologies": lambda: topology.TOPOLOGIES,
        "routings": lambda: network.ROUTINGS,
        "clocks": lambda: network.CLOCKS,
        "tcp": lambda: {k: tcp.about for k, tcp in network.PROFILES.items()},
        "reproductions": lambda: {k: r.about for k, r in paper.REPRODUCTIONS.items()},
        "experiments": lambda: {name: str(path) for name, path in shipped().items()},
        "settings": lambda: {
            k: f"{about} [{v}]" + (f": {', '.join(words)}" if words else "")
            for k, v, about, words in files.settings()
        },
    }
    if what is not None and what not in tables:
        raise CoterieError(f"nothing called {what!r} to list{did_you_mean(what, tables)}")
    for name, table in tables.items():
        if what in (None, name):
            entries = table()
            width = max(map(len, entries), default=0)
            echo(f"{name}:")
            for key, about in entries.items():
                echo(f"  {key:{width}}  {about}")
