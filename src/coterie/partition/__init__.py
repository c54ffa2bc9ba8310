"""Who holds what: examples dealt to nodes, and nodes placed under network edges."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from coterie.core.errors import PartitionError, unknown
from coterie.partition.diversity import DIVERSITIES, SHARES, diversity, two_level
from coterie.partition.file import from_file
from coterie.partition.measure import class_counts
from coterie.partition.placement import place, place_by
from coterie.partition.skews import (
    dirichlet,
    iid,
    natural,
    pathological,
    quantity,
    shards,
    sized_by,
)
from coterie.partition.values import Dealt, Examples, Partition, Rule, Spread

__all__ = ["PARTITIONS", "Examples", "Kind", "Partition", "Rule", "Spread", "make_partition"]


@dataclass(frozen=True)
class Kind:
    """A way to deal examples, and whether the data or a file can say how many nodes there are."""

    about: str
    deal: Callable[[Examples, Rule, np.random.Generator], Dealt]
    counts_nodes: bool = False


PARTITIONS: dict[str, Kind] = {
    **{
        d: Kind(
            f"a {SHARES[d[1]][0]} of the classes per node, a {SHARES[d[2]][0]} per edge", two_level
        )
        for d in DIVERSITIES
    },
    "iid": Kind("every node a uniform sample of all examples", iid),
    "dirichlet": Kind("each class split by shares from a Dirichlet(alpha)", dirichlet),
    "shards": Kind("sorted by class, cut up, shards_per_node pieces to each node", shards),
    "pathological": Kind("exactly classes_per_node classes on each node", pathological),
    "natural": Kind("by user: each a node, or dealt to num_nodes", natural, counts_nodes=True),
    "quantity": Kind("all classes, sizes that vary as spread and sd say", quantity),
    "linear": Kind("all classes, sizes in proportion to 1, 2, 3 ...", sized_by(lambda i: i)),
    "square": Kind("all classes, sizes in proportion to 1, 4, 9 ...", sized_by(np.square)),
    "exponential": Kind(
        "all classes, sizes in proportion to e, e^2, e^3 ..., but at least 1",
        sized_by(lambda i: np.exp(i - i.max())),
    ),
    "file": Kind("as partition.file says, a CSV or Parquet", from_file, counts_nodes=True),
}
ALSO = {
    "naturalid": "natural",
    "groupednaturalid": "natural",
    "shard": "shards",
    "lda": "dirichlet",
}
ELSEWHERE = ("size", "idtosizefnc", "innerdirichlet", "distribution", "continuous", "verticaleven")


def partition_name(name: str) -> str:
    """Return our name of a partition, given ours or flwr-datasets'.

    >>> partition_name("DirichletPartitioner"), partition_name("NaturalId"), partition_name("Dtt")
    ('dirichlet', 'natural', 'Dtt')
    """
    if name in PARTITIONS:
        return name
    plain = name.removesuffix("Partitioner").lower()
    plain = ALSO.get(plain, plain)
    if plain in PARTITIONS:
        return plain
    diversity(name)  # may say better what is wrong
    if plain in ELSEWHERE:
        raise PartitionError(f"partition {name!r} is not offered; kind = 'file' takes any split")
    if plain.replace("-", "").replace("_", "") == "noniid":
        raise PartitionError(f"partition {name!r} can be many; see 'coterie list partitions'")
    raise PartitionError(unknown("partition", name, PARTITIONS))


def make_partition(rule: Rule, examples: Examples, rng: np.random.Generator) -> Partition:
    """Deal examples to nodes under edges by a rule of `PARTITIONS`; no node is left empty.

    >>> rule = Rule("iid", num_nodes=4, num_edges=2)
    >>> make_partition(rule, Examples(np.zeros(8, int)), np.random.default_rng(0)).sizes.tolist()
    [2, 2, 2, 2]
    """
    rule = replace(rule, kind=partition_name(rule.kind))
    _check_sizes(len(examples.y), rule)
    dealt = PARTITIONS[rule.kind].deal(examples, rule, rng)
    sizes = np.bincount(dealt.node_of, minlength=rule.num_nodes or 0)
    if not sizes.all():
        raise PartitionError(
            f"{(sizes == 0).sum()} of {len(sizes)} nodes would be left without examples, because "
            "their classes have too few; use fewer nodes, more data, or another partition.kind"
        )
    order = np.argsort(dealt.node_of, kind="stable")
    ends = np.cumsum(sizes).tolist()
    indices = tuple(order[end - size : end] for end, size in zip(ends, sizes.tolist(), strict=True))
    in_order = dealt.edge_of
    if in_order is None:
        num_edges = rule.num_edges if rule.num_edges is not None else min(10, len(sizes))
        _check_edges(num_edges, len(sizes))
        in_order = place(len(sizes), num_edges)
    part = Partition(indices, in_order, dealt.names, dealt.edge_names)
    counts = class_counts(part, examples.y, int(examples.y.max()) + 1)
    return replace(part, edge_of=place_by(rule.placement, in_order, counts, rng))


def _check_sizes(n_examples: int, rule: Rule) -> None:
    if rule.num_nodes is None and not PARTITIONS[rule.kind].counts_nodes:
        raise PartitionError(f"partition {rule.kind!r} needs num_nodes")
    if rule.num_nodes is not None:
        if rule.num_edges is not None:
            _check_edges(rule.num_edges, rule.num_nodes)
        if rule.num_nodes > n_examples:
            raise PartitionError(
                f"num_nodes must be <= the number of examples to deal, got {rule.num_nodes} nodes "
                f"for {n_examples} examples"
            )


def _check_edges(num_edges: int, num_nodes: int) -> None:
    if num_edges > num_nodes:
        raise PartitionError(
            f"num_edges must be <= num_nodes so that no edge is empty, got {num_edges} edges "
            f"for {num_nodes} nodes"
        )
