"""What a target must be for each task, and what examples are dealt by."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coterie.config.factories import divide
from coterie.config.files import make_config
from coterie.core.errors import ConfigError, DataError
from coterie.data import Dataset
from coterie.data.cache import _keep, _open, _save
from coterie.data.dataset import check_dataset
from coterie.data.targets import quantiles
from tasked import NAMES, dataset


@pytest.mark.parametrize("task", NAMES)
def test_a_dataset_of_every_task_is_taken_as_it_is(task: str) -> None:
    made = dataset(task)
    assert check_dataset(made) is made
    assert made.by.dtype == np.int64 and made.by.shape == (len(made.x),)
    assert 0 <= made.by.min() and made.by.max() < made.n_strata


def test_labels_are_dealt_by_themselves() -> None:
    for task in ("classification", "binary"):
        made = dataset(task)
        assert made.by is made.y
        assert made.n_strata == made.n_classes


def test_numbers_are_dealt_by_ten_quantiles_of_the_first_target() -> None:
    made = dataset("regression", 200)
    assert np.bincount(made.by).tolist() == [20] * 10
    order = np.argsort(made.y[:, 0])
    assert (np.diff(made.by[order]) >= 0).all()


def test_equal_numbers_are_in_one_stratum() -> None:
    by, n = quantiles(np.array([1.0] * 50 + [2.0] * 5 + [3.0] * 45))
    assert n == len(set(by.tolist())) <= 3
    assert len(set(by[:50].tolist())) == 1
    assert quantiles(np.ones(7))[1] == 1


def test_labels_that_may_be_several_are_dealt_by_the_first() -> None:
    y = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]])
    made = Dataset("d", np.zeros((3, 1), np.float32), y, 3, task="multi-label")
    assert made.by.tolist() == [1, 0, 3]
    assert made.n_strata == 4


def test_a_column_of_ones_own_takes_their_place() -> None:
    made = replace(dataset("next-token", 60), strata=np.arange(60) % 4)
    assert dataset("next-token", 60).n_strata == 1
    assert made.n_strata == 4
    assert made.take(np.array([5, 2])).by.tolist() == [1, 2]
    config = make_config({"partition": {"kind": "shards", "num_nodes": 8, "shards_per_node": 1}})
    counts = divide(config, made).class_counts
    assert counts.shape == (8, 4)
    assert (counts > 0).sum() < 32  # nodes hold some strata and not others


@pytest.mark.parametrize("task", NAMES)
def test_every_task_is_dealt_and_split(task: str) -> None:
    made = dataset(task)
    for split in ("pooled", "per-node"):
        config = make_config(
            {
                "data": {"split": split},
                "partition": {"kind": "dirichlet", "num_nodes": 6, "num_edges": 2, "alpha": 5.0},
            }
        )
        divided = divide(config, made)
        assert divided.class_counts.shape == (6, made.n_strata)
        assert divided.class_counts.sum() == len(divided.split.train)


FLOATS, LABELS = np.zeros((3, 2), np.float32), np.array([0, 1, 1])
TOKENS = np.array([[0, 1], [2, 1], [1, 1]])
ODD = {
    "a task that is none": (
        Dataset("d", FLOATS, LABELS, 2, task="regresion"),
        "d: unknown task 'regresion'; did you mean 'regression'",
    ),
    "labels for numbers": (
        Dataset("d", FLOATS, LABELS, 2, task="regression"),
        r"y must be float32 \[3, targets\], .* got int64 \[3\]",
    ),
    "a number that is none": (
        Dataset("d", FLOATS, np.array([[0], [np.nan], [1]], np.float32), 1, task="regression"),
        "y of example 1 is no finite number",
    ),
    "as many columns as are said": (
        Dataset("d", FLOATS, np.zeros((3, 2), np.float32), 10, task="regression"),
        "n_classes must be the number of columns of y, 2, got 10",
    ),
    "three sides": (
        Dataset("d", FLOATS, np.array([0, 1, 2]), 3, task="binary"),
        "n_classes must be 2 for task 'binary', got 3",
    ),
    "a side that is none": (
        Dataset("d", FLOATS, np.array([0, 1, 2]), 2, task="binary"),
        "labels must be 0 to 1, got 2 for example 2",
    ),
    "a label that is set twice": (
        Dataset("d", FLOATS, np.array([[0], [1], [2]]), 1, task="multi-label"),
        r"y must be 0 or 1, got \[2\] for example 2",
    ),
    "a token outside of the vocabulary": (
        Dataset("d", TOKENS, TOKENS, 2, task="next-token"),
        "tokens of x must be 0 to 1, the vocabulary, got 2 in example 1",
    ),
    "a target outside of the vocabulary": (
        Dataset("d", TOKENS, TOKENS - 2, 3, task="next-token"),
        "tokens of y must be -1 to 2, the vocabulary, got -2 in example 0",
    ),
    "nothing to predict": (
        Dataset("d", TOKENS, np.array([[1, 2], [-1, -1], [0, 0]]), 3, task="next-token"),
        "example 1 has only -1",
    ),
    "numbers for tokens": (
        Dataset("d", FLOATS, TOKENS, 3, task="next-token"),
        "x and y must be tokens",
    ),
    "tokens below 0": (
        Dataset("d", TOKENS - 1, LABELS, 2),
        "tokens of x must be >= 0, got -1 in example 0",
    ),
    "strata below 0": (
        Dataset("d", FLOATS, LABELS, 2, strata=LABELS - 1),
        "strata must be 0 to 999,999, got -1 to 0",
    ),
    "strata of others": (
        Dataset("d", FLOATS, LABELS, 2, strata=LABELS[:2]),
        "strata must be 3 whole numbers",
    ),
}


@pytest.mark.parametrize(("made", "says"), ODD.values(), ids=ODD)
def test_a_target_that_does_not_fit_is_refused(made: Dataset, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        check_dataset(made)
    assert "\n" not in str(caught.value)


def test_a_metric_that_no_task_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown task\.metrics 'f1'; choose one of accuracy, "):
        make_config({"task": {"metrics": ["f1"]}})
    with pytest.raises(ConfigError, match=r"unknown task\.name 'regresion'; did you mean 'regre"):
        make_config({"task": {"name": "regresion"}})


@pytest.mark.parametrize("task", NAMES)
def test_what_was_decoded_comes_back(task: str, tmp_path: Path) -> None:
    made = replace(dataset(task, 20), strata=np.arange(20) % 3)
    (tmp_path / "scratch").mkdir()
    _save(made, tmp_path / "scratch")
    _keep(tmp_path / "scratch", tmp_path / "there")
    again = _open(tmp_path / "there")
    assert again is not None
    assert again.task == task
    for one, its in ((again.x, made.x), (again.y, made.y), (again.by, made.by)):
        assert one.dtype == its.dtype
        assert np.array_equal(one, its)
