"""Every algorithm on real Ray actors: one, two and three of them, killed and gone on with."""

import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie.config.prepare import prepare
from coterie.runs.execute import execute
from coterie.simulation.loop import rounds
from resuming import PATIENCE_S, outcome, stopped_at
from variants import EACH, on_ray

pytest.importorskip("ray", reason="Ray is not installed: pip install 'coterie[ray]'")

from clustered import RAYS_OWN, crew_of, in_the_middle

pytestmark = [*RAYS_OWN, pytest.mark.usefixtures("first_as_it_was", "ended")]
DIVERGENCES = ("delta", "Delta")
HERE = Path(__file__).parents[1]


def trained(which: str, actors: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return all rows of a run, and all arrays at its end; nodes train one by one."""
    prepared = prepare(on_ray(which, actors))
    prepared.problem.engine.choose({"kernel": "single", "actors": str(actors)})
    assert len(set(crew_of(prepared).pids) - {os.getpid()}) == actors
    states = list(rounds(prepared.problem))
    last = states[-1].models
    return [asdict(state.row) for state in states], {"w": last.w, **last.memory}


def _number(value: float | None) -> float:
    return np.nan if value is None else value


@pytest.mark.parametrize("which", EACH)
def test_no_byte_depends_on_the_number_of_actors(which: str) -> None:
    plain_rows, plain = trained(which, 1)
    for actors in (2, 3):
        found_rows, found = trained(which, actors)
        assert len(found_rows) == len(plain_rows)
        for a, b in zip(found_rows, plain_rows, strict=True):
            for key in DIVERGENCES:  # sums over nodes, in the order in which actors hold them
                np.testing.assert_allclose(_number(a.pop(key)), _number(b[key]), rtol=1e-7)
            np.testing.assert_equal(a, {key: b[key] for key in a})
        assert found.keys() == plain.keys()
        for key, array in plain.items():
            assert torch.equal(torch.as_tensor(found[key]), torch.as_tensor(array)), key


@pytest.mark.parametrize("which", EACH)
def test_actors_killed_and_a_driver_killed_change_no_byte(which: str, tmp_path: Path) -> None:
    what = on_ray(which, 2)
    execute(what, tmp_path / "undisturbed", threads=1)
    said: list[str] = []
    crew: list[Any] = []

    from coterie.engine.ray.actors import RayCrew

    hired = RayCrew.__init__

    def noted(self: RayCrew, *words: Any, **more: Any) -> None:
        hired(self, *words, **more)
        crew.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RayCrew, "__init__", noted)
        in_the_middle(lambda: os.kill(crew[-1].pids[1], signal.SIGKILL))
        execute(what, tmp_path / "bereft", say=said.append, threads=1)
    assert crew[-1].deaths == 1, said
    assert outcome(tmp_path / "bereft") == outcome(tmp_path / "undisturbed")

    command = [sys.executable, str(HERE / "variants.py"), which, str(tmp_path / "killed")]
    doomed = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert doomed.returncode == -signal.SIGKILL, doomed.stderr
    stopped_at(4, what, tmp_path / "killed")
    execute(what, tmp_path / "killed", resume=True, threads=1)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "undisturbed")
