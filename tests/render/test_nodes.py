"""Nodes on the page of runs: how their accuracies spread, and where they are."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coterie.render.page import page_data
from coterie.render.page.node_data import nodes_of
from coterie.render.watch.live import Live
from coterie.runs.node_scores import COLUMNS, write_table
from coterie.runs.record import RecordedRun
from made_runs import EDGES, NODES, made_run, write_run


def scored(folder: Path, seed: int, last: Sequence[float | None]) -> RecordedRun:
    """A run whose nodes were scored at step 0, all wrong, and at step 2."""
    run = made_run(folder, "fedavg-ic", seed)
    write_run(run)
    nodes = list(range(NODES))
    columns: dict[str, list[Any]] = {
        "t": [0] * NODES + [2] * NODES,
        "node": nodes * 2,
        "name": [f"device {i}" for i in nodes] * 2,
        "edge": run.grouping["edge_of"] * 2,
        "group": run.grouping["z"] * 2,
        "examples": [5] * 2 * NODES,
        "test_examples": [10] * 2 * NODES,
        "accuracy": [0.0] * NODES + [*last],
        "loss": [1.0] * 2 * NODES,
    }
    assert list(columns) == list(COLUMNS)
    write_table(folder, columns)
    return run


def test_the_spread_is_over_the_nodes_of_all_seeds_when_last_scored(tmp_path: Path) -> None:
    one = scored(tmp_path / "a", 0, [0.5] * 10 + [0.9] * 10)
    two = scored(tmp_path / "b", 1, [0.1] * 2 + [0.9] * 18)
    found = nodes_of([one, two])
    assert found is not None
    counts = {at / 20: count for at, count in enumerate(found["counts"]) if count}
    assert counts == {0.1: 2, 0.5: 10, 0.9: 28}
    assert (found["of"], found["seeds"], found["t"]) == (40, 2, 2)
    assert found["mean"] == pytest.approx((2 * 0.1 + 10 * 0.5 + 28 * 0.9) / 40, abs=1e-4)
    assert found["worst"] == pytest.approx((2 * 0.1 + 2 * 0.5) / 4)
    assert found["own"] == [0.5] * 10 + [0.9] * 10  # of the first seed


def test_edges_are_told_by_their_nodes(tmp_path: Path) -> None:
    last: list[float | None] = [i / NODES for i in range(NODES)]
    last[3] = None  # a node without test examples
    run = scored(tmp_path / "a", 0, last)
    found = nodes_of([run])
    assert found is not None
    edges = found["edges"]
    assert len(edges["names"]) == edges["of"] == EDGES
    assert sum(edges["nodes"]) == found["of"] == NODES - 1
    assert found["own"][3] is None
    first = [v for e, v in zip(run.grouping["edge_of"], last, strict=True) if e == 0]
    known = [v for v in first if v is not None]
    assert edges["mean"][0] == pytest.approx(sum(known) / len(known), abs=1e-4)
    assert edges["least"][0] == pytest.approx(min(known))


def test_a_large_network_has_edges_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.render.page.node_data.MOST_NODES", NODES - 1)
    monkeypatch.setattr("coterie.render.page.node_data.MOST_EDGES", 3)
    found = nodes_of([scored(tmp_path / "a", 0, [0.5] * NODES)])
    assert found is not None
    assert found["own"] is None
    assert (len(found["edges"]["names"]), found["edges"]["of"]) == (3, EDGES)


def test_runs_without_scores_have_no_nodes_on_their_page(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", "fedavg-ic")
    assert nodes_of([run]) is None
    (line,) = page_data([run])["blocks"][0]["lines"]
    assert line["nodes"] is None
    assert not {"node_mean", "node_worst"} & set(line["curve"]["y"])


def test_scores_that_cannot_be_read_are_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    run = scored(tmp_path / "a", 0, [0.5] * NODES)
    (tmp_path / "a" / "nodes.parquet").write_bytes(b"no")
    (block,) = page_data([run])["blocks"]
    assert "nodes are not shown" in block["notes"][0]
    assert block["lines"][0]["curve"]["points"] == 3
    other = scored(tmp_path / "b", 0, [0.5] * NODES)
    fewer = replace(other, grouping={**other.grouping, "z": other.grouping["z"][:-1]})
    assert "its scores are not of its 19 nodes" in nodes_of([fewer])["problem"]  # type: ignore[index]


def test_quantities_that_are_measured_now_and_then_are_on_the_page(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", "fedavg-ic", accuracies=[0.1, 0.2, 0.3, 0.4, 0.5])
    for row in run.rows:
        row["test_accuracy"] = None if row["t"] % 2 else row["test_accuracy"]
        row["Delta"] = row["delta"] = None if row["t"] % 3 else 1.0
        row["train_loss"] = row["test_loss"] = None
        row["node_worst"] = 0.25 if row["t"] == 3 else None
    (line,) = page_data([run])["blocks"][0]["lines"]
    curve = line["curve"]
    assert curve["x"]["t"] == [0, 2, 3, 4]
    assert curve["y"]["test_accuracy"]["mean"] == [10, 30, None, 50]
    assert curve["y"]["Delta"]["mean"] == [1, None, 1, None]
    assert curve["y"]["node_worst"]["mean"] == [None, None, 25, None]


def test_a_watched_folder_shows_nodes_too(tmp_path: Path) -> None:
    scored(tmp_path / "a", 0, [0.5] * NODES)
    live = Live(tmp_path)
    (line,) = json.loads(live.latest().body)["page"]["blocks"][0]["lines"]
    assert line["nodes"]["of"] == NODES
