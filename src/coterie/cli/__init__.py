"""The command line: `demo`, `run`, `compare`, `report`, `data`, `network`, `plan` and `list`."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coterie.cli.commands import Commands, loading, print_table, set_option
from coterie.cli.data import data_commands
from coterie.cli.experiments import experiment_path, experiments
from coterie.cli.network import network
from coterie.cli.plan import plan
from coterie.errors import CoterieError, did_you_mean

if TYPE_CHECKING:
    from coterie.record import RecordedRun
    from coterie.sections import Config


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
      coterie data show my.toml             who holds what, before anything is trained
      coterie network my.toml               what a mean costs: delays, full links, late flows
      coterie plan my.toml                  who should train with whom, by every method
      coterie list                          algorithms, datasets, models, topologies, settings
    """


main.add_command(data_commands)
main.add_command(network)
main.add_command(plan)


@main.command()
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the runs [runs/demo].")
@click.option("--jobs", type=click.IntRange(min=1), help="Runs at a time [cores].")
def demo(out: Path | None, jobs: int | None) -> None:
    """Compare six algorithms on embedded Fashion-MNIST images and write an HTML report."""
    from coterie.record import find_runs
    from coterie.report import write_picture, write_report

    folder, written = _run_file("demo", (), out, jobs)
    runs, _ = find_runs(written)
    _print_blocks(runs, None)
    write_report(runs, folder / "report.html")
    write_picture(runs, folder / "accuracy.png")
    click.echo(f"\nreport: {folder / 'report.html'}\npicture: {folder / 'accuracy.png'}")


@main.command()
@click.argument("file")
@set_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the run [runs/NAME].")
@click.option("--jobs", type=click.IntRange(min=1), help="Runs of a sweep at a time [cores].")
def run(file: str, overrides: tuple[str, ...], out: Path | None, jobs: int | None) -> None:
    """Run the experiment in FILE, a TOML file or the name of one that ships with coterie.

    \b
    What other projects call it:
      tau1  num_local_update, kappa1, local epochs
      tau2  num_edge_aggregation, kappa2, group_comm_round
      num_groups  group_num;   num_nodes  num_clients

    A [sweep] table in FILE lists several values of a setting; every combination is run.
    """
    from coterie.record import find_runs

    folder, written = _run_file(file, overrides, out, jobs)
    _print_blocks(find_runs(written)[0], None)
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

    found = _find_runs(runs)
    if as_json:
        click.echo(json.dumps([asdict(block) for block in make_table(found, target)], indent=1))
    else:
        _print_blocks(found, target)


@main.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("report.html"))
@click.option("--target", type=click.FloatRange(0, 1), help="Accuracy to time [FedAvg's final].")
def report(runs: tuple[Path, ...], out: Path, target: float | None) -> None:
    """Write one HTML page, pictures included, about RUNS: run folders, or folders of some."""
    from coterie.report import write_report

    write_report(_find_runs(runs), out, target)
    click.echo(f"report: {out}")


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


def _run_file(
    file: str, overrides: tuple[str, ...], out: Path | None, jobs: int | None
) -> tuple[Path, list[Path]]:
    """Run every config of an experiment file; return the folder they went to, and each one's."""
    from coterie.build import load_dataset
    from coterie.config import load_experiment
    from coterie.record import ROWS
    from coterie.sweep import free_folder, plan_jobs, run_jobs

    path = experiment_path(file)
    configs = load_experiment(path, overrides)
    if out and next(out.rglob(ROWS), None):
        raise CoterieError(f"{out} already holds a run; choose another --out")
    folder = out or free_folder(Path("runs") / path.stem)
    todo = plan_jobs(configs, folder)
    with loading(path.stem) as progress:  # decoded once, before several workers ask for it
        for config in {config.data: config for config in configs}.values():
            if ":" not in config.data.name:  # a user's function has nothing decoded to keep
                load_dataset(config, progress)
    with _progress({job.label: job.config for job in todo}) as on_row:
        run_jobs(todo, jobs or os.cpu_count() or 1, on_row)
    return folder, [job.folder for job in todo]


def _find_runs(paths: tuple[Path, ...]) -> "list[RecordedRun]":
    """Read complete runs and say which others were left out."""
    from coterie.record import find_runs

    runs, left_out = find_runs(list(paths))
    for line in left_out:
        click.echo(f"left out: {line}", err=True)
    return runs


@contextmanager
def _progress(
    configs: "dict[str, Config]",
) -> Iterator[Callable[[str, dict[str, Any]], None]]:
    """Show live bars with accuracy, simulated time and ETA; nothing where there is no terminal."""
    if not sys.stderr.isatty():
        yield lambda label, row: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    total = sum(config.train.steps for config in configs.values())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        whole = bars.add_task(
            f"{len(configs)} runs" if len(configs) > 1 else "", total=total, note=""
        )
        tasks: dict[str, Any] = {}
        at: dict[str, int] = {}

        def on_row(label: str, row: dict[str, Any]) -> None:
            if label not in tasks and len(configs) > 1:
                steps = configs[label].train.steps
                tasks[label] = bars.add_task(label, total=steps, note="")
            note = f"{row['seconds']:.1f} sim s"
            if row["test_accuracy"] is not None:
                note = f"{row['test_accuracy']:.1%} at {note}"
            bars.advance(whole, row["t"] - at.get(label, 0))
            at[label] = row["t"]
            bars.update(
                tasks.get(label, whole), completed=row["t"] if label in tasks else None, note=note
            )
            if label in tasks and row["t"] == configs[label].train.steps:
                bars.remove_task(tasks[label])

        yield on_row


def _print_blocks(runs: "list[RecordedRun]", target: float | None) -> None:
    """Print the comparison, a table for every setting."""
    from coterie.comparison import compare as make_table
    from coterie.table import COLUMNS, cells, footing, heading

    for block in make_table(runs, target):
        rows = [cells(line) for line in block.lines]
        print_table(heading(block), COLUMNS, rows, footing(block), wrap="group")
