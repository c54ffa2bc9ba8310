"""The paper's two-level class diversities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import PartitionError
from coterie.partition import Examples, Rule, Spread, make_partition
from coterie.partition.counts import fit_counts
from coterie.partition.diversity import DIVERSITIES, diversity
from coterie.partition.placement import place
from dealt import SPREADS, class_table, deal, edge_table


@pytest.mark.parametrize("kind", DIVERSITIES)
@pytest.mark.parametrize("spread", SPREADS, ids=str)
def test_mean_class_counts_match_the_papers_setting(kind: str, spread: Spread) -> None:
    y = np.repeat(np.arange(10), 420)
    part = deal(kind, y, 100, 10, spread, 1)
    per_node, per_edge = diversity(kind) or (0, 0)
    assert (class_table(part, y) > 0).sum(axis=1).mean() == 10 * per_node
    assert (edge_table(part, y) > 0).sum(axis=1).mean() == 10 * per_edge


def test_dtt_with_ten_classes_and_edges_is_one_class_per_edge_and_nearly_equal_nodes() -> None:
    y = np.repeat(np.arange(10), 420)
    part = deal("Dtt", y, 100, 10, Spread("normal", 1), 0)
    assert sorted(np.argmax(edge_table(part, y), axis=1).tolist()) == list(range(10))
    assert 38 <= part.sizes.min() <= part.sizes.max() <= 46


def test_a_wider_spread_makes_node_sizes_vary_more() -> None:
    y = np.repeat(np.arange(10), 4200)
    sds = [deal("Dtt", y, 100, 10, spread, 0).sizes.std() for spread in SPREADS]
    assert sds == sorted(sds)
    assert 0.7 < sds[0] < 1.4
    assert sds[3] > 100


def test_class_counts_vary_with_the_spread() -> None:
    y = np.repeat(np.arange(62), 400)
    edges, nodes = [], []
    for spread in (Spread("normal", 0), *SPREADS[:3]):
        part = deal("Dqh", y, 100, 10, spread, 0)
        edges.append((edge_table(part, y) > 0).sum(axis=1).std())
        nodes.append((class_table(part, y) > 0).sum(axis=1).std())
    assert edges == sorted(edges)
    assert nodes == sorted(nodes)
    assert nodes[0] < 0.6 < nodes[1] < 1.5 < nodes[2] < nodes[3]


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from([*DIVERSITIES, "iid"]),
    n_classes=st.integers(2, 40),
    nodes_per_edge=st.floats(1, 6),
    edges=st.integers(1, 30),
    spread=st.sampled_from(SPREADS),
    seed=st.integers(0, 999),
)
def test_every_example_lands_on_one_node_and_no_node_or_class_is_left_out(
    kind: str, n_classes: int, nodes_per_edge: float, edges: int, spread: Spread, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(edges * nodes_per_edge)
    y = rng.permutation(np.repeat(np.arange(n_classes), rng.integers(180, 400, n_classes)))
    try:
        part = make_partition(Rule(kind, nodes, edges, spread=spread), Examples(y), rng)
    except PartitionError as error:
        assert "cannot hold" in str(error)
        return
    assert np.array_equal(np.sort(np.concatenate(part.indices)), np.arange(len(y)))
    assert part.sizes.min() >= 1
    assert part.p.sum() == pytest.approx(1)
    assert np.array_equal(part.edge_of, place(nodes, edges))
    if shares := diversity(kind):
        node_share, edge_share = shares
        per_edge = (edge_table(part, y) > 0).sum(axis=1)
        per_node = (class_table(part, y) > 0).sum(axis=1)
        assert abs(per_edge.mean() - max(1, n_classes * edge_share)) <= 0.5 / edges + 1e-9
        # A node can have no more classes than its edge, so its mean may fall short, never exceed.
        most = per_edge[part.edge_of].mean()
        wanted = max(1, n_classes * node_share)
        assert abs(per_node.mean() - min(wanted, most)) <= 0.5 / nodes + 1e-9


def test_a_partition_depends_on_its_seed_alone() -> None:
    y = np.repeat(np.arange(10), 50)
    one, two, other = (deal("Dqh", y, 20, 5, Spread(), seed) for seed in (4, 4, 5))
    assert all((a == b).all() for a, b in zip(one.indices, two.indices, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one.indices, other.indices, strict=True))


@pytest.mark.parametrize(
    ("kind", "nodes", "edges", "says"),
    [
        ("Dtt", 500, 10, "num_nodes must be <= the number of examples to deal"),
        ("Dtt", 5, 10, "num_edges must be <= num_nodes"),
        ("Dht", 20, 10, "did you mean 'Dth'"),
        ("Dtz", 20, 10, "unknown partition 'Dtz'"),
        ("Dtt", 20, 5, "use at least 10 edges"),
        ("Dth", 20, 10, "use more nodes or another partition.kind"),
    ],
)
def test_what_is_impossible_is_said(kind: str, nodes: int, edges: int, says: str) -> None:
    y = np.repeat(np.arange(10), 40)
    with pytest.raises(PartitionError, match=says):
        deal(kind, y, nodes, edges, Spread("normal", 0), 0)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=30),
    st.integers(0, 3),
    st.integers(0, 20),
    st.floats(0, 1),
)
def test_fitted_counts_keep_their_bounds_and_their_sum(
    drawn: list[float], lo: int, room: int, where: float
) -> None:
    x = np.array(drawn)
    total = len(x) * lo + round(where * len(x) * room)
    counts = fit_counts(x, total, lo, lo + room)
    assert counts.sum() == total
    assert counts.min() >= lo
    assert counts.max() <= lo + room


def test_a_class_rarer_than_its_holders_goes_to_as_many_nodes_as_it_has_examples() -> None:
    y = np.repeat(np.arange(10), [7, *[200] * 9])
    part = deal("Dhh", y, 100, 10, Spread(), 0)
    table = class_table(part, y)
    assert sorted(table[:, 0].tolist())[-8:] == [0, *[1] * 7]
    assert part.sizes.min() >= 1


def test_nodes_left_without_examples_are_refused() -> None:
    y = np.repeat(np.arange(10), [2, *[200] * 9])
    with pytest.raises(PartitionError, match="8 of 100 nodes would be left without examples"):
        deal("Dtt", y, 100, 10, Spread(), 0)
