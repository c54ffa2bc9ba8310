"""How near training networks of convolutions is to oneDNN's convolutions alone.

Milliseconds of a batch, on one thread: by the module and torch's autograd, written out, and of the
convolutions alone. These are the network's own, there and back, on numbers of the same shapes, and
nothing between them. Whoever convolves by oneDNN cannot be quicker. The least of several turns
counts. Speeds are of multiplications and additions as counted in the convolutions.

Usage: python benchmarks/convolutions.py [--case NAME ...] [--turns 7] [--quick]
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from coterie.engine.contract import LocalSteps
from coterie.engine.device import prepared
from coterie.engine.kernels.stages import Convolution, Pooled, find_net
from coterie.engine.module import Nodes
from coterie.engine.vectorized import Vectorized
from coterie.models import make_model

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from contest import machine
from nets import NETS

CLASSES = 10


class Shape(NamedTuple):
    """A network, the images that it sees, and a batch of how many of them."""

    net: Callable[[tuple[int, int, int]], nn.Module]
    images: tuple[int, int, int]
    batch: int


CASES = {
    "the paper's CNN": Shape(lambda s: make_model("cnn", s, CLASSES), (1, 28, 28), 128),
    "without response norm": Shape(lambda s: NETS["cnn-nolrn"](s, CLASSES), (1, 28, 28), 128),
    "FEMNIST's": Shape(lambda s: NETS["femnist_cnn"](s, CLASSES), (1, 28, 28), 20),
    "pfl's CIFAR-10": Shape(lambda s: NETS["femnist_cnn"](s, CLASSES), (3, 32, 32), 10),
}


def least(do: Callable[[], object], turns: int) -> float:
    """Return the least milliseconds of several turns, after one that does not count."""
    found = []
    for _ in range(turns + 1):
        start = time.perf_counter()
        do()
        found.append(time.perf_counter() - start)
    return 1e3 * min(found[1:])


def trained(shape: Shape, kernel: str, batches: int, turns: int) -> float:
    """Return milliseconds of a batch by a kernel of the engine."""
    torch.manual_seed(0)
    rng, many = np.random.default_rng(0), shape.batch * batches
    x = rng.integers(0, 255, (many, *shape.images)).astype(np.uint8)
    y = rng.integers(0, CLASSES, many)
    held = {"val": (x[:2], y[:2]), "test": (x[:2], y[:2])}
    steps = LocalSteps(0.01, 1.0, shape.batch, "epoch", 0)
    nodes = Nodes(x, y, np.array([many]))
    engine = Vectorized(copy.deepcopy(shape.net(shape.images)), nodes, held, steps, kernel=kernel)  # type: ignore[arg-type]
    models, z = engine.initial(), np.zeros(1, dtype=np.int64)
    return least(lambda: engine.advance(models, 0, 1, z), turns) / batches


def convolutions(shape: Shape, turns: int) -> tuple[float, float]:
    """Return milliseconds of a batch's convolutions alone, and their operations in 10^9."""
    model = shape.net(shape.images)
    net, found, giga = find_net(model), 0.0, 0.0
    assert net is not None
    stages = [s.convolution if isinstance(s, Pooled) else s for s in net.stages]
    shapes = iter(seen_by(model, shape))
    for number, stage in enumerate(s for s in stages if isinstance(s, Convolution)):
        x = torch.rand(next(shapes)).contiguous(memory_format=torch.channels_last)
        w, b = torch.rand(stage.shape), torch.rand(stage.shape[0])
        y = torch.conv2d(x, w, b, stage.stride, stage.padding)
        dy = torch.rand_like(y)

        def there_and_back(
            x: Tensor = x, w: Tensor = w, b: Tensor = b, dy: Tensor = dy, first: bool = number == 0
        ) -> None:
            torch.conv2d(x, w, b)
            torch.ops.aten.convolution_backward(
                *(dy, x, w, [len(w)], [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
                [not first, True, True],
            )

        found += least(there_and_back, 5 * turns)
        times = 2 if number == 0 else 3  # nobody asks for the images' own gradient
        giga += 2 * times * y.numel() * prod(stage.shape[1:]) / 1e9
    return found, giga


def seen_by(model: nn.Module, shape: Shape) -> list[torch.Size]:
    """Return what every convolution of a model sees."""
    seen: list[torch.Size] = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, given, __: seen.append(given[0].shape))
    model(torch.rand(shape.batch, *shape.images))
    return seen


def main() -> None:
    """Print a line for each network."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    ask.add_argument("--turns", type=int, default=7)
    ask.add_argument("--quick", action="store_true", help="a turn of a batch: does it run?")
    told = ask.parse_args()
    torch.set_num_threads(1)
    prepared("cpu")
    batches, turns = (1, 1) if told.quick else (8, told.turns)
    print(f"{machine()}; torch {torch.__version__}")
    print(
        f"{'network':22} {'batch':>5} {'module ms':>9} {'written ms':>10} {'times':>6} "
        f"{'convolutions ms':>15} {'GFLOPS':>6} {'of all':>6}"
    )
    for name in told.case:
        shape = CASES[name]
        module, written = (trained(shape, k, batches, turns) for k in ("single", "convolved"))
        alone, giga = convolutions(shape, turns)
        print(
            f"{name:22} {shape.batch:5} {module:9.2f} {written:10.2f} {module / written:5.2f}x "
            f"{alone:15.2f} {1e3 * giga / alone:6.0f} {alone / written:6.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
