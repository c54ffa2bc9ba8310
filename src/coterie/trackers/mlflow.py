"""MLflow: the only file that needs its library (`pip install 'coterie[mlflow]'`)."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coterie.trackers.values import About, Note, Point, milliseconds

MOST_METRICS, MOST_PARAMS, LONGEST = 1000, 100, 6000  # of one request; characters of a value
STATUS = {"complete": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}


def open_run(destination: str, run: About, note: Note) -> "Run":
    """Go on with the run that the note names, if the store still has it; else create one."""
    from mlflow import MlflowClient
    from mlflow.entities import Param

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    client = MlflowClient(tracking_uri=destination)
    found = _find(client, note.get("id"))
    if found is not None:
        client.update_run(found.info.run_id, status="RUNNING")
        return Run(client, found.info.run_id, int(found.data.metrics.get("t", -1)))
    experiment = _experiment(client, run.experiment)
    tags = {"coterie.folder": str(run.folder)}
    made = client.create_run(experiment, milliseconds(run.began), tags, run_name=run.name)
    params = [Param(key, f"{value}"[:LONGEST]) for key, value in run.params.items()]
    for at in range(0, len(params), MOST_PARAMS):
        client.log_batch(made.info.run_id, params=params[at : at + MOST_PARAMS])
    return Run(client, made.info.run_id, -1)


class Run:
    """One run of a store; what it has is asked of the store."""

    def __init__(self, client: Any, run_id: str, last: int) -> None:
        """Remember where it is."""
        self.id, self.last, self._client = run_id, last, client

    @property
    def note(self) -> Note:
        """The store's name for it."""
        return {"id": self.id}

    def add(self, points: Sequence[Point]) -> None:
        """Send whole rows, as many at a time as the store takes."""
        from mlflow.entities import Metric

        for some in _batches(points):
            metrics = [
                Metric(_name(key), value, milliseconds(each.time), each.t)
                for each in some
                for key, value in each.values.items()
            ]
            self._client.log_batch(self.id, metrics=metrics, synchronous=True)
            self.last = some[-1].t

    def finish(self, status: str, final: Mapping[str, float]) -> None:
        """Send the summary under `final`, and how it ended."""
        from mlflow.entities import Metric

        now, step = milliseconds(), max(self.last, 0)
        metrics = [Metric(_name(f"final/{k}"), value, now, step) for k, value in final.items()]
        if metrics:
            self._client.log_batch(self.id, metrics=metrics, synchronous=True)
        self._client.set_terminated(self.id, STATUS.get(status, "KILLED"))


def _find(client: Any, run_id: str | None) -> Any:
    from mlflow.exceptions import MlflowException

    if run_id is None:
        return None
    try:
        found = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    return found if found.info.lifecycle_stage == "active" else None


def _experiment(client: Any, name: str) -> str:
    """Find an experiment by name or create it, also if another does so at the same time."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


def _batches(points: Sequence[Point]) -> Iterator[list[Point]]:
    some: list[Point] = []
    room = MOST_METRICS
    for each in points:
        if some and len(each.values) > room:
            yield some
            some, room = [], MOST_METRICS
        some.append(each)
        room -= len(each.values)
    if some:
        yield some


def _name(key: str) -> str:
    """Replace what MLflow does not take in a name, such as a tier of a user's network."""
    return re.sub(r"[^\w\-. /]", "_", key, flags=re.ASCII)
