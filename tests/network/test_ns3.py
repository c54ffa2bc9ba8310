"""ns-3 as a clock: what it says, and what is said when it cannot be run."""

import importlib.metadata
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import NetworkError
from coterie.network import Phase, ns3
from coterie.network.flows import flow_seconds
from coterie.network.ns3 import Measured, measure
from coterie.network.routes import route
from coterie.network.tcp import PROFILES
from coterie.network.values import Flows
from coterie.topology import Topology, fat_tree
from coterie.topology.values import Speed, assemble
from needed import needs_ns3
from resuming import PATIENCE_S, alive, wait_for

PER_SEGMENT = 54  # IP 20, TCP 20, its time stamps 12, PPP 2
MB = 1e6

TODAYS = [name for name in PROFILES if name != "ns-3.30"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests of this file share, so that the driver is compiled once."""
    return tmp_path_factory.mktemp("ns3")


@pytest.fixture
def simulator(cache: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(compiled))


def star(n: int, bytes_per_s: float) -> Topology:
    """Put n devices on one switch, which is vertex n; 1 ms a link."""
    speed = Speed(bytes_per_s, 1e-3)
    links = np.zeros((0, 2), dtype=np.int64)
    return assemble(np.zeros(n, dtype=np.int64), links, (), 1, speed, speed)


def flows(
    routes: list[list[int]], src: list[int], dst: list[int], nbytes: int, start_s: float = 0.0
) -> Flows:
    """Flows of one size with the link directions of each."""
    return Flows(
        np.array(src),
        np.array(dst),
        np.full(len(src), nbytes),
        np.array([link for route in routes for link in route], dtype=np.int64),
        np.cumsum([0, *map(len, routes)]),
        np.full(len(src), start_s),
    )


def incast(n: int, nbytes: int) -> Flows:
    """Every device but the first sends to the first, through the switch of a star."""
    senders = list(range(1, n))
    return flows([[2 * i, 1] for i in senders], senders, [0] * (n - 1), nbytes)


def diamond() -> Topology:
    """Two devices on switch 0 and one on switch 3, joined by way of 1 (8 MB/s) and 2 (2 MB/s)."""
    links = np.array([[0, 1], [1, 3], [0, 2], [2, 3]])
    built = assemble(np.array([0, 0, 3]), links, ("",) * 4, 4, Speed(100 * MB), Speed(8 * MB))
    built.bytes_per_s[2 * 5 : 2 * 7] = 2 * MB
    return built


@needs_ns3
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("start_s", [0.0, 0.25])
def test_one_flow_takes_a_handshake_its_bytes_and_the_latency(start_s: float) -> None:
    one_link = flows([[0]], [0], [1], 5 * 1448, start_s)
    said = measure(star(1, MB), one_link)
    handshake = 2 * (1e-3 + 58 / MB) + PER_SEGMENT / MB  # SYN and SYN-ACK carry options; ACK
    by_hand = handshake + 5 * (1448 + PER_SEGMENT) / MB + 1e-3
    assert said.finish_s == pytest.approx([start_s + by_hand], rel=0.01)
    assert said.drops == 0
    assert said.congestion == "ns3::TcpCubic"
    assert said.version == importlib.metadata.version("ns3")


@needs_ns3
@pytest.mark.usefixtures("simulator")
def test_two_equal_flows_share_a_link_equally_and_end_together() -> None:
    nbytes = 1000 * 1448
    alone = measure(star(2, 10 * MB), incast(2, nbytes)).finish_s
    both = measure(star(3, 10 * MB), incast(3, nbytes)).finish_s
    assert both[0] == pytest.approx(both[1], rel=0.005)
    another = 1000 * (1448 + PER_SEGMENT) / (10 * MB)  # only bytes are added, no waiting
    assert both.max() == pytest.approx(alone[0] + another, rel=0.02)


@needs_ns3
@pytest.mark.usefixtures("simulator")
def test_flows_to_one_server_take_the_paths_they_are_given() -> None:
    fast, slow = [6, 8, 5], [10, 12, 5]
    nbytes = 3000 * 1448
    for first, second in [(fast, slow), (slow, fast)]:
        two = flows([[0, *first], [2, *second]], [0, 1], [2, 2], nbytes)
        finish_s = dict(zip(["0", "1"], measure(diamond(), two).finish_s, strict=True))
        quick, late = ("0", "1") if first is fast else ("1", "0")
        wire_bytes = 3000 * (1448 + PER_SEGMENT)
        start_s = 0.025  # the handshake, slow start and latency of 4 links, roughly
        assert finish_s[quick] == pytest.approx(start_s + wire_bytes / (8 * MB), rel=0.02)
        assert finish_s[late] == pytest.approx(start_s + wire_bytes / (2 * MB), rel=0.02)


@needs_ns3
@pytest.mark.usefixtures("simulator")
def test_ns3_itself_picks_the_lowest_numbered_link_of_equal_paths() -> None:
    fast, slow = [6, 8, 5], [10, 12, 5]
    told = [flows([[0, *path]], [0], [2], 1_000_000) for path in (fast, slow)]
    free = measure(diamond(), told[1], routes="global").finish_s
    assert free == pytest.approx(measure(diamond(), told[0]).finish_s, abs=1e-9)
    assert free[0] < 0.5 * measure(diamond(), told[1]).finish_s[0]


@needs_ns3
@pytest.mark.usefixtures("simulator")
def test_lossless_loses_nothing_where_default_queues_lose_much() -> None:
    ten = incast(11, 1_000_000)
    said = {name: measure(star(11, 10 * MB), ten, profile=name) for name in TODAYS}
    assert said["lossless"].drops == 0
    assert said["tuned"].drops > 20
    assert said["default"].drops > 20
    assert [each.profile for each in said.values()] == TODAYS


def test_an_ns3_of_the_past_is_refused() -> None:
    with pytest.raises(NetworkError, match=r"the installed ns-3 cannot behave like ns-3\.30; use"):
        measure(star(3, MB), incast(3, 1000), profile="ns-3.30")


@needs_ns3
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("profile", TODAYS)
def test_the_same_flows_take_the_same_time_again(profile: str) -> None:
    once, again = (measure(star(6, 10 * MB), incast(6, 200_000), profile=profile) for _ in range(2))
    assert once.finish_s.tolist() == again.finish_s.tolist()
    assert once.drops == again.drops


@needs_ns3
@pytest.mark.usefixtures("simulator")
def test_what_needs_no_network_arrives_when_it_starts() -> None:
    to_itself = flows([[], [2, 1]], [0, 1], [0, 0], 5_000, 0.5)
    finish_s = measure(star(2, MB), to_itself).finish_s
    assert finish_s[0] == 0.5 < finish_s[1]
    nothing = flows([[2, 1]], [1], [0], 0, 0.5)
    assert measure(star(2, MB), nothing).finish_s.tolist() == [0.5]


@needs_ns3
@pytest.mark.usefixtures("simulator")
def test_a_route_that_leads_elsewhere_is_a_flow_that_never_ends() -> None:
    astray = flows([[2, 5]], [1], [0], 5_000)  # to device 2
    with pytest.raises(NetworkError, match="gave up on 1 of 1 flows, the first from node 1 to"):
        measure(star(3, MB), astray)


@needs_ns3
def test_a_driver_that_does_not_compile_says_why(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.cc"
    broken.write_text('#include "ns3/core-module.h"\nint main() { return nonsense; }\n')
    monkeypatch.setattr(ns3, "SOURCE", broken)
    with pytest.raises(NetworkError, match=r"does not compile: .*error: .nonsense. was not decl"):
        measure(star(2, MB), incast(2, 1000))
    assert list((cache / "ns3").iterdir()) == []


@needs_ns3
def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "file"))
    with pytest.raises(NetworkError, match=r"file/ns3: cannot be written .*set \$COTERIE_DATA"):
        measure(star(2, MB), incast(2, 1000))


def test_without_ns3_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(NetworkError, match=r"not installed; pip install 'coterie\[ns3\]'"):
        measure(star(2, MB), incast(2, 1000))


def test_without_a_compiler_the_way_to_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ns3-1.0.dist-info").mkdir()
    (tmp_path / "ns3-1.0.dist-info" / "METADATA").write_text("Name: ns3\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NetworkError, match=r"g\+\+, which is not there; apt-get install g\+\+"):
        measure(star(2, MB), incast(2, 1000))


def test_other_systems_than_linux_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(NetworkError, match="ns-3 runs on Linux only, this is darwin"):
        measure(star(2, MB), incast(2, 1000))


def test_unknown_profiles_and_routes_are_refused() -> None:
    with pytest.raises(NetworkError, match="unknown TCP profile 'losless'; did you mean 'lossl"):
        measure(star(2, MB), incast(2, 1000), profile="losless")
    with pytest.raises(NetworkError, match="unknown ns-3 routes 'globall'; did you mean 'global'"):
        measure(star(2, MB), incast(2, 1000), routes="globall")


def run_fake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, limit_s: float = PATIENCE_S
) -> Measured:
    """Time one flow of 1000 bytes with a shell script in place of the driver."""
    fake = tmp_path / "driver"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(ns3, "driver_path", lambda: fake)
    return measure(star(2, MB), incast(2, 1000), time_limit_s=limit_s)


def wait_for_the_end_of(pid_file: Path) -> None:
    """Wait until the processes named in a file do nothing any more."""
    pids = [int(pid) for pid in pid_file.read_text().split()]
    wait_for(lambda: not any(map(alive, pids)))


def test_a_driver_that_hangs_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids, limit_s = tmp_path / "pids", 0.5
    while not pids.exists():  # it had no time to hang
        limit_s *= 2
        with pytest.raises(
            NetworkError, match=rf"stopped after {limit_s:g} s; raise network\.time_limit_s"
        ):
            run_fake(tmp_path, monkeypatch, HANGS.format(pids=pids), limit_s)
    wait_for_the_end_of(pids)


HANGS = "sleep 10000 & echo $$ $! > {pids}.part; mv {pids}.part {pids}; wait"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("cat >&2; echo boom >&2; exit 3", "ns-3 ended with code 3: boom"),
        ("kill -SEGV $$", "ns-3 ended by SIGSEGV: it said nothing"),
        ("cat > /dev/null; echo hello", "ns-3 ended with something that is no result: 'hello"),
        (
            """echo '{"finish_s": [-1e-9], "drops": 0, "cpu_s": 0, "congestion": ""}'""",
            "gave up on 1 of 1 flows, the first from node 1 to node 0; use network.tcp",
        ),
    ],
)
def test_a_driver_that_fails_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    with pytest.raises(NetworkError, match=message) as raised:
        run_fake(tmp_path, monkeypatch, script)
    assert "\n" not in str(raised.value)


def test_a_driver_that_cannot_be_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ns3, "driver_path", lambda: tmp_path / "gone")
    with pytest.raises(NetworkError, match="gone: cannot be run"):
        measure(star(2, MB), incast(2, 1000))


def test_an_interrupt_ends_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pids"
    asked = "cat > /dev/null"  # when all is read that it is asked, its answer is waited for
    script = f"echo $$ > {pids}; {asked}; kill -INT {os.getpid()}; sleep 10000"
    with pytest.raises(KeyboardInterrupt):
        run_fake(tmp_path, monkeypatch, script)
    wait_for_the_end_of(pids)


def test_a_flow_without_a_route_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ns3, "driver_path", lambda: tmp_path)
    with pytest.raises(NetworkError, match="flow 0, from node 1 to node 0, has no route"):
        measure(star(2, MB), flows([[]], [1], [0], 1000))


@needs_ns3
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("pattern", ["all to one", "pairs", "two servers"])
def test_the_flow_clock_agrees_with_ns3(pattern: str, down: bool) -> None:
    edge_of = np.arange(12) // 4
    top = fat_tree(edge_of, Speed(1e7, 0.002), Speed(2e7, 0.001))
    to = {
        "all to one": np.zeros(12, dtype=np.int64),
        "pairs": (np.arange(12) + 6) % 12,
        "two servers": np.arange(12) % 2 * 7,
    }[pattern]
    ends = (to, np.arange(12)) if down else (np.arange(12), to)
    flows = route(top, Phase(*ends, np.full(12, 200_000)))
    expected = measure(top, flows).finish_s
    assert flow_seconds(top, flows).max() == pytest.approx(expected.max(), rel=0.02)
    assert flow_seconds(top, flows).mean() == pytest.approx(expected.mean(), rel=0.05)
