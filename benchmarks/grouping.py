"""Quality and speed of the planner and its rivals. Run: make bench-grouping

Every grouping is priced alike: Delta over what random groups have, and the seconds of a cycle of
means, by the network's clock, over a cycle of global means. Parts: quality (every method on every
cell, on the fat tree and on links none of which is like another), reference (against the authors'
search), brute (all groupings of 12 nodes by hops, and of 8 with all servers by the clock), unlike
(links of unlike latency), speed, growth.
"""

import argparse
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.core.errors import CoterieError, GroupingError
from coterie.data import Dataset, load
from coterie.grouping import Delays, Evidence, Grouping, with_servers
from coterie.grouping.baselines import at_random
from coterie.grouping.labels import label_ilp
from coterie.grouping.medoids import node_grouping
from coterie.grouping.objective import Objective, Priced, price
from coterie.grouping.planner import coterie
from coterie.network import Network
from coterie.simulation.loop import first_evidence
from coterie.simulation.search import METHODS, Search
from coterie.topology import Topology, fat_tree, kary_fat_tree, waxman
from plain_assignment import assign_plainly

Ints = NDArray[np.int64]
SEEDS = range(5)
DIVERSITIES, GROUPS, MODELS = ("Dtt", "Dtq", "Dth"), (2, 5, 10, 20), ("sr", "2nn")
SPREAD = 0.29  # standard deviation of unequal nodes' examples, over their mean
MBIT = 125_000.0
WIDTH = 34  # of a cell's name
ILP_S = 2.0  # label-ilp's time limit here


def datasets(names: Sequence[str]) -> Iterator[tuple[str, Dataset]]:
    """Load what is on this machine; the embedded images where that is nothing."""
    there = False
    for name in names:
        try:
            yield name, load(name)
            there = True
        except CoterieError as error:
            print(f"{name} left out: {error}")
    if not there:
        yield "mnist-f-mini", load("mnist-f-mini")


def evidence_of(dataset: Dataset, kind: str, model: str, seed: int, sd: float = 1.0) -> Evidence:
    """Return all there is to see after one step, label counts included, for five groups."""
    config = make_config(
        {
            "seed": seed,
            "partition": {"kind": kind, "sd": sd},
            "model": {"name": model},
        }
    )
    problem = prepare(config, dataset).problem
    return replace(first_evidence(problem), label_counts=problem.fleet.class_counts)


def shown(e: Evidence, method: str) -> Evidence:
    """Return what a method may see of it."""
    if METHODS[method].needs == "labels":
        return replace(e, gram=None, last_layer=None)
    return replace(e, label_counts=None)


def answer(method: str, e: Evidence, seed: int) -> Grouping:
    """Let a method plan."""
    plan = label_ilp(time_limit_s=ILP_S) if method == "label-ilp" else Search(method).planner()
    return plan(shown(e, method), np.random.default_rng([seed, 0, 1]))


def quality(names: Sequence[str], seeds: Sequence[int]) -> None:
    """Print the mean cost of every method in every cell, and whether the planner's is least."""
    rivals = [name for name in METHODS if name != "coterie"]
    head = f"{'cell':{WIDTH}}{'K':>3}" + "".join(f"{name[:9]:>10}" for name in ["coterie", *rivals])
    print(f"\nquality: mean cost over {len(seeds)} seeds; * marks the least of a cell\n{head}")
    cells = won = 0
    worst: tuple[float, str] = (0.0, "")
    for cell, every in _cells(names, seeds):
        for K in GROUPS:
            costs = {name: _mean_cost(name, every, K, seeds) for name in METHODS}
            best = min(costs[name] for name in rivals)
            cells, won = cells + 1, won + (costs["coterie"] <= best)
            worst = max(worst, (costs["coterie"] / best, f"{cell}, K={K}"))
            least = min(costs.values())
            cost = "".join(
                f"{costs[name]:>9.3f}{'*' if costs[name] == least else ' '}"
                for name in ["coterie", *rivals]
            )
            print(f"{cell:{WIDTH}}{K:>3}{cost}", flush=True)
    print(
        f"least in {won} of {cells} cells; planner over best rival at most {worst[0]:.4f} "
        f"({worst[1]})"
    )


def _cells(names: Sequence[str], seeds: Sequence[int]) -> Iterator[tuple[str, list[Evidence]]]:
    """Name every cell, with what is seen for each seed: on a fat tree, and on unlike links."""
    for data, dataset in datasets(names):
        for model in MODELS:
            for kind in DIVERSITIES:
                every = [evidence_of(dataset, kind, model, seed) for seed in seeds]
                yield f"{data}, {model}, {kind}", every
                own = [with_unlike_links(e, seed) for e, seed in zip(every, seeds, strict=True)]
                yield f"{data}, {model}, {kind}, unlike links", own


def with_unlike_links(e: Evidence, seed: int) -> Evidence:
    """Put the nodes behind links of their own, and their edges on a WAN, none like another."""
    assert e.delays is not None
    rng = np.random.default_rng([seed, 23])
    n, edges = len(e.p), int(e.edge_of.max()) + 1
    links = np.stack([np.arange(edges), np.full(edges, edges)], axis=1)
    up = 20 * MBIT * rng.lognormal(0, 1.0, n)
    own = np.stack([up, up * rng.uniform(1, 5, n)], axis=1).ravel()
    wan = np.repeat(100 * MBIT * rng.lognormal(0, 1.0, edges), 2)
    latency_s = np.concatenate([rng.uniform(0.001, 0.03, n), rng.uniform(0.005, 0.04, edges)])
    speed = np.concatenate([own, wan])
    top = Topology(e.edge_of, links, ("wan",) * edges, edges + 1, speed, latency_s)
    network, nbytes = Network(top, e.edge_of), e.delays.nbytes
    alone = replace(e, num_groups=1, topology=top, delays=Delays(network, nbytes, 5, 1.0))
    all_ = with_servers(np.zeros(n, dtype=np.int64), alone)
    global_s = network.aggregation(all_.z, all_.servers, nbytes).seconds
    return replace(e, topology=top, delays=Delays(network, nbytes, e.delays.tau2, global_s))


def _mean_cost(method: str, every: list[Evidence], K: int, seeds: Sequence[int]) -> float:
    costs = []
    for seed, five in zip(seeds, every, strict=True):
        e = replace(five, num_groups=K)
        try:
            costs.append(price(Objective(e), answer(method, e, seed)).cost)
        except GroupingError:  # label-ilp, out of time
            costs.append(np.inf)
    return float(np.mean(costs))


def against_reference(names: Sequence[str], seeds: Sequence[int]) -> None:
    """Print Delta and d_group of the planner over the reference's, nodes equal and unequal."""
    print("\nDtt, K = 5, against `reference`, means over the seeds")
    print(
        f"{'data':14}{'model':6}{'nodes':9}{'Delta':>17}{'ratio':>7}{'d_group ms':>19}{'ratio':>7}"
    )
    for data, dataset in datasets(names):
        for model in MODELS:
            for nodes, sd in (("equal", 1.0), ("unequal", SPREAD * 0.6 * len(dataset.y) / 100)):
                found: dict[str, list[Priced]] = {"coterie": [], "reference": []}
                for seed in seeds:
                    e = evidence_of(dataset, "Dtt", model, seed, sd)
                    for name, prices in found.items():
                        prices.append(price(Objective(e), answer(name, e, seed)))
                D, R = (np.mean([f.Delta for f in found[name]]) for name in found)
                d, r = (np.mean([1e3 * f.group_s for f in found[name]]) for name in found)
                print(
                    f"{data:14}{model:6}{nodes:9}{D:>8.4f}/{R:<8.4f}{D / R:>7.2f}"
                    f"{d:>9.1f}/{r:<9.1f}{d / r:>7.2f}",
                    flush=True,
                )


def brute(cases: int) -> None:
    """Print how near the planner comes to the best of all groupings of 12 nodes."""
    off = []
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        n, K = 12, int(rng.integers(2, 4))
        p = rng.dirichlet(np.full(n, 5.0))
        g = rng.normal(size=(n, int(rng.integers(2, 8))))
        g -= p @ g
        edges = np.sort(rng.integers(0, 3, n))
        edges = np.unique(edges, return_inverse=True)[1]
        e = Evidence(K, p, edges, fat_tree(edges), g @ g.T)
        o = Objective(e)
        found = price(o, coterie()(e, np.random.default_rng(seed))).cost
        off.append(found / _least(o, n, K) - 1)
    near = np.mean(np.array(off) <= 0.01)
    print(
        f"\n12 nodes, {cases} random cases, hops for delays: within 1% of the best of all "
        f"groupings in {near:.1%}, worst {max(off):.2%} off"
    )


def _least(o: Objective, n: int, K: int) -> float:
    """Least cost of all groupings, from what each of the 2^n groups there can be costs."""
    e = o.evidence
    member = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 > 0  # [2^n, n]
    q = member * e.p
    apart = np.sqrt(np.maximum(((q @ e.inner) * q).sum(axis=1), 0.0))
    far = o.rough.far(np.arange(n), np.arange(n))
    reach = np.where(member[:, None, :], far[None], 0.0).max(axis=2)  # [2^n, server]
    radius = np.where(member, reach, np.inf).min(axis=1)
    every = _partitions(n, K)
    groups = np.stack([(every == k) @ (1 << np.arange(n)) for k in range(K)])
    Delta, group_s = apart[groups].sum(axis=0), radius[groups].max(axis=0)
    return float((o.iid * Delta + o.comm * group_s).min() + o.cost(0.0, 0.0))


def brute_by_clock(cases: int) -> None:
    """Print how near the planner comes to the best of all groupings and servers, by the clock."""
    for name in ("fat tree", "measured, 3 sites"):
        off = []
        for seed in range(cases):
            o = Objective(e := small(name, 8, 2, seed))
            least = found = price(o, coterie()(e, np.random.default_rng(seed))).cost
            for z in _partitions(8, 2):
                if o.cost(o.divergence(z), 0.0) < least:  # else no clock could make it the best
                    for pair in product(np.flatnonzero(z == 0), np.flatnonzero(z == 1)):
                        least = min(least, price(o, Grouping(z, np.array(pair))).cost)
            off.append(found / least - 1)
        print(
            f"8 nodes, 2 groups, {cases} random cases, {name}, by the clock: within 1% of the best "
            f"of all groupings and servers in {np.mean(np.array(off) <= 0.01):.0%}, mean "
            f"{np.mean(off):.2%} and worst {max(off):.2%} off",
            flush=True,
        )


def unlike(cases: int) -> None:
    """Print d_group and cost of the planner over random groups' where latencies are unlike."""
    print(f"\n100 nodes, K = 5, {cases} random cases: d_group and cost over random groups'")
    for name in ("measured, 5 sites", "measured, 100 sites", "waxman", "fat tree"):
        for weights in ((1.0, 1.0), (0.0, 1.0)):
            part = []
            for seed in range(cases):
                o = Objective(e := small(name, 100, 5, seed), *weights)
                mine = price(o, coterie(*weights)(e, np.random.default_rng(seed)))
                dealt = [price(o, at_random(e, np.random.default_rng(s))) for s in range(5)]
                random = np.mean([(f.group_s, f.cost) for f in dealt], axis=0)
                part.append(np.array([mine.group_s, mine.cost]) / random)
            said = "d_group {:.2f}  cost {:.2f}".format(*np.mean(part, axis=0))
            print(f"{name:20} weights {weights[0]:g}:{weights[1]:g}  {said}")


def small(name: str, n: int, K: int, seed: int) -> Evidence:
    """Make nodes of random gradients on a network, timed by the flow clock."""
    rng = np.random.default_rng(seed)
    edges = np.unique(np.sort(rng.integers(0, max(3, n // 10), n)), return_inverse=True)[1]
    if name.startswith("measured"):
        top = measured(n, int(name.split()[1]), rng)
    else:
        top = waxman(edges, 0.4, 0.2, rng) if name == "waxman" else fat_tree(edges)
    p = rng.dirichlet(np.full(n, 5.0))
    g = rng.normal(size=(n, 8))
    g -= p @ g
    network = Network(top)
    whole = network.aggregation(np.zeros(n, dtype=np.int64), np.array([0]), 31_400).seconds
    delays = Delays(network, 31_400, 5, whole)
    return Evidence(K, p, edges, top, g @ g.T, delays=delays)


def measured(n: int, sites: int, rng: np.random.Generator) -> Topology:
    """Join every two nodes by a link, as a measured matrix does: up to 40 ms, by distance."""
    where = rng.random((sites, 2))[np.arange(n) % sites] + 0.02 * rng.random((n, 2))
    pairs = np.stack(np.triu_indices(n, 1), axis=1)
    apart = np.linalg.norm(where[pairs[:, 0]] - where[pairs[:, 1]], axis=1)
    speed = np.full(2 * (n + len(pairs)), 1e8)
    latency_s = np.concatenate([np.zeros(n), 0.028 * apart])
    return Topology(np.arange(n), pairs, ("core",) * len(pairs), n, speed, latency_s)


def _partitions(n: int, K: int) -> Ints:
    """All ways to make K groups of n nodes, none empty, each once [., n]."""
    every = np.zeros((1, 1), dtype=np.int64)
    for _ in range(n - 1):
        most = every.max(axis=1) + 1
        every = np.concatenate(
            [np.column_stack([every[most >= k], np.full((most >= k).sum(), k)]) for k in range(K)]
        )
    whole: Ints = every[every.max(axis=1) == K - 1]
    return whole


def seconds(what: Callable[[], object], repeats: int) -> float:
    """Time something: the least of some runs."""
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        what()
        took.append(time.perf_counter() - start)
    return min(took)


def speed() -> None:
    """Print how long 100 nodes take, in one run with the plain reference."""
    whole = {"evidence": "sketch", "sketch_size": 7850}  # a sketch as long as the gradient is it
    config = make_config({"algorithm": whole})
    raw = first_evidence(prepare(config, load("mnist-f-mini")).problem)
    e = replace(raw, gram=raw.inner, sketch=None)
    recount = node_grouping("reference", 1.0, 1.0, assign_plainly)
    quick = node_grouping("reference", 1.0, 1.0)
    took = {
        "coterie": seconds(lambda: coterie()(e, np.random.default_rng(0)), 7),
        "reference": seconds(lambda: quick(e, np.random.default_rng(0)), 7),
        "plain": seconds(lambda: recount(raw, np.random.default_rng(0)), 1),
    }
    print(
        f"\n100 nodes, K = 5: coterie {1e3 * took['coterie']:.0f} ms with a full Gram matrix and "
        f"the network's clock; reference {1e3 * took['reference']:.0f} ms; reference by the "
        f"equations on the gradients {took['plain']:.1f} s, {took['plain'] / took['coterie']:.0f}x "
        f"coterie and {took['plain'] / took['reference']:.0f}x reference"
    )


def growth(sizes: Sequence[tuple[int, int]]) -> None:
    """Print time and memory as nodes grow, on sketches of 256 numbers."""
    print(f"\n{'nodes':>8} {'K':>4} {'plan s':>8} {'Delta/random':>13} {'peak GiB':>9}")
    for n, K in sizes:
        e = many(n, K)
        o = Objective(e)
        start = time.perf_counter()
        found = coterie()(e, np.random.default_rng(0))
        took = time.perf_counter() - start
        random = o.divergence(np.random.default_rng(1).permutation(n) % K)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        part = o.divergence(found.z) / random
        print(f"{n:>8,} {K:>4} {took:>8.2f} {part:>13.3f} {peak:>9.2f}", flush=True)


def many(n: int, K: int) -> Evidence:
    """Make n nodes of 62 classes on a k-ary fat tree, with sketches, timed by the flow clock."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(62, 256))
    sketch = centres[rng.integers(62, size=n)] + 0.3 * rng.normal(size=(n, 256))
    p = rng.lognormal(0, 0.5, n)
    p /= p.sum()
    sketch -= p @ sketch
    top = kary_fat_tree(n, None)
    network = Network(top)
    whole = network.aggregation(np.zeros(n, dtype=np.int64), np.array([0]), 31_400).seconds
    delays = Delays(network, 31_400, 5, whole)
    return Evidence(K, p, np.arange(n) // 100, top, sketch=sketch, delays=delays)


def main() -> None:
    """Run what was asked for."""
    ask = argparse.ArgumentParser(description=__doc__)
    parts = ["quality", "reference", "brute", "unlike", "speed", "growth"]
    ask.add_argument("--part", choices=parts, action="append", help="only this part; repeatable")
    ask.add_argument(
        "--quick", action="store_true", help="the embedded images, one seed, few cases"
    )
    args = ask.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    wanted = args.part or parts
    names = ["mnist-f-mini"] if args.quick else ["mnist-o", "mnist-f"]
    seeds = [0] if args.quick else list(SEEDS)
    if "speed" in wanted:
        speed()
    if "growth" in wanted:
        every = [(100, 5), (1_000, 20), (10_000, 100), (100_000, 100)]
        growth(every[:3] if args.quick else every)
    if "brute" in wanted:
        brute(20 if args.quick else 200)
        brute_by_clock(3 if args.quick else 10)
    if "unlike" in wanted:
        unlike(1 if args.quick else 5)
    if "reference" in wanted:
        against_reference(names[:1] if args.quick else ["mnist-o"], seeds)
    if "quality" in wanted:
        quality(names, seeds)


if __name__ == "__main__":
    main()
