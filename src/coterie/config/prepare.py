"""From a config to a problem: build every part, and refuse what cannot work."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coterie.config.factories import (
    divide,
    load_dataset,
    local_steps,
    make_engine,
    make_fleet,
    make_participation,
    make_policy,
    make_search,
    make_update,
    make_view,
)
from coterie.config.files import check_num_groups
from coterie.config.settings import Config
from coterie.core.errors import ConfigError
from coterie.data import Dataset
from coterie.engine.contract import Engine, LocalSteps
from coterie.engine.update import Update
from coterie.grouping import Planner
from coterie.grouping.limits import check_keeper, check_limits
from coterie.models import REFERENCE_FLOPS, make_model
from coterie.simulation.algorithms import Algorithm, Needs, Search, find_algorithm
from coterie.simulation.fleet import Fleet
from coterie.simulation.measures import read_measures
from coterie.simulation.problem import Problem

if TYPE_CHECKING:
    from torch import nn


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
    size: ModelSize


def prepare(
    config: Config,
    dataset: Dataset | None = None,
    threads: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> Prepared:
    """Build everything a run needs; what cannot work fails here, before anything is written.

    Only a clock that would never end is refused later, at the first state, which is not written.

    `threads` is what `train.threads = "auto"` stands for, and `say` is told of faults on the way
    that the run survives.
    """
    if config.train.engine != "ray":  # whose actors look for themselves
        _check_device(config.train.device)
    dataset = dataset or load_dataset(config)
    parts = parts_of(config)
    algorithm, planner = parts.algorithm, parts.algorithm.planner(parts.search)
    divided = divide(config, dataset, pooled=algorithm.pooled)
    dataset, part = divided.dataset, divided.partition
    if algorithm.searched:
        check_num_groups(config.algorithm.num_groups, len(part.indices))
    model, size = first_model(config, dataset)
    update = make_update(config, size.n_parameters)
    engine = make_engine(config, model, divided, parts.steps, update.rule, threads, say)
    worked = parts.steps.examples_per_step(part.sizes)
    fleet = make_fleet(
        config,
        algorithm,
        divided.class_counts,
        part.edge_of,
        part.names,
        part.edge_names,
        worked * size.flops_per_example,
    )
    epochs = float(worked.sum() / part.sizes.sum())
    problem = make_problem(config, parts, fleet, size, update, engine, planner, epochs)
    return Prepared(config, problem, size)


def first_model(config: Config, dataset: Dataset) -> "tuple[nn.Module, ModelSize]":
    """Return the model that everybody starts from, and what it weighs."""
    import torch  # takes a second and more: what is wrong with the data is said before

    from coterie.models.size import flops_per_example, n_bytes, n_parameters

    torch.set_num_threads(1)
    shape = dataset.input_shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = make_model(config.model.name, shape, dataset.n_classes)
    flops = flops_per_example(model, shape)
    if config.compute.flops == "reference":
        flops = REFERENCE_FLOPS[config.model.name]
    size = ModelSize(n_parameters(model), n_bytes(model), flops)
    if config.train.precision == "float64":
        model = model.double()  # from the same first weights
    return model, size


@dataclass(frozen=True, eq=False)
class Parts:
    """What a config says of how a run goes, without its data: read once."""

    algorithm: Algorithm
    search: Search
    needs: Needs  # of the data, to group by
    steps: LocalSteps


def parts_of(config: Config) -> Parts:
    """Read from a config how a run goes."""
    search, steps = make_search(config), local_steps(config)
    algorithm = find_algorithm(config.algorithm.name)
    return Parts(algorithm, search, algorithm.needs(search), steps)


def make_problem(
    config: Config,
    parts: Parts,
    fleet: Fleet,
    size: ModelSize,
    update: Update,
    engine: Engine,
    planner: Planner,
    epochs_per_step: float,
) -> Problem:
    """Put a problem together; whatever trains and plans is given."""
    algorithm = parts.algorithm
    problem = Problem(
        fleet=fleet,
        engine=engine,
        planner=planner,
        schedule=algorithm.schedule(*config.algorithm.usual[1:]),
        steps=config.train.steps,
        num_groups=config.algorithm.usual[0],
        model_bytes=size.n_bytes,
        epochs_per_step=epochs_per_step,
        seed=config.seed,
        policy=make_policy(config, algorithm, parts.search, parts.steps, len(fleet.p)),
        view=make_view(config, parts.needs, fleet, size.n_parameters),
        eval_every=config.train.eval_every,
        measures=read_measures(config.train.measure, config.train.measure_groups),
        participation=make_participation(config),
        update=update,
        extra_bytes=update.extra_bytes(size.n_parameters),
    )
    if algorithm.searched:
        limits, topology = problem.view.limits, fleet.network.topology
        check_keeper(limits, config.algorithm.grouping)
        if config.algorithm.num_groups != "auto":
            check_limits(limits, topology, config.algorithm.num_groups)
    return problem


def _check_device(device: str) -> None:
    if device == "cpu":
        return
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[device]:
        raise ConfigError(f"train.device {device!r} is not on this machine; use 'cpu'")
