"""From a config to a problem: build every part, and refuse what cannot work."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.config.factories import (
    charged_examples,
    check_room,
    check_threads,
    divide,
    for_task,
    load_dataset,
    local_steps,
    make_engine,
    make_fleet,
    make_participation,
    make_policy,
    make_rule,
    make_search,
    make_task_of,
    make_update,
    make_view,
)
from coterie.config.files import check_num_groups
from coterie.config.objects import NOTHING_OWN, Objects, OwnModel
from coterie.config.room import check_memory
from coterie.config.settings import Config
from coterie.core.errors import ConfigError
from coterie.core.streams import Stream, generator
from coterie.data import Dataset
from coterie.engine.contract import Engine, LocalSteps
from coterie.engine.update import Update
from coterie.grouping import Planner
from coterie.grouping.limits import check_keeper, check_limits
from coterie.models import REFERENCE_FLOPS, make_model
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.fleet import Fleet
from coterie.simulation.measures import read_measures
from coterie.simulation.problem import Problem
from coterie.simulation.search import Needs, Search

if TYPE_CHECKING:
    from torch import Tensor, nn


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
    own: Objects = NOTHING_OWN,
) -> Prepared:
    """Build everything a run needs; what cannot work fails here, before anything is written.

    Only a clock that would never end is refused later, at the first state, which is not written.

    `threads` is what `train.threads = "auto"` stands for, and `say` is told of faults on the way
    that the run survives. Objects of one's `own` take the place of what the config names.
    """
    if config.train.engine != "ray":  # whose actors look for themselves
        _check_device(config.train.device)
        check_threads(threads if config.train.threads == "auto" else config.train.threads)
    dataset = for_task(config, dataset or own.dataset or load_dataset(config))
    _check_measures(config, dataset)
    parts = parts_of(config, own.algorithm, own.grouping)
    algorithm, planner = parts.algorithm, parts.algorithm.planner(parts.search)
    divided = divide(config, dataset, pooled=algorithm.pooled)
    dataset, part = divided.dataset, divided.partition
    check_room(config, parts.needs, len(part.indices))
    if algorithm.searched:
        check_num_groups(config.algorithm.num_groups, len(part.indices))
    model, size = first_model(config, dataset, own.model)
    update, K, stays = make_update(config, algorithm), config.algorithm.usual[0], 0
    if update.personal is not None:
        stays = len(staying(model, update))
        left = size.n_bytes - 4 * stays
        if not left:
            raise ConfigError(
                f"{config.algorithm.name} leaves nothing of {config.model.name} to average: all of "
                "it stays on nodes; take a model with more layers"
            )
        size = replace(size, n_bytes=left)
    if config.train.engine != "ray":  # whose machines have memory of their own
        n, d, searched = len(part.indices), size.n_parameters, algorithm.searched
        check_memory(dataset, n, d, update, min(K, n), searched=searched, staying=stays)
    starts = first_models(config, dataset, model, algorithm.models(K), own.model)
    rule = make_rule(config, update)
    engine = make_engine(config, model, divided, parts.steps, rule, threads, say)
    worked = parts.steps.examples_per_step(part.sizes)
    charged = charged_examples(config, parts.steps, part.sizes, worked)
    # Forward passes alone are a third of a gradient's work.
    passes = (algorithm.passes(K) / 3 * part.sizes).astype(np.float64)
    fleet = make_fleet(
        config,
        algorithm,
        divided.class_counts,
        part.edge_of,
        part.names,
        part.edge_names,
        (charged * size.flops_per_example * update.work).astype(np.float64),
        passes * size.flops_per_example if passes.any() else None,
    )
    epochs = float(worked.sum() / part.sizes.sum())
    problem = make_problem(config, parts, fleet, size, update, engine, planner, epochs)
    return Prepared(config, replace(problem, starts=starts), size)


def staying(model: "nn.Module", update: Update) -> "Tensor":
    """Return the places of a model's numbers that stay on nodes."""
    from coterie.engine.module import places_of

    assert update.personal is not None  # or none would
    return places_of(model, update.personal(model))


def first_models(
    config: Config,
    dataset: Dataset,
    model: "nn.Module",
    number: int,
    own: "OwnModel | None" = None,
) -> "Tensor | None":
    """Return so many first models [K, D], of which the first is everybody's; None for one."""
    if number == 1:
        return None
    import torch

    _check_they_differ(config, number, own)
    first = _vector(model)
    found = first.new_empty(number, len(first))
    found[0] = first
    for k in range(1, number):
        draw = int(generator(config.seed, Stream.MODEL, k).integers(2**62))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(draw)
            other = _vector(new_model(config, dataset, own))
        if len(other) != len(first):
            raise ConfigError(
                f"{config.algorithm.name} begins with {number} models of one size, and model "
                f"{config.model.name!r} made one of {len(first)} numbers, then one of {len(other)}"
            )
        found[k] = other
    if any(torch.equal(v, w) for v, w in combinations(found, 2)):
        raise ConfigError(
            f"{config.algorithm.name} begins with {number} models that differ, and model "
            f"{config.model.name!r} makes the same one again; draw its first weights in every call"
        )
    return found


def _check_they_differ(config: Config, number: int, own: "OwnModel | None") -> None:
    """Refuse what all first models would have in common."""
    from torch import nn

    same = {
        "model is one module; pass a function that makes one": isinstance(own, nn.Module),
        "model.weights is one model; leave it out": config.model.weights,
        "with model.adapters all begin as their base; use model.adapters = 0": (
            config.model.adapters
        ),
    }
    for why, there in same.items():
        if there:
            raise ConfigError(
                f"{config.algorithm.name} begins with {number} models that differ, and {why}"
            )


def _vector(model: "nn.Module") -> "Tensor":
    """Return all that is averaged of a model, as one vector [D]."""
    import torch

    from coterie.engine.module import state_tensors

    return torch.cat([w.detach().reshape(-1) for w in state_tensors(model)])


def new_model(config: Config, dataset: Dataset, own: "OwnModel | None" = None) -> "nn.Module":
    """Make a model for a dataset, with first weights from torch's generator."""
    c = config.model
    return make_model(
        c.name,
        dataset.input_shape,
        dataset.n_classes,
        own,
        c.init,
        output=dataset.width,
        tokens=dataset.has_tokens,
        weights=Path(c.weights) if c.weights else None,
        adapters=c.adapters,
    )


def first_model(
    config: Config, dataset: Dataset, own: "OwnModel | None" = None
) -> "tuple[nn.Module, ModelSize]":
    """Return the model that everybody starts from, and what it weighs."""
    import torch  # takes a second and more: what is wrong with the data is said before

    from coterie.models.size import flops_per_example, n_bytes, n_parameters

    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = new_model(config, dataset, own)
    if config.compute.flops_per_example != "auto":
        flops = config.compute.flops_per_example
    elif config.compute.flops == "reference":
        flops = REFERENCE_FLOPS[config.model.name]
    else:
        flops = flops_per_example(model, dataset.x.shape[1:], tokens=dataset.has_tokens)
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


def parts_of(
    config: Config, own: Algorithm | None = None, grouping: Planner | None = None
) -> Parts:
    """Read from a config how a run goes; an algorithm or planner of one's own replaces its."""
    search, steps = make_search(config, grouping), local_steps(config)
    algorithm = config.algorithm.made if own is None else own
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
    algorithm, (K, tau1, tau2) = parts.algorithm, config.algorithm.usual
    problem = Problem(
        fleet=fleet,
        engine=engine,
        planner=planner,
        policy=make_policy(config, algorithm, parts.search, parts.steps, len(fleet.p)),
        participation=make_participation(config),
        view=make_view(config, parts.needs, fleet, size.n_parameters),
        schedule=algorithm.schedule(tau1, tau2),
        measures=read_measures(config.train.measure, config.train.measure_groups),
        steps=config.train.steps,
        num_groups=K,
        model_bytes=size.n_bytes,
        epochs_per_step=epochs_per_step,
        seed=config.seed,
        eval_every=config.train.eval_every,
        update=update,
        d=size.n_parameters,
    )
    if algorithm.searched:
        limits, topology = problem.view.limits, fleet.network.topology
        check_keeper(limits, config.algorithm.grouping)
        if config.algorithm.num_groups != "auto":
            check_limits(limits, topology, config.algorithm.num_groups)
    return problem


def _check_measures(config: Config, dataset: Dataset) -> None:
    if "classes" not in {word.partition("/")[0] for word in config.train.measure}:
        return
    task = make_task_of(config, dataset)
    if not task.labelled:
        raise ConfigError(
            f"train.measure: classes needs one class for every example, which task {task.name!r} "
            "has not; leave classes out"
        )


def _check_device(device: str) -> None:
    if device == "cpu":
        return
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[device]:
        raise ConfigError(f"train.device {device!r} is not on this machine; use 'cpu'")
