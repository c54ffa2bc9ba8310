"""What a plan is worth on twelve fleets. Run: make bench-fleets

Three sizes on four kinds of network.
Every method groups every fleet, its servers chosen by seconds, for every number of groups; each has
its best schedule. Seconds are by the network's clock, and what they are worth to the same loss is
estimated as `coterie plan` does (docs/explanation/grouping.md). A table is printed.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from coterie.config.files import make_config
from coterie.config.settings import Config
from coterie.core.arrays import Ints
from coterie.network import Network
from coterie.preview.auto_plan import Open, each_number, opened, quickest
from coterie.preview.operating import Operating
from coterie.preview.plan import FEDAVG, PlanView, answer, question
from coterie.simulation.fleet import Fleet
from coterie.topology import Speed, Topology, assemble, edge_cloud, fat_tree

MBIT = 125_000.0
SIZES = {50: 5, 500: 20, 5_000: 60}  # nodes, and their sites
KINDS = ("fat tree", "base stations", "sites over WAN", "unlike links")
MODEL_BYTES = 5_000_000
STEP_S = 1.0
AUTO = {"num_groups": "auto", "tau1": "auto", "tau2": "auto", "evidence": "labels"}


def topology(kind: str, edge_of: Ints, rng: np.random.Generator) -> Topology:
    """Build a network of one kind for nodes under sites."""
    n, sites = len(edge_of), int(edge_of.max()) + 1
    lan, station = Speed(1000 * MBIT, 1e-3), Speed(20 * MBIT, 1e-2)
    if kind == "fat tree":
        return fat_tree(edge_of, Speed(100 * MBIT, 1e-3), Speed(100 * MBIT, 1e-3))
    if kind == "base stations":
        return edge_cloud(edge_of, station, Speed(500 * MBIT, 5e-3))
    links = np.stack([np.arange(sites), np.full(sites, sites)], axis=1)
    top = assemble(edge_of, links, ("wan",) * sites, sites + 1, lan, lan)
    speed, latency_s = top.bytes_per_s.copy(), top.latency_s.copy()
    speed[2 * n :] = np.repeat(100 * MBIT * rng.lognormal(0, 1.0, sites), 2)
    latency_s[n:] = rng.uniform(0.005, 0.04, sites)
    if kind == "unlike links":
        up = 20 * MBIT * rng.lognormal(0, 1.0, n)
        speed[: 2 * n] = np.stack([up, up * rng.uniform(1, 5, n)], axis=1).ravel()
        latency_s[:n] = rng.uniform(0.001, 0.03, n)
    return replace(top, bytes_per_s=speed, latency_s=latency_s)


def make_fleet(kind: str, n: int, seed: int) -> Fleet:
    """Draw nodes whose labels are those of their site, and some of all."""
    rng = np.random.default_rng([seed, n])
    edge_of = np.unique(np.sort(rng.integers(SIZES[n], size=n)), return_inverse=True)[1]
    mix = rng.dirichlet(np.full(10, 0.5), int(edge_of.max()) + 1)
    shares = np.stack([rng.dirichlet(5 * mix[edge] + 1e-3) for edge in edge_of])
    totals = rng.lognormal(5, 0.7, n).astype(np.int64) + 10
    counts = np.stack([rng.multinomial(t, s) for t, s in zip(totals, shares, strict=True)])
    network = Network(topology(kind, edge_of, rng), edge_of)
    return Fleet(totals / totals.sum(), edge_of, network, counts, step_s=STEP_S)


@dataclass(frozen=True, eq=False)
class Result:
    """What was found for a fleet: the plan that was chosen, and the best of every method."""

    view: PlanView
    best: dict[str, float]  # times as fast as the best FedAvg
    cpu_s: float


def planned(fleet: Fleet, methods: tuple[str, ...]) -> Result:
    """Plan a fleet for every number of groups, models combined at edges and not, and choose."""
    config = make_config({"algorithm": AUTO, "partition": {"num_nodes": fleet.n}})
    open_ = opened(config.algorithm, fleet.n, len(np.unique(fleet.edge_of)), timed=True)
    start = time.process_time()
    views: list[PlanView] = []
    for combine in (False, True):
        net = replace(fleet, network=replace(fleet.network, combine=combine))
        views += each_number(open_, planner(config, net), fleet.n, methods)
    view = quickest(views, open_)
    return Result(view, by_method(views, open_), time.process_time() - start)


def planner(config: Config, fleet: Fleet) -> Callable[[int, tuple[str, ...]], PlanView]:
    """Return what plans a fleet with so many groups by some methods."""
    global_s = fleet.averaging(fleet.together(MODEL_BYTES), MODEL_BYTES).transfer.seconds

    def plan(num_groups: int, asked: tuple[str, ...]) -> PlanView:
        told = replace(config.algorithm, num_groups=num_groups, tau1=1, tau2=5)
        q = question([replace(config, algorithm=told)], asked)
        bare = fleet.evidence(num_groups, 5, MODEL_BYTES, global_s)
        return answer(q, "", fleet, replace(bare, label_counts=fleet.class_counts))

    return plan


def by_method(views: list[PlanView], open_: Open) -> dict[str, float]:
    """Return every method's best over all numbers of groups and schedules."""
    best: dict[str, float] = {}
    for view in views:
        for p in view.methods:
            for schedule in open_.schedules():
                times = view.rivals.times(view.means_with(p, schedule)).times
                best[p.name] = max(best.get(p.name, 0.0), times)
    return best


def main() -> None:
    """Print a line for every fleet."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument("--sizes", default="50,500,5000")
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--methods", default="", help="only these, for every number of groups")
    args = ask.parse_args()
    methods = tuple(filter(None, args.methods.split(",")))
    print(
        f"models of {MODEL_BYTES / 1e6:g} MB, local steps of {STEP_S:g} s; times as fast as FedAvg"
    )
    head = (
        "fleet",
        "FedAvg",
        "s",
        "plan",
        "models",
        "K",
        "tau",
        "s",
        "over FedAvg",
        "edge",
        "random",
    )
    print(
        "{:>22} {:>9} {:>7} {:>10} {:>9} {:>3} {:>6} {:>7} {:>22} {:>6} {:>6}".format(*head), end=""
    )
    print("  best rival; CPU s")
    for n in map(int, args.sizes.split(",")):
        for kind in KINDS:
            show(f"{n:,} {kind}", planned(make_fleet(kind, n, args.seed), methods))


def show(name: str, found: Result) -> None:
    """Print a fleet's line."""
    o, best = Operating(found.view), found.best
    fedavg, means = o.fedavg
    rivals = {k: v for k, v in best.items() if k not in ("coterie", "edge", "random")}
    rival = max(rivals, key=lambda k: rivals[k], default="")
    combine = found.view.fleet.network.combine
    word = "combined" if (fedavg == FEDAVG) == combine else "plain"
    taus = f"{o.means.tau1}, {o.means.tau2}"
    plan = found.view.chosen.name if o.pays else "FedAvg"
    how = "combined" if combine else "plain"
    line = f"{name:>22} {word:>9} {means.global_s:>7.1f} {plan:>10} {how:>9}"
    line += f" {found.view.num_groups:>3}"
    line += f" {taus:>6} {o.round_s:>7.1f} {o.over_fedavg!s:>22}"
    line += f" {best.get('edge', 0):>5.2f}x {best.get('random', 0):>5.2f}x"
    if rival:
        line += f"  {rival} {rivals[rival]:.2f}x"
    print(f"{line}; {found.cpu_s:.0f}", flush=True)


if __name__ == "__main__":
    main()
