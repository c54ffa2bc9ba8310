"""`coterie track`, and `--track` of `coterie run`: runs in other programs' dashboards."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coterie.cli.commands import echo, loading
from coterie.cli.options import runs_argument
from coterie.cli.tables import find_complete
from coterie.core.errors import CoterieError

if TYPE_CHECKING:
    from coterie.runs.sweep import Job
    from coterie.trackers import Target

OnRow = Callable[[str, dict[str, Any]], None]
METAVAR = "TRACKER[=WHERE]"

track_option = click.option(
    "--track",
    multiple=True,
    metavar=METAVAR,
    help="Show rows as they come in tensorboard[=DIR], mlflow[=URL or FILE.db] or "
    "wandb[=PROJECT], once for each; see 'coterie track --help'.",
)


@click.command()
@runs_argument
@click.option("--to", multiple=True, required=True, metavar=METAVAR, help="Where to send them.")
def track(runs: tuple[Path, ...], to: tuple[str, ...]) -> None:
    """Send RUNS already recorded, run folders or folders of some, to a tracker.

    \b
    coterie track runs/demo --to tensorboard         then: tensorboard --logdir tensorboard
    coterie track runs/demo --to mlflow              into mlflow.db; then: mlflow ui
    coterie track runs/demo --to mlflow=http://localhost:5000
    coterie track runs/demo --to wandb=me/my-project
    WANDB_MODE=offline coterie track runs/demo --to wandb

    \b
    While a run is under way, and when it goes on:
      coterie run my.toml --track tensorboard --track mlflow
      coterie run --resume runs/my                   tracked as before

    \b
    Where runs go, and what to install:
      tensorboard[=DIR]         a folder for every run [tensorboard]; coterie[tensorboard]
      mlflow[=URL or FILE.db]   MLFLOW_TRACKING_URI, else mlflow.db here; coterie[mlflow]
      wandb[=PROJECT]           also ENTITY/PROJECT [coterie]; coterie[wandb]
      my_module:open[=WHERE]    a function of your own: docs/howto/tracking.md

    Every run becomes one run there: its settings as parameters, every row's figures by step, and
    the summary under final/. A run that is there already gets only what it lacks. A tracker that
    fails does not disturb a run under way; this command then sends the rest.
    """
    from coterie.trackers import Follower

    targets = _targets(to)
    with loading("track", "what was sent stays; the same command goes on") as show:
        found = find_complete(runs, show)
        for target in targets:
            for done, run in enumerate(found):
                show(f"to {target.kind}", done, len(found))
                Follower(run.folder, target).look()
    for target in targets:
        echo(f"{len(found)} runs are in {target}")


def targets_of(track: Sequence[str], resume: Path | None) -> "list[Target]":
    """Return where a run is tracked: as told, or else where it was when it was begun.

    What is told must work; what is only remembered is left out with a line if it does not. A
    function is never called because a folder says so: folders come from other people, too.
    """
    if track or resume is None:
        return _targets(track) if track else []
    from coterie.trackers import remembered

    found = []
    for text in remembered(resume):
        if ":" in text.partition("=")[0]:
            echo(f"not tracked: to use it again, say --track {shlex.quote(text)}", err=True)
            continue
        try:
            found += _targets([text])
        except CoterieError as error:
            echo(f"not tracked: {error}", err=True)
    return found


@contextmanager
def tracking(
    targets: "Sequence[Target]",
    folder: Path,
    jobs: "Sequence[Job]",
    on_row: OnRow,
    say: Callable[[str], None],
) -> Iterator[OnRow]:
    """Have runs tracked by processes beside them; yields what to call with each row."""
    if not targets:
        yield on_row
        return
    from coterie.trackers import beside

    with beside(targets, folder, {job.label: job.folder for job in jobs}, say) as begun:

        def both(label: str, row: dict[str, Any]) -> None:
            begun(label)
            on_row(label, row)

        yield both


def _targets(texts: Sequence[str]) -> "list[Target]":
    """Read where to track, and refuse what cannot be used, before anything is done."""
    from coterie.trackers import TrackingError, parse_target, usable

    targets = [parse_target(text) for text in texts]
    kinds = [target.kind for target in targets]
    if twice := next((kind for kind in kinds if kinds.count(kind) > 1), None):
        raise TrackingError(f"{twice} is given twice; one destination at a time")
    for target in targets:
        usable(target)
    return targets
