"""What is learnt on the map: softmax regression on small images, by full batches, in NumPy.

It is little enough for a few lines, which `measure.py --check` holds against the engine. The target
is a share of what centralised training ends with on the same split, so that it takes many means.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.config.factories import divide, load_dataset
from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.core.arrays import Floats, Ints
from coterie.data import Dataset

Json = dict[str, Any]
Singles = NDArray[np.float32]
EDGES, STEPS, DECAY = 10, 1000, 0.998  # DECAY of the rate, every step
TESTED = 0.7  # of the images; three quarters of the others are trained on
RATES = tuple(2.0**power for power in range(-2, 7))
SHARE, LAST = 0.95, 50  # of the mean accuracy of centralised training's last steps
SKEWS: dict[str, Json] = {
    "alike": {"kind": "iid"},
    "uneven": {"kind": "dirichlet", "alpha": 0.3, "placement": "random"},
    "one class a node": {"kind": "pathological", "classes_per_node": 1, "placement": "random"},
    "one class an edge": {"kind": "Dtt", "sd": 0.0},
}


@cache
def images() -> Dataset:
    """Return the embedded images, shrunk to 7 by 7, most of which are tested on."""
    whole = load_dataset(make_config({"data": {"name": "mnist-f-mini"}}))
    x = whole.x.reshape(-1, 1, 7, 4, 7, 4).mean(axis=(3, 5)).astype(whole.x.dtype)
    test = np.random.default_rng(0).permutation(len(x)) < TESTED * len(x)
    return replace(whole, x=x, test=test)


def settings(skew: str, per_edge: int, seed: int, scored: str) -> Json:
    """Return the settings of a run, but for its network."""
    return {
        "seed": seed,
        "data": {"name": "mnist-f-mini", "split": "official", "scored": scored},
        "partition": {**SKEWS[skew], "num_nodes": EDGES * per_edge, "num_edges": EDGES},
        "algorithm": {"name": "fedavg", "num_groups": 1, "tau2": 1},
        "train": {
            "steps": STEPS,
            "lr_decay": DECAY,
            "measure": ["accuracy"],
            "batch_size": "full",
        },
    }


@dataclass(frozen=True, eq=False)
class Work:
    """Examples of every node, padded [n, m, d + 1], what is scored, and the first model."""

    x: Singles
    y: Singles  # one-hot, and 0 where there is no example [n, classes, m]
    share: Singles  # 1 over a node's examples where there is one [n, 1, m]
    scored_x: Singles
    scored_y: Ints
    first: Singles  # [classes, d + 1]
    p: Floats

    @property
    def most(self) -> int:
        """Examples of the node that has most."""
        return int((self.share > 0).sum(axis=2).max())

    def step(self, w: Singles, rate: float) -> None:
        """Let every node make a step of gradient descent [n, classes, d + 1]."""
        soft = w @ self.x.transpose(0, 2, 1)
        soft -= soft.max(axis=1, keepdims=True)
        np.exp(soft, out=soft)
        soft /= soft.sum(axis=1, keepdims=True)
        soft -= self.y
        soft *= rate * self.share
        w -= soft @ self.x

    def accuracy(self, w: Singles) -> float:
        """Score one model [classes, d + 1]."""
        return float(((w @ self.scored_x.T).argmax(axis=0) == self.scored_y).mean())


@cache
def work_of(skew: str, per_edge: int, seed: int, scored: str) -> Work:
    """Deal the images to nodes, as a run does."""
    config = make_config(settings(skew, per_edge, seed, scored))
    problem = prepare(config, images()).problem
    flat = problem.first_models.w[0].numpy()
    held = divide(config, images())
    data, split, indices = held.dataset, held.split, held.partition.indices
    d, classes = data.x[0].size, data.n_classes
    x = np.ones((len(data.x), d + 1), dtype=np.float32)
    x[:, :d] = data.x.reshape(-1, d).astype(np.float32) / 255
    n, most = len(indices), max(map(len, indices))
    xs, ys = np.zeros((n, most, d + 1), np.float32), np.zeros((n, classes, most), np.float32)
    share = np.zeros((n, 1, most), np.float32)
    for i, own in enumerate(indices):
        at, m = split.train[own], len(own)
        xs[i, :m], ys[i, :, :m], share[i, :, :m] = x[at], np.eye(classes)[data.y[at]].T, 1 / m
    weights, bias = flat[: classes * d].reshape(classes, d), flat[classes * d :, None]
    first = np.concatenate([weights, bias], axis=1)
    part = split.val if scored == "val" else split.test
    return Work(xs, ys, share, x[part], np.asarray(data.y[part], np.int64), first, problem.fleet.p)


@cache
def target_at(seed: int, scored: str) -> float:
    """Return the accuracy to reach: a share of what centralised training ends with at its best.

    It takes a full batch of all examples a step, at the best of the rates.
    """
    work = work_of("alike", 4, seed, scored)  # whose nodes have all examples between them
    whole = Work(
        work.x.reshape(1, -1, work.x.shape[2]),
        work.y.transpose(1, 0, 2).reshape(1, work.y.shape[1], -1),
        (work.share * work.p.astype(np.float32)[:, None, None]).reshape(1, 1, -1),
        *(work.scored_x, work.scored_y, work.first, np.ones(1)),
    )
    ends = []
    for lr in RATES:
        w, found = whole.first[None].copy(), []
        for t in range(1, STEPS + 1):
            whole.step(w, lr * DECAY ** (t - 1))
            if t > STEPS - LAST:
                found.append(whole.accuracy(w[0]))
        ends.append(np.mean(found))
    return SHARE * float(max(ends))


class Schedule(NamedTuple):
    """When there is a mean; who searches has one of all nodes after the first step."""

    tau1: int
    tau2: int
    searched: bool

    def event(self, t: int) -> str:
        """Name the mean after step t."""
        if t % (self.tau1 * self.tau2) == 0 or (self.searched and t == 1):
            return "global"
        return "group" if self.tau2 > 1 and t % self.tau1 == 0 else ""


class Course:
    """Global means of one run, trained as far as they are asked for."""

    def __init__(self, work: Work, z: Ints, schedule: Schedule, lr: float) -> None:
        """Begin with the first model of all."""
        same = (z[:, None] == z[None, :]) * work.p
        self._mean: Singles = (same / same.sum(axis=1, keepdims=True)).astype(np.float32)
        self._work, self._schedule, self._lr = work, schedule, lr
        self._w, self._t = work.first, 0
        self._found: list[tuple[int, float]] = []

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Yield step and accuracy of the global means; a run that diverges ends."""
        at = 0
        while at < len(self._found) or self._train():
            yield self._found[at]
            at += 1

    def _train(self) -> bool:
        """Go on to the next global mean."""
        work, n = self._work, len(self._work.p)
        ends = range(self._t + 1, STEPS + 1)
        end = next((t for t in ends if self._schedule.event(t) == "global"), None)
        if end is None or not np.isfinite(self._w).all():
            return False
        w = np.repeat(self._w[None], n, axis=0)
        for t in range(self._t + 1, end + 1):
            work.step(w, self._lr * DECAY ** (t - 1))
            if self._schedule.event(t) == "group":
                w = (self._mean @ w.reshape(n, -1)).reshape(w.shape)
        flat = work.p.astype(np.float32) @ w.reshape(n, -1)
        self._w, self._t = flat.reshape(w.shape[1:]), end
        self._found.append((end, work.accuracy(self._w)))
        return True


@cache
def course(work: Work, z: bytes, schedule: Schedule, lr: float) -> Course:
    """Return the run of these groups, which is trained once for all networks."""
    return Course(work, np.frombuffer(z, dtype=np.int32), schedule, lr)
