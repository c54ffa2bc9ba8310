"""`coterie sweep` and `coterie reproduce`: many runs, done once each, and what they say."""

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from coterie.cli.commands import print_table, set_option
from coterie.cli.experiments import experiment_path
from coterie.cli.running import Pace, run_all, runs_at_once
from coterie.cli.showing import print_blocks
from coterie.errors import CoterieError, DataError, RecordError, did_you_mean

if TYPE_CHECKING:
    from coterie.config import Scale
    from coterie.record import RecordedRun
    from coterie.sweep import Job, RunsFailed

scale_option = click.option(
    "--scale",
    type=click.Choice(["small", "full"]),
    default="full",
    help="What stands in [small] of the file, or all of it [full].",
)
only_option = click.option(
    "--only",
    "wanted",
    multiple=True,
    metavar="KEY=VALUE",
    help="Just the runs of the sweep with this setting; several of one key are any of them, "
    "of several keys all.",
)
out_option = click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the runs [runs/NAME, NAME-small].",
)


@click.command()
@click.argument("file")
@scale_option
@only_option
@set_option
@out_option
@click.option(
    "--engine",
    type=click.Choice(["workers", "ray"]),
    default="workers",
    help="What runs run in: processes here [workers], or tasks on a Ray cluster.",
)
@runs_at_once
def sweep(
    file: str,
    scale: "Scale",
    wanted: tuple[str, ...],
    overrides: tuple[str, ...],
    out: Path | None,
    engine: str,
    pace: Pace,
) -> None:
    """Run what is not yet complete of the sweep in FILE, into one folder.

    \b
      coterie sweep my.toml                      all of it, or what is left of it
      coterie sweep my.toml --only seed=0        a part of it
      coterie sweep search --scale small         a search of learning rate and batch size
      coterie sweep efficiency --scale small     one that ships with coterie
      coterie sweep my.toml --engine ray --ray-address auto    spread over a cluster

    Runs are known by their settings: a file may grow, and be swept again after a crash or Ctrl-C;
    what is complete stays. With select = "val_accuracy" in [sweep] the settings are ranked by
    accuracy on the validation part, as for a search of learning rates. Runs that fail are told of
    after the table of those that are complete.
    """
    from coterie.config import read_experiment, selected_by

    path = experiment_path(file)
    select = selected_by(read_experiment(path))
    folder, chosen = _place(path, scale, wanted, overrides, out)
    failure = _run_what_is_left(folder, chosen, replace(pace, on_ray=engine == "ray"))
    runs, left_out = _complete(chosen, failure)
    if select:
        _print_ranking(runs, select, chosen)
    else:
        print_blocks(runs, None)
    click.echo(f"\nrun folder: {folder}")
    _tell(left_out, failure)


@click.command()
@click.argument("name")
@scale_option
@only_option
@out_option
@runs_at_once
def reproduce(
    name: str,
    scale: "Scale",
    wanted: tuple[str, ...],
    out: Path | None,
    pace: Pace,
) -> None:
    """Run a table or figure of the paper, and set what the paper says beside what comes out.

    \b
      coterie reproduce all --scale small          everything, on a part of the data
      coterie reproduce efficiency --only model.name=sr
      coterie list reproductions                   what there is

    On two cores everything at --scale small takes about half an hour, and single ones a few
    minutes. At full scale a run takes from a minute (sr) to the better part of an hour (cnn).

    NAME is an experiment that ships with coterie, or 'all'. What is complete is not run again, so
    that a long one can be done in several sittings; tables are made of all runs in the folder.
    A dataset that is not on this machine is left out. The tables also go to reproduction.md in
    the folder of the runs, with a picture where there is one, and the runs themselves to a page,
    report.html.
    """
    from coterie.reproduction import REPRODUCTIONS
    from coterie.sweep import check_no_run

    if name != "all" and name not in REPRODUCTIONS:
        hint = did_you_mean(name, [*REPRODUCTIONS, "all"])
        raise CoterieError(f"nothing called {name!r} to reproduce{hint}")
    if out:
        check_no_run(out)
    failed = []
    for each in REPRODUCTIONS if name == "all" else [name]:
        try:
            _reproduce(each, scale, wanted, out / each if out and name == "all" else out, pace)
        except CoterieError as error:
            if name != "all":
                raise
            failed.append(f"{each}: {error}")
            click.echo(failed[-1], err=True)
    if failed:
        raise CoterieError(f"{len(failed)} of {len(REPRODUCTIONS)} could not be reproduced here")


def _reproduce(
    name: str,
    scale: "Scale",
    wanted: tuple[str, ...],
    out: Path | None,
    pace: Pace,
) -> None:
    from coterie.record import ROWS
    from coterie.report import dots_figure, write_report
    from coterie.report.drawing import png, write
    from coterie.reproduction import judge, markdown, narrow
    from coterie.sweep import only

    folder, every = _place(experiment_path(name), scale, (), (), out)
    failure = _run_what_is_left(folder, _with_data(only(every, wanted)), pace)
    runs, left_out = _complete(every, failure)
    order = {job.folder: at for at, job in enumerate(every)}
    own = [run for run in runs if run.folder in order]  # and none that was put inside of one
    runs = sorted(own, key=lambda run: order[run.folder])
    others = {path.parent for path in folder.rglob(ROWS)} - {job.folder for job in every}
    left_out += [f"{other}: not a run of this experiment at this scale" for other in sorted(others)]
    tables = judge(name, runs)
    for table in tables:
        columns, rows = narrow(table)
        print_table(table.title, columns, rows, table.foot, wrap="verdict")
    for dots in (table.dots for table in tables if table.dots):
        write(folder / f"{dots.name}.png", png(dots_figure(dots)))
    write(folder / "reproduction.md", markdown(tables).encode())
    write_report(runs, folder / "report.html", None, left_out, tables=tables)
    click.echo(f"\nreport: {folder / 'report.html'}\nrun folder: {folder}")
    _tell(left_out, failure)


def _place(
    path: Path,
    scale: "Scale",
    wanted: tuple[str, ...],
    overrides: tuple[str, ...],
    out: Path | None,
) -> "tuple[Path, list[Job]]":
    """Return the runs of an experiment file that are wanted, where they are or will be."""
    from coterie.config import load_experiment
    from coterie.sweep import only, place_jobs

    suffix = "-small" if scale == "small" else ""
    folder = out or Path("runs") / f"{path.stem}{suffix}"
    return folder, only(place_jobs(load_experiment(path, overrides, scale), folder), wanted)


def _run_what_is_left(folder: Path, chosen: "list[Job]", pace: Pace) -> "RunsFailed | None":
    """Run what is left of some jobs; return what failed, to be told of after the others."""
    from coterie.sweep import RunsFailed, still_to_do

    todo, lines = still_to_do(chosen)
    for line in lines:
        click.echo(line, err=True)
    try:
        if todo:
            run_all(folder, todo, pace)
    except RunsFailed as failure:
        return failure
    return None


def _complete(
    jobs: "list[Job]", failure: "RunsFailed | None"
) -> "tuple[list[RecordedRun], list[str]]":
    """Read the complete runs, and lines about the others; without any, say what failed."""
    from coterie.record import ROWS, find_runs

    try:
        return find_runs([job.folder for job in jobs if (job.folder / ROWS).exists()])
    except RecordError as error:
        raise failure or error from None


def _tell(left_out: list[str], failure: "RunsFailed | None") -> None:
    """Say which runs are in no table, and why."""
    for line in left_out:
        click.echo(f"left out: {line}", err=True)
    if failure is None:
        return
    if len(failure.failed) > 1:
        for label, error in failure.failed.items():
            click.echo(f"failed: {label}: {error}", err=True)
    raise failure


def _with_data(jobs: "list[Job]") -> "list[Job]":
    """Leave out runs on datasets that are not on this machine, and say so."""
    from coterie.build import load_dataset

    there: dict[Any, bool] = {}
    for config in {job.config.data: job.config for job in jobs}.values():
        try:
            load_dataset(config)
            there[config.data] = True
        except DataError as error:
            there[config.data] = False
            click.echo(f"left out: {config.data.name}: {error}", err=True)
    kept = [job for job in jobs if there[job.config.data]]
    if not kept:
        raise CoterieError("none of its datasets is on this machine; see 'coterie data'")
    return kept


def _print_ranking(runs: "list[RecordedRun]", select: str, chosen: "list[Job]") -> None:
    """Print settings, the best first, and how to ask for the best."""
    from coterie.config import flat
    from coterie.selection import rank

    found = rank(runs, select, [flat(job.config) for job in chosen])
    keys = list(found[0].settings)
    rows = []
    for each in found:
        spread = "" if each.sd is None else f" ± {each.sd:.4f}"
        told = [_said(each.settings[key]) for key in keys]
        rows.append([*told, f"{each.value:.4f}{spread}", str(each.seeds)])
    head = (*(key.replace(".", ".\n") for key in keys), select, "seeds")
    print_table(f"best {select} first", head, rows, "mean ± SD over seeds")
    if keys:
        best = {key: value for key, value in found[0].settings.items() if value is not None}
        words = " ".join(f"--set {quote(f'{key}={_said(v)}')}" for key, v in best.items())
        click.echo(f"\nbest: {words}")


def _said(value: object) -> str:
    """Write a setting as `--set` reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
