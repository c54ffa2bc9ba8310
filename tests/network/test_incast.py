from dataclasses import replace

import numpy as np
import pytest

from coterie.network import Network, Phase, make_clock
from coterie.network.flows import flow_seconds
from coterie.network.routes import route
from coterie.network.tcp import PROFILES
from coterie.topology import Speed, Topology, assemble, fat_tree

PAPER_EDGES = np.repeat(np.arange(10), 10)
ALL = np.zeros(100, dtype=np.int64)
TUNED = PROFILES["tuned"]


def tree(bytes_per_s: float) -> Topology:
    return fat_tree(PAPER_EDGES, Speed(bytes_per_s), Speed(bytes_per_s))


def to_one(top: Topology, nbytes: int, profile: str) -> float:
    net = Network(top, clock=make_clock("flow", profile, 600))
    return net.upload(ALL, np.array([0]), nbytes).seconds


def test_many_to_one_waits_for_a_time_out() -> None:
    # ns-3 with ordinary queues: 1.13-1.18 s and 1.67-1.76 s for these; 0.33 and 0.83 s without.
    for speed, nbytes in ((1e7, 31_400), (1e8, 796_840)):
        apart = to_one(tree(speed), nbytes, "tuned") - to_one(tree(speed), nbytes, "lossless")
        assert 0.7 < apart < 1.0


def test_a_transfer_shorter_than_codels_interval_loses_nothing() -> None:
    top = tree(1e8)
    assert to_one(top, 31_400, "tuned") == to_one(top, 31_400, "lossless")


def test_few_to_one_repair_their_losses() -> None:
    net = Network(tree(1e7), clock=make_clock("flow", "tuned", 600))
    fair = Network(tree(1e7))
    pods = PAPER_EDGES, np.arange(10) * 10, 796_840
    repaired = net.upload(*pods).seconds - fair.upload(*pods).seconds
    assert 0 < repaired < 0.01  # half a round trip


def test_some_flows_stall_and_the_others_end_no_later() -> None:
    top = tree(1e8)
    phase = Phase(np.arange(1, 100), ALL[1:], np.full(99, 796_840))
    fair = flow_seconds(top, route(top, phase))
    queued = flow_seconds(top, route(top, phase), TUNED)
    stalled = queued > fair + 0.5
    assert 1 <= stalled.sum() <= 5
    assert (queued[~stalled] <= fair[~stalled] + 0.013).all()  # a round trip
    assert queued.mean() == pytest.approx(fair.mean(), rel=0.06)


def test_a_drop_among_the_last_packets_waits_for_a_time_out() -> None:
    # ns-3: 1.16 s, each of five times, as CoDel's first drops meet the ends of 90 flows.
    top = tree(1e8)
    members = np.setdiff1d(np.arange(100), np.arange(10) * 10)
    phase = Phase(members // 10 * 10, members, np.full(90, 1_476_392))
    fair = flow_seconds(top, route(top, phase))
    queued = flow_seconds(top, route(top, phase), TUNED)
    assert (queued > fair + 0.9).sum() == 1
    assert queued.max() == pytest.approx(fair.max() + 1.0, abs=0.02)
    shorter = replace(route(top, phase), nbytes=np.full(90, 1_200_000))  # ends before any drop
    assert flow_seconds(top, shorter, TUNED).max() < 0.2


def test_flows_of_a_slow_link_lose_their_repairs_too() -> None:
    # ns-3 with 9 to one over 5 MByte/s: 1.6-2.0 s, 1.49 s without drops; over 10, as without.
    for speed, least, most in ((5e6, 0.1, 0.6), (1e7, 0.0, 0.01)):
        none = np.zeros((0, 2), dtype=np.int64)
        star = assemble(np.zeros(10, dtype=np.int64), none, (), 1, Speed(speed), Speed(speed))
        phase = Phase(np.arange(1, 10), ALL[1:10], np.full(9, 796_840))
        fair = flow_seconds(star, route(star, phase)).max()
        assert least <= flow_seconds(star, route(star, phase), TUNED).max() - fair <= most


def test_ordinary_queues_serve_a_broadcast_in_order() -> None:
    top = tree(1e7)
    phase = Phase(ALL[1:10], np.arange(1, 10), np.full(9, 31_400))
    fair = flow_seconds(top, route(top, phase))
    queued = flow_seconds(top, route(top, phase), TUNED)
    assert queued.max() == fair.max()
    assert queued.mean() < 0.9 * fair.mean()
    assert len(np.unique(queued.round(6))) == 9


def test_a_straggler_that_meets_no_crowd_changes_nothing_for_it() -> None:
    none = np.zeros((0, 2), dtype=np.int64)
    top = assemble(np.zeros(200, dtype=np.int64), none, (), 1, Speed(1e7), Speed(1e7))
    latency = np.full(200, 1e-3)
    latency[7] = 3.0
    top = top.with_access(np.full(200, 1e7), np.full(200, 1e7), latency)
    phase = Phase(np.arange(1, 200), np.zeros(199, dtype=np.int64), np.full(199, 31_400))
    fair = flow_seconds(top, route(top, phase))
    queued = flow_seconds(top, route(top, phase), TUNED)
    assert (queued > 0.4 * fair).all()
    assert queued[6] == fair[6] == fair.max()


def test_a_flow_alone_hardly_notices() -> None:
    top = tree(1e7)
    one = route(top, Phase(np.array([1]), np.array([50]), np.array([10**7])))
    assert flow_seconds(top, one, TUNED) == pytest.approx(flow_seconds(top, one), abs=0.001)


def test_small_segments_and_windows_take_longer() -> None:
    top = tree(1e8)
    one = route(top, Phase(np.array([1]), np.array([50]), np.array([10**7])))
    # 128 KiB a round trip of 12 ms, against 100 MByte/s.
    assert flow_seconds(top, one, PROFILES["default"])[0] == pytest.approx(
        10**7 / (128 * 1024) * 0.012, rel=0.1
    )
