"""From a config to a run: build every part, run Algorithm 1, and record it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from coterie import data as datasets
from coterie.algorithms import Algorithm, Search, find_algorithm
from coterie.clock import draw_speeds, step_seconds
from coterie.config import check_num_groups, to_toml
from coterie.costs import Ints
from coterie.data import Dataset, Split
from coterie.data.dataset import Progress
from coterie.engine import LocalSteps
from coterie.errors import ConfigError, DivergenceError
from coterie.models import REFERENCE_FLOPS, make_model
from coterie.network import Network, make_clock
from coterie.partition import Examples, Partition, Rule, Spread, make_partition
from coterie.partition.measure import class_counts
from coterie.record import RunWriter, write_json
from coterie.run import Problem, State, rounds
from coterie.sections import Config
from coterie.topology import Floats, Shape, Speed, fat_tree, make_topology

# Streams of the seed, see run.py; the planner's is 1.
SPLIT_STREAM, PARTITION_STREAM, TOPOLOGY_STREAM, SAMPLE_STREAM, SPEED_STREAM = 2, 3, 4, 5, 6


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


@dataclass(frozen=True, eq=False)
class Divided:
    """The examples of a config in their three parts, and the training part on its nodes."""

    dataset: Dataset
    split: Split
    partition: Partition

    @property
    def train_y(self) -> Ints:
        """Labels of the training examples, which the partition numbers from 0."""
        return self.dataset.y[self.split.train]


def load_dataset(config: Config, progress: Progress = lambda what, done, of: None) -> Dataset:
    """Load the dataset that a config names."""
    path = Path(config.data.path) if config.data.path else None
    return datasets.load(config.data.name, path, progress)


def divide(config: Config, dataset: Dataset, *, pooled: bool = False) -> Divided:
    """Take the sample, split it 3:1:1, and deal the training part to nodes, or pool it on one."""
    total = len(dataset.y)
    chosen = datasets.sample(dataset, config.data.sample, _rng(config, SAMPLE_STREAM))
    if len(chosen) < total:
        dataset = dataset.take(chosen)
    split = datasets.split(dataset.y, _rng(config, SPLIT_STREAM))
    y = dataset.y[split.train]
    if pooled:
        whole = Partition((np.arange(len(y)),), np.zeros(1, dtype=np.int64))
        return Divided(dataset, split, whole)
    users = None if dataset.users is None else dataset.users[split.train]
    examples = Examples(y, users, dataset.user_names, chosen[split.train], total)
    return Divided(
        dataset,
        split,
        make_partition(_rule(config), examples, _rng(config, PARTITION_STREAM)),
    )


def _rule(config: Config) -> Rule:
    c = config.partition
    return Rule(
        kind=c.kind,
        num_nodes=None if c.num_nodes == "auto" else c.num_nodes,
        num_edges=None if c.num_edges == "auto" else c.num_edges,
        alpha=c.alpha,
        min_partition_size=c.min_partition_size,
        shards_per_node=c.shards_per_node,
        classes_per_node=c.classes_per_node,
        spread=Spread(c.spread, c.sd),
        placement=c.placement,
        file=c.file,
    )


def make_network(config: Config, part: Partition, algorithm: Algorithm) -> Network:
    """Build the network of a config for the nodes of a partition; a pooled node needs none."""
    c = config.network
    if algorithm.pooled:
        return Network(fat_tree(part.edge_of))
    inner = Speed(c.link_mbytes_per_s * 1e6, c.latency_s)
    access = Speed(
        inner.bytes_per_s if c.access_mbytes_per_s == "auto" else c.access_mbytes_per_s * 1e6,
        inner.latency_s if c.access_latency_s == "auto" else c.access_latency_s,
    )
    k = None if c.k == "auto" else c.k
    files = c.file, c.latency_file, c.access_file
    shape = Shape(c.topology, access, inner, c.degree, k, c.alpha, c.beta, *files)
    return Network(
        make_topology(shape, part.edge_of, part.names, _rng(config, TOPOLOGY_STREAM)),
        part.edge_of,
        c.routing,
        config.seed,
        make_clock(c.clock, c.tcp, c.time_limit_s),
        combine=c.combine == "all" or (c.combine == "searched" and algorithm.searched),
        reference=c.procedure == "reference",
    )


def node_speeds(
    config: Config, part: Partition, algorithm: Algorithm, names: tuple[str, ...]
) -> Floats:
    """Return the operations per second of every node [n]; a pooled node has the mean speed."""
    c, n = config.compute, len(part.indices)
    if algorithm.pooled:
        return np.full(1, c.gflops * 1e9)
    if c.speeds == "file":
        from coterie.topology.matrix import read_column

        return read_column(Path(c.file), names[:n] or part.names, n, "gflops") * 1e9
    return draw_speeds(c.speeds, n, c.gflops * 1e9, c.spread, _rng(config, SPEED_STREAM))


def prepare(config: Config, dataset: Dataset | None = None) -> Prepared:
    """Build everything a run needs; whatever cannot work fails here, before anything is written."""
    import torch

    from coterie.engine.sequential import Sequential
    from coterie.models.size import flops_per_example, n_bytes, n_parameters

    _check_device(config.train.device)
    torch.set_num_threads(config.train.threads)
    dataset = dataset or load_dataset(config)
    algorithm = find_algorithm(config.algorithm.name)
    search = Search(
        config.algorithm.grouping, config.algorithm.alpha_iid, config.algorithm.alpha_comm
    )
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
    shows_gradients = algorithm.iid and search.uses_gradients
    charged = shows_gradients and config.algorithm.charge_grouping
    network = make_network(config, part, algorithm)
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
        shows_gradients=shows_gradients,
        charged_bytes=4 * n_parameters(model) if charged else 0,
        eval_every=config.train.eval_every,
    )
    _check_clock(problem)
    counts = class_counts(part, y, dataset.n_classes)
    names = part.names or network.topology.names[: len(part.indices)]
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


def _rng(config: Config, stream: int) -> np.random.Generator:
    return np.random.default_rng([config.seed, 0, stream])
