"""Runs of every algorithm that are stopped or killed, and go on to the same bytes."""

import os
import signal
from pathlib import Path

import pytest

import killed
from coterie.runs.execute import execute
from coterie.simulation.state import State
from resuming import outcome, stopped_at
from variants import EACH, variant

# One of each kind: arrays of groups, second models, parts of models, several models, none global.
KINDS = ("hier-scaffold", "ditto", "fedper", "ifca", "fedavg, never")
SOME = [pytest.param(e, marks=[] if e in KINDS else [pytest.mark.long]) for e in EACH]


@pytest.mark.parametrize("which", SOME)
def test_a_run_stopped_in_every_state_ends_as_if_it_had_not_been(
    tmp_path: Path, which: str
) -> None:
    what, states = variant(which), list[State]()
    execute(what, tmp_path / "undisturbed", on_state=states.append)
    for state in states[:-1]:
        stopped_at(state.t, what, tmp_path / "run")
    execute(what, tmp_path / "run", resume=True)
    found = outcome(tmp_path / "run")
    assert found == outcome(tmp_path / "undisturbed")
    assert {"rows.jsonl", "model.safetensors"} <= set(found)
    if which.startswith(("ditto", "fedper", "ifca", "fedavg, never")):
        assert "nodes.parquet" in found


@pytest.mark.parametrize("which", SOME)
def test_a_run_killed_after_every_row_ends_as_if_it_had_not_been(
    tmp_path: Path, which: str
) -> None:
    what, states = variant(which), list[State]()
    execute(what, tmp_path / "undisturbed", on_state=states.append)

    def doomed() -> None:
        seen = []

        def count(state: object) -> None:
            seen.append(state)
            if len(seen) == 2:  # the row before it has been kept
                os.kill(os.getpid(), signal.SIGKILL)

        killed.attempt(what, tmp_path / "run", 0.0, count)

    for _ in states[:-1]:
        code = os.waitstatus_to_exitcode(os.waitpid(killed.fork(doomed), 0)[1])
        assert code == -signal.SIGKILL
    killed.attempt(what, tmp_path / "run", 0.0)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")
