"""Weights & Biases: the only file that needs its library (`pip install 'coterie[wandb]'`)."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from coterie.trackers.values import About, Note, Point


def open_run(destination: str, run: About, note: Note) -> "Run":
    """Go on with the run that the note names, or begin one; offline if WANDB_MODE says so."""
    import wandb

    entity, _, project = destination.rpartition("/")
    run_id = str(note.get("id") or uuid.uuid4().hex[:12])
    made = wandb.init(
        entity=entity or None,
        project=project,
        group=run.experiment,
        name=run.name,
        id=run_id,
        resume="allow" if note else None,
        config=dict(run.params),
        reinit="create_new",
        settings=wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,
            save_code=False,
            x_disable_stats=True,
        ),
    )
    return Run(made, run_id, int(note.get("t", -1)))


class Run:
    """One run; what was sent of it is noted here, as a run without a server cannot be asked."""

    def __init__(self, run: Any, run_id: str, last: int) -> None:
        """Remember where it is."""
        self.id, self.last, self._run = run_id, last, run

    @property
    def note(self) -> Note:
        """Its id, and the last step that was sent."""
        return {"id": self.id, "t": self.last}

    def add(self, points: Sequence[Point]) -> None:
        """Send rows."""
        for each in points:
            self._run.log(dict(each.values), step=each.t, commit=True)
            self.last = each.t

    def finish(self, status: str, final: Mapping[str, float]) -> None:
        """Send the summary under `final`, and wait until all has gone out."""
        self._run.summary.update({f"final/{key}": value for key, value in final.items()})
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status == "complete" else 1)
