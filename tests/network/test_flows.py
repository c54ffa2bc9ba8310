from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from coterie.core.errors import TopologyError
from coterie.network import Network, Phase, make_clock
from coterie.network.aggregation import REFERENCE_BYTES
from coterie.network.flows import flow_seconds
from coterie.network.max_min import contention
from coterie.network.routes import Routing, route
from coterie.network.tcp import PROFILES
from coterie.network.values import Flows
from coterie.topology import Speed, Topology, assemble, fat_tree, jellyfish, kary_fat_tree, waxman

Ints = NDArray[np.int64]
PAPER_EDGES = np.repeat(np.arange(10), 10)
CNN = 1_476_392
SLOW = Speed(1e6, 0.001)


def star(n: int, speed: Speed = SLOW) -> Topology:
    none = np.zeros((0, 2), dtype=np.int64)
    return assemble(np.zeros(n, dtype=np.int64), none, (), 1, speed, speed)


def chain(switches: list[int], speed: Speed = SLOW) -> Topology:
    """Devices on a row of switches."""
    S = max(switches) + 1
    links = np.stack([np.arange(S - 1), np.arange(1, S)], axis=1)
    return assemble(np.array(switches), links, ("core",) * (S - 1), S, speed, speed)


def send(top: Topology, *transfers: tuple[int, int, int], routing: Routing = "ecmp") -> Flows:
    src, dst, nbytes = np.array(transfers, dtype=np.int64).T
    return route(top, Phase(src, dst, nbytes), routing)


def wire(nbytes: int) -> int:
    return nbytes + 54 * -(-nbytes // 1448)


def test_one_segment_by_hand() -> None:
    # Hand shake there and back, 60 bytes a link; then one packet, stored and forwarded once.
    seconds = flow_seconds(star(2), send(star(2), (0, 1, 1000)))
    assert seconds[0] == pytest.approx(4 * (0.001 + 60e-6) + 2 * (0.001 + 1054e-6), rel=2e-3)


def test_two_flows_share_a_link_by_hand() -> None:
    seconds = flow_seconds(star(3), send(star(3), (0, 2, 10**6), (1, 2, 10**6)))
    # Ten segments in flight outlast a round trip here, so only the start is not at full speed.
    start = 4 * (0.001 + 60e-6) + 0.001 + 1502e-6 + 0.001
    assert seconds == pytest.approx([start + 2 * wire(10**6) / 1e6] * 2, rel=1e-3)


def test_a_flow_that_ends_frees_its_share() -> None:
    seconds = flow_seconds(star(3), send(star(3), (0, 2, 10**6), (1, 2, 2 * 10**6)))
    start = 4 * (0.001 + 60e-6) + 0.001 + 1502e-6 + 0.001
    assert seconds[0] == pytest.approx(start + 2 * wire(10**6) / 1e6, rel=1e-3)
    assert seconds[1] == pytest.approx(start + (wire(10**6) + wire(2 * 10**6)) / 1e6, rel=1e-3)


def test_a_longer_path_takes_its_latency_more() -> None:
    top = chain([0, 0, 3], Speed(1e9, 0.01))
    near, far = (flow_seconds(top, send(top, (0, to, 1000)))[0] for to in (1, 2))
    # Three more links: handshake both ways and the data once.
    assert far - near == pytest.approx(9 * 0.01, rel=1e-2)


def test_windows_double_every_round_trip() -> None:
    top = star(2, Speed(1e12, 0.01))  # no link is ever busy: only round trips of 40 ms count
    for segments, trips in [(10, 0), (11, 1), (28, 1), (29, 2), (64, 2), (65, 3)]:
        seconds = flow_seconds(top, send(top, (0, 1, 1448 * segments)))[0]
        assert seconds == pytest.approx(0.04 + 0.02 + 0.04 * trips, rel=1e-2)


def test_a_window_stops_growing_at_the_buffer() -> None:
    top = star(2, Speed(1e12, 0.01))
    flows = send(top, (0, 1, 100 * 2**20))
    small = replace(PROFILES["lossless"], largest_window=2**20)
    # About 1 MiB a round trip of 40 ms, after six round trips of growing up.
    assert flow_seconds(top, flows, small)[0] == pytest.approx(0.04 * 100, rel=0.1)


def test_both_directions_of_a_link_are_their_own() -> None:
    top = chain([0, 1])
    alone = flow_seconds(top, send(top, (0, 1, 10**6)))
    both = flow_seconds(top, send(top, (0, 1, 10**6), (1, 0, 10**6)))
    assert both == pytest.approx([alone[0]] * 2)
    slow_down = top.with_access(np.full(2, 1e6), np.array([1e5, 1e6]), np.full(2, 0.001))
    there, back = flow_seconds(slow_down, send(slow_down, (0, 1, 10**6), (1, 0, 10**6)))
    assert there == pytest.approx(alone[0], rel=1e-3)  # only the handshake goes the slow way
    assert back == pytest.approx(10 * wire(10**6) / 1e6, rel=0.05)


def test_a_broadcast_is_timed_by_itself() -> None:
    top = star(4).with_access(np.array([1e5, 1e6, 1e6, 1e6]), np.full(4, 1e6), np.full(4, 0.001))
    net = Network(top)
    z, servers = np.zeros(4, dtype=np.int64), np.array([0])
    up = net.upload(z, servers, 10**5)
    both = net.aggregation(z, servers, 10**5)
    assert both.seconds - up.seconds > 8 * up.seconds  # the server's uplink is ten times slower
    assert both.bytes_by_tier == {"access": 2 * up.bytes_by_tier["access"]} == {"access": 1_200_000}


def test_transfers_to_oneself_cost_nothing() -> None:
    net = Network(star(3))
    for nothing in (
        net.aggregation(np.arange(3), np.arange(3), 10**6),
        net.aggregation(np.zeros(3, dtype=np.int64), np.array([0]), 0),
    ):
        assert nothing.seconds == 0
        assert nothing.bytes_by_tier == {"access": 0}


def test_starting_later_ends_as_much_later() -> None:
    top = star(3)
    flows = send(top, (0, 2, 10**6), (1, 2, 10**6))
    later = replace(flows, start_s=flows.start_s + 1e4)
    assert flow_seconds(top, later) - 1e4 == pytest.approx(flow_seconds(top, flows), abs=1e-6)


def test_an_end_that_is_neither_device_nor_place_is_refused() -> None:
    with pytest.raises(TopologyError, match="switch 0 cannot be an end: no device is on it"):
        send(fat_tree(np.repeat(np.arange(4), 2)), (0, 8, 10))


def test_a_transfer_that_never_ends_takes_forever() -> None:
    top = star(2, Speed(5e-324, 0.0))
    for tcp in PROFILES.values():
        assert flow_seconds(top, send(top, (0, 1, 10)), tcp).tolist() == [np.inf]


@st.composite
def flows_on_networks(draw: st.DrawFn) -> tuple[Topology, Flows]:
    """Some network with unlike links, and some flows on it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    edge_of = np.sort(rng.integers(draw(st.integers(1, 6)), size=draw(st.integers(2, 24))))
    edge_of = np.unique(edge_of, return_inverse=True)[1].astype(np.int64)
    kind = draw(st.sampled_from(["tree", "k-ary", "jellyfish", "waxman"]))
    top = {
        "tree": lambda: fat_tree(edge_of),
        "k-ary": lambda: kary_fat_tree(len(edge_of), None),
        "jellyfish": lambda: jellyfish(edge_of, 3, rng),
        "waxman": lambda: waxman(edge_of, 0.5, 0.5, rng),
    }[kind]()
    speeds = rng.choice([1e5, 1e6, 3e6, 1e7], size=len(top.bytes_per_s))
    top = replace(top, bytes_per_s=speeds, latency_s=rng.uniform(0, 0.01, len(top.latency_s)))
    F = draw(st.integers(1, 40))
    src, dst = rng.integers(len(edge_of), size=(2, F))
    flows = route(
        top,
        Phase(src, dst, rng.integers(1, 10**6, size=F)),
        draw(st.sampled_from(["ecmp", "single"])),
        int(rng.integers(99)),
    )
    return top, flows


@settings(deadline=None, max_examples=100)
@given(flows_on_networks())
def test_routes_are_shortest_paths_from_end_to_end(case: tuple[Topology, Flows]) -> None:
    top, flows = case
    assert (flows.n_hops == top.hops[flows.src, flows.dst]).all()
    for f in range(len(flows)):
        at = flows.src[f]
        for link in flows.links[flows.first[f] : flows.first[f + 1]]:
            a, b = top.ends[link // 2][:: 1 if link % 2 == 0 else -1]
            assert a == at
            at = b
        assert at == flows.dst[f]


@settings(deadline=None, max_examples=100)
@given(flows_on_networks(), st.integers(0, 99))
def test_shares_are_max_min_fair_on_all_links(case: tuple[Topology, Flows], seed: int) -> None:
    top, flows = case
    if not len(flows):
        return
    active = np.random.default_rng(seed).random(len(flows)) < 0.7
    rate = contention(flows.links, flows.first, top.bytes_per_s).shares(active)
    assert (rate[~active] == 0).all()
    load = np.bincount(flows.links, rate[flows.flow_of], minlength=len(top.bytes_per_s))
    assert (load <= top.bytes_per_s * (1 + 1e-9)).all()  # no link above its speed
    for f in np.flatnonzero(active):  # every flow has a full link on which none is faster
        path = flows.links[flows.first[f] : flows.first[f + 1]]
        full = path[load[path] >= top.bytes_per_s[path] * (1 - 1e-9)]
        fastest = [rate[flows.flow_of[flows.links == link]].max() for link in full]
        assert rate[f] >= min(fastest, default=np.inf) * (1 - 1e-9)


def check_links(top: Topology, flows: Flows, seconds: NDArray[np.float64]) -> None:
    """Check that by the time a flow ends, its links could have carried what has arrived so far."""
    wired = np.array([wire(int(nbytes)) for nbytes in flows.nbytes])
    carried = np.zeros(len(top.bytes_per_s))
    for f in np.argsort(seconds):
        path = flows.links[flows.first[f] : flows.first[f + 1]]
        carried[path] += wired[f]
        assert seconds[f] >= (carried[path] / top.bytes_per_s[path]).max() * (1 - 1e-6)


@settings(deadline=None, max_examples=100)
@given(flows_on_networks(), st.sampled_from([1, 10**4]))
def test_no_link_carries_its_bytes_faster_than_it_can(
    case: tuple[Topology, Flows], times: int
) -> None:
    top, flows = case
    flows = replace(flows, nbytes=times * flows.nbytes)
    seconds = flow_seconds(top, flows)
    assert np.isfinite(seconds).all()  # every byte is delivered
    check_links(top, flows, seconds)


def test_flows_that_end_at_about_one_time_are_not_served_ahead_of_it() -> None:
    # The last few of these end within 0.2% of each other on links of 0.1 MByte/s.
    top = replace(
        chain([0, 1, 1]),
        bytes_per_s=np.array([1e7, 1e5, 3e6, 1e6, 1e5, 1e5, 1e5, 1e6]),
        latency_s=np.array([0.00164246, 0.00225501, 0.00826656, 0.0037567]),
    )
    # fmt: off
    flows = send(
        top,
        (0, 2, 755623), (2, 0, 860860), (2, 1, 811397), (2, 1, 551066), (0, 2, 142217),
        (2, 0, 699440), (0, 2, 305825), (1, 2, 831376), (1, 2, 434619), (0, 2, 770621),
        (1, 2, 502906), (1, 2, 796550), (2, 0, 197486), (0, 1, 981089), (0, 1, 60203),
        (2, 0, 743316), (2, 0, 308773), (0, 2, 623063), (2, 0, 413200), (1, 2, 283908),
        (1, 0, 396513), (0, 1, 560622), (0, 2, 111605), (2, 0, 755025), (0, 1, 350490),
        (0, 2, 947668), (2, 1, 965774), (2, 0, 756486),
    )
    # fmt: on
    check_links(top, flows, flow_seconds(top, flows))


@pytest.mark.parametrize("profile", ["lossless", "default"])
@pytest.mark.parametrize("nbytes", [2 * 10**8, 44 * 10**8, 10**12, 10**15])
@pytest.mark.parametrize("latency_s", [0.001, 0.02])
def test_large_transfers_keep_to_window_and_speed(
    profile: str, nbytes: int, latency_s: float
) -> None:
    tcp, top = PROFILES[profile], star(2, Speed(1e8, latency_s))
    seconds = flow_seconds(top, send(top, (0, 1, nbytes)), tcp)[0]
    on_wire = nbytes * (1 + tcp.header / tcp.segment)
    round_trip = 4 * latency_s + 2 * (tcp.segment + 2 * tcp.header) / 1e8
    least = max(on_wire / 1e8, nbytes / tcp.largest_window * round_trip)
    shaking_and_growing = 15 * (round_trip + 4 * latency_s)
    assert least * (1 - 1e-3) <= seconds <= least * (1 + 1e-3) + shaking_and_growing


def test_a_flow_at_the_pace_of_its_window_leaves_the_rest_to_others() -> None:
    # The far one may send 4 MiB every 0.4 s, about a tenth of the link that both go through.
    far, near = Speed(1e8, 0.1), Speed(1e8, 0.0005)
    top = replace(
        star(3, near), latency_s=np.array([far.latency_s, near.latency_s, near.latency_s])
    )
    seconds = flow_seconds(top, send(top, (0, 2, 10**10), (1, 2, 10**10)))
    full = wire(1) - 1 + 1448
    pace = (4 << 20) * full / 1448 / (2 * (0.1 + 0.0005))
    alone = wire(10**10) / (1e8 - pace)
    assert seconds[1] == pytest.approx(alone, rel=2e-2)
    assert seconds[0] == pytest.approx(wire(10**10) / pace, rel=1e-2)


@pytest.mark.parametrize("begin", [0.0, 1.2, 30.0])
def test_rivals_that_come_and_go_do_not_lift_the_limit_of_a_window(begin: float) -> None:
    top = replace(star(3, Speed(1e8, 0.0005)), latency_s=np.array([0.1, 0.0005, 0.0005]))
    flows = send(top, (0, 2, 10**10), *[(1, 2, 10**8)] * 10)
    flows = replace(flows, start_s=np.array([0.0, *[begin] * 10]))
    least = 10**10 / (4 << 20) * 2 * (0.1 + 0.0005)
    assert flow_seconds(top, flows)[0] >= 0.99 * least
    assert flow_seconds(top, flows)[0] <= 1.05 * least + 11


@pytest.mark.parametrize("profile", PROFILES)
def test_links_that_take_forever_take_forever(profile: str) -> None:
    top = star(3, Speed(1e-295, 0.001))
    flows = send(top, (0, 2, 10), (1, 2, 10**15), (0, 2, 3000))
    seconds = flow_seconds(top, flows, PROFILES[profile])
    assert not np.isnan(seconds).any()
    assert np.isinf(seconds[1])


@pytest.mark.parametrize("profile", ["tuned", "default"])
@pytest.mark.parametrize("speed", [1e6, 1e8])
def test_queues_that_drop_deliver_nothing_before_it_can_be_there(
    profile: str, speed: float
) -> None:
    top, tcp = star(4, Speed(speed, 0.001)), PROFILES[profile]
    sizes = {0: 10, 1: 10**5, 3: 10**6}
    flows = send(top, *((src, 2, size) for src, size in sizes.items()), (0, 2, 3000))
    seconds = flow_seconds(top, flows, tcp)
    shaken_and_there = 4 * 0.001 + 2 * 0.001
    assert (seconds >= shaken_and_there + flows.nbytes / speed).all()


@settings(deadline=None, max_examples=50)
@given(flows_on_networks(), st.integers(0, 99))
def test_permuting_flows_changes_nothing(case: tuple[Topology, Flows], seed: int) -> None:
    top, flows = case
    order = np.random.default_rng(seed).permutation(len(flows))
    assert (flow_seconds(top, flows.take(order)) == flow_seconds(top, flows)[order]).all()


@settings(deadline=None, max_examples=50)
@given(flows_on_networks())
def test_doubling_speeds_and_sizes_keeps_times_less_latency(case: tuple[Topology, Flows]) -> None:
    top, flows = case
    bare = replace(PROFILES["lossless"], segment=1, header=0, shake=0, first_window=1 << 30)
    still = replace(top, latency_s=np.zeros_like(top.latency_s))
    twice = replace(still, bytes_per_s=2 * still.bytes_per_s)
    larger = replace(flows, nbytes=2 * flows.nbytes)
    # What is left is a segment of one byte on each link of a path.
    expected = flow_seconds(still, flows, bare)
    assert flow_seconds(twice, larger, bare) == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_more_flows_never_make_a_link_idle() -> None:
    top = fat_tree(PAPER_EDGES)
    rng = np.random.default_rng(0)
    last = 0.0
    for n in (10, 30, 60, 99):
        senders = 1 + rng.permutation(99)[:n]
        phase = Phase(senders, np.zeros(n, dtype=np.int64), np.full(n, CNN))
        now = flow_seconds(top, route(top, phase)).max()
        assert now > last
        assert now == pytest.approx(n * wire(CNN) / 1e8, abs=0.06)
        last = now


# ns-3's figures for the paper's fat tree, 1 ms a link, lossless fair queues, models to one server.
NS3_LOSSLESS = [
    ("global", 1e8, 10_240, 0.0277),
    ("global", 1e8, 31_400, 0.0489),
    ("global", 1e8, 796_840, 0.8343),
    ("global", 1e8, CNN, 1.5322),
    ("global", 1e7, 31_400, 0.3326),
    ("global", 1e7, CNN, 15.17),
    ("pods", 1e8, 31_400, 0.0215),
    ("pods", 1e8, CNN, 0.1565),
    ("pods", 1e7, CNN, 1.3874),
]


@pytest.mark.parametrize(("pattern", "speed", "nbytes", "expected"), NS3_LOSSLESS)
def test_the_flow_clock_agrees_with_ns3s_published_figures(
    pattern: str, speed: float, nbytes: int, expected: float
) -> None:
    net = Network(fat_tree(PAPER_EDGES, Speed(speed), Speed(speed)), routing="single")
    if pattern == "global":
        up = net.upload(np.zeros(100, dtype=np.int64), np.array([0]), nbytes)
    else:
        up = net.upload(PAPER_EDGES, np.arange(10) * 10, nbytes)
    assert up.seconds == pytest.approx(expected, rel=0.01)


def test_single_paths_collide_where_ecmp_spreads() -> None:
    top = fat_tree(PAPER_EDGES)
    z = np.random.default_rng(0).permutation(100) % 5
    servers = np.array([np.flatnonzero(z == k)[0] for k in range(5)])
    spread = Network(top).upload(z, servers, CNN).seconds
    single = Network(top, routing="single").upload(z, servers, CNN).seconds
    assert single > 1.2 * spread
    seeds = {Network(top, seed=s).upload(z, servers, CNN).seconds for s in range(4)}
    assert len(seeds) > 1  # the seed chooses the paths


def test_the_reference_procedure_scales_a_small_transfer_and_its_close() -> None:
    net = Network(fat_tree(PAPER_EDGES), routing="single")
    z, servers = np.zeros(100, dtype=np.int64), np.array([0])
    small = net.upload(z, servers, REFERENCE_BYTES).seconds
    close = 6 * 2 * (0.001 + 54 / 1e8)  # six links, there and back
    there = replace(net, reference=True).aggregation(z, servers, CNN)
    assert there.seconds == pytest.approx(2 * (small + close) * CNN / REFERENCE_BYTES)
    assert there.seconds > 2.5 * net.aggregation(z, servers, CNN).seconds  # latency is scaled too
    assert there.bytes_by_tier == pytest.approx(net.aggregation(z, servers, CNN).bytes_by_tier)


AUTHORS = [  # what the authors' notebooks print: CNN and 2NN, one way, at 10 MByte/s
    ("global", False, CNN, 21.68, 0.01),
    ("pods", False, CNN, 9.29, 0.002),
    ("global", True, CNN, 13.77, 0.002),
    ("pods", True, CNN, 8.94, 0.002),
    ("global", False, 796_840, 11.700, 0.01),
    ("pods", False, 796_840, 5.0129, 0.002),
]


@pytest.mark.parametrize(("pattern", "combine", "nbytes", "printed", "near"), AUTHORS)
def test_the_reference_procedure_gives_the_delays_that_the_authors_printed(
    pattern: str, combine: bool, nbytes: int, printed: float, near: float
) -> None:
    net = Network(
        fat_tree(PAPER_EDGES, Speed(1e7), Speed(1e7)),
        PAPER_EDGES,
        routing="single",
        clock=make_clock("flow", "ns-3.30", 1.0),
        combine=combine,
        reference=True,
    )
    if pattern == "global":
        up = net.upload(np.zeros(100, dtype=np.int64), np.array([0]), nbytes)
    else:
        up = net.upload(PAPER_EDGES, np.arange(10) * 10, nbytes)
    assert up.seconds == pytest.approx(printed, rel=near)


def test_ns3_as_it_was_for_the_paper_takes_as_long_as_measured_there() -> None:
    net = Network(fat_tree(PAPER_EDGES), routing="single")
    old = replace(net, clock=make_clock("flow", "ns-3.30", 1.0))
    z, servers = np.zeros(100, dtype=np.int64), np.array([0])
    assert old.upload(z, servers, REFERENCE_BYTES).seconds == pytest.approx(0.0814, abs=5e-5)
    assert net.upload(z, servers, REFERENCE_BYTES).seconds == pytest.approx(0.0277, abs=5e-5)


def test_the_reference_combines_for_free_under_an_edge_but_on_the_servers_switch() -> None:
    z, servers = np.zeros(100, dtype=np.int64), np.array([3])
    net = Network(fat_tree(PAPER_EDGES), PAPER_EDGES, combine=True, reference=True)
    up, _ = net.patterns(z, servers, 10)
    assert len(up) == 1
    assert up[0].src.tolist() == [0, 2, *range(10, 100, 10)]  # node 2 is on the server's switch
    assert (up[0].dst == 3).all()
    charged = replace(net, reference=False)
    assert charged.patterns(z, servers, 10)[0][0].src.size == 81 + 9  # into the collectors first
    some = np.array([0, 15, 17, 42])
    assert net.patterns(z, servers, 10, some)[0][0].src.tolist() == [0, 15, 42]


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 12), st.integers(0, 99))
def test_bytes_by_tier_count_every_link_crossed(edges: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edge_of = np.sort(np.arange(4 * edges) % edges)
    for top in (fat_tree(edge_of), jellyfish(edge_of, 3, rng)):
        z = rng.integers(3, size=len(edge_of))
        servers = rng.permutation(len(edge_of))[:3]
        moved = Network(top).upload(z, servers, 10).bytes_by_tier
        hops = top.hops[np.arange(len(z)), servers[z]].sum()
        assert sum(moved.values()) == 10 * hops
