import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.errors import DataError
from coterie.data import DATASETS, Dataset, load, sample, split
from datafiles import write_mnist

FEMNIST = os.environ.get("COTERIE_TEST_FEMNIST", "")  # a folder of LEAF's JSON, if you have one


def test_the_embedded_images_are_the_ones_that_were_cut() -> None:
    data = load("mnist-f-mini")
    digest = hashlib.sha256(data.x[:, 0].tobytes() + data.y.tobytes()).hexdigest()
    assert digest == "9c6ad46cd7908eecaea054baed09260deb24572b4824039d35adfc3b0b3a0001"
    assert np.bincount(data.y).tolist() == [700] * 10


@pytest.mark.skipif(
    not Path("/usr/share/datasets/fashion-mnist").is_dir(), reason="needs dataset-fashion-mnist"
)
def test_the_full_fashion_mnist_has_seventy_thousand_balanced_images(cache: Path) -> None:
    data = load("mnist-f")
    assert data.x.shape == (70_000, 1, 28, 28)
    assert np.bincount(data.y).tolist() == [7_000] * 10


@pytest.mark.skipif(
    not Path("/usr/share/datasets/fashion-mnist").is_dir(), reason="needs dataset-fashion-mnist"
)
def test_the_last_embedded_images_are_from_the_official_test_part(cache: Path) -> None:
    full, mini = load("mnist-f"), load("mnist-f-mini")
    assert full.test is not None
    assert mini.test is not None
    assert np.flatnonzero(full.test).tolist() == list(range(60_000, 70_000))
    official = {full.x[i].tobytes() for i in np.flatnonzero(full.test)}
    others = {full.x[i].tobytes() for i in np.flatnonzero(~full.test)}
    assert mini.test.sum() == 1014
    assert all(mini.x[i].tobytes() in official for i in np.flatnonzero(mini.test))
    assert all(mini.x[i].tobytes() in others for i in np.flatnonzero(~mini.test))


@pytest.mark.skipif(not FEMNIST, reason="needs $COTERIE_TEST_FEMNIST, LEAF's JSON of FEMNIST")
def test_real_femnist_has_writers_and_sixty_two_classes(cache: Path) -> None:
    data = load("femnist", Path(FEMNIST))
    assert data.users is not None
    assert len(np.unique(data.users)) == len(data.user_names)
    assert (np.bincount(data.y, minlength=62) > 0).all()
    assert np.array_equal(load("femnist", Path(FEMNIST)).x, data.x)


def test_too_few_examples_to_split_are_refused() -> None:
    with pytest.raises(DataError, match="3 examples are too few"):
        split(np.arange(3), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mnist-o", "mnist-o is not on this machine; get it with: coterie data fetch mnist-o"),
        ("femnist", "make its JSON with LEAF .*, then: coterie data import femnist FOLDER"),
        (
            "celeba",
            "get img_align_celeba.zip, .* coterie data import celeba FOLDER",
        ),
        ("arrays", r"arrays is your own \.npz, or folder of \.npy, .*: set data\.path to it"),
        ("images", r"images is your own pictures, .*: set data\.path to it"),
        ("mnist-ff", "did you mean 'mnist-f'"),
    ],
)
def test_a_missing_dataset_says_how_to_get_it(cache: Path, name: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(name)


def test_a_path_that_is_not_there_or_not_wanted_is_said(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        load("mnist-f", tmp_path / "nowhere")
    with pytest.raises(
        DataError, match=r"has no train-images.*, t10k-labels-idx1-ubyte \(or \.gz\)"
    ):
        load("mnist-f", tmp_path)
    with pytest.raises(DataError, match=r"takes no data\.path"):
        load("mnist-f-mini", tmp_path)


def test_every_known_dataset_says_what_it_is_and_under_which_licence() -> None:
    for name, known in DATASETS.items():
        assert known.about
        assert known.licence or known.yours, name


def test_a_sample_is_whole_users_and_close_to_the_share() -> None:
    users = np.repeat(np.arange(50), np.random.default_rng(0).integers(1, 40, 50))
    y = np.arange(len(users)) % 3
    data = Dataset("d", np.zeros((len(users), 2), np.float32), y, 3, users)
    for share in (0.1, 0.5, 0.9):
        chosen = sample(data, share, np.random.default_rng(1))
        assert abs(len(chosen) - share * len(users)) <= 20
        kept = np.unique(users[chosen])
        assert np.isin(users, kept).sum() == len(chosen)
    assert np.array_equal(sample(data, 1.0, np.random.default_rng(1)), np.arange(len(users)))
    few = data.take(sample(data, 0.1, np.random.default_rng(1)))
    assert len(few.x) == len(few.y) == len(few.users if few.users is not None else [])


def test_a_sample_without_users_has_exactly_its_share(tmp_path: Path, cache: Path) -> None:
    data = load("mnist-o", write_mnist(tmp_path / "m", (80, 20)))
    chosen = sample(data, 0.25, np.random.default_rng(0))
    assert len(np.unique(chosen)) == 25


@given(st.lists(st.integers(0, 4), min_size=1, max_size=70), st.integers(0, 99))
def test_a_split_is_every_example_once_and_three_to_one_to_one_per_class(
    labels: list[int], seed: int
) -> None:
    y = np.repeat(labels, 5)
    parts = split(y, np.random.default_rng(seed))
    together = np.concatenate([parts.train, parts.val, parts.test])
    assert np.array_equal(np.sort(together), np.arange(len(y)))
    for c in np.unique(y):
        n = (y == c).sum()
        assert abs((y[parts.train] == c).sum() - 0.6 * n) <= 0.5
        assert abs((y[parts.val] == c).sum() - 0.2 * n) <= 1
