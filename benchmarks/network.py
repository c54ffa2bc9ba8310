"""The flow clock against ns-3 on the same routes: errors and speed. Run: make bench-network

Every case is one way of an aggregation (models to their servers, or the mean back) of 100 nodes. A
first half was there while the model was made; the second was drawn by a seed after it was fixed,
on networks and groups of its own. ns-3 takes about 20 minutes of two cores; --quick a few.
"""

import argparse
import itertools
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.grouping import Evidence, with_servers
from coterie.network import Network, Phase
from coterie.network.flows import flow_seconds
from coterie.network.ns3 import Measured, measure
from coterie.network.routes import Routing, route
from coterie.network.tcp import PROFILES
from coterie.network.values import Flows
from coterie.topology import Speed, Topology, fat_tree, jellyfish, kary_fat_tree, waxman
from coterie.topology.file import read_topology

Floats = NDArray[np.float64]
EDGES = np.repeat(np.arange(10), 10)
NETS, PATTERNS = ("fat tree", "jellyfish", "custom"), ("global", "5 random", "pods")
SIZES, SPEEDS = (31_400, 796_840, 1_476_392), (1e7, 1e8)
HELD_OUT_SEED = 20_261_118
JITTERS, JITTER_S = 5, 1e-3


@dataclass(frozen=True)
class Case:
    """One pattern of transfers on one network."""

    net: str
    pattern: str
    nbytes: int
    speed: float
    down: bool
    combine: bool
    routing: Routing
    draw: int  # of the random graph and the random groups

    @property
    def name(self) -> str:
        """What the table calls it."""
        way = "down" if self.down else "up"
        marks = f"{way}{', combined' if self.combine else ''}, {self.routing}"
        return f"{self.net}, {self.pattern}, {marks}"


def cases(seed: int, draw: int | None) -> list[Case]:
    """All networks, patterns, sizes and speeds, in random order, each with a random way to go."""
    rng = np.random.default_rng(seed)
    grid = list(itertools.product(NETS, PATTERNS, SIZES, SPEEDS))
    return [
        Case(
            net=grid[at][0],
            pattern=grid[at][1],
            nbytes=grid[at][2],
            speed=grid[at][3],
            down=bool(rng.random() < 0.5),
            combine=bool(rng.random() < 1 / 3),
            routing="single" if rng.random() < 1 / 3 else "ecmp",
            draw=int(rng.integers(2**31)) if draw is None else draw,
        )
        for at in rng.permutation(len(grid))
    ]


def topology(case: Case) -> Topology:
    """Build the network of a case; the custom one goes through a file, with links all unlike."""
    speed, rng = Speed(case.speed), np.random.default_rng(case.draw)
    if case.net == "fat tree":
        return fat_tree(EDGES, speed, speed)
    if case.net == "jellyfish":
        return jellyfish(EDGES, 4, rng, speed, speed)
    graph = waxman(EDGES, 0.6, 0.3, rng, speed, speed)
    lines = ["a,b,mbytes_per_s,latency_s,tier"]
    for (a, b), tier, latency in zip(graph.ends, graph.tier_of, graph.latency_s, strict=True):
        rate = case.speed / 1e6 * rng.choice([0.5, 1.0, 2.0])
        lines.append(f"{graph.name(a)},{graph.name(b)},{rate},{latency},{tier}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "custom.csv"
        path.write_text("\n".join(lines))
        return read_topology(path, speed, speed)


def phases(case: Case) -> tuple[Topology, list[Flows]]:
    """Route the transfers of a case, phase by phase."""
    top = topology(case)
    groups = {
        "global": np.zeros(100, dtype=np.int64),
        "pods": EDGES,
        "5 random": np.random.default_rng(case.draw).permutation(100) % 5,
    }[case.pattern]
    evidence = Evidence(int(groups.max()) + 1, np.full(100, 0.01), EDGES, top)
    servers = with_servers(groups, evidence).servers
    network = Network(top, EDGES, combine=case.combine)
    wanted: tuple[Phase, ...] = network.patterns(groups, servers, case.nbytes)[case.down]
    return top, [route(top, phase, case.routing, case.draw) for phase in wanted]


def jittered(flows: Flows, j: int) -> Flows:
    """Start the flows within a millisecond of each other."""
    rng = np.random.default_rng(j)
    return replace(flows, start_s=rng.uniform(0, JITTER_S, len(flows)))


def ns3_of(case: Case, profile: str, jitters: Sequence[int | None]) -> list[list[Measured]]:
    """Time every phase with ns-3, once for each start."""
    top, flows = phases(case)
    return [
        [measure(top, f if j is None else jittered(f, j), profile=profile) for f in flows]
        for j in jitters
    ]


def last(times: Sequence[Floats]) -> float:
    """Seconds of phases one after the other."""
    return float(sum(t.max(initial=0.0) for t in times))


def mean(times: Sequence[Floats]) -> float:
    """Mean time of arrival, each in its phase."""
    return float(np.concatenate(times).mean())


def flow_cpu(top: Topology, flows: list[Flows]) -> float:
    """CPU seconds of the flow clock, routing apart, as ns-3's."""
    start = time.process_time()
    for _ in range(5):
        for f in flows:
            flow_seconds(top, f)
    return (time.process_time() - start) / 5


def lossless(title: str, todo: list[Case], pool: ThreadPoolExecutor) -> None:
    """Print the errors without drops."""
    print(f"\n{title}: {len(todo)} cases, fair queues without drops")
    print(f"{'case':44} {'bytes':>9} {'MB/s':>4} {'ns-3 s':>8} {'flow s':>8} {'error':>7}")
    errors, means = [], []
    for case, (truth,) in zip(
        todo, pool.map(lambda c: ns3_of(c, "lossless", [None]), todo), strict=True
    ):
        top, flows = phases(case)
        times = [flow_seconds(top, f) for f in flows]
        expected = [m.finish_s for m in truth]
        errors.append(last(times) / last(expected) - 1)
        means.append(mean(times) / mean(expected) - 1)
        print(
            f"{case.name:44} {case.nbytes:>9,} {case.speed / 1e6:>4.0f} {last(expected):>8.4f} "
            f"{last(times):>8.4f} {errors[-1]:>+7.2%}",
            flush=True,
        )
    off, mean_off = np.abs(errors), np.abs(means)
    print(
        f"last arrival: mean error {off.mean():.2%}, worst {off.max():.2%}; mean arrival: "
        f"mean error {mean_off.mean():.2%}, worst {mean_off.max():.2%}"
    )


def ordinary(title: str, todo: list[Case], pool: ThreadPoolExecutor) -> None:
    """Print how the incast penalty fares where queues drop and ns-3 itself varies."""
    print(f"\n{title}: {len(todo)} cases, ordinary queues (tuned), {JITTERS} jittered starts each")
    print(
        f"{'case':44} {'bytes':>9} {'MB/s':>4} {'drops':>6} {'ns-3 s':>15} {'flow s':>8} "
        f"{'':6} {'mean':>7}"
    )
    starts = list(range(1, JITTERS + 1))
    inside, near, dropped, means, medians, found = [], [], [], [], [], []
    for case, runs in zip(todo, pool.map(lambda c: ns3_of(c, "tuned", starts), todo), strict=True):
        top, flows = phases(case)
        ends = [last([m.finish_s for m in run]) for run in runs]
        times = [
            [flow_seconds(top, jittered(f, j), PROFILES["tuned"]) for f in flows] for j in starts
        ]
        said = float(np.median([last(t) for t in times]))
        truth = float(np.mean([mean([m.finish_s for m in run]) for run in runs]))
        means.append(float(np.mean([mean(t) for t in times])) / truth - 1)
        inside.append(min(ends) <= said <= max(ends))
        near.append(min(ends) * 0.98 <= said <= max(ends) * 1.02)
        dropped.append(max(sum(m.drops for m in run) for run in runs))
        medians.append(float(np.median(ends)))
        found.append(said)
        mark = "inside" if inside[-1] else "near" if near[-1] else "OUT"
        print(
            f"{case.name:44} {case.nbytes:>9,} {case.speed / 1e6:>4.0f} {dropped[-1]:>6,} "
            f"{min(ends):>7.4f}-{max(ends):<7.4f} {said:>8.4f} {mark:6} {means[-1]:>+7.2%}",
            flush=True,
        )
    lossy = np.array(dropped) > 0
    for label, which in (("all", np.ones(len(todo), dtype=bool)), ("with drops", lossy)):
        print(
            f"{label}: {which.sum()} cases, last arrival inside ns-3's range in "
            f"{np.mean(np.array(inside)[which]):.0%}, inside it widened by 2% in "
            f"{np.mean(np.array(near)[which]):.0%}; mean arrival off by "
            f"{np.abs(means)[which].mean():.2%} on average, worst {np.abs(means)[which].max():.2%}"
        )
    truth_s, said_s = np.array(medians), np.array(found)
    i, j = np.triu_indices(len(todo), 1)
    apart = np.maximum(truth_s[i], truth_s[j]) > 1.25 * np.minimum(truth_s[i], truth_s[j])
    agree = ((said_s[i] > said_s[j]) == (truth_s[i] > truth_s[j]))[apart]
    print(f"order of pairs over 25% apart: {agree.mean():.1%} of {apart.sum():,} agree")


def against_ns3(todo: list[Case]) -> None:
    """Print the CPU time of ns-3 over the flow clock's, one case after the other."""
    print(f"\nCPU of ns-3 and of the flow clock, {todo[0].nbytes:,} bytes, without drops")
    ratios = []
    for case in todo:
        top, flows = phases(case)
        slow = sum(measure(top, f, profile="lossless").cpu_s for f in flows)
        quick = min(flow_cpu(top, flows) for _ in range(3))
        ratios.append(slow / quick)
        print(
            f"{case.name:44} {case.speed / 1e6:>4.0f} MB/s {slow:>6.1f} s {1e3 * quick:>6.2f} ms "
            f"{ratios[-1]:>7,.0f}x",
            flush=True,
        )
    print(f"least {min(ratios):,.0f}x, median {np.median(ratios):,.0f}x")


def speed() -> None:
    """Print what the flow clock takes for larger networks."""
    print("\nwall time of the flow clock, CNN (1,476,392 bytes), one way; routing included")
    networks: list[tuple[int, int, Routing, Callable[[], Topology]]] = [
        (100, 1, "ecmp", lambda: fat_tree(EDGES)),
        (100, 5, "ecmp", lambda: fat_tree(EDGES)),
        (100, 10, "ecmp", lambda: fat_tree(EDGES)),
        (1_000, 50, "ecmp", lambda: kary_fat_tree(1_000, None)),
        (10_000, 100, "ecmp", lambda: kary_fat_tree(10_000, None)),
        (10_000, 500, "single", lambda: kary_fat_tree(10_000, None)),
        (10_000, 500, "single", lambda: fat_tree(np.repeat(np.arange(100), 100))),
        (10_000, 500, "single", wide_jellyfish),
    ]
    for n, K, routing, make in networks:
        top = make()
        start = time.perf_counter()
        hops = top.hops
        took_hops = time.perf_counter() - start
        rng = np.random.default_rng(0)
        z = rng.permutation(n) % K
        servers = np.array([rng.choice(np.flatnonzero(z == k)) for k in range(K)])
        start = time.perf_counter()
        seconds = Network(top, routing=routing).upload(z, servers, SIZES[-1]).seconds
        took = time.perf_counter() - start
        print(
            f"{n:>6,} nodes on {top.n_switches:>6,} switches, {K:>3} random groups, {routing:6} "
            f"{took * 1e3:>9.1f} ms ({seconds:.3f} s simulated); hops of all pairs "
            f"{took_hops:.2f} s, {hops.nbytes / 2**20:.0f} MiB",
            flush=True,
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of all this: {peak:.2f} GiB")


def wide_jellyfish() -> Topology:
    """Build 100 switches of 100 nodes, 8 links each."""
    return jellyfish(np.repeat(np.arange(100), 100), 8, np.random.default_rng(0))


def main() -> None:
    """Run what was asked for."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--quick", action="store_true", help="few cases of the small model")
    ask.add_argument("--part", choices=["first", "held-out", "speed"], help="only this part")
    args = ask.parse_args()
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, ns-3 {version('ns3')}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, {versions}")
    halves = {"first": cases(0, 3)[:27], "held-out": cases(HELD_OUT_SEED, None)[:27]}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for title, drawn in halves.items():
            if args.part in (None, title):
                todo = [c for c in drawn if c.nbytes < 1e5][:4] if args.quick else drawn
                lossless(f"{title} half", todo, pool)
                ordinary(f"{title} half", todo, pool)
    if args.part in (None, "speed"):
        every = [*halves["first"], *halves["held-out"]]
        against_ns3([c for c in every if c.nbytes == (SIZES[0] if args.quick else SIZES[-1])])
        speed()


if __name__ == "__main__":
    main()
