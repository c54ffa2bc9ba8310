"""How far nodes get alone, by how unlike their labels are: what plans without a pilot assume.

Usage: python benchmarks/reach.py; it needs MNIST-F. A pilot is run for every skew, model and
learning rate. Its reach, in steps of an epoch, is printed beside what `coterie plan` assumes.
"""

from itertools import product
from typing import Any

import numpy as np

from coterie.config.files import make_config
from coterie.preview.against_fedavg import DOUBT, assumed_reach
from coterie.preview.schedule import explain

SKEWS: list[dict[str, Any]] = [
    *({"kind": "dirichlet", "alpha": alpha} for alpha in (100.0, 2.0, 0.5, 0.1)),
    {"kind": "Dtt"},
]
OPEN = {"name": "fedavg-ic", "num_groups": "auto", "tau1": "auto", "tau2": "auto"}


def main() -> None:
    """Print a line for every pilot, and how many are within the range."""
    within = []
    print("model    lr skew          delta  reach  assumed")
    for model, lr, skew in product(("sr", "2nn"), (0.03, 0.1), SKEWS):
        config = make_config(
            {
                "data": {"name": "mnist-f", "sample": 0.2},
                "partition": {**skew, "num_nodes": 50, "num_edges": 10},
                "model": {"name": model},
                "train": {"steps": 100, "lr": lr, "batch_size": 20},
                "algorithm": OPEN,
            }
        )
        found = explain(config)
        fleet = found.prepared.problem.fleet
        shares = fleet.class_counts / fleet.class_counts.sum(axis=1, keepdims=True)
        delta = float(fleet.p @ np.linalg.norm(shares - fleet.p @ shares, axis=1))
        reach, told = found.choice.outlook.fits[0].reach / lr, assumed_reach(delta)
        within.append(told / DOUBT <= reach <= told * DOUBT)
        name = f"{skew['kind']} {skew.get('alpha', '')}"
        print(f"{model:5} {lr:>5g} {name:12} {delta:>6.2f} {reach:>6.2f} {told:>8.2f}", flush=True)
    print(f"within {DOUBT:g} times of what is assumed: {sum(within)} of {len(within)}")


if __name__ == "__main__":
    main()
