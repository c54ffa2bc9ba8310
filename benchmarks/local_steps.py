"""What local steps bring, by data and skew, beside what plans without training assume.

Usage: python benchmarks/local_steps.py; it needs MNIST-O and MNIST-F. Softmax regression, full
batches, 50 nodes. The target is the loss of 50 steps with a mean after each. Printed is how many of
such steps a round of tau steps counts: 50 over the rounds that it takes, in parts of a round, to
the target. Every tau has the best of five learning rates, and at most 300 steps.
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from coterie.analysis.fair import RATES
from coterie.config.factories import load_dataset
from coterie.config.files import changed, make_config
from coterie.config.prepare import prepare
from coterie.config.settings import Config
from coterie.core.errors import CoterieError
from coterie.data import Dataset
from coterie.preview.against_fedavg import Means, assumed_reach
from coterie.simulation.loop import rounds

DATA = ("mnist-o", "mnist-f")
SKEWS: list[dict[str, Any]] = [{"kind": "dirichlet", "alpha": alpha} for alpha in (10.0, 1.0, 0.3)]
TAUS, STEPS, MOST, LR = (2, 5, 10, 25, 50), 50, 300, 0.5


def losses(config: Config, dataset: Dataset) -> Iterator[tuple[int, float]]:
    """Yield step and loss at every mean, until it diverges."""
    try:
        for s in rounds(prepare(config, dataset).problem):
            if s.row.train_loss is None or not math.isfinite(s.row.train_loss):
                return
            yield s.t, s.row.train_loss
    except CoterieError:
        return


def needed(found: Iterator[tuple[int, float]], target: float, tau: int) -> float:
    """Return rounds until a loss, in parts of one; infinite if it is never there."""
    before: tuple[int, float] | None = None
    for t, loss in found:
        if loss <= target:
            if before is None or loss >= before[1]:
                return t / tau
            part = math.log(before[1] / target) / math.log(before[1] / loss)
            return (before[0] + part * (t - before[0])) / tau
        before = t, loss
    return math.inf


def main() -> None:
    """Print two lines for every dataset and skew."""
    head = " ".join(f"{f'tau {tau}':>7}" for tau in TAUS)
    print(f"{'data':8} {'skew':14} {'delta':>5} {'target':>6}          {head}")
    for name, skew in product(DATA, SKEWS):
        config = make_config(
            {
                "data": {"name": name, "sample": 0.08},
                "partition": {**skew, "num_nodes": 50, "num_edges": 5},
                "train": {"steps": MOST, "lr": LR, "measure": ["loss"], "eval_every": 1},
                "algorithm": {"name": "fedavg", "tau1": 1, "tau2": 1},
            }
        )
        dataset = load_dataset(config)
        rates = [{"train.lr": factor * LR} for factor in RATES]
        ends = []
        for rate in rates:
            *_, last = losses(changed(config, {**rate, "train.steps": STEPS}), dataset)
            ends += [last[1]] if last[0] == STEPS else []
        gained = []
        for tau in TAUS:
            own = [changed(config, {**rate, "algorithm.tau1": tau}) for rate in rates]
            took = min(needed(losses(each, dataset), min(ends), tau) for each in own)
            gained.append(f"{STEPS / took:7.1f}" if math.isfinite(took) else "  never")
        fleet = prepare(config, dataset).problem.fleet
        shares = fleet.class_counts / fleet.class_counts.sum(axis=1, keepdims=True)
        delta = float(fleet.p @ np.linalg.norm(shares - fleet.p @ shares, axis=1))
        assumed = [Means(1.0, tau1=tau).gained(assumed_reach(delta)) for tau in TAUS]
        told = f"{name:8} Dirichlet {skew['alpha']:<4g} {delta:5.2f} {min(ends):6.3f}"
        print(f"{told} {'counts':8} {' '.join(gained)}")
        print(f"{'':36} {'assumed':8} {' '.join(f'{each:7.1f}' for each in assumed)}", flush=True)


if __name__ == "__main__":
    main()
