"""Which way of training is quickest for a module, found by trying, and remembered."""

import hashlib
import math
import platform
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.cache_folder import cache_folder
from coterie.core.errors import CoterieError
from coterie.core.files import write_json
from coterie.core.regular import read_mapping
from coterie.engine.contract import LocalSteps
from coterie.engine.device import wait_for, with_generators
from coterie.engine.kernels import Kernel
from coterie.engine.local_rule import PLAIN
from coterie.engine.module import Shards

FILE = "calibration.json"
TRIALS = 3
MOST_NODES, MOST_EXAMPLES = 8, 256
LONG_S = (
    1e-3  # of a batch: below, two threads that wait for each other's Python are slower than one
)


def choose_kernel(
    kernels: Sequence[Kernel],
    model: nn.Module,
    shards: Shards,
    steps: LocalSteps,
    w: Tensor,
    task: str = "classification",
) -> Kernel:
    """Return the quickest kernel for a batch of some nodes; one that fails is out.

    The answer is kept for the next run of this module on this machine, as near ties could else go
    one way today and the other tomorrow, with other last digits.
    """
    key = _key(model, shards, steps, task)
    known = _read()
    for kernel in kernels:
        if known.get(key) == kernel.name and math.isfinite(_seconds(kernel, shards, steps, w, 1)):
            return kernel
    best = min(kernels, key=lambda kernel: _seconds(kernel, shards, steps, w, TRIALS))
    _write({**known, key: best.name})
    return best


def takes_long(kernel: Kernel, shards: Shards, steps: LocalSteps, w: Tensor) -> bool:
    """Whether a batch of a node takes long enough for threads to pay. No digit depends on it."""
    try:
        return _seconds(kernel, shards, steps, w, TRIALS) >= LONG_S
    except CoterieError:  # of a user's module; whoever trains it tells
        return False


def _seconds(kernel: Kernel, shards: Shards, steps: LocalSteps, w: Tensor, trials: int) -> float:
    """Least time per node of one batch; infinite for a kernel that cannot run this module."""
    batch = min(steps.batch_size or MOST_EXAMPLES, MOST_EXAMPLES)
    one = replace(steps, unit="batch", batch_size=batch)
    order = np.argsort(-shards.sizes, kind="stable")
    c = min(kernel.stack(batch), MOST_NODES)
    nodes = order[: max(2, c)]
    rows = torch.zeros(len(nodes), dtype=torch.int64, device=w.device)
    best = float("inf")
    try:
        with torch.random.fork_rng(devices=with_generators(w.device)), _no_fallback():
            for _ in range(trials):
                start = time.perf_counter()
                kernel.train(w[None], rows, nodes, 0, 1, one, PLAIN, None)
                wait_for(w.device)
                best = min(best, (time.perf_counter() - start) / len(nodes))
    except Exception:  # whatever torch.func cannot do with a user's module
        if kernel.name == "single":
            raise
        return float("inf")
    return best


@contextmanager
def _no_fallback() -> Iterator[None]:
    """Refuse what torch.func runs node by node in its own way, such as an LSTM, and warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "There is a performance drop")
        yield


def _key(model: nn.Module, shards: Shards, steps: LocalSteps, task: str) -> str:
    """Name module, shapes, batch, machine, and a task that is not classification."""
    shapes = [tuple(w.shape) for w in model.parameters()]
    parts = (
        repr(model),
        type(model).__module__,
        shapes,
        tuple(shards.x.shape[1:]),
        steps.batch_size or int(np.median(shards.sizes)),
        str(shards.x.device),
        torch.__version__,
        platform.processor() or platform.machine(),
        *([task] if task != "classification" else []),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _read() -> dict[str, str]:
    return {key: str(name) for key, name in read_mapping(cache_folder() / FILE).items()}


def _write(known: dict[str, str]) -> None:
    """Keep what was found, if there is a place for it."""
    with suppress(OSError):
        path = cache_folder() / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, known)
