"""The command line: `demo`, `run`, `compare`, `report`, `data`, `network`, `plan` and `list`."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coterie.cli.commands import Commands, Stopped, loading, progress, set_option, stopping
from coterie.cli.data import data_commands
from coterie.cli.experiments import experiment_path, experiments
from coterie.cli.exports import export, figures
from coterie.cli.network import network
from coterie.cli.plan import plan
from coterie.cli.reports import report
from coterie.cli.retime import retime
from coterie.cli.showing import find_complete, print_blocks
from coterie.errors import CoterieError, did_you_mean

CHECKPOINT_EVERY_S = 1.0

if TYPE_CHECKING:
    from coterie.sweep import Job


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="coterie")
def main() -> None:
    """Group federated learning: who should train together, and what that does to accuracy and time.

    \b
    Start here:
      coterie demo                          six algorithms on real images, in a minute
      coterie run quickstart                one run of an experiment file that ships with coterie
      coterie run my.toml --set algorithm.tau2=10 --set model.name=2nn
      coterie compare runs/                 the table of any runs
      coterie retime runs/ --set network.link_mbytes_per_s=10    the same on slower links
      coterie figures runs/ -o figures      for a paper: PDF, SVG or PNG, and the table for LaTeX
      coterie export runs/ -o rows.csv      all rows of any runs in one table
      coterie data show my.toml             who holds what, before anything is trained
      coterie network my.toml               what a mean costs: delays, full links, late flows
      coterie plan my.toml                  who should train with whom, by every method
      coterie list                          algorithms, datasets, models, topologies, settings
    """


main.add_command(data_commands)
main.add_command(network)
main.add_command(figures)
main.add_command(export)
main.add_command(plan)
main.add_command(report)
main.add_command(retime)


@main.command()
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the runs [runs/demo].")
@click.option("--jobs", type=click.IntRange(min=1), help="Runs at a time [cores].")
def demo(out: Path | None, jobs: int | None) -> None:
    """Compare six algorithms on embedded Fashion-MNIST images and write an HTML report."""
    from coterie.record import find_runs
    from coterie.report import write_picture, write_report

    folder, todo = _begin("demo", (), out)
    _run(folder, todo, jobs, None, CHECKPOINT_EVERY_S)
    runs, _ = find_runs([job.folder for job in todo])
    print_blocks(runs, None)
    write_report(runs, folder / "report.html")
    write_picture(runs, folder / "accuracy.png")
    click.echo(f"\nreport: {folder / 'report.html'}\npicture: {folder / 'accuracy.png'}")


@main.command()
@click.argument("file", required=False)
@set_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the run [runs/NAME].")
@click.option("--jobs", type=click.IntRange(min=1), help="Runs of a sweep at a time [workers].")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Cores to use [all]: for runs side by side, then inside each; no digit depends on it.",
)
@click.option(
    "--checkpoint-every",
    "every_s",
    type=click.FloatRange(min=0),
    default=CHECKPOINT_EVERY_S,
    metavar="SECONDS",
    help="How much work a crash may cost [1]; 0 keeps every aggregation.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Go on with the run or sweep in DIR, as it was begun.",
)
def run(
    file: str | None,
    overrides: tuple[str, ...],
    out: Path | None,
    jobs: int | None,
    workers: int | None,
    every_s: float,
    resume: Path | None,
) -> None:
    """Run the experiment in FILE, a TOML file or the name of one that ships with coterie.

    \b
    What other projects call it:
      tau1  num_local_update, kappa1, local epochs
      tau2  num_edge_aggregation, kappa2, group_comm_round
      num_groups  group_num;   num_nodes  num_clients

    A [sweep] table in FILE lists several values of a setting; every combination is run.

    \b
    Stopped with Ctrl-C, killed, or out of disk, a run goes on where it was, and ends as if nothing
    had happened, to the last bit:
      coterie run my.toml --checkpoint-every 60    a long run; a crash costs a minute at most
      coterie run --resume runs/my                 what is complete stays, the rest goes on
    """
    from coterie.record import find_runs

    if resume is not None:
        folder, every = resume, _go_on(resume, file, overrides, out, jobs, workers, every_s)
    elif file is not None:
        folder, every = _begin(file, overrides, out)
        _run(folder, every, jobs, workers, every_s)
    else:
        raise click.UsageError("Missing argument 'FILE' (or --resume DIR)")
    print_blocks(find_runs([job.folder for job in every])[0], None)
    click.echo(f"\nrun folder: {folder}")


@main.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", type=click.FloatRange(0, 1), help="Accuracy to time [FedAvg's final].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def compare(runs: tuple[Path, ...], target: float | None, as_json: bool) -> None:
    """Print runs side by side: final accuracy, time to a target, delays, Delta, group sizes.

    RUNS are run folders, or folders that hold some. Runs that differ only in their seed are one
    line, mean and standard deviation. The time to target is in simulated seconds; the target of
    each seed is what FedAvg ends with on it, unless --target is given.
    """
    from coterie.comparison import compare as make_table

    found = find_complete(runs)
    if as_json:
        click.echo(json.dumps([asdict(block) for block in make_table(found, target)], indent=1))
    else:
        print_blocks(found, target)


@main.command(name="list")
@click.argument("what", required=False)
def list_(what: str | None) -> None:
    """List what there is: algorithms, groupings, datasets, partitions, models, topologies,
    routings, clocks, tcp, experiments, settings.
    """
    from coterie import algorithms, config, models, network, partition, topology
    from coterie.data import DATASETS

    tables: dict[str, Callable[[], dict[str, str]]] = {
        "algorithms": lambda: {k: a.about for k, a in algorithms.ALGORITHMS.items()},
        "groupings": lambda: algorithms.GROUPINGS,
        "datasets": lambda: {k: d.about for k, d in DATASETS.items()},
        "partitions": lambda: {k: p.about for k, p in partition.PARTITIONS.items()},
        "models": lambda: {k: about for k, (about, _) in models.MODELS.items()},
        "topologies": lambda: topology.TOPOLOGIES,
        "routings": lambda: network.ROUTINGS,
        "clocks": lambda: network.CLOCKS,
        "tcp": lambda: {k: tcp.about for k, tcp in network.PROFILES.items()},
        "experiments": lambda: {p.stem: str(p) for p in sorted(experiments().glob("*.toml"))},
        "settings": lambda: {
            k: f"{about} [{v}]" + (f": {', '.join(words)}" if words else "")
            for k, v, about, words in config.settings()
        },
    }
    if what is not None and what not in tables:
        raise CoterieError(f"nothing called {what!r} to list{did_you_mean(what, tables)}")
    for name, table in tables.items():
        if what in (None, name):
            entries = table()
            width = max(map(len, entries), default=0)
            click.echo(f"{name}:")
            for key, about in entries.items():
                click.echo(f"  {key:{width}}  {about}")


def _begin(file: str, overrides: tuple[str, ...], out: Path | None) -> "tuple[Path, list[Job]]":
    """Return the runs that an experiment file describes, and the folder they go to."""
    from coterie.config import load_experiment
    from coterie.record import ROWS, RUNS, resume_command
    from coterie.sweep import free_folder, plan_jobs

    path = experiment_path(file)
    configs = load_experiment(path, overrides)
    held = [p.parent for name in (RUNS, ROWS) for p in out.rglob(name)] if out else []
    if held:
        way = resume_command(out if out in held else held[0])
        raise CoterieError(f"{out} already holds a run; choose another --out, or go on with: {way}")
    folder = out or free_folder(Path("runs") / path.stem)
    return folder, plan_jobs(configs, folder)


def _go_on(
    folder: Path,
    file: str | None,
    overrides: tuple[str, ...],
    out: Path | None,
    jobs: int | None,
    workers: int | None,
    every_s: float,
) -> "list[Job]":
    """Go on with what a folder holds, and return all its runs."""
    from coterie.config import load_experiment
    from coterie.sweep import check_same, recorded_jobs, still_to_do

    if out:
        raise click.UsageError("--resume goes on in its own folder; leave out --out")
    if overrides and not file:
        raise click.UsageError("--resume goes on with the settings it was begun with, not --set")
    every = recorded_jobs(folder)
    if file:
        check_same(load_experiment(experiment_path(file), overrides), every, folder)
    todo, lines = still_to_do(every)
    for line in lines:
        click.echo(line, err=True)
    if todo:
        _run(folder, todo, jobs, workers, every_s)
    return every


def _run(
    folder: Path, todo: "list[Job]", jobs: int | None, workers: int | None, every_s: float
) -> None:
    """Run jobs into a folder, and say how to go on if they are stopped."""
    from coterie.build import load_dataset
    from coterie.experiment import Interrupted
    from coterie.record import ROWS, RUNS, resume_command
    from coterie.sweep import Stop, run_jobs, sweep_folder

    configs = [job.config for job in todo]
    with loading(folder.name) as show:  # decoded once, before several workers ask for it
        for config in {config.data: config for config in configs}.values():
            if ":" not in config.data.name:  # a user's function has nothing decoded to keep
                load_dataset(config, show)
    stop = Stop()
    way = f"go on with: {resume_command(folder)}"
    try:
        steps = {job.label: job.config.train.steps for job in todo}
        with sweep_folder(folder, todo), stopping(stop.ask), progress(steps) as (on_row, say):
            cores = workers or os.cpu_count() or 1
            at_once = min(jobs or cores, len(todo))
            todo = [replace(job, threads=max(1, cores // at_once)) for job in todo]
            run_jobs(todo, at_once, on_row, checkpoint_every_s=every_s, stop=stop, say=say)
    except Interrupted as stopped:
        raise Stopped(f"stopped after step {stopped.t}; {way}") from stopped
    except KeyboardInterrupt as stopped:
        begun = (folder / RUNS).exists() or any(folder.rglob(ROWS))
        raise Stopped(f"stopped; {way if begun else 'nothing was written'}") from stopped
