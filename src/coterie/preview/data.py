"""What a partition looks like before anything is trained: counts, and distances to the whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.config.factories import Divided, divide, load_dataset, split_kind
from coterie.config.prepare import prepare
from coterie.config.settings import Config
from coterie.core.arrays import Floats, Ints
from coterie.core.types import Progress
from coterie.data import Dataset
from coterie.grouping import Grouping
from coterie.partition.measure import emd, pooled
from coterie.simulation.loop import rounds
from coterie.simulation.problem import Problem


@dataclass(frozen=True, eq=False)
class Parts:
    """Nodes, edges, or the groups of an algorithm: nodes [K] and class counts [K, C] of each."""

    label: str
    nodes: Ints
    counts: Ints

    @property
    def sizes(self) -> Ints:
        """Examples in each part."""
        total: Ints = self.counts.sum(axis=1)
        return total

    @property
    def classes(self) -> Ints:
        """Classes in each part."""
        present: Ints = (self.counts > 0).sum(axis=1)
        return present

    @property
    def distances(self) -> Floats:
        """Earth mover's distance of each part to the whole."""
        return emd(self.counts)

    @property
    def distance(self) -> float:
        """Mean of the distances, weighted by examples."""
        return float(self.distances @ self.sizes / self.sizes.sum())


@dataclass(frozen=True, eq=False)
class Survey:
    """A partition of a dataset, and how the algorithms of an experiment group its nodes."""

    title: str
    facts: str
    edge_of: Ints
    parts: tuple[Parts, ...]  # nodes, edges, then groups

    @property
    def notes(self) -> list[str]:
        """What the figures may hide: groups of one node, which the weighted EMD hardly sees."""
        return [
            f"note: {(part.nodes == 1).sum()} of {len(part.nodes)} {part.label} are a single node"
            for part in self.parts[2:]
            if (part.nodes == 1).any()
        ]


COLUMNS = ("", "number", "nodes", "examples", "classes", "EMD")


def cells(parts: Parts) -> tuple[str, ...]:
    """One line of the table: each of the columns as least, middle, most.

    >>> cells(Parts("edges", np.array([2, 5]), np.array([[3, 0], [1, 4]])))
    ('edges', '2', '2/3.5/5', '3/4/5', '1/1.5/2', '0.60/0.75/1.00')
    """
    sizes, classes, far = parts.sizes, parts.classes, parts.distances
    return (
        parts.label,
        f"{len(sizes):,}",
        _range(parts.nodes),
        _range(sizes),
        f"{classes.min()}/{classes.mean():.3g}/{classes.max()}",
        f"{far.min():.2f}/{parts.distance:.2f}/{far.max():.2f}",
    )


def _range(values: Ints) -> str:
    middle = f"{np.median(values):,.1f}".removesuffix(".0")
    return f"{values.min():,}/{middle}/{values.max():,}"


FOOTING = (
    "least / middle / most; the middle is the median, of classes the mean, of EMD the mean by size"
)


def surveys(configs: Sequence[Config], *, groups: bool, progress: Progress) -> Iterator[Survey]:
    """Survey every distinct dataset and partition of an experiment, with its first seed.

    The groups of each algorithm are those it would train with: found on the first model, after
    one step.
    """
    seen: dict[object, list[Config]] = {}
    for config in configs:
        seen.setdefault((config.data, config.partition, split_kind(config)), []).append(config)
    loaded: dict[object, Dataset] = {}
    for members in seen.values():
        first = members[0]
        if first.data not in loaded:
            loaded = {first.data: load_dataset(first, progress)}
        dataset = loaded[first.data]
        yield _survey(members, dataset, groups=groups, progress=progress)


def _survey(members: list[Config], dataset: Dataset, *, groups: bool, progress: Progress) -> Survey:
    config = members[0]
    divided = divide(config, dataset)
    part, split = divided.partition, divided.split
    counts = divided.class_counts
    ones = np.ones(len(counts), dtype=np.int64)
    parts = [Parts("nodes", ones, counts), _pooled("edges", counts, part.edge_of)]
    for other in _one_each(members) if groups else ():
        progress(f"grouping by {other.algorithm.name}", 0, 0)
        z = groups_of(prepare(other, dataset).problem).z
        if z.max() > 0:
            parts.append(_pooled(f"groups of {other.algorithm.name}", counts, z))
    owners = divided.dataset.users
    users = "" if owners is None else f", {len(np.unique(owners)):,} users"
    facts = (
        f"{len(divided.dataset.y):,} examples ({len(split.train):,} train, {len(split.val):,} "
        f"validation, {len(split.test):,} test), {kinds_of(divided.dataset)}{users}, each "
        f"{'x'.join(map(str, dataset.input_shape))}{_held(divided)}"
    )
    return Survey(title_of(config), facts, part.edge_of, tuple(parts))


def kinds_of(dataset: Dataset) -> str:
    """Say what a dataset is counted by: its classes, or what stands for them.

    >>> x, y = np.zeros((3, 2), np.float32), np.array([[1], [2], [3]], np.float32)
    >>> kinds_of(Dataset("d", x, y, 1, task="regression"))
    '3 strata (regression)'
    """
    labelled = dataset.strata is None and dataset.task in ("classification", "binary")
    return f"{dataset.n_strata} " + ("classes" if labelled else f"strata ({dataset.task})")


def _held(divided: Divided) -> str:
    """Say how many examples each node validates and tests with, if it has some of its own."""
    val, test = divided.held_out("val").sizes, divided.held_out("test").sizes
    if val is None or test is None:
        return ""
    return f"; a node has {_range(val)} for validation and {_range(test)} to test on"


def _pooled(label: str, counts: Ints, part_of: Ints) -> Parts:
    return Parts(label, np.bincount(part_of), pooled(counts, part_of))


def _one_each(members: list[Config]) -> list[Config]:
    """First config of every algorithm that has groups."""
    first: dict[str, Config] = {}
    for config in members:
        if not config.algorithm.made.pooled and config.algorithm.made.groups != "edge":
            first.setdefault(config.algorithm.name, config)
    return list(first.values())


def groups_of(problem: Problem) -> Grouping:
    """Run an algorithm until it has its groups."""
    groups = next(state.groups for state in rounds(problem) if state.groups)
    return groups.grouping


def title_of(config: Config) -> str:
    """Name the dataset, the partition and the seed of a config."""
    c = config.partition
    heeded = {
        "dirichlet": f" (alpha {c.alpha:g})",
        "shards": f" ({c.shards_per_node} a node)",
        "pathological": f" ({c.classes_per_node} classes a node)",
        "quantity": f" ({c.spread}, SD {c.sd:g})",
        "file": f" {c.file}",
    }
    placed = "" if c.placement == "paper" else f", placed {c.placement}"
    kind = split_kind(config)
    split = "" if kind == "pooled" else f", split {kind}"
    how = f"{c.kind}{heeded.get(c.kind, '')}{placed}{split}"
    return f"{config.data.name}, {how}, seed {config.seed}"
