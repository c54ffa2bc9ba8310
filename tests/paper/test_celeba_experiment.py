"""The experiment of CelebA, ready for its official files: what it says, and that all of it runs."""

from pathlib import Path

import numpy as np
import pytest

from coterie.config.files import load_experiment
from coterie.config.shipped import experiment_path
from coterie.partition import Examples, Rule
from coterie.partition.diversity import DIVERSITIES, two_level
from datafiles import write_celeba
from resuming import coterie


def test_it_has_leafs_settings_and_every_algorithm_at_two_scales() -> None:
    path = experiment_path("celeba")
    full, small = load_experiment(path), load_experiment(path, scale="small")
    assert {c.seed for c in full} == {0, 1, 2, 3, 4}
    assert {(c.train.batch_size, c.train.lr, c.model.name) for c in full + small} == {
        (5, 0.001, "celeba-cnn")
    }
    assert {c.partition.kind for c in full} == {"Dtt", "natural"}
    assert {c.algorithm.name for c in full} == {
        *("fedavg", "hierfavg", "fedavg-c", "fedavg-i", "fedavg-ic")
    }
    assert {round(c.data.sample * 200_288) for c in full} == {10_014}  # the paper's examples
    assert len(small) < len(full)


@pytest.mark.parametrize("name", ["accuracy", "diversities"])
def test_the_papers_figures_take_as_much_of_celeba_as_the_paper(name: str) -> None:
    configs = load_experiment(experiment_path(name))
    assert {c.data.sample for c in configs if c.data.name == "celeba"} == {0.05}
    assert {c.data.sample for c in configs if c.data.name == "mnist-o"} == {1.0}


def test_with_two_classes_all_six_diversities_deal_the_same() -> None:
    y = np.arange(600) % 2
    dealt = [
        two_level(Examples(y), Rule(kind, 20, 4), np.random.default_rng(0)) for kind in DIVERSITIES
    ]
    assert len(dealt) == 6
    for each in dealt:
        assert np.array_equal(each.node_of, dealt[0].node_of)


@pytest.mark.long
def test_all_of_it_runs_on_files_in_the_official_layout(tmp_path: Path) -> None:
    files = write_celeba(tmp_path / "files", {100 + i: 5 for i in range(12)})
    sets = [f"data.path={files}", "data.sample=1.0", "train.steps=8"]
    more = ["partition.num_nodes=6", "partition.num_edges=2"]
    words = [word for text in (*sets, *more) for word in ("--set", text)]
    words += ["--jobs", "1", "--out", str(tmp_path / "runs")]
    done = coterie("sweep", "celeba", "--scale", "small", *words)
    assert done.exit_code == 0, done.output
    assert len(list(tmp_path.glob("runs/*/summary.json"))) == 16
    again = coterie("sweep", "celeba", "--scale", "small", *words)
    assert "16 of 16 runs: complete already" in again.output
