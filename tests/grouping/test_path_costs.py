"""What a search takes for delays: the routes' own latencies and slowest links."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.arrays import Floats, Ints
from coterie.grouping import Delays, Evidence
from coterie.grouping.baselines import at_random
from coterie.grouping.objective import Objective, price
from coterie.grouping.path_costs import ways
from coterie.grouping.planner import coterie
from coterie.grouping.rough_delays import Rough
from coterie.grouping.servers import spread
from coterie.grouping.small_search import settle
from coterie.network import Network
from coterie.network.routes import route
from coterie.network.values import Phase
from coterie.topology import Speed, Topology, assemble, edge_cloud, fat_tree
from problems import random_evidence


def clocked(topology: Topology, K: int, nbytes: int = 31_400) -> Evidence:
    """Nodes of random gradients on a network, timed by the flow clock."""
    n = topology.n_devices
    network = Network(topology)
    whole = network.aggregation(np.zeros(n, dtype=np.int64), np.array([0]), nbytes).seconds
    base = random_evidence(n, K, 0)
    delays = Delays(network, nbytes, 5, whole)
    return Evidence(K, base.p, np.zeros(n, int), topology, base.gram, delays=delays)


def mesh(latency_s: Floats, bytes_per_s: Floats) -> Topology:
    """Every two nodes joined by a link of their own, as in a measured matrix [n, n]."""
    n = len(latency_s)
    i, j = np.triu_indices(n, 1)
    return Topology(
        np.arange(n),
        np.stack([i, j], axis=1),
        ("core",) * len(i),
        n,
        np.concatenate([np.full(2 * n, bytes_per_s.max()), np.repeat(bytes_per_s[i, j], 2)]),
        np.concatenate([np.zeros(n), latency_s[i, j]]),
    )


def unlike(topology: Topology, seed: int) -> Topology:
    """Give every link between switches another latency, and another speed each way."""
    rng = np.random.default_rng(seed)
    n, L = topology.n_devices, len(topology.links)
    latency_s, speed = topology.latency_s.copy(), topology.bytes_per_s.copy()
    latency_s[n:] = rng.uniform(0.001, 0.1, L)
    speed[2 * n :] = rng.uniform(1e5, 1e7, 2 * L)
    return replace(topology, latency_s=latency_s, bytes_per_s=speed)


def followed(topology: Topology, seed: int) -> tuple[Floats, Floats]:
    """Latency, and seconds of a byte, of the links between switches that flows take [n, n]."""
    n = topology.n_devices
    dst, src = (grid.ravel() for grid in np.indices((n, n)))
    flows = route(topology, Phase(src, dst, np.ones(n * n, dtype=np.int64)), "ecmp", seed)
    latency, slowest = np.zeros((2, n, n))
    inner = flows.links >= 2 * n
    at = flows.dst[flows.flow_of[inner]], flows.src[flows.flow_of[inner]]
    np.add.at(latency, at, topology.latency_s[flows.links[inner] // 2])
    np.maximum.at(slowest, at, 1 / topology.bytes_per_s[flows.links[inner]])
    return latency, slowest


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 12), st.integers(0, 99))
def test_where_there_is_one_route_ways_are_what_flows_take(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parents = np.array([rng.integers(i) for i in range(1, n)])
    links = np.stack([parents, np.arange(1, n)], axis=1)  # a random tree, a node on each switch
    tree = assemble(np.arange(n), links, ("core",) * (n - 1), n, Speed(), Speed())
    top = unlike(tree, seed)
    found = ways(top)
    latency, slowest = followed(top, seed)
    assert found.latency_s == pytest.approx(latency)
    assert found.byte_s == pytest.approx(slowest)


def test_of_several_routes_ways_are_about_the_mean_of_what_flows_take() -> None:
    top = unlike(fat_tree(np.repeat(np.arange(4), 2)), 0)
    found = ways(top)
    rows = np.ix_(found.row_of[top.switch_of], found.row_of[top.switch_of])
    taken = np.mean([followed(top, seed) for seed in range(300)], axis=0)
    assert found.latency_s[rows] == pytest.approx(taken[0], rel=0.1)
    assert found.byte_s[rows] == pytest.approx(taken[1], rel=0.25)  # a mean inside a maximum


def test_links_that_are_nearly_alike_have_nearly_the_ways_of_links_that_are() -> None:
    top = fat_tree(np.repeat(np.arange(5), 3))
    nearly = top.latency_s.copy()
    nearly[-1] *= 1 + 1e-9
    one, other = ways(top), ways(replace(top, latency_s=nearly))
    assert one.latency_s == pytest.approx(other.latency_s)
    assert one.byte_s == pytest.approx(other.byte_s)


def sites(n: int, K: int) -> Ints:
    """Deal nodes to sites at random."""
    at: Ints = np.random.default_rng(3).permutation(n) % K
    return at


@pytest.mark.parametrize("n", [12, 60])
def test_on_a_measured_matrix_the_quickest_groups_are_those_of_near_nodes(n: int) -> None:
    site = sites(n, 3)
    apart = np.where(site[:, None] == site[None, :], 0.001, 0.050)
    e = clocked(mesh(apart, np.full((n, n), 1e8)), 3)
    o = Objective(e, 0.0, 1.0)
    found = coterie(0.0, 1.0)(e, np.random.default_rng(0))
    assert all(len(set(site[found.z == k].tolist())) == 1 for k in range(3))
    random = price(o, at_random(e, np.random.default_rng(0)))
    assert price(o, found).group_s < 0.1 * random.group_s


def test_with_both_costs_weighed_a_measured_matrix_still_has_quicker_groups_than_chance() -> None:
    rng = np.random.default_rng(0)
    where = rng.random((60, 2))
    apart = 0.05 * np.linalg.norm(where[:, None] - where[None, :], axis=2)
    e = clocked(mesh(apart, np.full((60, 60), 1e8)), 4)
    o = Objective(e)
    found = price(o, coterie()(e, np.random.default_rng(0)))
    random = [price(o, at_random(e, np.random.default_rng(seed))) for seed in range(5)]
    assert found.group_s < 0.8 * np.mean([f.group_s for f in random])
    assert found.Delta < 0.3 * np.mean([f.Delta for f in random])


def test_nodes_that_slow_links_part_are_not_grouped() -> None:
    site = sites(24, 3)
    speed = np.where(site[:, None] == site[None, :], 1e7, 1e5)
    e = clocked(mesh(np.full((24, 24), 0.001), speed), 3, nbytes=1_000_000)
    found = coterie(0.0, 1.0)(e, np.random.default_rng(0))
    assert all(len(set(site[found.z == k].tolist())) == 1 for k in range(3))


def test_a_server_is_not_sent_its_own_model() -> None:
    # Three nodes on a switch; 1448 bytes are a segment of 1502. Two models in, and two means out.
    top = assemble(np.zeros(3, int), np.zeros((0, 2), int), (), 1, Speed(1502.0, 0.0), Speed())
    rough = Rough(clocked(top, 1, nbytes=1448))
    assert rough.group_s(np.zeros(3, dtype=np.int64), np.array([0])) == pytest.approx(4.0)
    alone = Rough(clocked(top, 3, nbytes=1448))
    assert alone.group_s(np.arange(3), np.arange(3)) == 0.0


def test_seats_are_far_apart_by_latency_and_by_hops_where_hops_are_limited() -> None:
    apart = np.full((5, 5), 0.001)
    apart[0, 3] = apart[3, 0] = 0.05
    e = clocked(mesh(apart, np.full((5, 5), 1e8)), 2)
    assert spread(e, Rough(e)).tolist() == [0, 3]
    assert spread(e).tolist() == [0, 1]


def test_many_places_that_could_serve_few_nodes_take_little_memory() -> None:
    edges = np.linspace(0, 1999, 16).astype(int)
    e = clocked(edge_cloud(edges), 4)
    o = Objective(e)
    H = e.p[:, None] * e.inner * e.p[None, :]
    limits = np.ones(4, dtype=np.int64), np.full(4, 16)
    settle(o, H, np.arange(16) % 4, *limits)  # what is kept, is kept
    tracemalloc.start()
    settle(o, H, np.arange(16) % 4, *limits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6  # all at once they took 185 * 4 * 2001 * 16 * 8 = 190 MB
