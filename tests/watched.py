"""Runs under way, made by hand, and the real `coterie watch` to look at them."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.files import write_atomically, write_json
from coterie.runs.record import RecordedRun
from made_runs import made_run, write_run
from resuming import PATIENCE_S, start

Json = dict[str, Any]
A_DAY_S = 86400.0
WHERE = re.compile(r"http://127\.0\.0\.1:(\d+)/")


def rising(folder: Path, algorithm: str = "fedavg", seed: int = 0, rows: int = 21) -> RecordedRun:
    """A run of some rows, that is set to have as many steps."""
    steps = {"train": {"steps": rows - 1}}
    return made_run(folder, algorithm, seed, [*np.linspace(0.1, 0.9, rows)], settings=steps)


def under_way(run: RecordedRun, rows: int) -> Path:
    """Write a run as it is after some of its rows, or bring it that far."""
    if not run.folder.exists():
        with tempfile.TemporaryDirectory() as elsewhere:  # what it holds appears all at once
            made = write_run(replace(run, folder=Path(elsewhere) / "run"))
            (made / "summary.json").unlink()
            _advance(made, run, rows)
            run.folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(made, run.folder)
    else:
        _advance(run.folder, run, rows)
    return run.folder


def _advance(folder: Path, run: RecordedRun, rows: int) -> None:
    text = "".join(json.dumps(row) + "\n" for row in run.rows[:rows])
    half = '{"t": 99, "sec'  # of the next row
    write_atomically(folder / "rows.jsonl", (text + half).encode())
    at = {"steps": run.rows[rows - 1]["t"], "test_accuracy": None}
    write_json(folder / "progress.json", {**run.summary, "status": "running", **at})
    ahead = time.time() + A_DAY_S  # it is not taken for dead, however slow the test is
    os.utime(folder / "progress.json", (ahead, ahead))


def ended(run: RecordedRun, status: str = "complete") -> Path:
    """Write the end of a run that was under way."""
    text = "".join(json.dumps(row) + "\n" for row in run.rows)
    write_atomically(run.folder / "rows.jsonl", text.encode())
    write_json(run.folder / "summary.json", {**run.summary, "status": status})
    (run.folder / "progress.json").unlink()
    return run.folder


def planned(folder: Path, *runs: RecordedRun) -> None:
    """Write the list of a sweep's runs."""
    told = [{"folder": run.folder.name, "config": run.config} for run in runs]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "runs.json").write_text(json.dumps({"runs": told}))


@contextmanager
def watching(*words: object) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """Start `coterie watch` in a process of its own; yields its port, and the process."""
    process = start("watch", *words)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = WHERE.search(line)
        assert found, (line, process.communicate(timeout=PATIENCE_S))
        yield int(found[1]), process
    finally:
        process.kill()
        process.communicate()


def request(
    port: int, path: str = "/data.json", method: str = "GET", **headers: str
) -> tuple[HTTPResponse, bytes]:
    """Ask a server; `Host` is what a browser would say unless it is given."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {"Host": f"127.0.0.1:{port}", **headers}.items():
            if value:
                connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def data_of(port: int) -> Json:
    """What the page is told."""
    answer, body = request(port)
    assert answer.status == 200
    found: Json = json.loads(body)
    return found


def statuses(data: Json) -> dict[str, str]:
    return {run["name"]: run["status"] for run in data["runs"]}


def shifted(run: RecordedRun, status: str) -> RecordedRun:
    """The same run with another status in its summary."""
    return replace(run, summary={**run.summary, "status": status})
