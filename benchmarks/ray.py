"""Ray beside the engines of one process, what a mean over actors costs, and a cluster of four.

    python benchmarks/ray.py [--part cnn|overhead|cluster] [--turns 3]

Engines take turns, the least of which counts; ratios are of one run of this file.
"""

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.config.files import make_config
from coterie.config.prepare import Prepared, prepare
from coterie.engine.contract import Engine, Models
from coterie.engine.ray import engine as engine_on_ray
from coterie.engine.ray.worker import Numbers, Order, Shard, Sums
from coterie.simulation.loop import rounds

STORE_MBYTES = 400
ACTORS = 2
Spent = tuple[float, float]  # wall and CPU seconds


class Timed(Shard):
    """A shard that knows how long its last steps took."""

    took = cpu = 0.0

    def advance(self, order: Order, own: Mapping[str, Numbers]) -> Sums:
        """Take local steps, and look at the clock."""
        start, before = time.perf_counter(), time.process_time()
        found = super().advance(order, own)
        self.took, self.cpu = time.perf_counter() - start, time.process_time() - before
        return found

    def seconds(self) -> tuple[float, float]:
        """Wall and CPU seconds of the last steps."""
        return self.took, self.cpu


def prepared(engine: str, model: str, nodes: int, threads: int = 1, **ray: Any) -> Prepared:
    """Make a run on the embedded images, in five groups; uneven unless nodes are too many."""
    lengths: dict[str, Any] = {"steps": 4, "engine": engine, "batch_size": 128, "lr": 0.05}
    config = make_config(
        {
            "partition": {"kind": "dirichlet" if nodes < 1000 else "iid", "num_nodes": nodes},
            "model": {"name": model},
            "algorithm": {"num_groups": 5, "tau2": 3, "evidence": "sketch"},
            "train": lengths,
            "ray": {"object_store_mbytes": STORE_MBYTES, **ray},
        }
    )
    return prepare(config, None, threads)


def least(turns: int, ways: dict[str, Callable[[], Spent]]) -> dict[str, Spent]:
    """Let every way have its turn, so often; return the least wall and CPU seconds of each."""
    found: dict[str, list[Spent]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            found[name].append(way())
    return {
        name: (min(w for w, _ in some), min(c for _, c in some)) for name, some in found.items()
    }


def epoch(engine: Engine, z: np.ndarray) -> Callable[[], Spent]:
    """Return what takes a local epoch on all nodes and their mean, and the seconds it takes."""

    def once() -> Spent:
        models = engine.initial()
        start, before = time.perf_counter(), time.process_time()
        engine.advance(models, 0, 1, z)
        wall, cpu = time.perf_counter() - start, time.process_time() - before
        if isinstance(engine, engine_on_ray.Sharded):
            cpu += sum(some for _, some in engine.crew.ask("seconds"))
        return wall, cpu

    return once


def compare(model: str, nodes: int, turns: int) -> None:
    """Print an epoch by every engine."""
    on_ray = f"ray, {ACTORS} actors"
    made = {
        "sequential": prepared("sequential", model, nodes),
        "vectorized, 1 thread": prepared("vectorized", model, nodes),
        f"vectorized, {ACTORS} threads": prepared("vectorized", model, nodes, ACTORS),
        on_ray: prepared("ray", model, nodes, actors=ACTORS),
    }
    z = np.zeros(len(made["sequential"].problem.fleet.p), dtype=np.int64)
    ways = {name: epoch(one.problem.engine, z) for name, one in made.items()}
    ways[on_ray]()  # actors start
    found = least(turns, ways)
    print(f"\n{model}, {len(z)} nodes, one epoch and the global mean; least of {turns} turns")
    print(f"  {'':24} {'wall s':>8} {'CPU s':>8}")
    for name, (wall, cpu) in found.items():
        print(f"  {name:24} {wall:8.3f} {cpu:8.3f}")
    ray = found.pop(on_ray)[0]
    best = min(wall for wall, _ in found.values())
    print(f"  ray over sequential: {found['sequential'][0] / ray:.2f}x as fast")
    print(f"  ray takes {ray / best:.2f}x the best local engine")


def overhead(turns: int) -> None:
    """Print what a mean costs beyond the work of the slowest actor, with 2NN."""
    one = prepared("ray", "2nn", 100, actors=ACTORS)
    engine = one.problem.engine
    assert isinstance(engine, engine_on_ray.Sharded)
    for K in (1, 5):
        z = np.arange(len(one.problem.fleet.p)) % K
        models: Models = engine.advance(engine.initial(), 0, 1, z)  # actors start
        beyond = []
        for t in range(1, turns + 1):
            start = time.perf_counter()
            models = engine.advance(models, t, t + 1, z)
            wall = time.perf_counter() - start
            beyond.append(1000 * (wall - max(took for took, _ in engine.crew.ask("seconds"))))
        print(
            f"\n2NN, {len(z)} nodes, {K} groups, {ACTORS} actors: a mean takes "
            f"{statistics.median(beyond):.1f} ms (least {min(beyond):.1f}, most "
            f"{max(beyond):.1f}, of {turns}) beyond its slowest actor"
        )


def cluster() -> None:
    """Run 1,000 nodes on four machines that are none."""
    import ray
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    ray.shutdown()
    ray_constants.ENABLE_RAY_CLUSTER = False
    alike = {"include_dashboard": False, "node_ip_address": "127.0.0.1"}
    alike |= {"num_cpus": 1, "object_store_memory": (STORE_MBYTES // 4) << 20}
    machines = Cluster(initialize_head=True, head_node_args=alike)
    for _ in range(3):
        machines.add_node(**alike)
    try:
        start = time.perf_counter()
        one = prepared("ray", "2nn", 1000, address=machines.address)
        engine = one.problem.engine
        assert isinstance(engine, engine_on_ray.Sharded)
        rows = [state.row for state in rounds(one.problem)]
        print(
            f"\nfour Ray nodes on this machine, {len(engine.dealt)} actors, "
            f"{one.problem.fleet.n} nodes, 2NN: {len(rows)} rows, loss {rows[0].train_loss:.4f} to "
            f"{rows[-1].train_loss:.4f}, {time.perf_counter() - start:.0f} s with starting it all"
        )
    finally:
        ray.shutdown()
        machines.shutdown()


def main() -> None:
    """Run all parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["cnn", "overhead", "cluster"])
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    here = Path(__file__).resolve().parent  # where this file would be taken for Ray itself
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != here]
    vars(engine_on_ray)["Shard"] = Timed
    load = ", ".join(f"{some:.1f}" for some in os.getloadavg())
    print(f"{platform.machine()}, {os.cpu_count()} cores; load before it began: {load}")
    if chosen.part in (None, "cnn"):
        compare("cnn", 10, chosen.turns)
        compare("2nn", 100, chosen.turns)
    if chosen.part in (None, "overhead"):
        overhead(10 * chosen.turns)
    if chosen.part in (None, "cluster"):
        cluster()


if __name__ == "__main__":
    main()
