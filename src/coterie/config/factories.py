"""From a config to the parts of a run: data, nodes, network, speeds, search."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coterie import data as datasets
from coterie.config.readers import asked_of, is_scaled
from coterie.config.settings import Config
from coterie.core.amounts import size
from coterie.core.arrays import Bools, Floats, Ints
from coterie.core.errors import ConfigError, DataError
from coterie.core.memory import ALWAYS_THERE, THREADS_PER_CORE, physical_memory
from coterie.core.streams import Stream, generator
from coterie.core.types import Progress
from coterie.data import Dataset, Split
from coterie.data.targets import check_target
from coterie.divergences.sketch import Privacy, Sketch
from coterie.engine.contract import Engine, LocalSteps
from coterie.engine.update import Update, both
from coterie.grouping import Limits, Planner
from coterie.grouping.evidence import whole_capacity
from coterie.grouping.planner import Effort
from coterie.network import Network, make_clock
from coterie.partition import Examples, Partition, Rule, Spread, make_partition
from coterie.partition.measure import class_counts
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.clock import draw_speeds
from coterie.simulation.fleet import Fleet
from coterie.simulation.forecast import GROUPS, PILOT, TAU1, TAU2, Tuning
from coterie.simulation.participation import Participation
from coterie.simulation.policies import Policy
from coterie.simulation.policies.given import Given
from coterie.simulation.policies.pilot import Pilot
from coterie.simulation.policies.regroup import Regroup
from coterie.simulation.policies.searched import Searched
from coterie.simulation.search import Needs, Search
from coterie.simulation.view import View
from coterie.topology import Shape, Speed, Topology, fat_tree, make_topology

if TYPE_CHECKING:
    from torch import nn

    from coterie.engine.local_rule import LocalRule
    from coterie.engine.ray.actors import Actors
    from coterie.engine.task import Task


Part = Literal["val", "test"]
PARTS: tuple[Part, ...] = ("val", "test")
SplitKind = Literal["pooled", "per-node", "official"]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Examples that are not trained on, and how many of them in turn are each node's [n].

    `sizes` is None where they belong to no node.
    """

    examples: Ints
    sizes: Ints | None


@dataclass(frozen=True, eq=False)
class Divided:
    """The examples of a config in their three parts, and the training part on its nodes."""

    dataset: Dataset
    split: Split
    partition: Partition
    class_counts: Ints  # [n, strata], of training examples
    held: Mapping[Part, Ints] | None = None  # sizes of the nodes' own parts; None without such

    def held_out(self, part: Part) -> HeldOut:
        """Return a part in the order in which engines hold it: node by node where it is theirs."""
        examples = self.split.val if part == "val" else self.split.test
        return HeldOut(examples, self.held[part] if self.held else None)

    @property
    def train_y(self) -> Ints:
        """Strata (labels) of the training examples, which the partition numbers from 0."""
        return self.dataset.by[self.split.train]


def load_dataset(config: Config, progress: Progress = lambda what, done, of: None) -> Dataset:
    """Load the dataset that a config names, for the task and with the users that it names."""
    path = Path(config.data.path) if config.data.path else None
    loaded = datasets.load(config.data.name, path, progress, asked_of(config))
    fewest, most = config.data.min_examples, config.data.num_users
    if (fewest, most) != (1, "all"):
        loaded = datasets.keep_users(loaded, fewest, None if most == "all" else most)
    return for_task(config, loaded)


def for_task(config: Config, dataset: Dataset) -> Dataset:
    """Return a dataset for the task of a config, or say why its target does not fit that."""
    name = target_of(config, dataset)
    if name == dataset.task:
        return dataset
    try:
        check_target(name, dataset.y, dataset.x, dataset.n_classes, dataset.name)
    except DataError as error:
        raise DataError(
            f"task.name {config.task.name!r} does not fit a dataset for {dataset.task}: {error}"
        ) from error
    return replace(dataset, task=name)


def target_of(config: Config, dataset: Dataset) -> str:
    """Return the task whose target a config's is: by name, of one's own, or of the dataset."""
    if ":" in config.task.name:
        return make_task_of(config, dataset).target
    return dataset.task if config.task.name == "auto" else config.task.name


def make_task_of(config: Config, dataset: Dataset) -> "Task":
    """Return what is learnt of a dataset, and what that is measured by."""
    from coterie.engine.task import make_task

    name = dataset.task if config.task.name == "auto" else config.task.name
    return make_task(name, config.task.metrics)


def split_kind(config: Config) -> SplitKind:
    """Say how a config splits its examples; one that was made by hand may leave that open."""
    return "pooled" if config.data.split == "auto" else config.data.split


def divide(config: Config, dataset: Dataset, *, pooled: bool = False) -> Divided:
    """Take the sample, split it as the config says, and deal it to nodes, or pool it on one.

    By "per-node", examples are dealt before they are split; else the training part is dealt. One
    node that holds everything splits it as "pooled" does. Where the validation part is scored, it
    stands in for the test part, which is left out.
    """
    divided = _divide(config, dataset, pooled)
    if is_scaled(config.data, dataset):
        scaled = datasets.standardised(divided.dataset, divided.split.train)
        divided = replace(divided, dataset=scaled)
    if config.data.scored == "test":
        return divided
    split, held = divided.split, divided.held
    val = replace(split, test=split.val)
    return replace(divided, split=val, held=held and {**held, "test": held["val"]})


def _divide(config: Config, dataset: Dataset, pooled: bool) -> Divided:
    kind, rule = split_kind(config), _rule(config)
    if kind == "official":
        _check_official(dataset)
    total, wanted = len(dataset.y), (Stream.SAMPLE, Stream.SPLIT, Stream.PARTITION)
    samples, splits, deals = (generator(config.seed, stream) for stream in wanted)
    chosen = datasets.sample(dataset, config.data.sample, samples)
    if len(chosen) < total:
        dataset = dataset.take(chosen)
    if kind == "per-node" and not pooled:
        numbered = Examples(dataset.by, dataset.users, dataset.user_names, chosen, total)
        return _split_dealt(dataset, make_partition(rule, numbered, deals), splits)
    if kind == "official":
        split = datasets.split_rest(dataset.by, _tested(dataset, config.data.sample), splits)
    else:
        split = datasets.split(dataset.by, splits)
    by, n_strata = dataset.by[split.train], dataset.n_strata
    held: dict[Part, Ints] | None = None
    if pooled:
        part = Partition((np.arange(len(by)),), np.zeros(1, dtype=np.int64))
        if kind == "per-node":
            held = {"val": np.array([len(split.val)]), "test": np.array([len(split.test)])}
    else:
        users = None if dataset.users is None else dataset.users[split.train]
        examples = Examples(by, users, dataset.user_names, chosen[split.train], total)
        part = make_partition(rule, examples, deals)
    return Divided(dataset, split, part, class_counts(part, by, n_strata), held)


def _split_dealt(dataset: Dataset, dealt: Partition, rng: np.random.Generator) -> Divided:
    """Split what every node was dealt; the held-out parts are those of the nodes, one by one."""
    each = datasets.split_each(dataset.by, dealt.indices, rng)
    parts = ([s.train for s in each], [s.val for s in each], [s.test for s in each])
    train, val, test = map(np.concatenate, parts)
    if not (len(val) and len(test)):
        raise DataError(
            f"data.split = 'per-node' validates and tests on nodes of 3 examples or more, and the "
            f"largest has {dealt.sizes.max()}; use fewer nodes, or data.split = 'pooled'"
        )
    train = np.sort(train)
    part = replace(dealt, indices=tuple(np.searchsorted(train, s.train) for s in each))
    held: dict[Part, Ints] = {
        "val": np.array([len(s.val) for s in each]),
        "test": np.array([len(s.test) for s in each]),
    }
    counts = class_counts(part, dataset.by[train], dataset.n_strata)
    return Divided(dataset, Split(train, val, test), part, counts, held)


def _check_official(dataset: Dataset) -> None:
    if dataset.test is None or not dataset.test.any():
        raise DataError(
            f"data.split = 'official' needs a test part of the dataset's own, and {dataset.name} "
            "has none; use 'pooled' or 'per-node'"
        )


def _tested(dataset: Dataset, share: float) -> Bools:
    """Return which examples of a sample are in the official test part."""
    assert dataset.test is not None, "_check_official has checked it"
    if not dataset.test.any():
        raise DataError(
            f"data.sample = {share:g} leaves nothing of the official test part; raise it"
        )
    return dataset.test


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


def make_fleet(
    config: Config,
    algorithm: Algorithm,
    class_counts: Ints,
    edge_of: Ints,
    names: tuple[str, ...] = (),
    edge_names: tuple[str, ...] = (),
    operations: Floats | Ints | None = None,
    once: Floats | None = None,
    topology: Topology | None = None,
) -> Fleet:
    """Return the nodes of a config with their network, and how long each takes for a local step.

    That has so many operations [n]; where they are not known, it takes no time. What a node does
    `once` before its steps has so many. The topology is the config's, unless it is given.
    """
    network = make_network(config, edge_of, names, algorithm, topology)
    sizes = class_counts.sum(axis=1)
    n, known = len(sizes), network.topology.names[: len(sizes)]
    each_s, once_s = np.zeros(n), None
    if operations is not None:
        with np.errstate(over="ignore"):  # a node too slow takes forever: inf
            speeds = node_speeds(config, n, algorithm, known or names)
            each_s = operations / speeds
            once_s = None if once is None else once / speeds
    return Fleet(
        p=sizes / sizes.sum(),
        edge_of=edge_of,
        network=network,
        class_counts=class_counts,
        names=names or known,
        edge_names=edge_names,
        step_s=float(each_s.max()),
        node_step_s=each_s,
        node_turn_s=once_s,
        plans_with=quick_network(config, network),
    )


def make_network(
    config: Config,
    edge_of: Ints,
    names: tuple[str, ...],
    algorithm: Algorithm,
    topology: Topology | None = None,
) -> Network:
    """Build the network of a config for nodes under their edges; a pooled node needs none."""
    c = config.network
    if algorithm.pooled:
        return Network(fat_tree(edge_of))
    if topology is None:
        shape, rng = make_shape(config), generator(config.seed, Stream.TOPOLOGY)
        topology = make_topology(shape, edge_of, names, rng)
    return Network(
        topology,
        edge_of,
        c.routing,
        config.seed,
        make_clock(c.clock, c.tcp, c.time_limit_s),
        combine=c.combine == "all" or (c.combine == "searched" and algorithm.searched),
        reference=c.procedure == "reference",
    )


def make_shape(config: Config) -> Shape:
    """Return which topology a config has, and how fast its links are."""
    c = config.network
    inner = Speed(c.link_mbytes_per_s * 1e6, c.latency_s)
    access = Speed(
        inner.bytes_per_s if c.access_mbytes_per_s == "auto" else c.access_mbytes_per_s * 1e6,
        inner.latency_s if c.access_latency_s == "auto" else c.access_latency_s,
    )
    k = None if c.k == "auto" else c.k
    files = c.file, c.latency_file, c.access_file
    return Shape(c.topology, access, inner, c.degree, k, c.alpha, c.beta, *files)


def quick_network(config: Config, network: Network) -> Network | None:
    """Return a network to plan with where ns-3, which takes seconds a grouping, is the clock."""
    c = config.network
    if c.clock == "flow":
        return None
    return replace(network, clock=make_clock("flow", c.tcp, c.time_limit_s))


def node_speeds(config: Config, n: int, algorithm: Algorithm, names: tuple[str, ...]) -> Floats:
    """Return the operations per second of every node [n]; a pooled node has the mean speed."""
    c = config.compute
    if algorithm.pooled:
        return np.full(1, c.gflops * 1e9)
    if c.speeds == "file":
        from coterie.topology.matrix import read_column

        return read_column(Path(c.file), names, n, "gflops") * 1e9
    return draw_speeds(c.speeds, n, c.gflops * 1e9, c.spread, generator(config.seed, Stream.SPEED))


def make_search(config: Config, own: Planner | None = None) -> Search:
    """Return how a config searches for groups, by one's `own` planner if there is one."""
    c = config.algorithm
    shakes = None if c.shakes == "auto" else c.shakes
    effort = Effort(shakes, c.budget_s or None, c.anneal)
    return Search(c.grouping, c.alpha_iid, c.alpha_comm, effort, own)


def make_tuning(config: Config, steps: LocalSteps, n_nodes: int) -> Tuning:
    """Return what a config leaves open to the run itself, and what that is to reach."""
    c = config.algorithm
    rates = np.array([steps.lr_at(t) for t in range(1, config.train.steps + 1)])
    if len(rates) <= sum(PILOT):
        raise ConfigError(
            f"algorithm.{c.open[0]} = 'auto' takes a pilot of {sum(PILOT)} steps; raise train.steps"
        )
    return Tuning(
        rates,
        tuple(k for k in GROUPS if k <= n_nodes) if c.num_groups == "auto" else (c.num_groups,),
        TAU1 if c.tau1 == "auto" else (c.tau1,),
        TAU2 if c.tau2 == "auto" else (c.usual[2],),
        c.target_loss,
        c.target_accuracy,
        c.max_gbytes * 1e9 or math.inf,
        c.retune,
    )


def make_policy(
    config: Config, algorithm: Algorithm, search: Search, steps: LocalSteps, n_nodes: int
) -> Policy:
    """Return when a config's groups and schedule are decided."""
    c = config.algorithm
    if algorithm.policy is not None:
        return algorithm.policy(c.usual[0])
    if c.open:
        others = other_searches(search) if c.name == "fedavg-ic" else ()
        planners = tuple(algorithm.planner(other) for other in others)
        return Pilot(make_tuning(config, steps, n_nodes), planners)
    regroup = Regroup(c.regroup_every, c.regroup_drift)
    return Searched(regroup) if algorithm.searched else Given()


def other_searches(search: Search) -> tuple[Search, ...]:
    """Return searches to try besides one's own where it is open which groups are best."""
    pairs = ((1.0, 0.0), (1.0, 10.0))
    return tuple(replace(search, alpha_iid=iid, alpha_comm=comm) for iid, comm in pairs)


def make_view(config: Config, needs: Needs, fleet: Fleet, d: int) -> View:
    """Return what a config shows its planner, and what nodes upload for that, in 32-bit numbers."""
    c, names, (n, classes) = config.algorithm, fleet.names, fleet.class_counts.shape
    sketch = privacy = capacity = None
    if needs == "gradients" and c.evidence == "labels":
        needs = "labels"
    if needs == "gradients" and c.evidence == "sketch":
        sketch = Sketch(c.sketch_size, config.seed)
        if c.privacy_epsilon:
            privacy = Privacy(c.privacy_epsilon, c.privacy_delta, c.privacy_clip)
    elif c.privacy_epsilon:
        raise ConfigError(
            "algorithm.privacy_epsilon covers sketches only, and this search is shown "
            f"{needs}; use algorithm.evidence = 'sketch', or no epsilon"
        )
    if c.capacity_file:
        from coterie.topology.matrix import read_column

        capacity = whole_capacity(read_column(Path(c.capacity_file), names, n, "capacity"), names)
    limits = Limits(
        c.min_group_size,
        None if c.max_group_size == "auto" else c.max_group_size,
        None if c.max_hops == "auto" else c.max_hops,
        capacity,
    )
    shown = {"nothing": 0, "labels": classes, "gradients": sketch.size if sketch else d}[needs]
    charged = 4 * shown * c.charge_grouping
    return View(needs, sketch, privacy, charged, limits)


def check_room(config: Config, needs: Needs, n: int) -> None:
    """Refuse n nodes whose gradients, as a search compares them, no memory here has room for."""
    c = config.algorithm
    if needs != "gradients" or c.evidence == "labels":
        return
    sketched = c.evidence == "sketch"
    needed = n * 8 * (c.sketch_size if sketched else 2 * n)  # products and cosines [n, n]
    there = physical_memory() if needed > ALWAYS_THERE else None
    if there is not None and needed > there:
        what, way = (
            (f"sketches of {c.sketch_size:,} numbers need", "lower algorithm.sketch_size")
            if sketched
            else (
                "a search that compares every two gradients needs",
                "use algorithm.evidence = 'sketch'",
            )
        )
        raise ConfigError(
            f"{what} {size(needed)} of memory for {n:,} nodes, this machine has "
            f"{size(there)}; {way}"
        )


def check_threads(number: int) -> None:
    """Refuse more threads than any machine with these cores has a use for.

    >>> check_threads(1)
    """
    cores = os.cpu_count() or 1
    if number > THREADS_PER_CORE * cores:
        raise ConfigError(
            f"train.threads must be <= {THREADS_PER_CORE * cores:,} here, "
            f"{THREADS_PER_CORE} for each of {cores} cores, got {number:,}"
        )


def make_engine(
    config: Config,
    model: "nn.Module",
    divided: Divided,
    steps: LocalSteps,
    rule: "LocalRule",
    threads: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> Engine:
    """Return the engine of a config, with the examples of every node in one array.

    A task that the model, its metrics or its targets do not fit is refused.

    Nodes take `steps` by a rule, and `say` is told of actors that die.
    """
    from coterie.engine.module import Nodes
    from coterie.engine.sequential import Sequential
    from coterie.engine.vectorized import Vectorized

    dataset, split, part = divided.dataset, divided.split, divided.partition
    order = split.train[np.concatenate(part.indices)]
    nodes = Nodes(dataset.x[order], dataset.y[order], part.sizes)
    held_out: dict[Part, Any] = {}
    sizes: dict[Part, Ints] = {}
    for name in PARTS:
        part_of = divided.held_out(name)
        held_out[name] = (dataset.x[part_of.examples], dataset.y[part_of.examples])
        if part_of.sizes is not None:
            sizes[name] = part_of.sizes
    whose = sizes or None
    task = check_task(config, divided, model)
    c = config.train
    cores = threads if c.threads == "auto" else c.threads
    if c.engine == "sequential":
        return Sequential(
            model, nodes, held_out, steps, c.device, rule, held_sizes=whose, task=task
        )
    if c.engine == "ray":
        from coterie.engine.ray.engine import Sharded

        actors, number = make_actors(config, threads, say)
        each = config.ray.cpus_per_actor
        where = actors, number, c.device
        return Sharded(
            model, nodes, held_out, steps, *where, rule, each, held_sizes=whose, task=task
        )
    trained = c.steps * config.participation.fraction * steps.examples_per_step(part.sizes).sum()
    return Vectorized(
        model,
        nodes,
        held_out,
        steps,
        c.device,
        rule,
        cores,
        held_sizes=whose,
        work=float(trained),
        task=task,
    )


def check_task(config: Config, divided: Divided, model: "nn.Module") -> "Task":
    """Return the task; refuse one that its model, its metrics or its targets do not fit.

    Plain classification of pixels or numbers is tried where the model is made.
    """
    from coterie.engine.fitting import check_fit, check_room_for_metrics

    dataset, task = divided.dataset, make_task_of(config, divided.dataset)
    if config.algorithm.target_accuracy and task.right is None:
        raise ConfigError(
            f"algorithm.target_accuracy is a share of right answers, which task {task.name!r} has "
            "not; use algorithm.target_loss"
        )
    if task.right is None and not task.metrics:
        raise ConfigError(
            f"task {task.name!r} has neither an accuracy nor a metric, so its runs would have no "
            "result; name one in task.metrics (your own: 'mine:metric')"
        )
    check_room_for_metrics(task, dataset.y[divided.split.test], dataset.width)
    if ":" in config.task.name or not task.softmax or dataset.has_tokens:
        check_fit(model, task, dataset.x, dataset.y, dataset.width)
    return task


def make_actors(config: Config, cores: int, say: Callable[[str], None]) -> "tuple[Actors, int]":
    """Join the cluster of a config, and say how many actors to start there.

    A cluster of our own has as many CPUs as there are cores to use, or as actors ask for.
    """
    from coterie.engine.ray.actors import Actors
    from coterie.engine.ray.cluster import LOCAL, Cluster, Size

    c, each = config.ray, config.ray.cpus_per_actor
    asked = 0 if c.actors == "auto" else c.actors
    store = None if c.object_store_mbytes == "auto" else c.object_store_mbytes
    cluster = Cluster(c.address, max(asked * each, cores), store)
    there = cores if c.address == LOCAL else int(cluster.total("CPU"))
    number = asked or max(1, there // each)
    size = Size(each, c.gpus_per_actor)
    keys = {"CPU": "ray.cpus_per_actor", "GPU": "ray.gpus_per_actor", "number": "ray.actors"}
    cluster.check(size, number, keys)
    return Actors(cluster, size, say), number


def make_update(config: Config, algorithm: Algorithm) -> Update:
    """Return what a config's algorithm adds to SGD and a mean, its optimisers included."""
    from coterie.simulation.algorithms.fedopt import server_adam, server_momentum
    from coterie.simulation.algorithms.fedprox import pulled
    from coterie.simulation.algorithms.scaffold import CORRECTED

    o, update = config.optimizer, algorithm.update
    if o.fedprox:
        update = both(update, pulled(o.fedprox))
    if o.scaffold:
        update = both(update, CORRECTED)
    if o.server == "momentum":
        update = both(update, server_momentum(o.server_lr, o.server_momentum))
    if o.server == "adam":
        adam = o.server_lr, o.server_momentum, o.server_beta2, o.server_epsilon
        update = both(update, server_adam(*adam))
    return update


def make_rule(config: Config, update: Update) -> "LocalRule":
    """Return how a config's nodes step."""
    from coterie.engine.local_rule import LocalRule

    return LocalRule(config.optimizer.momentum, config.optimizer.weight_decay, update)


def make_participation(config: Config) -> Participation:
    """Return who takes part in a round."""
    c = config.participation
    return Participation(c.fraction, c.sampled, c.dropout, c.deadline_s, c.jitter)


def local_steps(config: Config) -> LocalSteps:
    """Return how a node takes a step."""
    c = config.train
    size = c.batch_size if isinstance(c.batch_size, int) else None
    return LocalSteps(c.lr, c.lr_decay, size, c.step_unit, config.seed, c.sampling)


def charged_examples(config: Config, steps: LocalSteps, sizes: Ints, worked: Ints) -> Ints:
    """Examples that a local step of every node is charged for [n]: those it works through.

    The authors' simulator charged each example of a node once, however it drew its batches.
    """
    if config.compute.flops == "reference" and steps.sampling == "reference":
        return replace(steps, sampling="epoch").examples_per_step(sizes)
    return worked
