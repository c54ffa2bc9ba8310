"""Speed of the parts, measured on this machine: one table, ratios within one run.

Usage: make bench
"""

import platform
import time
from collections.abc import Callable

import numpy as np
import torch

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.grouping import Evidence
from coterie.grouping.medoids import node_grouping
from coterie.topology import fat_tree

MODELS = ("sr", "2nn", "cnn")


def seconds(work: Callable[[], object], at_least: float = 0.5) -> float:
    """Best time of a call, repeated for at least half a second."""
    work()
    best, spent = float("inf"), 0.0
    while spent < at_least:
        start = time.perf_counter()
        work()
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
    return best


def main() -> None:
    """Print the table."""
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, 1 thread")
    print("100 nodes, 42 examples each, default engine")
    print(f"{'model':6} {'step ms':>9} {'vs sr':>7} {'gradients ms':>13} {'evaluate ms':>12}")
    base = None
    for name in MODELS:
        problem = prepare(make_config({"model": {"name": name}})).problem
        engine, start = problem.engine, problem.engine.initial()
        everyone = np.zeros(len(problem.fleet.p), dtype=np.int64)
        step = seconds(lambda e=engine, s=start, z=everyone: e.advance(s, 0, 1, z))  # type: ignore[misc]
        grads = seconds(lambda e=engine, s=start: e.gradients(s.w[0]))  # type: ignore[misc]
        score = seconds(lambda e=engine, s=start: e.evaluate(s.w[0], "test"))  # type: ignore[misc]
        base = base or step
        print(
            f"{name:6} {1e3 * step:9.1f} {step / base:6.1f}x"
            f" {1e3 * grads:13.1f} {1e3 * score:12.1f}"
        )
    grouping()


def grouping() -> None:
    """Print the time of NODE_GROUPING at two sizes."""
    print(f"\n{'grouping':10} {'nodes':>6} {'groups':>7} {'ms':>8}")
    for n, K in ((100, 5), (1000, 20)):
        rng = np.random.default_rng(0)
        g = rng.normal(size=(n, 10))
        g -= g.mean(axis=0)
        edges = np.arange(n) // 10
        e = Evidence(K, np.full(n, 1 / n), edges, fat_tree(edges), g @ g.T)
        for kind in ("paper", "reference"):
            plan = node_grouping(kind, 1.0, 1.0)
            took = seconds(lambda p=plan, e=e: p(e, np.random.default_rng(0)))  # type: ignore[misc]
            print(f"{kind:10} {n:6} {K:7} {1e3 * took:8.1f}")


if __name__ == "__main__":
    main()
