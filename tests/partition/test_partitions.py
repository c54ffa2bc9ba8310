from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import PartitionError
from coterie.partition import (
    PARTITIONS,
    Examples,
    Partition,
    Rule,
    Spread,
    make_partition,
    partition_name,
)
from coterie.partition.measure import class_counts, emd, pooled
from coterie.partition.placement import place
from coterie.partition.values import Placement
from dealt import SPREADS, class_table, deal, edge_table


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from([k for k, v in PARTITIONS.items() if k != "file"]),
    placement=st.sampled_from(get_args(Placement)),
    n_classes=st.integers(1, 12),
    nodes=st.integers(1, 40),
    edges=st.integers(1, 10),
    alpha=st.sampled_from([0.05, 0.5, 100.0]),
    per_node=st.integers(1, 4),
    spread=st.sampled_from([*SPREADS, Spread("lognormal", 1)]),
    seed=st.integers(0, 999),
)
def test_every_kind_deals_every_example_once_to_nodes_that_all_have_some_or_says_why(
    kind: str,
    placement: Placement,
    n_classes: int,
    nodes: int,
    edges: int,
    alpha: float,
    per_node: int,
    spread: Spread,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(n_classes), rng.integers(1, 60, n_classes)))
    rule = Rule(
        kind,
        nodes,
        edges,
        alpha=alpha,
        shards_per_node=per_node,
        classes_per_node=per_node,
        spread=spread,
        placement=placement,
    )
    examples = Examples(y, rng.integers(0, 50, len(y)))
    try:
        part = make_partition(rule, examples, np.random.default_rng(seed))
    except PartitionError as error:
        assert "\n" not in str(error)
        return
    assert np.array_equal(np.sort(np.concatenate(part.indices)), np.arange(len(y)))
    assert part.sizes.min() >= 1
    assert len(part.indices) == nodes
    assert np.array_equal(np.sort(part.edge_of), place(nodes, edges))
    again = make_partition(rule, examples, np.random.default_rng(seed))
    assert all(np.array_equal(a, b) for a, b in zip(part.indices, again.indices, strict=True))
    assert np.array_equal(part.edge_of, again.edge_of)


Y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))


def dealt(kind: str, /, **settings: object) -> Partition:
    rule = replace(Rule(kind, 50, 10), **settings)  # type: ignore[arg-type]
    return make_partition(rule, Examples(Y), np.random.default_rng(3))


def test_a_small_dirichlet_alpha_is_uneven_and_a_large_one_is_nearly_iid() -> None:
    distances = [emd(class_table(dealt("dirichlet", alpha=a), Y)).mean() for a in (0.05, 0.5, 1e4)]
    assert distances[0] > 1.3 > distances[1] > 0.4 > 0.1 > distances[2]


def test_dirichlet_shares_are_those_of_the_distribution() -> None:
    """A node's share of a class has mean 1/n and variance (n-1) / (n^2 (n alpha + 1))."""
    n, alpha = 4, 0.5
    y = np.repeat(np.arange(1000), 200)
    rule = Rule("dirichlet", n, 1, alpha=alpha)
    part = make_partition(rule, Examples(y), np.random.default_rng(0))
    shares = class_table(part, y) / 200
    assert shares.mean(axis=1) == pytest.approx(np.full(n, 1 / n), abs=0.03)
    assert shares.var() == pytest.approx((n - 1) / (n**2 * (n * alpha + 1)), rel=0.05)


def test_no_node_of_a_dirichlet_split_is_below_the_minimum_and_it_always_ends() -> None:
    assert dealt("dirichlet", alpha=0.3, min_partition_size=30).sizes.min() >= 30
    with pytest.raises(PartitionError, match=r"100 draws .* raise alpha from 0\.001"):
        dealt("dirichlet", alpha=0.001)
    with pytest.raises(PartitionError, match="min_partition_size must be <= 120, got 121"):
        dealt("dirichlet", min_partition_size=121)


def test_shards_are_equal_and_a_node_has_no_more_classes_than_twice_its_shards() -> None:
    part = dealt("shards", shards_per_node=2)
    assert set(part.sizes.tolist()) == {120}
    assert ((class_table(part, Y) > 0).sum(axis=1) <= 2).all()  # 600 is a multiple of 60


@pytest.mark.parametrize("classes", [1, 3, 10])
def test_pathological_nodes_have_exactly_so_many_classes(classes: int) -> None:
    table = class_table(dealt("pathological", classes_per_node=classes), Y)
    assert ((table > 0).sum(axis=1) == classes).all()
    holders = (table > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1
    for column in table.T:
        assert np.ptp(column[column > 0]) <= 1


def test_a_wider_lognormal_makes_sizes_vary_more_however_wide() -> None:
    y = np.zeros(60_000, dtype=np.int64)
    sds = [deal("quantity", y, 100, 1, Spread("lognormal", sd), 0).sizes.std() for sd in (1, 4, 8)]
    assert sds == sorted(sds)
    assert deal("quantity", y, 100, 1, Spread("lognormal", 1e6), 0).sizes.max() == 60_000 - 99


def test_shards_and_users_are_dealt_at_random() -> None:
    """Not in the order of the data: two seeds give other examples to the same node."""
    users = np.repeat(np.arange(100), 60)
    for kind in ("shards", "natural"):
        one, two = (deal(kind, Y, 50, 10, Spread(), seed, users) for seed in (0, 1))
        assert not np.array_equal(one.indices[0], two.indices[0])
    part = dealt("shards", shards_per_node=1)
    whole = Y[part.indices[0]][0]
    members = np.flatnonzero(Y == whole)
    assert not np.array_equal(part.indices[0], members[: len(part.indices[0])])
    assert max(np.searchsorted(members, part.indices[0])) > 2 * len(part.indices[0])


def test_natural_makes_each_user_a_node_or_deals_whole_users() -> None:
    users = np.array([3, 3, 1, 1, 1, 7, 9])
    examples = Examples(np.zeros(7, dtype=np.int64), users, tuple("abcdefghij"))
    rng = np.random.default_rng(0)
    each = make_partition(Rule("natural", None, 2), examples, rng)
    assert [i.tolist() for i in each.indices] == [[2, 3, 4], [0, 1], [5], [6]]
    assert each.names == ("b", "d", "h", "j")
    two = make_partition(Rule("natural", 2, 1), examples, rng)
    assert [len(set(users[i])) for i in two.indices] == [2, 2]
    assert not set(users[two.indices[0]]) & set(users[two.indices[1]])


@pytest.mark.parametrize(
    ("kind", "spread", "relative_sd"),
    [
        ("quantity", Spread("normal", 20), 20 / 120),
        ("quantity", Spread("exponential"), 1.0),
        ("quantity", Spread("lognormal", 0.5), np.sqrt(np.exp(0.25) - 1)),
        ("quantity", Spread("lognormal", 1.0), np.sqrt(np.e - 1)),
    ],
)
def test_quantity_skews_sizes_as_told_and_leaves_the_classes_alone(
    kind: str, spread: Spread, relative_sd: float
) -> None:
    y = np.tile(np.arange(2), 60_000)
    part = deal(kind, y, 1000, 10, spread, 0)
    assert part.sizes.std() / part.sizes.mean() == pytest.approx(relative_sd, rel=0.1)
    large = part.sizes >= 100
    assert emd(class_table(part, y))[large].mean() < 0.1


def test_sizes_by_rank_are_those_of_flwr_datasets() -> None:
    """60,000 examples on 10 nodes: flwr-datasets' linear sizes are 1090, 2181, ... 10914."""
    y = np.zeros(60_000, dtype=np.int64)
    linear = deal("linear", y, 10, 1, Spread(), 0).sizes
    assert (np.abs(linear - np.array([1090 + 1090.9 * i for i in range(10)])) <= 2).all()
    square = deal("square", y, 10, 1, Spread(), 0).sizes
    assert np.allclose(square, 60_000 * np.arange(1, 11) ** 2 / 385, atol=1)
    steep = deal("exponential", y, 100, 1, Spread(), 0).sizes
    assert steep[0] == 1
    assert steep[-1] / steep[-2] == pytest.approx(np.e, rel=1e-3)


@pytest.mark.parametrize("kind", ["dirichlet", "shards", "pathological", "Dtq", "Dqq", "Dhh"])
def test_placing_by_similarity_makes_edges_less_like_the_whole_than_any_other(kind: str) -> None:
    distances = {}
    for placement in get_args(Placement):
        part = dealt(kind, placement=placement)
        distances[placement] = emd(pooled(class_table(part, Y), part.edge_of)).mean()
    assert distances["by_similarity"] > 1.3 * distances["random"]
    assert distances["by_similarity"] >= distances["paper"] - 0.02


def test_nodes_of_one_class_are_placed_with_their_like() -> None:
    one_class = dealt("pathological", classes_per_node=1, placement="by_similarity")
    assert (edge_table(one_class, Y) > 0).sum(axis=1).tolist() == [1] * 10


def test_random_placement_undoes_the_papers_edge_diversity() -> None:
    paper, mixed = (dealt("Dtt", placement=p) for p in ("paper", "random"))
    assert all(np.array_equal(a, b) for a, b in zip(paper.indices, mixed.indices, strict=True))
    assert (edge_table(paper, Y) > 0).sum(axis=1).mean() == 1
    assert (edge_table(mixed, Y) > 0).sum(axis=1).mean() > 3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kind": "natural"}, "needs data with users"),
        ({"kind": "pathological", "classes_per_node": 11}, "must be <= 10 classes, got 11"),
        ({"kind": "pathological", "classes_per_node": 1, "num_nodes": 9, "num_edges": 1}, "hold"),
        ({"kind": "shards", "shards_per_node": 121}, "shards_per_node must be <= 120, got 121"),
        ({"kind": "dirichlet", "num_nodes": None}, "'dirichlet' needs num_nodes"),
        ({"kind": "dirichet"}, "did you mean 'dirichlet'"),
        ({"kind": "InnerDirichletPartitioner"}, "not offered; kind = 'file' takes any split"),
        ({"kind": "non-iid"}, "can be many"),
    ],
)
def test_what_a_kind_cannot_do_is_said(settings: dict[str, object], says: str) -> None:
    with pytest.raises(PartitionError, match=says):
        dealt("iid", **settings)


def test_names_of_flwr_datasets_are_understood() -> None:
    theirs = ["Iid", "Dirichlet", "Pathological", "Shard", "NaturalId", "Linear", "Square"]
    ours = ["iid", "dirichlet", "pathological", "shards", "natural", "linear", "square"]
    assert [partition_name(name) for name in theirs] == ours
    assert [partition_name(f"{name}Partitioner") for name in theirs] == ours


def test_class_counts_agree_with_counting_node_by_node() -> None:
    part = dealt("dirichlet")
    assert np.array_equal(class_counts(part, Y, 10), class_table(part, Y))


def test_the_distance_to_the_whole_of_a_case_worked_by_hand() -> None:
    """Shares (1, 0) and (1/4, 3/4) of a whole with (5/8, 3/8) for sizes 4 and 4."""
    assert emd(np.array([[4, 0], [1, 3]])).tolist() == [0.75, 0.75]
