"""Loss and calibrated loss at the same accuracy, by schedule. Run: python benchmarks/calibration.py

Every schedule trains softmax regression until it is right on a part of the validation examples. If
errors followed from the loss, all schedules would have the same loss there. The calibrated loss is
the least that multiplying all outputs, which here is all weights, by one number gives.
"""

import argparse

import numpy as np

from coterie.config.factories import load_dataset
from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.config.settings import Config
from coterie.simulation.loop import rounds

SCALES = np.geomspace(0.5, 16.0, 500).tolist()
SCHEDULES = [(1, 1, 1), (1, 2, 1), (1, 5, 1), (5, 1, 5), (10, 1, 10), (20, 5, 2)]


def config_of(data: str, skew: str, K: int, tau1: int, tau2: int) -> Config:
    """Return the config of one run on a tenth of the data; one group is FedAvg."""
    grouped = {"name": "fedavg-ic", "evidence": "sketch", "num_groups": K}
    named = grouped if K > 1 else {"name": "fedavg"}
    return make_config(
        {
            "data": {"name": data, "sample": 0.1},
            "partition": {"kind": skew},
            "network": {"link_mbytes_per_s": 10.0, "combine": "all"},
            "train": {"steps": 200},
            "algorithm": {**named, "tau1": tau1, "tau2": tau2},
        }
    )


def main() -> None:
    """Print a line for every schedule and accuracy that it reaches."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--data", default="mnist-f")
    ask.add_argument("--skew", default="Dth")
    ask.add_argument("--accuracies", default="0.65,0.70")
    said = ask.parse_args()
    configs = [config_of(said.data, said.skew, *one) for one in SCHEDULES]
    dataset = load_dataset(configs[0])
    print("| K, tau1, tau2 | accuracy | steps | loss | calibrated | errors / calibrated |")
    print("|---" * 6 + "|")
    for schedule, config in zip(SCHEDULES, configs, strict=True):
        engine = (problem := prepare(config, dataset).problem).engine
        wanted = sorted(float(part) for part in said.accuracies.split(","))
        for s in rounds(problem):
            if s.row.event == "group":
                continue
            w = s.models.w[0]
            score = engine.evaluate(w, "val")
            assert score.accuracy is not None  # of labels
            while wanted and score.accuracy >= wanted[0]:
                least = min(engine.evaluate(scale * w, "val").loss for scale in SCALES)
                print(
                    f"| {schedule} | {wanted.pop(0):.0%} | {s.t} | {score.loss:.3f} | {least:.3f} "
                    f"| {(1 - score.accuracy) / least:.3f} |",
                    flush=True,
                )
            if not wanted:
                break
        for part in wanted:
            print(f"| {schedule} | {part:.0%} | never | | | |", flush=True)


if __name__ == "__main__":
    main()
