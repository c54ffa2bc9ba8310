"""How long `coterie plan` searches, and what Ctrl-C leaves of it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from clocks import stopped, ticking
from coterie.cli import main
from coterie.config.files import expand
from coterie.config.settings import Config
from coterie.grouping.planner import _Search
from coterie.preview.plan import plans
from coterie.preview.pricing import WEIGHTINGS

SMALL = {"data.sample": 0.2, "partition.num_nodes": 20, "algorithm.num_groups": 2}


def run(folder: Path, *words: str, **settings: object) -> Result:
    sets = [f"--set={key}={value}" for key, value in {**SMALL, **settings}.items()]
    out = [] if "--json" in words else ["-o", str(folder / "plan.html")]
    return CliRunner().invoke(main, ["plan", "quickstart", *sets, *out, *words])


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C at the first shake of every search."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_Search, "shaken", stop)


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_keeps_what_a_budget_has_found(tmp_path: Path) -> None:
    done = run(tmp_path, "--methods", "edge")
    assert done.exit_code == 130
    assert done.output == "coterie: stopped; nothing was written\n"
    assert list(tmp_path.iterdir()) == []
    done = run(tmp_path, "--methods", "edge", "--budget", "1m")
    assert done.exit_code == 0, done.output
    assert "stopped early: this is the best so far" in done.output
    assert "found with weights 1:1" in done.output
    done = run(tmp_path, "--methods", "edge", "--budget", "1m", "--json")
    names = [point["name"] for point in json.loads(done.stdout)["points"]]
    assert {name.split()[0] for name in names} == {"edge", "1:1"}  # the others were not begun


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_in_an_experiments_own_budget_ends_the_plan(tmp_path: Path) -> None:
    done = run(tmp_path, "--methods", "coterie,edge", "--json", **{"algorithm.budget_s": 60})
    said = json.loads(done.stdout)
    assert said["stopped"]
    assert [point["name"] for point in said["points"]] == ["coterie"]


def small(**algorithm: object) -> list[Config]:
    raw = {"data": {"sample": 0.2}, "partition": {"num_nodes": 20}}
    return expand({**raw, "algorithm": {"num_groups": 2, **algorithm}})


def test_a_budget_searches_with_every_weighting() -> None:
    clock = ticking(0.01)
    view = plans(small(), methods=["edge"], budget_s=2.0, clock=clock)
    assert not view.stopped
    names = {point.name.split()[0] for point in view.points}
    assert {"1:1", "1:64", "0:1"} <= names
    assert clock() >= 2.0 * len(WEIGHTINGS)


def test_shakes_that_end_before_the_time_does_are_no_interruption() -> None:
    configs = small(shakes=2, budget_s=1.0)
    assert not plans(configs, methods=["edge"], clock=stopped).stopped
