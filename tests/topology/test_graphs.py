import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from coterie.core.errors import TopologyError
from coterie.topology import (
    TOPOLOGIES,
    Shape,
    Speed,
    Topology,
    assemble,
    edge_cloud,
    fat_tree,
    jellyfish,
    kary_fat_tree,
    make_topology,
    waxman,
)
from coterie.topology.hops import hops_between

PAPER_EDGES = np.repeat(np.arange(10), 10)
NO_LINKS = np.zeros((0, 2), dtype=np.int64)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_papers_fat_tree_has_its_switches_and_hops() -> None:
    tree = fat_tree(PAPER_EDGES)
    assert tree.n_switches == 25 + 50 + 50
    assert np.unique(tree.switch_of, return_counts=True)[1].tolist() == [2] * 50
    assert tree.hops[0, 0] == 0
    assert tree.hops[0, 1] == 2  # same switch
    assert tree.hops[0, 2] == 4  # same pod
    assert tree.hops[0, 10] == 6
    assert tree.tiers.count("core") == tree.tiers.count("pod") == 250


def test_a_k_ary_fat_tree_is_the_textbooks() -> None:
    tree = kary_fat_tree(54, 6)
    assert tree.n_switches == 9 + 6 * 6
    assert (
        np.bincount(tree.links.ravel(), minlength=45).tolist() == [6] * 9 + [6, 6, 6, 3, 3, 3] * 6
    )
    assert sorted(set(tree.hops.ravel().tolist())) == [0, 2, 4, 6]
    assert np.unique(tree.switch_of, return_counts=True)[1].tolist() == [3] * 18
    assert kary_fat_tree(55, None).n_switches == 16 + 8 * 8
    with pytest.raises(TopologyError, match=r"has room for 54 devices, got 55; raise network\.k"):
        kary_fat_tree(55, 6)
    with pytest.raises(TopologyError, match=r"network\.k must be even and >= 2, got 5"):
        kary_fat_tree(10, 5)


@settings(deadline=None)
@given(st.integers(1, 25), st.integers(1, 9), st.integers(2, 6), st.integers(0, 99))
def test_networks_of_any_size_are_connected(
    edges: int, per_edge: int, degree: int, seed: int
) -> None:
    edge_of = np.sort(np.arange(edges * per_edge - per_edge // 2) % edges)
    nets = [
        fat_tree(edge_of),
        kary_fat_tree(len(edge_of), None),
        jellyfish(edge_of, degree, rng(seed)),
        waxman(edge_of, 0.2, 0.2, rng(seed)),
        edge_cloud(edge_of),
    ]
    for net in nets:
        n = len(edge_of)
        assert (net.hops == net.hops.T).all()
        assert (net.hops[~np.eye(n, dtype=bool)] >= 2).all()


@given(st.integers(3, 30), st.integers(2, 6), st.integers(0, 99))
def test_a_jellyfish_is_regular_up_to_one_port(switches: int, degree: int, seed: int) -> None:
    net = jellyfish(np.arange(switches), degree, rng(seed))
    links = np.bincount(net.links.ravel(), minlength=switches)
    possible = min(degree, switches - 1)
    assert links.max() <= possible
    assert (possible - links).sum() <= 1


def test_random_networks_follow_their_seed() -> None:
    for name in ("jellyfish", "waxman"):
        first, again, other = (
            make_topology(Shape(name), np.arange(20), (), rng(seed)).links.tolist()
            for seed in (1, 1, 2)
        )
        assert first == again != other


def test_a_waxman_graph_joins_near_switches_rather_than_far_ones() -> None:
    near = waxman(np.arange(60), 0.9, 0.1, rng())
    far = waxman(np.arange(60), 0.9, 5.0, rng())
    assert len(near.links) < len(far.links) / 3
    length = near.latency_s[60:]
    assert length.min() < 0.3 * length.mean() < length.max()


def test_edge_and_cloud_have_their_own_tiers_and_serve() -> None:
    net = edge_cloud(np.repeat(np.arange(3), 2), Speed(2e6, 0.02), Speed(5e7, 0.005))
    assert net.places == (3, 0, 1, 2)
    assert set(net.tier_of) == {"access", "backhaul"}
    assert net.bytes_per_s.tolist() == [2e6] * 12 + [5e7] * 6
    assert net.latency_s.tolist() == [0.02] * 6 + [0.005] * 3
    assert net.hops[0, 1] == 2
    assert net.hops[0, 2] == 4
    assert net.place_hops[0].tolist() == [2] * 6  # the cloud


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 150), st.integers(0, 200), st.integers(0, 99))
def test_hops_agree_with_scipy(switches: int, extra: int, seed: int) -> None:
    draw = rng(seed)
    tree = [(i, int(draw.integers(i))) for i in range(1, switches)]
    links = np.array(tree + draw.integers(switches, size=(extra, 2)).tolist())
    links = links[links[:, 0] != links[:, 1]]
    sources = draw.permutation(switches)[: 1 + int(draw.integers(switches))]
    graph = coo_array((np.ones(len(links)), tuple(links.T)), shape=(switches, switches)).tocsr()
    expected = shortest_path(graph, directed=False, unweighted=True, indices=sources)
    assert (hops_between(links, switches, sources) == expected).all()


def test_hops_of_ten_thousand_nodes_fit_in_a_gibibyte() -> None:
    net = kary_fat_tree(10_000, None)
    tracemalloc.start()
    assert net.hops.shape == (10_000, 10_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**30


def test_a_network_in_pieces_is_refused() -> None:
    apart = assemble(np.array([0, 1]), NO_LINKS, (), 2, Speed(), Speed())
    with pytest.raises(TopologyError, match="not connected"):
        _ = apart.hops


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_speeds_are_refused(speed: float) -> None:
    with pytest.raises(TopologyError, match=r"speed of node 0 -> switch 30 must be above 0.*got"):
        fat_tree(PAPER_EDGES, Speed(speed))


@pytest.mark.parametrize("latency", [-1.0, float("nan"), float("inf")])
def test_impossible_latencies_are_refused(latency: float) -> None:
    with pytest.raises(
        TopologyError, match=r"latency of switch \d+ -> switch \d+ must be from 0 to 86,400 s"
    ):
        fat_tree(PAPER_EDGES, inner=Speed(1e8, latency))


def test_switches_that_are_not_there_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"switches are numbered 0\.\.0, got 7"):
        assemble(np.array([0, 7]), NO_LINKS, (), 1, Speed(), Speed())
    with pytest.raises(TopologyError, match="needs a speed for each"):
        Topology(np.array([0]), NO_LINKS, (), 1, np.ones(1), np.ones(1))


def test_every_topology_by_rule_can_be_made_by_name() -> None:
    for name in TOPOLOGIES:
        if name not in ("file", "matrix"):
            net = make_topology(Shape(name), PAPER_EDGES, (), rng())
            assert net.n_devices == 100
    with pytest.raises(TopologyError, match="did you mean 'fat-tree'"):
        make_topology(Shape("fat tree"), PAPER_EDGES, (), rng())
    with pytest.raises(TopologyError, match=r"network\.degree must be >= 2 .*got 1"):
        make_topology(Shape("jellyfish", degree=1), PAPER_EDGES, (), rng())


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_hops_are_the_sums_of_the_hops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.integers(0, 5, 30))
    _, edges = np.unique(edges, return_inverse=True)
    for top in (fat_tree(edges), jellyfish(edges, 3, rng)):
        some = np.sort(rng.choice(30, 12, replace=False))
        assert (top.far(some, some) == top.between(some, some).sum(axis=1)).all()
        others = np.setdiff1d(np.arange(30), some)
        assert (top.far(others, some) == top.between(others, some).sum(axis=1)).all()
