"""From a config to a run: build every part, run Algorithm 1, and record it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from coterie.algorithms import find_algorithm
from coterie.build import (
    divide,
    load_dataset,
    make_network,
    make_search,
    make_view,
    node_speeds,
    quick_network,
)
from coterie.clock import step_seconds
from coterie.config import check_num_groups, to_toml
from coterie.costs import Ints
from coterie.data import Dataset
from coterie.engine import LocalSteps
from coterie.errors import ConfigError, DivergenceError
from coterie.models import REFERENCE_FLOPS, make_model
from coterie.partition.measure import class_counts
from coterie.planning import Regroup
from coterie.record import RunWriter, write_json
from coterie.run import Problem, State, rounds
from coterie.sections import Config


@dataclass(frozen=True, eq=False)
class Prepared:
    """A problem ready to run, and what its record will say about it."""

    config: Config
    problem: Problem
    class_counts: Ints  # [n, classes]
    node_names: tuple[str, ...]
    edge_names: tuple[str, ...]
    n_parameters: int
    flops_per_example: int


def prepare(config: Config, dataset: Dataset | None = None) -> Prepared:
    """Build everything a run needs; whatever cannot work fails here, before anything is written."""
    import torch

    from coterie.engine.sequential import Sequential
    from coterie.models.size import flops_per_example, n_bytes, n_parameters

    _check_device(config.train.device)
    torch.set_num_threads(config.train.threads)
    dataset = dataset or load_dataset(config)
    algorithm = find_algorithm(config.algorithm.name)
    search = make_search(config)
    planner = algorithm.planner(search)
    divided = divide(config, dataset, pooled=algorithm.pooled)
    dataset, split, part = divided.dataset, divided.split, divided.partition
    if algorithm.searched:
        check_num_groups(config.algorithm.num_groups, len(part.indices))
    x, y = dataset.x[split.train], divided.train_y
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = make_model(config.model.name, dataset.input_shape, dataset.n_classes)
    flops = flops_per_example(model, dataset.input_shape)
    if config.compute.flops == "reference":
        flops = REFERENCE_FLOPS[config.model.name]
    steps = _local_steps(config)
    worked = steps.examples_per_step(part.sizes)
    model_bytes = n_bytes(model)
    network = make_network(config, part, algorithm)
    counts = class_counts(part, y, dataset.n_classes)
    names = part.names or network.topology.names[: len(part.indices)]
    problem = Problem(
        engine=Sequential(
            model,
            [(x[i], y[i]) for i in part.indices],
            {
                "val": (dataset.x[split.val], dataset.y[split.val]),
                "test": (dataset.x[split.test], dataset.y[split.test]),
            },
            steps,
            config.train.device,
        ),
        network=network,
        p=part.p,
        edge_of=part.edge_of,
        planner=planner,
        schedule=algorithm.schedule(config.algorithm.tau1, config.algorithm.tau2),
        steps=config.train.steps,
        num_groups=config.algorithm.num_groups,
        model_bytes=model_bytes,
        step_s=step_seconds(
            worked, flops, node_speeds(config, part, algorithm, network.topology.names)
        ),
        epochs_per_step=float(worked.sum() / part.sizes.sum()),
        seed=config.seed,
        searched=algorithm.searched,
        plans_with=quick_network(config, network),
        view=make_view(config, algorithm.needs(search), counts, n_parameters(model), names),
        regroup=Regroup(config.algorithm.regroup_every, config.algorithm.regroup_drift),
        eval_every=config.train.eval_every,
    )
    _check_clock(problem)
    return Prepared(config, problem, counts, names, part.edge_names, n_parameters(model), flops)


def simulate(config: Config) -> Iterator[State]:
    """Run a config and yield the state after every aggregation; nothing is written."""
    yield from rounds(prepare(config).problem)


def execute(
    config: Config,
    folder: Path,
    *,
    dataset: Dataset | None = None,
    on_state: Callable[[State], None] = lambda state: None,
) -> None:
    """Run a config into a folder.

    Nothing is written before the first state is there. A loss that is no longer a number, any
    other error, or Ctrl-C keeps the rows so far and leaves a summary that says so.
    """
    prepared = prepare(config, dataset)
    states = rounds(prepared.problem)
    first = state = next(states)
    writer = RunWriter(folder, to_toml(config), config.seed)
    Delta_first, status = None, "failed"
    try:
        for state in chain([first], states):
            writer.add(state.row)
            Delta_first = state.row.Delta if Delta_first is None else Delta_first
            on_state(state)
        status = "complete"
    except DivergenceError:
        status = "diverged"
        raise
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        summary = _summary(prepared.problem, state, status)
        about = {
            "n_parameters": prepared.n_parameters,
            "flops_per_example": prepared.flops_per_example,
            "Delta_first": Delta_first,
        }
        done = status == "complete"
        tensors = prepared.problem.engine.export(state.models.w[0]) if done else None
        write_json(folder / "grouping.json", _grouping(prepared, state))
        writer.finish({**summary, **about}, tensors)


def _grouping(prepared: Prepared, state: State) -> dict[str, Any]:
    grouping = (state.groups or prepared.problem.everyone).grouping
    return {
        "z": grouping.z.tolist(),
        "servers": grouping.servers.tolist(),
        "cost_trace": list(grouping.cost_trace),
        "edge_of": prepared.problem.edge_of.tolist(),
        "class_counts": prepared.class_counts.tolist(),
        "nodes": list(prepared.node_names),
        "edges": list(prepared.edge_names),
    }


def _summary(problem: Problem, state: State, status: str) -> dict[str, Any]:
    row, clock = state.row, state.clock
    everyone = problem.everyone
    groups = state.groups or everyone
    val = problem.engine.evaluate(state.models.w[0], "val") if status == "complete" else None
    return {
        "status": status,
        "steps": state.t,
        "test_accuracy": row.test_accuracy,
        "val_accuracy": val.accuracy if val else None,
        "train_loss": row.train_loss,
        "seconds": clock.seconds,
        "compute_s": clock.compute_s,
        "group_s": clock.group_s,
        "global_s": clock.global_s,
        "grouping_s": clock.grouping_s,
        "d_local": problem.step_s,
        "d_group": groups.transfer.seconds if problem.schedule.tau2 > 1 else None,
        "d_global": everyone.transfer.seconds,
        "Delta": row.Delta,
        "delta": row.delta,
        "group_sizes": groups.grouping.sizes,
        "bytes_by_tier": row.bytes_by_tier,
        "model_bytes": problem.model_bytes,
    }


def _local_steps(config: Config) -> LocalSteps:
    c = config.train
    size = c.batch_size if isinstance(c.batch_size, int) else None
    return LocalSteps(c.lr, c.lr_decay, size, c.step_unit, config.seed)


def _check_clock(problem: Problem) -> None:
    if not math.isfinite(problem.steps * (problem.step_s + problem.everyone.transfer.seconds)):
        raise ConfigError(
            "simulated times are not finite; raise network.link_mbytes_per_s or compute.gflops"
        )


def _check_device(device: str) -> None:
    import torch

    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there[device]:
        raise ConfigError(f"train.device {device!r} is not on this machine; use 'cpu'")
