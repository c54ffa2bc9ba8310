import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import TopologyError
from coterie.network import Network
from coterie.topology import Topology, fat_tree, jellyfish, make_topology

PAPER_EDGES = np.repeat(np.arange(10), 10)


def test_the_papers_fat_tree_has_its_switches_and_hops() -> None:
    tree = fat_tree(PAPER_EDGES)
    assert tree.n_switches == 25 + 50 + 50
    assert np.unique(tree.switch_of, return_counts=True)[1].tolist() == [2] * 50
    assert tree.hops[0, 0] == 0
    assert tree.hops[0, 1] == 2  # same switch
    assert tree.hops[0, 2] == 4  # same pod
    assert tree.hops[0, 10] == 6
    assert tree.tiers.count("core") == tree.tiers.count("pod") == 250


@settings(deadline=None)
@given(st.integers(1, 25), st.integers(1, 9), st.integers(2, 6), st.integers(0, 99))
def test_networks_of_any_size_are_connected(
    edges: int, per_edge: int, degree: int, seed: int
) -> None:
    edge_of = np.sort(np.arange(edges * per_edge - per_edge // 2) % edges)
    for net in (fat_tree(edge_of), jellyfish(edge_of, degree, np.random.default_rng(seed))):
        n = len(edge_of)
        assert (net.hops == net.hops.T).all()
        assert (net.hops[~np.eye(n, dtype=bool)] >= 2).all()


@given(st.integers(3, 30), st.integers(2, 6), st.integers(0, 99))
def test_a_jellyfish_is_regular_up_to_one_port(switches: int, degree: int, seed: int) -> None:
    net = jellyfish(np.arange(switches), degree, np.random.default_rng(seed))
    links = np.bincount(net.links.ravel(), minlength=switches)
    possible = min(degree, switches - 1)
    assert links.max() <= possible
    assert (possible - links).sum() <= 1


def test_bad_networks_are_refused() -> None:
    with pytest.raises(TopologyError, match="did you mean 'fat-tree'"):
        make_topology("fat tree", PAPER_EDGES)
    with pytest.raises(TopologyError, match=r"network\.degree must be >= 2 .*got 1"):
        jellyfish(PAPER_EDGES, 1, np.random.default_rng(0))
    apart = Topology(np.array([0, 1]), np.zeros((0, 2), dtype=np.int64), (), 2)
    with pytest.raises(TopologyError, match="not connected"):
        _ = apart.hops


def test_three_hosts_on_one_switch_by_hand() -> None:
    net = Network(Topology(np.zeros(3, int), np.zeros((0, 2), int), (), 1), 1000.0, 0.01)
    up = net.upload(np.zeros(3, dtype=np.int64), np.array([1]), 500)
    # Hosts 0 and 2 send 500 bytes each; the server's link carries both: 1 s, and two hops.
    assert up.seconds == pytest.approx(1.0 + 2 * 0.01)
    assert up.bytes_by_tier == {"access": 2000}
    both = net.aggregation(np.zeros(3, dtype=np.int64), np.array([1]), 500)
    assert both.seconds == pytest.approx(2 * up.seconds)
    assert both.bytes_by_tier == {"access": 4000}


def test_two_switches_share_their_link_by_hand() -> None:
    # Hosts 0, 1 on switch 0; 2, 3 on switch 1; two groups {0, 2} and {1, 3} served on switch 1.
    top = Topology(np.array([0, 0, 1, 1]), np.array([[0, 1]]), ("core",), 2)
    up = Network(top, 1000.0, 0.0).upload(np.array([0, 1, 0, 1]), np.array([2, 3]), 500)
    assert up.seconds == pytest.approx(1.0)  # the core link carries both models
    assert up.bytes_by_tier == {"access": 2000, "core": 1000}


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 12), st.integers(0, 99))
def test_every_flow_crosses_as_many_links_as_its_hops(edges: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edge_of = np.sort(np.arange(4 * edges) % edges)
    for top in (fat_tree(edge_of), jellyfish(edge_of, 3, rng)):
        z = rng.integers(3, size=len(edge_of))
        servers = rng.permutation(len(edge_of))[:3]
        moved = Network(top, 1e6, 1e-3).upload(z, servers, 10).bytes_by_tier
        hops = top.hops[np.arange(len(z)), servers[z]].sum()
        assert sum(moved.values()) == 10 * hops


def test_an_edge_round_is_far_shorter_than_a_global_one() -> None:
    net = Network(fat_tree(PAPER_EDGES), 1e8, 1e-3)
    servers = np.arange(10) * 10
    pods = net.upload(PAPER_EDGES, servers, 1_476_392).seconds
    everyone = net.upload(np.zeros(100, dtype=np.int64), np.array([0]), 1_476_392).seconds
    # ns-3's lossless TCP measures 0.1565 and 1.5322 s here; the busiest link alone is below both.
    assert pods == pytest.approx(9 * 1_476_392 / 1e8 + 0.004)
    assert everyone == pytest.approx(99 * 1_476_392 / 1e8 + 0.006)
    assert pods < 0.1565
    assert everyone < 1.5322
