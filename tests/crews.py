"""Nodes that answer in this process: the example app's task without Flower, faults if wanted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from group_app import task

from coterie import Config, make_config
from coterie.divergences.sketch import Sketch
from coterie.engine.memory import OWN
from coterie.engine.module import inputs
from coterie.flower.algorithm import FEDAVG, Added
from coterie.flower.messages import (
    ALGORITHM,
    BATCHES,
    EVIDENCE,
    KEEPS,
    LABEL_COUNTS,
    MEAN_STEPS,
    NODE,
    NUM_EXAMPLES,
    SKETCH,
    SKETCH_SEED,
    SKETCH_SIZE,
    START,
    STOP,
    TRAINED,
    Answer,
    Arrays,
    Kind,
    Request,
)
from coterie.flower.turn import Turn

load = cache(task.load)
Fault = Callable[[Kind, Mapping[str, Any], Answer], Answer | None]


def config_of(n: int = 12, **algorithm: Any) -> Config:
    """A small simulated run that these nodes can be held against."""
    return make_config(
        {
            "data": {"sample": 0.2},
            "partition": {"kind": "dirichlet", "num_nodes": n, "num_edges": 3},
            "algorithm": {
                "name": "fedavg-ic",
                "num_groups": 3,
                "evidence": "labels",
                "grouping": "random",  # quick to find
                **algorithm,
            },
            "train": {"lr": 0.5, "steps": 12, "engine": "sequential"},
        }
    )


@dataclass
class TaskCrew:
    """n nodes of a config; `faults` change what a node answers, None is no answer in time."""

    config: Config
    n: int
    faults: Mapping[int, Fault] = field(default_factory=dict)
    names: Sequence[str] = ()
    asked: list[tuple[Kind, list[int]]] = field(default_factory=list)
    away: set[int] = field(default_factory=set)
    added: Added = FEDAVG
    own: dict[int, tuple[int, Arrays]] = field(default_factory=dict)  # as of which step
    got: list[tuple[int, int, list[str]]] = field(default_factory=list)  # step, node, kept arrays

    def __post_init__(self) -> None:
        self.parts = [load(self.config, i) for i in range(self.n)]
        self.net = task.make_net(self.config, self.parts[0])

    def nodes(self) -> list[int]:
        return [1000 + i for i in range(self.n) if i not in self.away]

    def ask(self, kind: Kind, asked: Mapping[int, Request], timeout_s: float) -> list[Answer]:
        self.asked.append((kind, [i - 1000 for i in asked]))
        found = [self._answer(kind, node - 1000, request) for node, request in asked.items()]
        return [answer for answer in found if answer is not None]

    def _turn(self, i: int, request: Request, rates: list[float]) -> Turn:
        """As local_update begins it, with what node i keeps."""
        c, kept = request.config, dict(request.kept)
        self.got.append((c[START], i, sorted(kept)))
        names = c.get(KEEPS, [])
        if not all(f"{OWN}{key}" in kept for key in names):
            at, own = self.own[i]
            assert at == c[START], "it was asked to go on from what it has"
            kept |= {f"{OWN}{key}": own[key] for key in names}
        added = FEDAVG
        if self.added.update.local:
            assert c[ALGORITHM] == self.added.name
            added = replace(self.added, trained=tuple(c[TRAINED]))
        assert request.arrays is not None
        mean_steps = c.get(MEAN_STEPS, float("nan"))
        return Turn(added, request.arrays, kept, self.net, rates, mean_steps)

    def _answer(self, kind: Kind, i: int, request: Request) -> Answer | None:
        part, arrays, kept = self.parts[i], None, {}
        metrics: dict[str, Any] = {NUM_EXAMPLES: len(part.y)}
        config = {NODE: self.names[i] if self.names else str(i)}
        net = self.net
        if request.arrays is not None:
            task.set_arrays(net, request.arrays)
        if kind == "train":
            start, stop = request.config[START], request.config[STOP]
            turn = self._turn(i, request, task.rates(part, start, stop, self.config))
            metrics["loss"] = task.train(net, part, i, start, stop, self.config, turn.step)
            arrays, own = turn.done()
            if own:
                self.own[i] = stop, own
            kept = own if self.added.update.renew is not None else {}
        elif request.config[EVIDENCE] == "labels":
            metrics[LABEL_COUNTS] = part.y.bincount(minlength=part.n_classes).tolist()
        elif request.arrays is not None:
            sketch = Sketch(request.config[SKETCH_SIZE], request.config[SKETCH_SEED])
            metrics[SKETCH] = sketch.apply(task.gradient(net, part)).tolist()
        if ALGORITHM in request.config:
            metrics[BATCHES] = task.batches(part, self.config)
        answer = Answer(1000 + i, arrays, metrics, config, kept=kept)
        return self.faults[i](kind, request.config, answer) if i in self.faults else answer


def first_model(config: Config) -> dict[str, np.ndarray]:
    """The weights that every node starts from."""
    net = task.make_net(config, load(config))
    return {key: array.copy() for key, array in task.get_arrays(net).items()}


def accuracy(config: Config, arrays: Mapping[str, np.ndarray]) -> float:
    """Accuracy on the test examples."""
    held_out = load(config)
    net = task.make_net(config, held_out)
    task.set_arrays(net, arrays)
    return task.test(net, held_out)[1]


def close_calls(config: Config, arrays: Mapping[str, np.ndarray], by: float) -> float:
    """Share of the test examples that softmax regression may score otherwise.

    Its weights may each be off by `by`, so the difference of two scores by 2 by (sum |x| + 1).
    """
    held_out = load(config)
    net = task.make_net(config, held_out)
    task.set_arrays(net, arrays)
    x = inputs(held_out.x)
    best, second = net(x).detach().topk(2, dim=1).values.T
    off = 2 * by * (x.flatten(1).abs().sum(dim=1) + 1)
    return float((best - second <= off).float().mean())


def same_arrays(a: Arrays, b: Arrays) -> bool:
    """Whether two models are the same to the last bit."""
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


def late(kind: Kind, config: Mapping[str, Any], answer: Answer) -> Answer | None:
    return None if kind == "train" and config["stop"] > 1 else answer


def with_batchnorm(n_classes: int) -> Any:
    """A model with a scalar among its arrays: the batches that were seen."""
    from torch import nn

    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 4), nn.BatchNorm1d(4), nn.Linear(4, n_classes)
    )


def scalar_config(n: int, **algorithm: Any) -> Config:
    config = config_of(n, **algorithm)
    return replace(config, model=replace(config.model, name="crews:with_batchnorm"))
