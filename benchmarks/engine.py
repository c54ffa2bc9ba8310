"""The engine against its peers, its own other ways, its growth and its memory: one table each.

Usage: make bench-engine, or python benchmarks/engine.py [--part PART ...] [--quick].
Peers get environments of their own under benchmarks/peers/.venvs, made on demand.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coterie.engine.contract import LocalSteps
from coterie.engine.kernels.compiled import has_numba
from coterie.engine.local_rule import PLAIN, LocalRule
from coterie.engine.module import Nodes
from coterie.engine.vectorized import Vectorized
from coterie.models import make_model
from coterie.simulation.algorithms import ALGORITHMS

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from contest import machine
from environments import ONE_THREAD, measure
from work import LEARNING_RATE, WORKS, Work

PARTS = (
    *("peers", "ways", "updates", "cores", "growth", "memory", "profile", "roofline"),
    "convolutions",
)
GROWTH = (100, 300, 1000, 3000, 10_000)
# Multiply-adds of one example, forward; the gradient of the images is not computed.
LAYERS = {
    "sr": [7840],
    "2nn": [784 * 200, 200 * 200, 2000],
    "cnn": [576 * 64 * 25, 64 * 64 * 64 * 25, 1024 * 256, 2560],
}
SIZES = (128 << 10, 256 << 10, 1 << 20, 16 << 20, 256 << 20)  # bytes that are read and written
UPDATES = ("fedavg", "fedprox", "scaffold", "feddyn", "fednova", "hier-scaffold", "ditto")
COMPARED = ("2nn-100", "2nn-1000", "sr-1000", "cnn-100")


def gflop(work: Work) -> float:
    """Operations of a round, in 10^9: forward, and both gradients of every layer but the first."""
    layers = LAYERS[work.model]
    return 2 * (3 * sum(layers) - layers[0]) * int(work.sizes().sum()) / 1e9


def peak() -> float:
    """Best 10^9 operations per CPU second: of multiply-adds in registers, or of large matrices."""
    if not has_numba():
        return product()
    import multiply_adds

    return max(product(), multiply_adds.peak())


def product() -> float:
    """Best 10^9 operations per CPU second of a product of two large matrices."""
    a = torch.rand(2048, 2048)
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        a @ a
        best = min(best, time.process_time() - start)
    return 2 * 2048**3 / best / 1e9


def make_engine(work: Work, workers: int = 1, rule: LocalRule = PLAIN) -> Vectorized:
    """Build the engine on a work."""
    x, y = work.data()
    torch.manual_seed(0)
    model = make_model(work.model, (1, 28, 28), 10)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), work.weights(), strict=True):
            parameter.copy_(torch.from_numpy(value))
    few = (x[:2000], y[:2000])
    steps = LocalSteps(LEARNING_RATE, 1.0, work.batch, "epoch", 0)
    nodes = Nodes(x, y, work.sizes())
    return Vectorized(model, nodes, {"val": few, "test": few}, steps, rule=rule, workers=workers)


def one(work: Work, rounds: int, kernel: str, workers: int) -> dict[str, Any]:
    """Time rounds in this process: a local epoch on every node, then the mean."""
    torch.set_num_threads(1)
    before = peak()
    engine = make_engine(work, workers)
    if kernel:
        engine.choose({"kernel": kernel})
    models, z = engine.initial(), np.zeros(work.nodes, dtype=np.int64)
    first = engine.evaluate(models.w[0], "test").loss
    cpu, wall = [], []
    for t in range(1 + rounds):
        at = time.process_time(), time.perf_counter()
        models = engine.advance(models, t, t + 1, z)
        cpu.append(time.process_time() - at[0])
        wall.append(time.perf_counter() - at[1])
    return {
        "cpu_s_rounds": cpu[1:],
        "wall_s_rounds": wall[1:],
        "cpu_s": statistics.median(cpu[1:]),
        "wall_s": statistics.median(wall[1:]),
        "kernel": engine.choice()["kernel"],
        "loss": [first, engine.evaluate(models.w[0], "test").loss],
        "peak": max(before, peak()),
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def apart(name: str, rounds: int, fraction: float = 1.0, kernel: str = "", workers: int = 1) -> Any:
    """Time the engine in a process of its own, one thread unless told otherwise."""
    words = ["--one", name, "--rounds", str(rounds), "--fraction", str(fraction)]
    words += ["--kernel", kernel, "--workers", str(workers)]
    command = [sys.executable, __file__, *words]
    env = os.environ | ONE_THREAD
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    whole, part = WORKS[name], WORKS[name].part(fraction)
    scale = whole.sizes().sum() / part.sizes().sum()
    for key in ("cpu_s", "wall_s"):
        found[key] *= scale
        found[f"{key}_rounds"] = [scale * s for s in found[f"{key}_rounds"]]
    return found


def peers(*, quick: bool) -> None:
    """Print CPU seconds of a round in coterie and in its peers, and how many times as many.

    Everybody has a turn, then everybody another; the least of all rounds counts, because machines
    are disturbed and never sped up.
    """
    turns, rounds = (1, 1) if quick else (2, 3)
    print("\nCPU seconds of one local epoch on all nodes and the mean, one thread (Flower: wall)")
    print(f"least of {turns} turns of {rounds} rounds; CNN on a tenth of the nodes, scaled")
    print(f"{'work':9} {'who':8} {'seconds':>8} {'times':>7} {'GFLOPS':>7} {'of peak':>8}")
    for name in COMPARED:
        fraction = 0.1 if quick or name == "cnn-100" else 1.0
        found: dict[str, list[float]] = {}
        top: list[float] = []
        for _ in range(turns):
            ours = apart(name, rounds, fraction)
            top.append(ours["peak"])
            found.setdefault("coterie", []).extend(ours["cpu_s_rounds"])
            if has_numba():
                loops = apart(name, rounds, fraction, loops_of(name))
                found.setdefault("compiled", []).extend(loops["cpu_s_rounds"])
            for peer in ("plain", "pfl", "fedjax"):
                work = "cnn-100-nolrn" if (peer, name) == ("fedjax", "cnn-100") else name
                line = measure(peer, work, rounds, fraction)
                scaled = [line["scaled_by"] * s for s in line["cpu_s_rounds"]]
                found.setdefault(peer, []).extend(scaled)
        if name == "2nn-100":
            found["flower"] = measure("flower", name, rounds)["wall_s_rounds"]
            found["2 cores"] = apart(name, rounds, workers=2)["wall_s_rounds"]
        least = {who: min(s) for who, s in found.items()}
        for who, s in least.items():
            speed = gflop(WORKS[name]) / s
            share = f"{speed / max(top):8.0%}" if who not in ("flower", "2 cores") else "   wall"
            print(f"{name:9} {who:8} {s:8.3f} {s / least['coterie']:6.2f}x {speed:7.1f} {share}")
        print(f"{'':9} peak {max(top):.0f} GFLOPS, loss {ours['loss']}", flush=True)


def loops_of(name: str) -> str:
    """Name the kernel that trains a work in compiled loops."""
    return "convolved" if WORKS[name].model == "cnn" else "compiled"


def ways(*, quick: bool) -> None:
    """Print CPU seconds of a round by each way of training."""
    print("\nCPU seconds of a round by way: written-out chain, torch.func, one by one")
    print(f"{'work':9} {'dense':>8} {'stacked':>8} {'single':>8}")
    for name in COMPARED:
        fraction = {"cnn-100": 0.04}.get(name, 0.1 if quick else 0.3)
        cells = []
        for kernel in ("dense", "stacked", "single"):
            if (name, kernel) == ("cnn-100", "dense"):
                cells.append(f"{'':8}")
                continue
            cells.append(f"{apart(name, 1, fraction, kernel)['cpu_s']:8.2f}")
        print(f"{name:9} {' '.join(cells)}")


def updates(*, quick: bool) -> None:
    """Print CPU seconds of a turn of two local epochs by algorithm, and how many times FedAvg's.

    Everybody has a turn, then everybody another, in one process; the least of all counts.
    """
    torch.set_num_threads(1)
    print("\nCPU seconds of two local epochs by what an algorithm adds to SGD, one thread")
    print(f"{'work':9} " + " ".join(f"{name:>16}" for name in UPDATES))
    for name in ("sr-1000", "2nn-100", "2nn-1000"):
        work = WORKS[name].part(0.05 if quick else 0.2)
        engines = {
            who: make_engine(work, rule=LocalRule(update=ALGORITHMS[who].update)) for who in UPDATES
        }
        z = np.zeros(work.nodes, dtype=np.int64)
        best = dict.fromkeys(UPDATES, float("inf"))
        for _ in range(2 if quick else 7):
            for who, engine in engines.items():
                models, start = engine.initial(), time.process_time()
                engine.advance(models, 0, 2, z)
                best[who] = min(best[who], time.process_time() - start)
        cells = (f"{s:8.3f} {s / best['fedavg']:6.2f}x" for s in best.values())
        print(f"{name:9} " + " ".join(f"{cell:>16}" for cell in cells), flush=True)


def cores(*, quick: bool) -> None:
    """Print wall seconds of a round on one core, on two, and by two processes apart."""
    print("\nwall seconds of a round on one core and on two, least of some rounds")
    print(f"{'work':9} {'kernel':9} {'one':>8} {'two':>8} {'times':>7}   two processes apart")
    dense = [(name, kernel) for name in COMPARED[:3] for kernel in ("dense", "compiled")]
    for name, kernel in [*dense, ("cnn-100", "single"), ("cnn-100", "convolved")]:
        fraction = {"cnn-100": 0.1}.get(name, 0.2 if quick else 1.0)
        rounds = 2 if quick or name == "cnn-100" else 5
        one, two = (
            min(apart(name, rounds, fraction, kernel, workers=w)["wall_s_rounds"]) for w in (1, 2)
        )
        words = [sys.executable, __file__, "--one", name, "--rounds", str(rounds)]
        words += ["--fraction", str(fraction), "--kernel", kernel]
        env = os.environ | ONE_THREAD
        both = [
            subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        walls = [json.loads(b.communicate()[0].splitlines()[-1])["wall_s_rounds"] for b in both]
        scale = WORKS[name].sizes().sum() / WORKS[name].part(fraction).sizes().sum()
        ideal = 2 * one / (scale * max(map(min, walls)))
        cells = f"{one:8.3f} {two:8.3f} {one / two:6.2f}x {ideal:6.2f}x"
        print(f"{name:9} {kernel:9} {cells}", flush=True)


def growth(*, quick: bool) -> None:
    """Print how the seconds per example grow with the number of nodes."""
    print("\nCPU microseconds per example, 60 examples a node, batch 10")
    print(f"{'nodes':>7} {'sr':>8} {'2nn':>8}")
    for nodes in GROWTH[: 3 if quick else None]:
        cells = []
        for model in ("sr", "2nn"):
            work = Work(f"{model}-{nodes}", model, nodes, 60, 10)
            found = subprocess.run(
                [sys.executable, __file__, "--one", f"{model}:{nodes}", "--rounds", "3"],
                env=os.environ | ONE_THREAD,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            cpu = min(json.loads(found.stdout.splitlines()[-1])["cpu_s_rounds"])
            cells.append(f"{1e6 * cpu / work.sizes().sum():8.2f}")
        print(f"{nodes:7,} {' '.join(cells)}")


def memory(*, quick: bool) -> None:
    """Print the peak memory of a step, a plan's evidence and a measurement on many nodes."""
    nodes = 10_000 if quick else 100_000
    words = [sys.executable, __file__, "--many", str(nodes)]
    done = subprocess.run(
        words, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, text=True, check=True
    )
    print(f"\n{done.stdout.splitlines()[-1]}")


def profile(*, quick: bool) -> None:
    """Print where the time of a round goes, by torch's operations."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    torch.set_num_threads(1)
    print("\nwhere the CPU time of a round goes, by operation; the rest is Python between them")
    for name in COMPARED:
        work = WORKS[name].part(0.04 if name == "cnn-100" else 0.1 if quick else 0.3)
        engine = make_engine(work)
        z = np.zeros(work.nodes, dtype=np.int64)
        models = engine.advance(engine.initial(), 0, 1, z)
        start = time.process_time()
        engine.advance(models, 1, 2, z)
        plain = time.process_time() - start
        with watch(activities=[ProfilerActivity.CPU]) as seen:
            engine.advance(models, 1, 2, z)
        ops = sorted(seen.key_averages(), key=lambda op: -op.self_cpu_time_total)
        shares = [(op.key.removeprefix("aten::"), op.self_cpu_time_total / 1e6) for op in ops]
        total = max(plain, sum(s for _, s in shares))
        top = ", ".join(f"{op} {s / total:.0%}" for op, s in shares[:7])
        print(f"{name:9} {top}; Python {max(0.0, 1 - sum(s for _, s in shares) / total):.0%}")


def bandwidth(size: int) -> float:
    """Best 10^9 bytes per CPU second of w += v, over so many bytes of both together."""
    w, v = torch.zeros(size // 8), torch.zeros(size // 8)
    times = max(1, (64 << 20) // size)
    best = float("inf")
    for _ in range(7):
        start = time.process_time()
        for _ in range(times):
            w.add_(v)
        best = min(best, (time.process_time() - start) / times)
    return 1.5 * size / best / 1e9  # w is read and written, v is read


def roofline(*, quick: bool) -> None:
    """Print what bounds a batch: the processor's peak, or the weights' way to it.

    A batch reads all weights forward, all but the first layer's back, and reads and writes all to
    change them. Its least time is the larger of that traffic and its operations at their best.
    """
    torch.set_num_threads(1)
    top = max(peak(), peak())
    speeds = {size: bandwidth(size) for size in SIZES}
    print("\nwhat bounds a batch, one thread")
    print("bytes    " + " ".join(f"{size >> 10:>9,} K" for size in SIZES))
    print("GB/s     " + " ".join(f"{speed:>11.0f}" for speed in speeds.values()))
    print(f"peak     {top:.0f} GFLOPS; torch's product of large matrices {product():.0f}")
    head = f"{'work':9} {'kernel':9} {'flop/byte':>9} {'GFLOPS at most':>15} {'reached':>8} {'':>6}"
    print(f"{head} {'of peak':>8}")
    for name in COMPARED[::-1]:
        work, layers = WORKS[name], LAYERS[WORKS[name].model]
        traffic = 4 * (3 * sum(layers) + sum(layers[1:]))  # bytes of a batch
        operations = 2 * (3 * sum(layers) - layers[0]) * work.batch
        fits = min((size for size in SIZES if size >= 8 * sum(layers)), default=SIZES[-1])
        chain = work.model != "cnn"  # whose traffic is images, not weights
        bound = min(top, operations / traffic * speeds[fits]) if chain else top
        for kernel in ("dense" if chain else "single", loops_of(name)):
            found = apart(name, 2 if quick else 5, 0.1 if quick else 0.5, kernel)
            speed = gflop(work) / min(found["cpu_s_rounds"])
            share = f"{speed / bound:5.0%} {speed / top:8.0%}"
            intensity = f"{operations / traffic:9.1f}" if chain else f"{'-':>9}"
            cells = f"{intensity} {bound:15.0f} {speed:8.1f}"
            print(f"{name:9} {kernel:9} {cells} {share}", flush=True)


def convolutions(*, quick: bool) -> None:
    """Print what it could bring to train the first batch of many nodes, which start alike, at once.

    One pass over the images of several nodes is timed beside a pass for each, per image, weights'
    gradients and all. Those have to be apart, so this is more than can be had. It is had once a
    turn: with n batches a node, divide by n.
    """
    torch.set_num_threads(1)
    print("\nCPU microseconds an image: a pass for each node's batch, and one for several nodes")
    print("model      batch  nodes  forward: each  at once  with gradients: each  at once  saves")
    for model, shape, batch, nodes in (
        ("cnn", (1, 28, 28), 10, 13),
        ("cnn", (1, 28, 28), 128, 4),
        ("cifar-cnn", (3, 32, 32), 10, 13),
        ("resnet18", (3, 32, 32), 10, 13),
    ):
        total = batch * nodes * (1 if quick else 4)
        last = torch.channels_last
        module = make_model(model, shape, 10)
        module.to(memory_format=last)  # type: ignore[call-overload]
        x = torch.rand(total, *shape).contiguous(memory_format=last)
        y = torch.randint(10, (total,))
        turns = 1 if quick else 4
        each, joined = (of_passes(module, x, y, n, turns) for n in (batch, batch * nodes))
        us = [1e6 * took[back] / total for back in (0, 1) for took in (each, joined)]
        print(
            f"{model:10} {batch:5} {nodes:6} {us[0]:14.0f} {us[1]:8.0f} {us[2]:21.0f} {us[3]:8.0f} "
            f"{1 - us[3] / us[2]:6.0%}",
            flush=True,
        )


def of_passes(
    module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, size: int, turns: int
) -> tuple[float, float]:
    """Return CPU seconds over all images in pieces: forward alone, and with gradients."""
    least = [float("inf"), float("inf")]
    for _ in range(turns):
        for back in (False, True):
            start = time.process_time()
            for xs, ys in zip(torch.split(x, size), torch.split(y, size), strict=True):
                with torch.set_grad_enabled(back):
                    loss = torch.nn.functional.cross_entropy(module(xs), ys)
                if back:
                    torch.autograd.grad(loss, list(module.parameters()))
            least[back] = min(least[back], time.process_time() - start)
    return least[0], least[1]


def many(nodes: int) -> None:
    """Run SR on many nodes of ten examples in this process and print what it took."""
    from coterie.divergences.sketch import Sketch

    torch.set_num_threads(1)
    work = Work("many", "sr", nodes, 10, 10)
    engine = make_engine(work)
    data = engine._shards.x.numel() + 8 * len(engine._shards.y)
    z = np.arange(nodes) % 100
    start = time.perf_counter()
    models = engine.advance(engine.initial(), 0, 2, z)
    trained = time.perf_counter() - start
    shown = engine.gradients(models.w[0], Sketch(64, 0))
    found = engine.measure(models.w[0], z)
    peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert shown.sketches is not None
    print(
        f"{nodes:,} nodes, SR, 100 groups: {peak_rss / 2**30:.2f} GiB at most, of which data "
        f"{data / 2**30:.2f}; two epochs {trained:.1f} s, sketches, and Delta {found.Delta:.3f}"
    )


def main() -> None:
    """Print the tables asked for."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    ask.add_argument("--quick", action="store_true")
    ask.add_argument("--one", help=argparse.SUPPRESS)
    ask.add_argument("--many", type=int, help=argparse.SUPPRESS)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--fraction", type=float, default=1.0)
    ask.add_argument("--kernel", default="")
    ask.add_argument("--workers", type=int, default=1)
    args = ask.parse_args()
    if args.many:
        many(args.many)
        return
    if args.one:
        model, _, nodes = args.one.partition(":")
        work = Work("own", model, int(nodes), 60, 10) if nodes else WORKS[args.one]
        print(json.dumps(one(work.part(args.fraction), args.rounds, args.kernel, args.workers)))
        return
    print(f"{machine()}, torch {torch.__version__}", flush=True)
    for part in args.part:
        {
            "peers": peers,
            "ways": ways,
            "updates": updates,
            "cores": cores,
            "growth": growth,
            "memory": memory,
            "profile": profile,
            "roofline": roofline,
            "convolutions": convolutions,
        }[part](quick=args.quick)


if __name__ == "__main__":
    main()
