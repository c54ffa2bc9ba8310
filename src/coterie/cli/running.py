"""Running what an experiment file describes: where it goes, how it goes on, and how it is shown."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coterie.cli.commands import Stopped, echo, loading, progress, stopping
from coterie.cli.options import Cores, Quantity, jobs_option
from coterie.cli.track import tracking
from coterie.config.shipped import experiment_path, read_configs
from coterie.core.errors import CoterieError, OwnCodeError

if TYPE_CHECKING:
    from coterie.runs.sweep import Job
    from coterie.trackers import Target

CHECKPOINT_EVERY_S = 1.0
OPTIONS = [
    jobs_option,
    click.option(
        "--workers",
        type=Cores(),
        help="Cores to use [all], first for runs side by side; results do not depend on it.",
    ),
    click.option(
        "--ray-address",
        metavar="ADDRESS",
        help="Ray cluster of train.engine = 'ray': auto, HOST:PORT or ray://HOST:PORT [its own].",
    ),
    click.option(
        "--checkpoint-every",
        "every_s",
        type=Quantity("time", zero=True),
        default=CHECKPOINT_EVERY_S,
        metavar="TIME",
        help="How much work a crash may cost, such as 60 or 5m [1s]; 0 keeps every aggregation.",
    ),
]


@dataclass(frozen=True)
class Pace:
    """How runs are run: so many at a time, on so many cores, kept so often, and tracked where."""

    jobs: int | None = None
    workers: int | None = None
    every_s: float = CHECKPOINT_EVERY_S
    track: "Sequence[Target]" = ()
    ray_address: str | None = None
    on_ray: bool = False  # whole runs, as tasks of a cluster


def runs_at_once(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a pace, which it gets as one argument."""

    @wraps(command)
    def paced(
        *args: Any,
        jobs: int | None,
        workers: int | None,
        every_s: float,
        ray_address: str | None,
        **rest: Any,
    ) -> Any:
        pace = Pace(jobs, workers, every_s, ray_address=ray_address)
        return command(*args, pace=pace, **rest)

    for option in reversed(OPTIONS):
        paced = option(paced)
    return paced


def check_out(folder: Path) -> None:
    """Refuse a folder that would be below what is none, before anything is done for it."""
    there = next((p for p in (folder, *folder.parents) if os.path.exists(p)), None)  # noqa: PTH110
    if there is not None and not there.is_dir():
        raise CoterieError(f"{folder}: cannot be written (Not a directory: {there})")


def begin(file: str, overrides: tuple[str, ...], out: Path | None) -> "tuple[Path, list[Job]]":
    """Return the runs that an experiment file describes, and the folder they go to."""
    from coterie.runs.record import ROWS, RUNS, resume_command
    from coterie.runs.sweep import free_folder, plan_jobs

    if out:
        check_out(out)
    name, configs = read_configs(file, overrides)
    held = [p.parent for name in (RUNS, ROWS) for p in out.rglob(name)] if out else []
    if held:
        way = resume_command(out if out in held else held[0])
        raise CoterieError(f"{out} already holds a run; choose another --out, or go on with: {way}")
    folder = out or free_folder(Path("runs") / name)
    return folder, plan_jobs(configs, folder)


def go_on(
    folder: Path,
    file: str | None,
    overrides: tuple[str, ...],
    out: Path | None,
    pace: Pace,
) -> "tuple[list[Job], list[str]]":
    """Go on with what a folder holds; return all its runs, and lines on those that were done.

    Code that the folder names is called only if the user names it, too, by FILE or by --set.
    """
    from coterie.config.files import code_of, code_set, load_experiment
    from coterie.runs.record import COMPLETE
    from coterie.runs.sweep import check_same, recorded_jobs, still_to_do

    if out:
        raise click.UsageError("--resume goes on in its own folder; leave out --out")
    if file:
        configs = load_experiment(experiment_path(file), overrides)
        every = recorded_jobs(folder, code_of(*configs))
        check_same(configs, every, folder)
    else:
        code = code_set(overrides)
        if len(code) < len(set(overrides)):
            raise click.UsageError(
                "--resume goes on with the settings it was begun with; --set only names its code "
                "again, such as model.name=my_pkg.models:make"
            )
        every = recorded_jobs(folder, code)
        for key, path in sorted(code - code_of(*(job.config for job in every))):
            raise click.UsageError(f"--set {key}={path}: no run of {folder} was begun with it")
    todo, lines = still_to_do(every)
    later = [] if todo else [line for line in lines if line.endswith(COMPLETE)]  # if they are read
    for line in lines:
        if line not in later:
            echo(line, err=True)
    if todo:
        run_all(folder, todo, pace)
    return every, later


def run_all(folder: Path, todo: "list[Job]", pace: Pace, again: str = "") -> None:
    """Run jobs into a folder, and say how to go on if they are stopped: by `again`, if given."""
    from coterie.config.factories import load_dataset
    from coterie.config.files import code_of
    from coterie.runs.execute import Interrupted
    from coterie.runs.record import ended, resume_command
    from coterie.runs.sweep import RunsFailed, Stop, run_jobs, sweep_folder

    on_ray = pace.on_ray or any(job.config.train.engine == "ray" for job in todo)
    if pace.ray_address is not None and not on_ray:
        raise click.UsageError(
            "--ray-address is for runs on Ray: train.engine = 'ray', or sweep --engine ray"
        )
    todo = [_at_address(job, pace.ray_address) for job in todo]
    configs = [job.config for job in todo]
    loaded = None
    with loading(folder.name) as show:  # decoded once, before several workers ask for it
        for config in {config.data: config for config in configs}.values():
            if ":" not in config.data.name:  # a user's function has nothing decoded to keep
                loaded = config.data, load_dataset(config, show)
    stop = Stop()

    def way() -> str:
        return f"go on with: {again or resume_command(folder, code_of(*configs))}"

    try:
        steps = {job.label: job.config.train.steps for job in todo}
        with sweep_folder(folder, todo), stopping(stop.ask), progress(steps) as (on_row, say):
            cores = pace.workers or os.cpu_count() or 1
            at_once = cores if pace.on_ray else min(pace.jobs or cores, len(todo))
            if on_ray and not pace.on_ray:
                at_once = 1  # every run has the whole cluster
            todo = [replace(job, threads=max(1, cores // at_once)) for job in todo]
            with tracking(pace.track, folder, todo, on_row, say) as on_row_tracked:
                run_jobs(
                    todo,
                    at_once,
                    on_row_tracked,
                    checkpoint_every_s=pace.every_s,
                    stop=stop,
                    say=say,
                    on_ray=pace.on_ray,
                    loaded=loaded,
                )
    except RunsFailed as failure:
        own = all(isinstance(why, OwnCodeError) for why in failure.failed.values())
        if own and _begun(folder):
            failure.args = (f"{failure}; once that is mended, {way()}",)
        raise
    except Interrupted as stopped:
        raise Stopped(f"stopped after step {stopped.t}; {way()}") from stopped
    except KeyboardInterrupt as stopped:
        if not _begun(folder):
            raise Stopped("stopped; nothing was written") from stopped
        done = sum(ended(job.folder) is not None for job in todo)
        far = f", {done} of {len(todo)} runs are done" if len(todo) > 1 else ""
        raise Stopped(f"stopped{far}; {way()}") from stopped


def _begun(folder: Path) -> bool:
    """Whether a folder holds anything to go on with."""
    from coterie.runs.record import ROWS, RUNS

    return (folder / RUNS).exists() or any(folder.rglob(ROWS))


def _at_address(job: "Job", address: str | None) -> "Job":
    """Let a run run on another cluster than its file says."""
    if address is None:
        return job
    config = replace(job.config, ray=replace(job.config.ray, address=address))
    return replace(job, config=config)
