"""The coordinator's app without processes: what it leaves behind, however it ends."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'coterie[flower]'")

from coterie.core.errors import CoterieError
from coterie.flower import FlowerError, apps
from coterie.flower.messages import Answer, Kind, Request
from coterie.preview.planfile.writing import contents
from plans import EXAMPLE

ROUNDS = 5


class Edges:
    """Two edges that add 1 to the model; after some rounds the second is lost."""

    def __init__(self, lost_after: int = 99) -> None:
        self.starts: list[int] = []
        self.lost_after = lost_after

    def nodes(self) -> list[int]:
        return [1, 2]

    def ask(self, kind: Kind, asked: Mapping[int, Request], timeout_s: float) -> list[Answer]:
        if kind == "query":
            names = {1: "edge-0", 2: "edge-1"}
            return [Answer(i, None, {"num-examples": 5}, {"node": names[i]}) for i in asked]
        self.starts.append(next(iter(asked.values())).config["start"])
        return [self._train(i, request) for i, request in asked.items()]

    def _train(self, i: int, request: Request) -> Answer:
        if i == 2 and len(self.starts) > self.lost_after:
            return Answer(i, error="FlowerError: the edge gave no result")
        arrays = {key: np.asarray(array + 1) for key, array in (request.arrays or {}).items()}
        counts = {"nodes-late": i, "nodes-failed": 0, "nodes-rejected": 0}
        return Answer(i, arrays, {"num-examples": 5, **counts})


def coordinate(
    monkeypatch: pytest.MonkeyPatch, folder: Path, crew: Edges | None = None, **run: Any
) -> dict[str, Any]:
    """Run the coordinator's app, and return the result that it leaves."""
    (folder / "plan.json").write_bytes(contents(EXAMPLE, ".json"))
    edges = crew or Edges()
    monkeypatch.setattr(apps, "GridCrew", lambda grid: edges)
    config = {
        "coterie-folder": str(folder),
        "coterie-timeout": 1.0,
        "coterie-rounds": ROUNDS,
        "coterie-initial": "own_parts:initial",
        "coterie-evaluate": "own_parts:evaluate",
        "loss": 0.5,
        **{key.replace("_", "-"): value for key, value in run.items()},
    }
    apps._coordinator(None, SimpleNamespace(run_config=config))
    return result_of(folder)


def result_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def words(folder: Path) -> str:
    """What the coordinator's app said."""
    return (folder / "logs" / "coordinator-app.log").read_text()


def test_the_coordinator_averages_its_edges(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = coordinate(monkeypatch, tmp_path)
    assert found["status"] == "complete"
    assert [row["test.w"] for row in found["rows"]] == [1, 2, 3, 4, 5]
    assert [row["counted"] for row in found["rows"]] == ROUNDS * [2]
    assert {row["train.nodes-late"] for row in found["rows"]} == {3}, "1 and 2, not their mean"


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"coterie_evaluate": "own_parts:failing"}, "RuntimeError: no test examples"),
        ({"coterie_initial": "own_parts:nothing"}, "has no function 'nothing'"),
        ({"coterie_timeout": "soon"}, "ValueError: could not convert string to float"),
    ],
)
def test_whatever_ends_the_coordinator_there_is_a_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: dict[str, Any], said: str
) -> None:
    with pytest.raises((CoterieError, RuntimeError, ValueError)):
        coordinate(monkeypatch, tmp_path, **run)
    found = result_of(tmp_path)
    assert found["status"] == "failed"
    assert said in found["error"]
    assert said in words(tmp_path), "with where it was"


def test_a_state_that_cannot_be_written_ends_the_run_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "state").symlink_to("/proc")  # where nobody can write
    said = "state.safetensors: cannot be written (No such file or directory)"
    with pytest.raises(FlowerError, match=re.escape(said)):
        coordinate(monkeypatch, tmp_path)
    assert said in result_of(tmp_path)["error"]
    (tmp_path / "state").unlink()
    (tmp_path / "state").touch()
    edges = Edges()
    with pytest.raises(FlowerError, match=r"state\.safetensors: cannot be read \(Not a directory"):
        coordinate(monkeypatch, tmp_path, edges)
    assert edges.starts == [], "what cannot be gone on with is said before anybody trains"
    (tmp_path / "state").unlink()
    assert coordinate(monkeypatch, tmp_path)["status"] == "complete", "the same again goes on"


def test_a_result_that_cannot_be_written_does_not_hide_why_the_run_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "state").symlink_to("/proc")
    coordinated = apps._run

    def spoilt(crew: Any, folder: Path, run: dict[str, Any]) -> dict[str, Any]:
        (folder / "result.json").mkdir()
        return coordinated(crew, folder, run)

    monkeypatch.setattr(apps, "_run", spoilt)
    with pytest.raises(FlowerError, match=r"state\.safetensors: cannot be written"):
        coordinate(monkeypatch, tmp_path)
    assert "state.safetensors: cannot be written" in words(tmp_path)


def test_a_score_that_is_not_finite_is_null(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = coordinate(monkeypatch, tmp_path, loss="nan")
    assert found["status"] == "complete"
    assert found["rows"][0]["test.loss"] is None
    assert "step 2 of 10: 2 edges counted, loss not finite, w 1.0000" in words(tmp_path)


def test_a_result_of_before_is_not_taken_for_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    coordinate(monkeypatch, tmp_path)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(apps, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        coordinate(monkeypatch, tmp_path)
    assert not (tmp_path / "result.json").exists()


def test_an_edge_that_is_lost_for_good_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crew = Edges(lost_after=1)
    with pytest.raises(FlowerError, match=r"group 1: fewer than 1 nodes answered .* 3 times"):
        coordinate(monkeypatch, tmp_path, crew)
    assert len(crew.starts) == 4
    assert result_of(tmp_path)["status"] == "failed"


def test_the_coordinator_goes_on_from_its_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    coordinate(monkeypatch, tmp_path, coterie_rounds=2)
    assert "goes on" not in words(tmp_path)
    crew = Edges()
    found = coordinate(monkeypatch, tmp_path, crew)
    assert "goes on from step 4 of 10" in words(tmp_path)
    assert crew.starts == [4, 6, 8]
    assert len(found["rows"]) == ROUNDS


def test_the_coordinator_does_not_go_on_with_other_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    coordinate(monkeypatch, tmp_path, coterie_rounds=2, learning_rate=0.1, tau2=9)
    with pytest.raises(
        FlowerError, match=r"is of a run with config.learning-rate = 0\.1, not 0\.5"
    ):
        coordinate(monkeypatch, tmp_path, learning_rate=0.5, tau2=9)
    with pytest.raises(
        FlowerError, match=r"is of a run with config.learning-rate = 0\.1, not None"
    ):
        coordinate(monkeypatch, tmp_path, tau2=9)
    assert coordinate(monkeypatch, tmp_path, learning_rate=0.1, tau2=9)["status"] == "complete"
