"""`coterie sweep` and `coterie reproduce`: many runs, done once each, and what they say."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import click

from coterie.cli.commands import echo, print_table
from coterie.cli.options import SETTING, out_option, set_option
from coterie.cli.running import Pace, check_out, run_all, runs_at_once
from coterie.cli.tables import print_blocks
from coterie.config.shipped import experiment_path
from coterie.core.errors import CoterieError, DataError, RecordError, did_you_mean

if TYPE_CHECKING:
    from coterie.config.files import Scale
    from coterie.config.settings import Config
    from coterie.runs.record import RecordedRun
    from coterie.runs.sweep import Job, RunsFailed

scale_option = click.option(
    "--scale",
    type=click.Choice(["small", "medium", "full"]),
    default="full",
    help="full: the file as it is; small, medium: with what stands under [small] or [medium] in it "
    "[full].",
)
only_option = click.option(
    "--only",
    "wanted",
    multiple=True,
    metavar=SETTING,
    help="Only runs with this setting, such as seed=0. Several values of a key: any of them; "
    "several keys: all of them.",
)
runs_option = out_option("DIR", "Folder for the runs [runs/NAME, or runs/NAME-SCALE if not full].")


@click.command()
@click.argument("file")
@scale_option
@only_option
@set_option()
@runs_option
@click.option(
    "--engine",
    type=click.Choice(["workers", "ray"]),
    default="workers",
    help="Where runs run: in processes here, or as tasks on a Ray cluster [workers].",
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
    accuracy on the validation part, as for a search of learning rates; with "val_loss" by the loss
    there, for tasks without an accuracy. Runs that fail are told of after the table of those that
    are complete.
    """
    from coterie.config.files import read_experiment, selected_by
    from coterie.runs.sweep import relabel

    path = experiment_path(file)
    select = selected_by(read_experiment(path))
    folder, chosen = _place(path, scale, wanted, overrides, out)
    if select == "val_accuracy":
        _check_accuracy(chosen)
    relabel(folder, chosen)
    more = ["--engine", engine] if engine == "ray" else []
    again = _command("sweep", file, scale, wanted, overrides, out, more)
    failure = _run_what_is_left(folder, chosen, replace(pace, on_ray=engine == "ray"), again)
    runs, left_out = _complete(chosen, failure)
    lost = _unreadable(chosen, runs)
    if select:
        ranked = _print_ranking(runs, select, chosen)
        if ranked and not lost:
            best = _settled(overrides, wanted, ranked)
            echo(f"\nbest: {_command('run', file, 'full', (), best, None)}")
    else:
        print_blocks(runs, None)
    echo(f"\nrun folder: {folder}")
    _tell(left_out, failure)
    if lost:
        raise CoterieError(f"{len(lost)} of {len(chosen)} runs cannot be read")


@click.command()
@click.argument("name")
@scale_option
@only_option
@runs_option
@click.option("--no-run", is_flag=True, help="Run nothing: tables and page of what is complete.")
@click.option(
    "--estimate",
    is_flag=True,
    help="Run nothing: say how many core-hours what is left will take on this machine.",
)
@runs_at_once
def reproduce(
    name: str,
    scale: "Scale",
    wanted: tuple[str, ...],
    out: Path | None,
    no_run: bool,
    estimate: bool,
    pace: Pace,
) -> None:
    """Run a table or figure of the paper, and set what the paper says beside what comes out.

    \b
      coterie reproduce all --scale small          everything, on a part of the data
      coterie reproduce all --scale medium         on all data, with the 2NN for the CNN
      coterie reproduce efficiency --only model.name=sr
      coterie reproduce efficiency --no-run        tables of what has been run so far
      coterie reproduce all --estimate             how long it will take
      coterie list reproductions                   what there is

    On two cores everything at --scale small takes about half an hour, and single ones a few
    minutes. At full scale a run takes from a minute (sr) to the better part of an hour (cnn).

    NAME is an experiment that ships with coterie, or 'all'. What is complete is not run again, so
    that a long one can be done in several sittings; tables are made of all runs in the folder. A
    run that another experiment has, in a folder beside it, is copied from there.
    A dataset that is not on this machine is left out. The tables also go to reproduction.md in
    the folder of the runs, with a picture where there is one, and the runs themselves to a page,
    report.html.
    """
    from coterie.paper import REPRODUCTIONS
    from coterie.runs.sweep import check_no_run

    if name != "all" and name not in REPRODUCTIONS:
        hint = did_you_mean(name, [*REPRODUCTIONS, "all"])
        raise CoterieError(f"nothing called {name!r} to reproduce{hint}")
    if out:
        check_no_run(out)
    if no_run and estimate:
        raise click.UsageError("--no-run and --estimate exclude each other")
    names = _with_scale(REPRODUCTIONS, scale) if name == "all" else [name]
    if estimate:
        _estimate(names, scale, wanted, out)
        return
    failed = []
    for each in names:
        try:
            where = out / each if out and name == "all" else out
            again = _command("reproduce", name, scale, wanted, (), out)
            _reproduce(each, scale, wanted, where, None if no_run else pace, again)
        except CoterieError as error:
            if name != "all":
                raise
            failed.append(f"{each}: {error}")
            echo(failed[-1], err=True)
    if failed:
        raise CoterieError(f"{len(failed)} of {len(names)} could not be reproduced here")


def _with_scale(names: Collection[str], scale: "Scale") -> list[str]:
    """Keep the experiments whose files have a scale, and say which have not."""
    from coterie.config.files import read_experiment

    there = [n for n in names if scale == "full" or scale in read_experiment(experiment_path(n))]
    for name in (each for each in names if each not in there):
        echo(f"left out: {name} has no {scale} scale", err=True)
    return there


def _estimate(
    names: Sequence[str], scale: "Scale", wanted: tuple[str, ...], out: Path | None
) -> None:
    """Print the core-hours of what is left of every experiment, and their sum."""
    from coterie.config.factories import load_dataset
    from coterie.data import Dataset
    from coterie.runs.record import ended
    from coterie.runs.sweep import only
    from coterie.runs.sweep.estimate import Speeds, core_seconds
    from coterie.runs.sweep.taking_over import had_beside, unlabelled

    counted: set[Config] = set()
    datasets: dict[object, Dataset] = {}
    speeds: dict[object, Speeds] = {}

    def dataset_of(config: "Config") -> Dataset:
        if config.data not in datasets:
            datasets[config.data] = load_dataset(config)
        return datasets[config.data]

    rows: list[list[str]] = []
    sums: list[float] = [0, 0, 0.0]
    for name in names:
        where = out / name if out and len(names) > 1 else out
        folder, placed = _place(experiment_path(name), scale, (), (), where)
        every = only(placed, wanted)
        had = had_beside(every, folder)
        left = [job for job in every if not ended(job.folder) and job.folder not in had]
        left = [job for job in left if unlabelled(job.config) not in counted]
        counted |= {unlabelled(job.config) for job in left}
        there = _with_data(left, told=name) if left else []
        hours = core_seconds([job.config for job in there], dataset_of, speeds) / 3600
        counts = len(every), len(there), hours
        sums = [a + b for a, b in zip(sums, counts, strict=True)]
        rows.append([name, *_counts(counts)])
    if len(names) > 1:
        rows.append(["sum", *_counts(sums)])
    foot = (
        "Counted examples times speeds that were measured just now, on one core. Of a run that "
        "chooses its schedule, the usual one counts. Runs without their data are not counted, nor "
        "is a run that several experiments have counted twice."
    )
    head = ("experiment", "runs", "counted", "core-hours")
    print_table("what is left", head, rows, foot)


def _counts(counts: Sequence[float]) -> list[str]:
    every, counted, hours = counts
    return [f"{every:,}", f"{counted:,}", f"{hours:,.2f}" if hours < 1 else f"{hours:,.1f}"]


def _reproduce(
    name: str,
    scale: "Scale",
    wanted: tuple[str, ...],
    out: Path | None,
    pace: Pace | None,
    again: str,
) -> None:
    """Run what is left, unless there is no pace to do so, and show what there is."""
    from coterie.config.files import make_config
    from coterie.paper import judge, markdown, narrow, not_run
    from coterie.render.page import dots_figure, write_report
    from coterie.render.page.html import png, write
    from coterie.runs.record import ROWS, resume_command
    from coterie.runs.sweep import only
    from coterie.runs.sweep.taking_over import take_over

    folder, every = _place(experiment_path(name), scale, (), (), out)
    failure = None
    if pace:
        chosen = only(every, wanted)
        if taken := take_over(chosen, folder):
            told = f"{taken} of {len(chosen)} runs: complete in a folder beside {folder}, copied"
            echo(told, err=True)
        failure = _run_what_is_left(folder, _with_data(chosen), pace, again)
    runs, left_out = _complete(every, failure)
    left_out = [line.replace(resume_command(folder), again) for line in left_out]
    order = {job.folder: at for at, job in enumerate(every)}
    own = [run for run in runs if run.folder in order]  # and none that was put inside of one
    ran = {run.folder: make_config(run.config) for run in own}
    odd = {run.folder for run in own if ran[run.folder] != every[order[run.folder]].config}
    left_out += [f"{folder}: has other settings than the run of that name" for folder in odd]
    # Settings that there were none of when a run was made have their defaults.
    same = [replace(run, config=asdict(ran[run.folder])) for run in own if run.folder not in odd]
    runs = sorted(same, key=lambda run: order[run.folder])
    others = {path.parent for path in folder.rglob(ROWS)} - {job.folder for job in every}
    left_out += [f"{other}: not a run of this experiment at this scale" for other in sorted(others)]
    whole = [ran[run.folder] for run in runs if run.summary["status"] == "complete"]
    tables = [*judge(name, runs), *not_run([job.config for job in every], whole)]
    for table in tables:
        columns, rows = narrow(table)
        print_table(table.title, columns, rows, table.foot, wrap="verdict")
    for dots in (table.dots for table in tables if table.dots):
        write(folder / f"{dots.name}.png", png(dots_figure(dots)))
    write(folder / "reproduction.md", markdown(tables).encode())
    write_report(runs, folder / "report.html", None, left_out, tables=tables)
    echo(f"\nreport: {folder / 'report.html'}\nrun folder: {folder}")
    _tell(left_out, failure)


def _place(
    path: Path,
    scale: "Scale",
    wanted: tuple[str, ...],
    overrides: tuple[str, ...],
    out: Path | None,
) -> "tuple[Path, list[Job]]":
    """Return the runs of an experiment file that are wanted, where they are or will be."""
    from coterie.config.files import load_experiment
    from coterie.runs.sweep import only, place_jobs

    suffix = "" if scale == "full" else f"-{scale}"
    folder = out or Path("runs") / f"{path.stem}{suffix}"
    check_out(folder)
    return folder, only(place_jobs(load_experiment(path, overrides, scale), folder), wanted)


def _run_what_is_left(
    folder: Path, chosen: "list[Job]", pace: Pace, again: str
) -> "RunsFailed | None":
    """Run what is left of some jobs; return what failed, to be told of after the others."""
    from coterie.runs.sweep import RunsFailed, still_to_do

    todo, lines = still_to_do(chosen)
    for line in lines:
        echo(line, err=True)
    try:
        if todo:
            run_all(folder, todo, pace, again)
    except RunsFailed as failure:
        return failure
    return None


def _check_accuracy(jobs: "list[Job]") -> None:
    """Refuse to choose by an accuracy where the task has none; a dataset may be missing as yet."""
    from coterie.config.factories import load_dataset, make_task_of

    for config in {(job.config.data, job.config.task): job.config for job in jobs}.values():
        try:
            task = make_task_of(config, load_dataset(config))
        except DataError:
            continue  # which its runs say
        if task.right is None:
            raise CoterieError(
                f"sweep.select = 'val_accuracy': task {task.name!r} has no accuracy; take "
                "'val_loss', or 'train_loss' with loss in train.measure"
            )


def _complete(
    jobs: "list[Job]", failure: "RunsFailed | None"
) -> "tuple[list[RecordedRun], list[str]]":
    """Read the complete runs, and lines about the others; without any, say what failed."""
    from coterie.runs.record import ROWS, find_runs

    try:
        return find_runs([job.folder for job in jobs if (job.folder / ROWS).exists()])
    except RecordError as error:
        raise failure or error from None


def _tell(left_out: list[str], failure: "RunsFailed | None") -> None:
    """Say which runs are in no table, and why."""
    for line in left_out:
        echo(f"left out: {line}", err=True)
    if failure is None:
        return
    if len(failure.failed) > 1:
        for label, error in failure.failed.items():
            echo(f"failed: {label}: {error}", err=True)
    raise failure


def _with_data(jobs: "list[Job]", told: str = "") -> "list[Job]":
    """Leave out runs on datasets that are not on this machine, and say so; but not if complete.

    If `told` of what, that may leave none.
    """
    from coterie.config.factories import load_dataset
    from coterie.runs.record import ended

    done = {job.label for job in jobs if ended(job.folder)}
    there: dict[Any, bool] = {}
    for config in {job.config.data: job.config for job in jobs if job.label not in done}.values():
        try:
            load_dataset(config)
            there[config.data] = True
        except DataError as error:
            there[config.data] = False
            of = f"{told}: " if told else ""
            echo(f"left out: {of}{config.data.name}: {error}", err=True)
    kept = [job for job in jobs if job.label in done or there[job.config.data]]
    if not kept and not told:
        raise CoterieError("none of its datasets is on this machine; see 'coterie data'")
    return kept


def _unreadable(jobs: "list[Job]", runs: "list[RecordedRun]") -> list[Path]:
    """Return the folders of complete runs that could not be read."""
    from coterie.runs.record import COMPLETE, ended

    read = {run.folder for run in runs}
    return [j.folder for j in jobs if j.folder not in read and ended(j.folder) == COMPLETE]


def _command(
    what: str,
    name: str,
    scale: str,
    wanted: Sequence[str],
    overrides: Sequence[str],
    out: Path | None,
    more: Sequence[str] = (),
) -> str:
    """Write a command, as it can be given again.

    >>> _command("sweep", "my file.toml", "small", ["seed=0"], [], Path("runs/x"))
    "coterie sweep 'my file.toml' --scale small --only seed=0 --out runs/x"
    """
    words = ["coterie", what, name, *(["--scale", scale] if scale != "full" else [])]
    words += [word for text in wanted for word in ("--only", text)]
    words += [word for text in overrides for word in ("--set", text)]
    return join([*words, *(["--out", str(out)] if out else []), *more])


def _settled(overrides: Sequence[str], wanted: Sequence[str], best: dict[str, Any]) -> list[str]:
    """Return what to set for the best candidate: what was set, wanted alone, and its own settings.

    >>> _settled(["data.sample=0.1"], ["seed=0", "seed=1", "model.name=sr"], {"train.lr": 0.1})
    ['data.sample=0.1', 'model.name=sr', 'train.lr=0.1']
    """
    keys = [text.split("=")[0] for text in wanted]
    alone = [text for key, text in zip(keys, wanted, strict=True) if keys.count(key) == 1]
    said = {text.split("=")[0]: text for text in (*overrides, *alone)}
    return list({**said, **{key: f"{key}={_said(value)}" for key, value in best.items()}}.values())


def _print_ranking(runs: "list[RecordedRun]", select: str, chosen: "list[Job]") -> dict[str, Any]:
    """Print settings, the best first, and return what tells the best from the others."""
    from coterie.analysis.rank import rank
    from coterie.config.files import flat

    found = rank(runs, select, [flat(job.config) for job in chosen])
    keys = list(found[0].settings)
    rows = []
    for each in found:
        spread = "" if each.sd is None else f" ± {each.sd:.4f}"
        told = [_said(each.settings[key]) for key in keys]
        rows.append([*told, f"{each.value:.4f}{spread}", str(each.seeds)])
    head = (*(key.replace(".", ".\n") for key in keys), select, "seeds")
    print_table(f"best {select} first", head, rows, "mean ± SD over seeds")
    return {key: value for key, value in found[0].settings.items() if value is not None}


def _said(value: object) -> str:
    """Write a setting as `--set` reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
