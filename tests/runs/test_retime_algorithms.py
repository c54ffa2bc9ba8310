"""Runs of algorithms that send or do more than FedAvg, timed again by an unchanged clock."""

from pathlib import Path

import pytest

from coterie.config.files import make_config
from coterie.core.errors import RecordError
from coterie.runs.execute import execute
from coterie.runs.record import read_run
from coterie.runs.retime import retime

SMALL = {
    "data": {"sample": 0.1},
    "partition": {"kind": "iid", "num_nodes": 8, "num_edges": 4},
    "train": {"steps": 4},
}


@pytest.mark.parametrize("name", ["scaffold", "hier-scaffold", "fednova", "ditto"])
def test_an_unchanged_clock_charges_the_same_bytes_and_work(tmp_path: Path, name: str) -> None:
    algorithm = {"name": name, "groups": "edge", "tau2": 2}
    execute(make_config({**SMALL, "algorithm": algorithm}), tmp_path / "run")
    before = read_run(tmp_path / "run")
    after = retime(before, ["network.latency_s=0.001"])
    assert after.summary["seconds"] == pytest.approx(before.summary["seconds"], rel=1e-12)
    assert after.summary["bytes_by_tier"] == before.summary["bytes_by_tier"]


def test_a_run_whose_nodes_chose_their_models_has_to_be_run_again(tmp_path: Path) -> None:
    execute(make_config({**SMALL, "algorithm": {"name": "ifca"}}), tmp_path / "run")
    with pytest.raises(RecordError, match="it must be run again"):
        retime(read_run(tmp_path / "run"), ["compute.gflops=1"])
