import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.network import Network, Phase
from coterie.network.collectives import collectors, gather, scatter
from coterie.topology import (
    Speed,
    Topology,
    assemble,
    edge_cloud,
    fat_tree,
    jellyfish,
    kary_fat_tree,
    waxman,
)

PAPER_EDGES = np.repeat(np.arange(10), 10)
ALL = np.zeros(100, dtype=np.int64)


def pairs(phase: Phase) -> set[tuple[int, int]]:
    return set(zip(phase.src.tolist(), phase.dst.tolist(), strict=True))


def test_every_edge_sends_one_model_when_combined() -> None:
    top = fat_tree(PAPER_EDGES)
    via = collectors(top, PAPER_EDGES, ALL, np.array([0]))
    first, second = gather(ALL, np.array([0]), 10, via)
    assert len(first.src) == 99 - 9  # all but the nine other edges' collectors
    assert len(second.src) == 9
    assert (PAPER_EDGES[second.src] == np.arange(1, 10)).all()
    within = PAPER_EDGES[first.src] == PAPER_EDGES[first.dst]
    assert within.all()


def test_the_mean_comes_back_the_way_the_models_went() -> None:
    top = fat_tree(PAPER_EDGES)
    z = np.random.default_rng(0).permutation(100) % 5
    servers = np.array([np.flatnonzero(z == k)[0] for k in range(5)])
    via = collectors(top, PAPER_EDGES, z, servers)
    up = gather(z, servers, 10, via)
    down = scatter(up)
    for a, b in zip(up, reversed(down), strict=True):
        assert pairs(a) == {(i, j) for j, i in pairs(b)}


def test_a_server_collects_under_its_own_edge() -> None:
    top = fat_tree(PAPER_EDGES)
    via = collectors(top, PAPER_EDGES, PAPER_EDGES, np.arange(10) * 10 + 3)
    assert (via == PAPER_EDGES * 10 + 3).all()
    assert len(gather(PAPER_EDGES, np.arange(10) * 10 + 3, 10, via)) == 1


def test_base_stations_collect_for_the_cloud() -> None:
    edge_of = np.repeat(np.arange(3), 4)
    top = edge_cloud(edge_of)
    cloud = np.array([12 + 3])
    via = collectors(top, edge_of, np.zeros(12, dtype=np.int64), cloud)
    assert (via == 12 + edge_of).all()
    up = Network(top, edge_of, combine=True).upload(np.zeros(12, dtype=np.int64), cloud, 10)
    assert up.bytes_by_tier == {"access": 120, "backhaul": 30}
    apart = Network(top, edge_of).upload(np.zeros(12, dtype=np.int64), cloud, 10)
    assert apart.bytes_by_tier == {"access": 120, "backhaul": 120}


def test_groups_that_share_a_place_as_server_stay_apart() -> None:
    edge_of = np.repeat(np.arange(2), 4)
    top = edge_cloud(edge_of)
    z, cloud = np.tile([0, 0, 1, 1], 2), np.array([10, 10])
    via = collectors(top, edge_of, z, cloud)
    first, second = gather(z, cloud, 10, via)
    assert len(first.src) == 8
    assert sorted(second.src.tolist()) == [8, 8, 9, 9]  # a mean for each group and base station
    up = Network(top, edge_of, combine=True).upload(z, cloud, 10)
    assert up.bytes_by_tier == {"access": 80, "backhaul": 40}


def test_nothing_is_combined_where_that_saves_nothing() -> None:
    edge_of = np.array([0, 1, 0, 1, 0, 1])  # edges that say nothing of where nodes are
    top = kary_fat_tree(6, 4)
    z, servers = np.zeros(6, dtype=np.int64), np.array([0])
    combined = Network(top, edge_of, combine=True).upload(z, servers, 10**5)
    apart = Network(top, edge_of).upload(z, servers, 10**5)
    assert combined.seconds <= apart.seconds


def test_two_edges_by_hand() -> None:
    # Nodes 0, 1 on switch 0 and 2, 3 on switch 1; all send to node 0.
    edge_of = np.array([0, 0, 1, 1])
    top = assemble(edge_of, np.array([[0, 1]]), ("core",), 2, Speed(), Speed())
    z, servers = np.zeros(4, dtype=np.int64), np.array([0])
    via = collectors(top, edge_of, z, servers)
    assert via.tolist() == [0, 0, 2, 2]
    up = Network(top, edge_of, combine=True).upload(z, servers, 10)
    assert up.bytes_by_tier == {"access": 10 * (2 + 2 + 2), "core": 10}
    assert Network(top, edge_of).upload(z, servers, 10).bytes_by_tier == {"access": 60, "core": 20}


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 8), st.integers(1, 30), st.integers(1, 5), st.integers(0, 99))
def test_combining_never_means_more_bytes(edges: int, n: int, groups: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edge_of = np.unique(rng.integers(edges, size=n), return_inverse=True)[1].astype(np.int64)
    elsewhere = rng.integers(edges, size=n)  # edges that say nothing of where the nodes are
    z = np.unique(rng.integers(groups, size=n), return_inverse=True)[1].astype(np.int64)
    servers = np.array([rng.choice(np.flatnonzero(z == k)) for k in range(z.max() + 1)])
    nets: list[Topology] = [
        fat_tree(edge_of),
        jellyfish(edge_of, 3, rng),
        waxman(edge_of, 0.3, 0.3, rng),
        edge_cloud(edge_of),
    ]
    for top in nets:
        for under in (edge_of, elsewhere):
            apart = Network(top, under).aggregation(z, servers, 10).bytes_by_tier
            combined = Network(top, under, combine=True).aggregation(z, servers, 10).bytes_by_tier
            assert sum(combined.values()) <= sum(apart.values())


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 8), st.integers(1, 30), st.integers(1, 5), st.integers(0, 99))
def test_every_model_reaches_its_server_and_no_other(
    edges: int, n: int, groups: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    edge_of = np.unique(rng.integers(edges, size=n), return_inverse=True)[1].astype(np.int64)
    z = np.unique(rng.integers(groups, size=n), return_inverse=True)[1].astype(np.int64)
    servers = np.array([rng.choice(np.flatnonzero(z == k)) for k in range(z.max() + 1)])
    top = fat_tree(edge_of)
    held = {i: {i} for i in range(n)}
    for phase in gather(z, servers, 10, collectors(top, edge_of, z, servers)):
        got = [(j, held[i]) for i, j in sorted(pairs(phase))]
        for j, models in got:
            held[j] = held[j] | models
    for k, server in enumerate(servers):
        assert held[int(server)] >= set(np.flatnonzero(z == k).tolist())
        assert (z[list(held[int(server)])] == k).all()
