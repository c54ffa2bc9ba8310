"""The examples of one's own algorithms are short, and are the built-in ones again."""

from pathlib import Path

import numpy as np
import pytest
import torch

import coterie
from coterie.runs.execute import execute
from resuming import outcome, stopped_at

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("feddyn", "fednova", "ifca")
LONGEST = 40  # lines, with imports and docstrings


def config(name: str, **train: object) -> coterie.Config:
    """Ten unequal nodes in mini-batches, so that they take unequal numbers of steps."""
    return coterie.make_config(
        {
            "data": {"sample": 0.1},
            "partition": {"kind": "dirichlet", "alpha": 0.3, "num_nodes": 10, "num_edges": 2}
            | {"min_partition_size": 6},
            "algorithm": {"name": name, "num_groups": 3, "tau2": 2},
            "train": {"steps": 8, "lr": 0.1, "batch_size": 16, "precision": "float64", **train},
            "participation": {"fraction": 0.7},
        }
    )


@pytest.fixture(autouse=True)
def _in_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)  # where a module is looked for, too
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.parametrize("engine", ["sequential", "vectorized"])
@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_the_built_in_algorithm(name: str, engine: str) -> None:
    own, ours, plain = (
        list(coterie.simulate(config(which, engine=engine)))
        for which in (f"{name}:{name}", name, "fedavg")
    )
    assert len(own) == len(ours)
    for a, b in zip(own, ours, strict=True):
        assert a.models.of_node.tolist() == b.models.of_node.tolist()
        torch.testing.assert_close(a.models.w, b.models.w, rtol=0, atol=1e-12)
        assert (a.row.t, a.row.group_sizes) == (b.row.t, b.row.group_sizes)
        assert (a.row.seconds, a.row.bytes_by_tier) == (b.row.seconds, b.row.bytes_by_tier)
    last, other = (states[-1].models for states in (own, plain))
    apart = last.w[last.of_node] - other.w[other.of_node]
    assert np.abs(apart.numpy()).max() > 1e-3  # it is not FedAvg either


@pytest.mark.parametrize("name", NAMES)
def test_an_example_that_was_stopped_goes_on_to_the_same_end(name: str, tmp_path: Path) -> None:
    what = config(f"{name}:{name}")
    execute(what, tmp_path / "whole")
    stopped_at(4, what, tmp_path / "stopped")
    execute(what, tmp_path / "stopped", resume=True)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")


def test_the_example_of_clusters_has_several_models_to_choose_from() -> None:
    sizes = [len(state.models.w) for state in coterie.simulate(config("ifca:ifca"))]
    assert max(sizes) > 1


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short(name: str) -> None:
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
    assert len(lines) <= LONGEST
