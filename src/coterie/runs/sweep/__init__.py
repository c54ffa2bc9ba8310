"""Several runs from one experiment file, side by side in worker processes.

The record is the only channel for what happened: a worker writes its run folder, and progress is
read from it.
"""

from collections.abc import Callable

from coterie.config.factories import load_dataset
from coterie.config.settings import DataConfig
from coterie.core.boundary import debugging
from coterie.core.errors import CoterieError
from coterie.core.unexpected import in_our_words
from coterie.data import Dataset
from coterie.runs.execute import execute
from coterie.runs.record import ROWS
from coterie.runs.sweep.jobs import (
    Job,
    OnRow,
    RunsFailed,
    Stop,
    Tail,
    free_folder,
    plan_jobs,
    tail_of,
)
from coterie.runs.sweep.on_ray import run_on_ray
from coterie.runs.sweep.rerun import only, place_jobs
from coterie.runs.sweep.resume import (
    check_no_run,
    check_same,
    recorded_jobs,
    relabel,
    still_to_do,
    sweep_folder,
)
from coterie.runs.sweep.workers import run_in_workers
from coterie.simulation.state import State

Loaded = tuple[DataConfig, Dataset]  # a dataset, and the settings that name it
__all__ = [
    "Job",
    "RunsFailed",
    "Stop",
    "check_no_run",
    "check_same",
    "free_folder",
    "only",
    "place_jobs",
    "plan_jobs",
    "recorded_jobs",
    "relabel",
    "run_jobs",
    "still_to_do",
    "sweep_folder",
]


def run_jobs(
    jobs: list[Job],
    workers: int,
    on_row: OnRow,
    *,
    checkpoint_every_s: float,
    stop: Stop,
    say: Callable[[str], None],
    on_ray: bool = False,
    loaded: Loaded | None = None,
) -> None:
    """Run all jobs; one that fails does not stop the others, and is told of at the end.

    With `on_ray` they are tasks of a cluster, and `workers` the CPUs of one that is started here.
    A dataset that is `loaded` is not loaded again by runs in this process.

    When asked to stop, jobs finish their step and keep a checkpoint; then KeyboardInterrupt is
    raised, as Interrupted if there was one job.
    """
    if on_ray:
        failed = run_on_ray(jobs, workers, on_row, checkpoint_every_s, stop, say)
    elif workers == 1 or len(jobs) == 1:
        failed = _run_here(jobs, on_row, checkpoint_every_s, stop, say, loaded)
    else:
        stop.midway = True
        failed = run_in_workers(jobs, workers, on_row, checkpoint_every_s, stop, say)
    if failed:
        raise RunsFailed(failed, len(jobs)) from next(iter(failed.values()))


def _run_here(
    jobs: list[Job],
    on_row: OnRow,
    every_s: float,
    stop: Stop,
    say: Callable[[str], None],
    loaded: Loaded | None,
) -> dict[str, CoterieError]:
    failed: dict[str, CoterieError] = {}
    for job in jobs:
        stop.midway = False
        if stop():
            raise KeyboardInterrupt
        tail = tail_of(job.folder / ROWS)

        def report(_: State, job: Job = job, tail: Tail = tail) -> None:
            stop.midway = True
            for row in next(tail):
                on_row(job.label, row)

        try:
            if loaded is None or job.config.data != loaded[0]:
                loaded = job.config.data, load_dataset(job.config)
            execute(
                job.config,
                job.folder,
                loaded=loaded[1],
                on_state=report,
                resume=job.resume,
                threads=job.threads,
                checkpoint_every_s=every_s,
                stop=stop,
                say=lambda line, job=job: say(f"{job.folder}: {line}"),  # type: ignore[misc]
                wait_s=job.wait_s,
            )
        except CoterieError as error:
            failed[job.label] = error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if debugging():
                raise
            failed[job.label] = in_our_words(error)
    return failed
