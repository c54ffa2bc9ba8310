"""Quality of the groupings: Delta, group sizes and time on gradients after one step.

Usage: python benchmarks/groupings.py [FOLDER]

FOLDER holds the four IDX files of MNIST or Fashion-MNIST; without it the embedded images are used.
SR, Dtt, 100 nodes, 10 edges, K = 5; nodes of nearly equal size, then of sizes that vary.
"""

import sys
import time
from pathlib import Path

import numpy as np

from coterie.config import make_config
from coterie.costs import divergence
from coterie.data import load
from coterie.errors import CoterieError
from coterie.experiment import prepare
from coterie.grouping import Evidence
from coterie.grouping.baselines import by_edge
from coterie.grouping.medoids import node_grouping

SEEDS = range(5)
WEIGHTS = {"I": (1.0, 0.0), "IC": (1.0, 1.0), "C": (0.0, 1.0)}


def main(folder: Path | None) -> None:
    """Print one line per method and spread, over five seeds."""
    dataset = load("mnist-o", folder) if folder else load("mnist-f-mini")
    print(f"{len(dataset.y):,} images; Delta least-most over {len(SEEDS)} seeds, sizes of seed 0")
    print(f"{'node sizes':12} {'grouping':13} {'Delta':>15} {'ms':>6}  sizes")
    vary = 0.29 * 0.6 * len(dataset.y) / 100
    for sd in (1.0, vary):
        evidence = [evidence_of(sd, seed, dataset) for seed in SEEDS]
        sizes = f"{evidence[0][1].min()}-{evidence[0][1].max()}"
        line(sizes, "edge", [e for e, _ in evidence], None)
        for kind in ("paper", "reference"):
            for name in WEIGHTS:
                line(sizes, f"{kind} {name}", [e for e, _ in evidence], (kind, name))


def evidence_of(sd: float, seed: int, dataset: object) -> tuple[Evidence, np.ndarray]:
    """Evidence after one step of gradient descent, and the nodes' sizes."""
    config = make_config({"seed": seed, "partition": {"sd": sd}})
    prepared = prepare(config, dataset)  # type: ignore[arg-type]
    problem = prepared.problem
    everyone = np.zeros(len(problem.p), dtype=np.int64)
    models = problem.engine.advance(problem.engine.initial(), 0, 1, everyone)
    gram = problem.engine.gradients(models.w[0]).gram
    top = problem.network.topology
    e = Evidence(5, problem.p, problem.edge_of, top, gram)
    return e, prepared.class_counts.sum(axis=1)


def line(sizes: str, label: str, evidence: list[Evidence], search: tuple[str, str] | None) -> None:
    """Plan on every seed's evidence and print the range of Delta."""
    found, start = [], time.perf_counter()
    for seed, e in enumerate(evidence):
        plan = node_grouping(search[0], *WEIGHTS[search[1]]) if search else by_edge  # type: ignore[arg-type]
        found.append(plan(e, np.random.default_rng(seed)))
    took = (time.perf_counter() - start) / len(evidence)
    Delta = [divergence(e.inner, e.p, g.z).Delta for e, g in zip(evidence, found, strict=True)]
    said = f"{min(Delta):.3f}-{max(Delta):.3f}"
    groups = sorted(found[0].sizes, reverse=True)
    print(f"{sizes:12} {label:13} {said:>15} {1e3 * took:6.1f}  {groups}")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    except CoterieError as error:
        sys.exit(f"groupings: {error}")
