"""Servers by seconds: the quick ones serve, whatever they are called."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.grouping import Delays, Evidence, Limits, with_servers
from coterie.grouping.limits import broken
from coterie.grouping.planner import coterie
from coterie.grouping.servers import covering, edges_as_groups
from coterie.grouping.shared_links import shared_links
from coterie.network import Network
from coterie.network.routes import route
from coterie.network.values import Phase
from coterie.simulation.fleet import Fleet
from coterie.topology import Speed, Topology, assemble, edge_cloud, fat_tree, waxman

MB = 1_000_000


def star(speeds: Floats) -> Topology:
    """Devices of unlike speeds on one switch."""
    n = len(speeds)
    slow = assemble(np.zeros(n, int), np.zeros((0, 2), int), (), 1, Speed(), Speed())
    return slow.with_access(speeds, speeds, np.full(n, 1e-3))


def sites(n: int, edge_of: Ints, wan: Floats, rng: np.random.Generator) -> Topology:
    """Sites of fast devices, joined by uplinks of unlike speeds; some devices are slow, too."""
    S = len(wan)
    links = np.stack([np.arange(S), np.full(S, S)], axis=1)
    top = assemble(edge_of, links, ("wan",) * S, S + 1, Speed(1e8, 1e-3), Speed(1e8, 5e-3))
    speed = top.bytes_per_s.copy()
    speed[2 * n :] = np.repeat(wan, 2)
    speed[: 2 * n] = rng.choice([1e6, 1e7, 1e8], 2 * n)
    return replace(top, bytes_per_s=speed)


def evidence(top: Topology, edge_of: Ints, K: int, nbytes: int = 5 * MB) -> Evidence:
    n = top.n_devices
    network = Network(top, edge_of)
    delays = Delays(network, nbytes, 5, 1.0)
    return Evidence(K, np.full(n, 1 / n), edge_of, top, delays=delays)


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_slow_device_serves_nobody_whatever_its_number(slow: int) -> None:
    speeds = np.full(3, 1e6)
    speeds[slow] = 0.25e6
    top, nobody = star(speeds), np.zeros(3, dtype=np.int64)
    fleet = Fleet(np.full(3, 1 / 3), nobody, Network(top), np.ones((3, 1), dtype=np.int64))
    together = fleet.together(5 * MB)
    assert together.servers[0] != slow
    took = fleet.averaging(together, 5 * MB).transfer.seconds
    every = [fleet.network.aggregation(nobody, np.array([s]), 5 * MB).seconds for s in range(3)]
    assert took == min(every)


def test_no_other_server_is_much_quicker() -> None:
    slower = np.array([_over_the_quickest(seed) for seed in range(100)])
    assert slower.mean() < 1.005
    assert slower.max() < 1.1


def _over_the_quickest(seed: int) -> float:
    """Seconds of a random network's mean by its chosen server, over those by the best one."""
    rng = np.random.default_rng(seed)
    n, S = int(rng.integers(3, 14)), int(rng.integers(1, 5))
    edge_of = np.sort(np.arange(n) % S)
    top = sites(n, edge_of, 10 ** rng.uniform(6, 8, S), rng)
    e = evidence(top, edge_of, 1)
    z = np.zeros(n, dtype=np.int64)
    clock = e.delays.network  # type: ignore[union-attr]
    every = [clock.aggregation(z, np.array([s]), 5 * MB).seconds for s in range(n)]
    chosen = int(with_servers(z, e).servers[0])
    return every[chosen] / min(every)


def test_without_a_clock_hops_decide() -> None:
    top = fat_tree(np.repeat(np.arange(4), 3))
    e = Evidence(1, np.full(12, 1 / 12), np.repeat(np.arange(4), 3), top)
    assert with_servers(np.zeros(12, dtype=np.int64), e).servers.tolist() == [0]


def test_a_site_is_served_by_its_own_station_and_not_by_the_cloud() -> None:
    edge_of = np.repeat(np.arange(4), 5)
    top = edge_cloud(edge_of, Speed(1e6, 1e-2), Speed(2e6, 1e-2))
    found = with_servers(edge_of, evidence(top, edge_of, 4))
    assert found.servers.tolist() == [20, 21, 22, 23]


def test_what_links_carry_is_what_their_flows_add_up_to() -> None:
    rng = np.random.default_rng(3)
    edge_of = np.sort(np.arange(30) % 6)
    top = sites(30, edge_of, 10 ** rng.uniform(6, 8, 6), rng)
    z, servers = rng.permutation(np.arange(30) % 3), np.array([0, 12, 29])
    shared = shared_links(top)
    assert shared is not None
    row_of = np.searchsorted(top.switches_hops[0], top.switch_of)
    up, down = shared.loads(row_of[servers[z]], row_of)
    for load, (src, dst) in (
        (up, (np.arange(30), servers[z])),
        (down, (servers[z], np.arange(30))),
    ):
        flows = route(top, Phase(src, dst, np.ones(30, dtype=np.int64)))
        carried = np.bincount(flows.links, minlength=len(top.bytes_per_s)) / top.bytes_per_s
        np.testing.assert_allclose(load, carried[60:], rtol=1e-12)


def test_routes_that_part_share_what_they_carry_evenly() -> None:
    edge_of = np.repeat(np.arange(4), 4)
    top = fat_tree(edge_of)
    shared = shared_links(top)
    assert shared is not None
    rows = np.arange(shared.H)
    up, down = shared.loads(rows[::-1], rows)
    hops = top.hops_to(top.switches_hops[0])[rows[::-1], top.switches_hops[0]]
    per_link = 1 / top.bytes_per_s[2 * 16]
    assert up.sum() == pytest.approx(hops.sum() * per_link)
    assert down.sum() == pytest.approx(hops.sum() * per_link)


def test_nothing_is_shared_where_every_device_has_a_link_to_every_other() -> None:
    pairs = np.stack(np.triu_indices(5, 1), axis=1)
    mesh = assemble(np.arange(5), pairs, ("core",) * len(pairs), 5, Speed(), Speed())
    assert shared_links(mesh) is None


def test_a_narrow_uplink_is_left_to_those_behind_it() -> None:
    rng = np.random.default_rng(0)
    edge_of = np.repeat(np.arange(4), 10)
    top = sites(40, edge_of, np.array([1e5, 1e8, 1e8, 1e8]), rng)
    fast = top.with_access(np.full(40, 1e8), np.full(40, 1e8), np.full(40, 1e-3))
    e = replace(
        evidence(fast, edge_of, 4),
        label_counts=rng.multinomial(20, np.full(5, 0.2), 40),
    )
    found = coterie(0.05, 1.0)(e, np.random.default_rng(0))
    clock = e.delays
    assert clock is not None
    edges = with_servers(edge_of, e)
    ours = clock.group_s(found.z, found.servers)
    assert ours <= 1.1 * clock.group_s(edges.z, edges.servers)
    dealt = with_servers(np.arange(40) % 4, e)
    assert ours < 0.1 * clock.group_s(dealt.z, dealt.servers)


def test_stations_are_seated_so_that_every_node_has_one_in_reach() -> None:
    edge_of = np.repeat(np.arange(8), 5)
    top = edge_cloud(edge_of)
    e = replace(evidence(top, edge_of, 8), limits=Limits(max_hops=1))
    assert sorted(covering(e, 1).tolist()) == list(range(40, 48))
    found = coterie()(e, np.random.default_rng(0))
    assert sorted(found.servers.tolist()) == list(range(40, 48))
    assert np.array_equal(np.unique(found.z[edge_of == 0]).shape, (1,))


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_a_cover_that_one_place_for_each_edge_gives_is_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edge_of = np.sort(np.concatenate([np.arange(6), rng.integers(6, size=20)]))
    top = waxman(edge_of, 0.4, 0.2, rng)
    e = replace(evidence(top, edge_of, 6), limits=Limits(max_hops=2))
    seats = covering(e, 2)
    assert len(set(seats.tolist())) == 6
    assert (e.between(seats, np.arange(26)) <= 2).any(axis=0).all()


def test_who_has_no_server_in_reach_is_named() -> None:
    edge_of = np.repeat(np.arange(3), 2)
    plain = edge_cloud(edge_of)
    names = ("anna", "ben", "cleo", "dora", "emil", "fay", "north", "mid", "south", "core")
    top = replace(plain, names=names, switch_names=())
    e = replace(evidence(top, edge_of, 2), limits=Limits(max_hops=1))
    with pytest.raises(GroupingError, match=r"^(anna|cleo|emil) has no server within 1 hops"):
        coterie()(e, np.random.default_rng(0))


@given(st.integers(0, 1000), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_edges_make_as_many_groups_as_are_wanted(seed: int, K: int) -> None:
    rng = np.random.default_rng(seed)
    edge_of = np.sort(rng.integers(5, size=20))
    edge_of = np.unique(edge_of, return_inverse=True)[1]
    e = evidence(fat_tree(edge_of), edge_of, K)
    z = edges_as_groups(e)
    assert sorted(set(z.tolist())) == list(range(K))
    of_edge = [set(z[edge_of == edge].tolist()) for edge in range(edge_of.max() + 1)]
    if len(of_edge) >= K:
        assert all(len(own) == 1 for own in of_edge)  # joined, and never cut
    else:
        assert sum(len(own) for own in of_edge) == K  # cut, and never joined


def test_servers_suit_all_groups_at_once() -> None:
    """The slowest way up and the slowest way back count, whichever groups they are of."""
    up, down = np.array([1.0, 100, 100, 100]), np.array([100.0, 100, 1, 100])
    speed = 125_000 * np.stack([up, down], axis=1).ravel()
    top = Topology(
        np.zeros(4, dtype=np.int64), np.zeros((0, 2), int), (), 1, speed, np.full(4, 1e-3)
    )
    z = np.array([0, 0, 1, 1])
    e = evidence(top, z, 2)
    clock = e.delays.network  # type: ignore[union-attr]
    every = [clock.aggregation(z, np.array([a, b]), 5 * MB).seconds for a in (0, 1) for b in (2, 3)]
    assert clock.aggregation(z, with_servers(z, e).servers, 5 * MB).seconds == min(every)


@pytest.mark.parametrize("told", ["may_serve", "capacity"])
def test_the_same_groups_are_kept_with_the_quicker_server(told: str) -> None:
    speed = np.repeat(125_000 * np.array([1.0, 100, 100, 100]), 2)
    may = np.array([True, True, True, False]) if told == "may_serve" else None
    top = Topology(
        np.zeros(4, dtype=np.int64), np.zeros((0, 2), int), (), 1, speed, np.full(4, 1e-3)
    )
    top = replace(top, may_serve=may)
    limits = Limits(capacity=np.full(4, 4)) if told == "capacity" else Limits()
    e = replace(evidence(top, np.zeros(4, dtype=np.int64), 1), limits=limits)
    assert coterie(0.0, 1.0)(e, np.random.default_rng(0)).servers[0] in (1, 2, 3)


def test_seats_by_capacity_are_of_those_who_may_serve() -> None:
    speed = np.repeat(125_000 * np.arange(10.0, 60, 10), 2)
    top = Topology(
        np.zeros(5, dtype=np.int64), np.zeros((0, 2), int), (), 1, speed, np.full(5, 1e-3)
    )
    top = replace(top, may_serve=np.array([False, False, True, True, False]))
    limits = Limits(capacity=np.array([4, 3, 3, 4, 4]))
    e = replace(evidence(top, np.zeros(5, dtype=np.int64), 2), limits=limits)
    found = coterie()(e, np.random.default_rng(0))
    assert sorted(found.servers.tolist()) == [2, 3]
    assert broken(e, found) == ""


def test_a_place_that_serves_twice_parts_all_of_its_room() -> None:
    top = edge_cloud(np.array([0, 0, 1]), Speed(1e6, 1e-2), Speed(2e6, 1e-2))
    top = replace(top, places=top.places[:1], place_capacity=np.array([3]))
    found = coterie()(evidence(top, np.array([0, 0, 1]), 2), np.random.default_rng(0))
    assert sorted(np.bincount(found.z).tolist()) == [1, 2]
