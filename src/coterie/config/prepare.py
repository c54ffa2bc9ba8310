"""From a config to a problem: build every part, and refuse what cannot work."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from coterie.config.factories import (
    divide,
    load_dataset,
    local_steps,
    make_attendance,
    make_engine,
    make_network,
    make_policy,
    make_search,
    make_update,
    make_view,
    node_speeds,
    quick_network,
)
from coterie.config.files import check_num_groups
from coterie.config.settings import Config
from coterie.core.arrays import Ints
from coterie.core.errors import ConfigError
from coterie.data import Dataset
from coterie.engine.contract import Engine
from coterie.grouping import Planner
from coterie.grouping.limits import check_keeper, check_limits
from coterie.models import REFERENCE_FLOPS, make_model
from coterie.partition import Partition
from coterie.partition.measure import class_counts
from coterie.simulate.algorithms import find_algorithm
from coterie.simulate.clock import node_seconds, step_seconds
from coterie.simulate.problem import Problem


@dataclass(frozen=True)
class ModelSize:
    """What a model weighs: trained numbers, bytes on the wire, operations per example."""

    n_parameters: int
    n_bytes: int
    flops_per_example: int


@dataclass(frozen=True, eq=False)
class Prepared:
    """A problem ready to run, and what its record will say about it."""

    config: Config
    problem: Problem
    class_counts: Ints  # [n, classes]
    node_names: tuple[str, ...]
    edge_names: tuple[str, ...]
    size: ModelSize


def prepare(
    config: Config,
    dataset: Dataset | None = None,
    threads: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> Prepared:
    """Build everything a run needs; whatever cannot work fails here, before anything is written.

    `threads` is what `train.threads = "auto"` stands for, and `say` is told of faults on the way
    that the run survives.
    """
    if config.train.engine != "ray":  # whose actors look for themselves
        _check_device(config.train.device)
    dataset = dataset or load_dataset(config)
    algorithm = find_algorithm(config.algorithm.name)
    planner = algorithm.planner(make_search(config))
    divided = divide(config, dataset, pooled=algorithm.pooled)
    dataset, part = divided.dataset, divided.partition
    if algorithm.searched:
        check_num_groups(config.algorithm.num_groups, len(part.indices))
    import torch  # takes a second and more: what is wrong with the data is said before

    from coterie.models.size import flops_per_example, n_bytes, n_parameters

    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = make_model(config.model.name, dataset.input_shape, dataset.n_classes)
    flops = flops_per_example(model, dataset.input_shape)
    if config.compute.flops == "reference":
        flops = REFERENCE_FLOPS[config.model.name]
    size = ModelSize(n_parameters(model), n_bytes(model), flops)
    counts = class_counts(part, divided.train_y, dataset.n_classes)
    if config.train.precision == "float64":
        model = model.double()  # from the same first weights
    engine = make_engine(config, model, divided, threads, say)
    problem, names = make_problem(config, part, counts, size, engine, planner)
    return Prepared(config, problem, counts, names, part.edge_names, size)


def make_problem(
    config: Config,
    part: Partition,
    counts: Ints,
    size: ModelSize,
    engine: Engine,
    planner: Planner,
) -> tuple[Problem, tuple[str, ...]]:
    """Put a problem together, and name its nodes; whatever trains and plans is given."""
    algorithm = find_algorithm(config.algorithm.name)
    network = make_network(config, part, algorithm)
    speeds = node_speeds(config, part, algorithm, network.topology.names)
    worked = local_steps(config).examples_per_step(part.sizes)
    names = part.names or network.topology.names[: len(part.indices)]
    needs = algorithm.needs(make_search(config))
    update = make_update(config, size.n_parameters)
    problem = Problem(
        engine=engine,
        network=network,
        p=part.p,
        edge_of=part.edge_of,
        planner=planner,
        schedule=algorithm.schedule(*config.algorithm.usual[1:]),
        steps=config.train.steps,
        num_groups=config.algorithm.usual[0],
        model_bytes=size.n_bytes,
        step_s=step_seconds(worked, size.flops_per_example, speeds),
        epochs_per_step=float(worked.sum() / part.sizes.sum()),
        seed=config.seed,
        policy=make_policy(config, algorithm, len(part.indices)),
        plans_with=quick_network(config, network),
        view=make_view(config, needs, counts, size.n_parameters, names),
        eval_every=config.train.eval_every,
        attendance=make_attendance(config),
        update=update,
        node_step_s=node_seconds(worked, size.flops_per_example, speeds),
        extra_bytes=update.extra_bytes(size.n_parameters),
    )
    if algorithm.searched:
        check_keeper(problem.view.limits, config.algorithm.grouping)
        if config.algorithm.num_groups != "auto":
            check_limits(problem.view.limits, network.topology, config.algorithm.num_groups)
    _check_clock(problem)
    return problem, names


def _check_clock(problem: Problem) -> None:
    if not math.isfinite(problem.steps * (problem.step_s + problem.everyone.transfer.seconds)):
        raise ConfigError(
            "simulated times are not finite; raise network.link_mbytes_per_s or compute.gflops"
        )


def _check_device(device: str) -> None:
    if device == "cpu":
        return
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[device]:
        raise ConfigError(f"train.device {device!r} is not on this machine; use 'cpu'")
