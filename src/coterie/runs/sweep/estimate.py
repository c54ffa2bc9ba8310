"""How long runs will take: the examples that they go through, at the speeds of this machine."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.config.factories import local_steps, make_task_of
from coterie.config.prepare import first_model
from coterie.config.settings import Config
from coterie.data import Dataset
from coterie.simulation.measures import read_measures

PROBES, LEAST_S = 4, 0.3  # nodes that a speed is measured on, and for how long
MOST_EXAMPLES = 256  # of each of them
TRAIN, TEST = 3 / 5, 1 / 5


@dataclass(frozen=True)
class Passes:
    """Examples of a run that are trained on, scored forward alone, and taken full gradients of."""

    trained: float
    scored: float
    measured: float


@dataclass(frozen=True)
class Speeds:
    """Core-seconds of an example, by what is done with it."""

    train_s: float
    score_s: float
    measure_s: float

    def seconds(self, passes: Passes) -> float:
        """Core-seconds of a run.

        >>> Speeds(3e-3, 1e-3, 2e-3).seconds(Passes(1000, 500, 100))
        3.7
        """
        found = passes.trained * self.train_s, passes.scored * self.score_s
        return sum(found) + passes.measured * self.measure_s


def passes_of(config: Config, n_examples: int) -> Passes:
    """Count what a run goes through, of a dataset of so many examples and of nodes of equal size.

    One that chooses its schedule is counted by the usual one, and without its pilot.
    """
    c = config.train
    train, test = (share * config.data.sample * n_examples for share in (TRAIN, TEST))
    n = config.partition.num_nodes if isinstance(config.partition.num_nodes, int) else 100
    sizes = np.array([max(1, round(train / n))])
    each = float(local_steps(config).examples_per_step(sizes)[0])
    algorithm = config.algorithm.made
    schedule = algorithm.schedule(*config.algorithm.usual[1:])
    evaluations = 1 + -(-c.steps // (schedule.round * c.eval_every))
    times = {
        name: 1 + evaluations / every
        for name, every in read_measures(c.measure).every.items()
        if name != "Delta" or algorithm.groups != "none"
    }
    gradients = times.get("Delta", 0.0) + algorithm.searched  # which bring the loss along
    losses = max(0.0, times.get("loss", 0.0) - times.get("Delta", 0.0))
    trained = c.steps * config.participation.fraction * n * each
    return Passes(trained, losses * train + evaluations * test, gradients * train)


def kind_of(config: Config, dataset: Dataset) -> object:
    """Tell apart what is trained at a speed of its own."""
    c = config.train
    return config.model, dataset.input_shape, dataset.n_classes, c.batch_size, c.precision


def measured_speeds(
    config: Config, dataset: Dataset, clock: Callable[[], float] = time.process_time
) -> Speeds:
    """Train, score and measure a few nodes for about a second, on one core.

    Seconds are those of the processor, so that what else it does counts little.
    """
    from coterie.engine.module import Nodes
    from coterie.engine.vectorized import Vectorized

    n = min(MOST_EXAMPLES, len(dataset.y) // PROBES)
    few = slice(0, n * PROBES)
    x, y = dataset.x[few].copy(), dataset.y[few].copy()  # torch wants what can be written
    model, _ = first_model(config, dataset)
    engine = Vectorized(
        model,
        Nodes(x, y, np.full(PROBES, n)),
        {"val": (x, y), "test": (x, y)},
        local_steps(config),
        work=passes_of(config, len(dataset.y)).trained,
        task=make_task_of(config, dataset),
    )
    models, z = engine.initial(), np.arange(PROBES) % 2
    w = models.w[0]

    def each(call: Callable[[], object]) -> float:
        call()  # what is compiled or looked up once
        start, calls = clock(), 0
        while clock() - start < LEAST_S or not calls:
            call()
            calls += 1
        return (clock() - start) / (calls * n * PROBES)

    worked = float(local_steps(config).examples_per_step(np.array([n]))[0]) / n
    return Speeds(
        each(lambda: engine.advance(models, 0, 2, z)) / (2 * worked),
        each(lambda: engine.evaluate(w, "test")),
        each(lambda: engine.measure(w, z)),
    )


def core_seconds(
    configs: Sequence[Config], dataset_of: Callable[[Config], Dataset], known: dict[object, Speeds]
) -> float:
    """Add up runs; speeds that were measured before are `known`, and new ones are added."""
    total = 0.0
    for config in configs:
        dataset = dataset_of(config)
        kind = kind_of(config, dataset)
        if kind not in known:
            known[kind] = measured_speeds(config, dataset)
        total += known[kind].seconds(passes_of(config, len(dataset.y)))
    return total
