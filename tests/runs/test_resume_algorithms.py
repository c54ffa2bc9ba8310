"""Runs of every algorithm that are stopped or killed, and go on to the same bytes."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import killed
from coterie.config.files import make_config
from coterie.config.settings import Config
from coterie.runs.execute import execute
from coterie.simulation.state import State
from resuming import outcome, stopped_at

EACH: dict[str, dict[str, Any]] = {
    "fedprox": {"name": "fedprox", "groups": "edge"},
    "scaffold": {"name": "scaffold", "groups": "edge"},
    "feddyn": {"name": "feddyn", "groups": "edge"},
    "fednova": {"name": "fednova"},
    "fedavgm": {"name": "fedavgm", "groups": "edge"},
    "fedadam": {"name": "fedadam"},
    "fedyogi": {"name": "fedyogi", "groups": "edge"},
    "fedper": {"name": "fedper", "groups": "edge"},
    "ditto": {"name": "ditto", "groups": "edge"},
    "ifca": {"name": "ifca", "num_groups": 3},
    "hier-fedprox": {"name": "hier-fedprox", "groups": "edge"},
    "hier-scaffold": {"name": "hier-scaffold", "groups": "edge"},
    "hier-scaffold, regrouped": {
        "name": "hier-scaffold",
        "groups": "search",
        "num_groups": 3,
        "regroup_every": 1,
        "grouping": "random",
    },
    "fedavg, never": {"name": "fedavg", "groups": "edge", "tau2": "never"},
    "ditto, never": {"name": "ditto", "groups": "edge", "tau2": "never"},
    "hier-scaffold, never": {"name": "hier-scaffold", "groups": "edge", "tau2": "never"},
    "ifca, never": {"name": "ifca", "num_groups": 2, "tau2": "never"},
}
# One of each kind: arrays of groups, second models, parts of models, several models, none global.
KINDS = ("hier-scaffold", "ditto", "fedper", "ifca", "fedavg, never")
SOME = [pytest.param(e, marks=[] if e in KINDS else [pytest.mark.long]) for e in EACH]


def config(which: str) -> Config:
    """Ten nodes of unequal sizes under three edges, of which four in five take part."""
    return make_config(
        {
            "data": {"sample": 0.1},
            "partition": {"kind": "dirichlet", "num_nodes": 10, "num_edges": 3}
            | {"min_partition_size": 6},
            "model": {"name": "own_nets:two_layers"},
            "algorithm": {"tau1": 1, "tau2": 3, **EACH[which]},
            "train": {"steps": 8, "lr": 0.05, "batch_size": 16, "measure_groups": True},
            "participation": {"fraction": 0.8},
        }
    )


@pytest.mark.parametrize("which", SOME)
def test_a_run_stopped_in_every_state_ends_as_if_it_had_not_been(
    tmp_path: Path, which: str
) -> None:
    what, states = config(which), list[State]()
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
    what, states = config(which), list[State]()
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
