"""Seconds of a round on a GPU and on one core, and the most memory that the GPU gives.

Usage: python benchmarks/gpu.py [--rounds N]. Without a GPU it says so, and measures nothing.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

from coterie.engine.contract import LocalSteps
from coterie.engine.module import Nodes
from coterie.engine.vectorized import Vectorized
from coterie.models import make_model

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from work import LEARNING_RATE, WORKS, Work

COMPARED = ("sr-1000", "2nn-100", "2nn-1000", "cnn-100")


def make_engine(work: Work, device: str) -> Vectorized:
    """Build the engine of a work on a device."""
    x, y = work.data()
    torch.manual_seed(0)
    model = make_model(work.model, (1, 28, 28), 10)
    steps, few = LocalSteps(LEARNING_RATE, 1.0, work.batch, "epoch", 0), (x[:2000], y[:2000])
    nodes = Nodes(x, y, work.sizes())
    return Vectorized(model, nodes, {"val": few, "test": few}, steps, device)


def seconds(work: Work, device: str, rounds: int) -> tuple[float, float]:
    """Median wall seconds of a round, a local epoch on every node and the mean, and of a score."""
    engine = make_engine(work, device)
    models, z = engine.initial(), np.zeros(work.nodes, dtype=np.int64)
    trained, scored = [], []
    for t in range(1 + rounds):
        begun = time.perf_counter()
        models = engine.advance(models, t, t + 1, z)
        float(models.w[0, 0])  # waits for the device
        trained.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        engine.evaluate(models.w[0], "test")
        scored.append(time.perf_counter() - begun)
    return statistics.median(trained[1:]), statistics.median(scored[1:])


def main() -> None:
    """Print a line for every work."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--rounds", type=int, default=3)
    rounds = ask.parse_args().rounds
    if not torch.cuda.is_available():
        print("gpu: there is no GPU that torch can use; nothing was measured")
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; median of {rounds} rounds")
    print(f"{'work':9} {'GPU s':>8} {'score s':>8} {'peak MB':>8} {'1 core s':>9} {'times':>7}")
    for name in COMPARED:
        torch.cuda.reset_peak_memory_stats()
        there, score = seconds(WORKS[name], "cuda", rounds)
        peak = torch.cuda.max_memory_allocated() / 1e6
        here, _ = seconds(WORKS[name], "cpu", 1)
        print(
            f"{name:9} {there:8.3f} {score:8.4f} {peak:8.0f} {here:9.3f} {here / there:6.2f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
