"""How a config divides its examples: into parts, and to nodes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import Config, make_config
from coterie.config.factories import Divided, Part, divide, load_dataset, split_kind
from coterie.core.arrays import Ints
from coterie.core.errors import CoterieError
from coterie.data import Dataset, split
from coterie.partition import PARTITIONS

KINDS = [kind for kind in PARTITIONS if kind not in ("natural", "file")]
PARTS: tuple[Part, ...] = ("val", "test")


def config_of(split: str, *, sample: float = 1.0, seed: int = 0, **partition: Any) -> Config:
    return make_config(
        {
            "seed": seed,
            "data": {"split": split, "sample": sample},
            "partition": {"num_nodes": 60} | partition,
            "algorithm": {"num_groups": 1},
        }
    )


def made(n: int = 600, seed: int = 0) -> Dataset:
    """Examples whose only value is their number, a third of them the official test part."""
    rng = np.random.default_rng(seed)
    users = np.sort(rng.integers(0, 30, n))
    x = np.arange(n, dtype=np.float32)[:, None]
    names = tuple(f"u{i}" for i in range(30))
    return Dataset(
        "made", x, rng.permutation(np.arange(n) % 10), 10, users, names, rng.random(n) < 1 / 3
    )


def of_nodes(divided: Divided) -> list[dict[str, Ints]]:
    """The examples of every node in each part, as numbers of the dataset."""
    nodes = [{"train": divided.split.train[i]} for i in divided.partition.indices]
    for part in PARTS:
        held = divided.held_out(part)
        assert held.sizes is not None
        assert len(held.sizes) == len(nodes)
        assert held.sizes.sum() == len(held.examples)
        pieces = np.split(held.examples, np.cumsum(held.sizes)[:-1])
        for node, piece in zip(nodes, pieces, strict=True):
            node[part] = piece
    return nodes


def everything(divided: Divided) -> list[bytes]:
    split, part = divided.split, divided.partition
    arrays = [split.train, split.val, split.test, *part.indices, part.edge_of, divided.class_counts]
    return [a.tobytes() for a in arrays]


@pytest.mark.parametrize("kind", KINDS)
def test_per_node_puts_every_example_in_one_part_of_one_node(kind: str) -> None:
    divided = divide(config_of("per-node", kind=kind), made())
    nodes = of_nodes(divided)
    together = np.concatenate([numbers for node in nodes for numbers in node.values()])
    assert np.array_equal(np.sort(together), np.arange(600))
    for node, counts in zip(nodes, divided.class_counts, strict=True):
        n = sum(map(len, node.values()))
        for share, numbers in zip((0.6, 0.2, 0.2), node.values(), strict=True):
            assert abs(len(numbers) - share * n) < 1
        assert np.array_equal(np.bincount(divided.dataset.y[node["train"]], minlength=10), counts)


@pytest.mark.parametrize("sample", [1.0, 0.5])
def test_per_node_tests_a_user_on_the_users_own_examples(sample: float) -> None:
    config = config_of("per-node", kind="natural", num_nodes="auto", sample=sample)
    divided = divide(config, made())
    users = divided.dataset.users
    assert users is not None
    for name, node in zip(divided.partition.names, of_nodes(divided), strict=True):
        held = np.concatenate(list(node.values()))
        assert {f"u{u}" for u in users[held]} == {name}
        assert len(held) == (users == users[held[0]]).sum()


@pytest.mark.parametrize("sample", [1.0, 0.5])
def test_per_node_follows_a_file_that_numbers_the_whole_dataset(
    tmp_path: Path, sample: float
) -> None:
    rows = "".join(f"{e},n{e % 7}\n" for e in range(600))
    (tmp_path / "who.csv").write_text(f"example,node\n{rows}")
    file: dict[str, Any] = {"kind": "file", "file": str(tmp_path / "who.csv"), "num_nodes": "auto"}
    divided = divide(config_of("per-node", sample=sample, **file), made())
    for i, node in enumerate(of_nodes(divided)):
        numbers = divided.dataset.x[np.concatenate(list(node.values())), 0]
        assert (numbers % 7 == i).all()
    parts = divided.split.train, divided.split.val, divided.split.test
    together = np.sort(np.concatenate(parts))
    assert np.array_equal(together, np.arange(len(divided.dataset.y)))


def test_a_node_that_the_sample_leaves_nothing_of_is_named(tmp_path: Path) -> None:
    rows = "".join(f"{e},{'rare' if e == 0 else 'rest'}\n" for e in range(600))
    (tmp_path / "who.csv").write_text(f"example,node\n{rows}")
    file: dict[str, Any] = {"kind": "file", "file": str(tmp_path / "who.csv"), "num_nodes": "auto"}
    config = config_of("per-node", sample=0.3, **file)
    with pytest.raises(CoterieError, match="node 'rare' has no training example left after samp"):
        divide(config, made())


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(["pooled", "per-node", "official"]), st.integers(0, 99), st.booleans())
def test_the_same_seed_divides_the_same_and_no_example_is_in_two_parts(
    kind: str, seed: int, sampled: bool
) -> None:
    config = config_of(kind, seed=seed, kind="iid", sample=0.5 if sampled else 1.0)
    divided = divide(config, made(seed=seed))
    assert everything(divided) == everything(divide(config, made(seed=seed)))
    parts = divided.split.train, divided.split.val, divided.split.test
    together = np.sort(np.concatenate(parts))
    assert np.array_equal(together, np.arange(len(divided.dataset.y)))


@pytest.mark.parametrize("sample", [1.0, 0.4])
@pytest.mark.parametrize("pooled", [False, True])
def test_official_tests_on_the_datasets_own_test_part(sample: float, pooled: bool) -> None:
    whole = made()
    assert whole.test is not None
    divided = divide(config_of("official", sample=sample, kind="iid"), whole, pooled=pooled)
    x = divided.dataset.x[:, 0].astype(int)
    kept = np.isin(np.flatnonzero(whole.test), x)
    held = divided.held_out("test")
    assert np.array_equal(np.sort(x[held.examples]), np.flatnonzero(whole.test)[kept])
    assert held.sizes is None
    trained = divided.split.train[np.concatenate(divided.partition.indices)]
    assert not whole.test[x[trained]].any()
    assert not whole.test[x[divided.split.val]].any()


def test_official_works_for_the_embedded_images() -> None:
    config = config_of("official")
    divided = divide(config, load_dataset(config))
    assert np.array_equal(divided.split.test, np.arange(7000 - 1014, 7000))
    assert len(divided.split.train) == pytest.approx(0.75 * (7000 - 1014), abs=10)


def test_official_needs_a_test_part(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {"x": rng.normal(size=(60, 2)), "y": np.arange(60) % 3}
    np.savez(tmp_path / "none.npz", **arrays)
    np.savez(tmp_path / "test.npz", **arrays, test=np.arange(60) % 4 == 0)
    for name in ("none", "test"):
        content = {
            "data": {"name": "arrays", "path": str(tmp_path / f"{name}.npz"), "split": "official"},
            "partition": {"kind": "iid", "num_nodes": 5},
        }
        config = make_config(content)
        if name == "none":
            says = "needs a test part .* and arrays has none; use 'pooled' or 'per-node'$"
            with pytest.raises(CoterieError, match=says):
                divide(config, load_dataset(config))
        else:
            tested = divide(config, load_dataset(config)).split.test
            assert tested.tolist() == list(range(0, 60, 4))


def test_a_sample_without_anything_of_the_official_test_part_is_refused() -> None:
    n = 200
    x, y = np.zeros((n, 1), np.float32), np.arange(n) % 2
    dataset = Dataset("made", x, y, 2, test=np.arange(n) == 7)
    config = config_of("official", sample=0.1, kind="iid", num_nodes=4, seed=1)
    with pytest.raises(CoterieError, match=r"data\.sample = 0\.1 leaves nothing of the official"):
        divide(config, dataset)


def test_auto_is_pooled_and_pooled_parts_are_no_nodes() -> None:
    assert split_kind(config_of("auto")) == "pooled"
    assert split_kind(config_of("per-node")) == "per-node"
    auto, pooled = (divide(config_of(s, kind="iid"), made()) for s in ("auto", "pooled"))
    assert everything(auto) == everything(pooled)
    assert auto.held_out("val").sizes is auto.held_out("test").sizes is None
    assert np.array_equal(auto.held_out("val").examples, auto.split.val)


def test_one_node_that_holds_everything_splits_it_as_pooled() -> None:
    pooled, own = (divide(config_of(s), made(), pooled=True) for s in ("pooled", "per-node"))
    assert everything(pooled) == everything(own)
    (node,) = of_nodes(own)
    assert np.array_equal(node["test"], pooled.split.test)


def test_nodes_of_two_examples_leave_nothing_to_validate_with() -> None:
    config = config_of("per-node", kind="iid", num_nodes=300)
    says = "nodes of 3 examples or more, and the largest has 2; use fewer nodes"
    with pytest.raises(CoterieError, match=says):
        divide(config, made())


def test_a_split_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(CoterieError, match=r"data\.split 'pernode'; did you mean 'per-node'"):
        config_of("pernode")


def test_the_pooled_split_draws_what_it_always_did() -> None:
    """Worked by hand: the cuts of a class of n are at 3/5 and 4/5, in the seed's order."""
    y, rng = np.array([1, 0, 1, 0, 1, 0, 1, 0, 1, 0]), np.random.default_rng(3)
    orders = [rng.permutation([1, 3, 5, 7, 9]), rng.permutation([0, 2, 4, 6, 8])]
    parts = split(y, np.random.default_rng(3))
    assert parts.train.tolist() == sorted(int(i) for order in orders for i in order[:3])
    assert parts.val.tolist() == sorted(int(order[3]) for order in orders)
    assert parts.test.tolist() == sorted(int(order[4]) for order in orders)


@pytest.mark.parametrize("split", ["pooled", "per-node"])
def test_where_the_validation_part_is_scored_no_test_example_is_left(split: str) -> None:
    dataset = load_dataset(Config())
    usual, searched = (
        divide(make_config({"data": {"split": split, "scored": part}}), dataset)
        for part in ("test", "val")
    )
    assert np.array_equal(searched.split.train, usual.split.train)
    assert np.array_equal(searched.split.test, usual.split.val)
    assert not set(searched.split.test) & set(usual.split.test)
    assert np.array_equal(searched.held_out("test").examples, searched.held_out("val").examples)
    scored, own = searched.held_out("test").sizes, usual.held_out("val").sizes
    if split == "pooled":
        assert scored is None
    else:
        assert scored is not None
        assert own is not None
        assert scored.tolist() == own.tolist()
