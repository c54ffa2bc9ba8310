"""What a partition is made from, and what it is."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from coterie.core.arrays import Floats, Ints

Placement = Literal[
    "paper",  # as the edge diversity says; without one, in the order of the nodes
    "random",
    "by_similarity",  # nodes that hold the same classes together: about the worst case
]


@dataclass(frozen=True, eq=False)
class Partition:
    """Example numbers of each node, the edge each node sits under, and their names if any.

    >>> part = Partition((np.array([0, 3]), np.array([1])), np.array([0, 1]))
    >>> part.p.round(2).tolist()
    [0.67, 0.33]
    """

    indices: tuple[Ints, ...]
    edge_of: Ints
    names: tuple[str, ...] = ()
    edge_names: tuple[str, ...] = ()

    @cached_property
    def sizes(self) -> Ints:
        """Number of examples on each node, |D_i|."""
        return np.array([len(i) for i in self.indices], dtype=np.int64)

    @property
    def p(self) -> Floats:
        """Share of the data on each node, p_i = |D_i| / |D|."""
        shares: Floats = self.sizes / self.sizes.sum()
        return shares


@dataclass(frozen=True)
class Spread:
    """How counts vary around their mean.

    A normal has this SD, in classes or examples; the log of a lognormal has it; an exponential
    needs none.
    """

    kind: Literal["normal", "exponential", "lognormal"] = "normal"
    sd: float = 1.0


@dataclass(frozen=True, eq=False)
class Examples:
    """What is dealt: labels y [N], and where known users [N], each a number into user_names.

    `numbers` [N] are the examples' numbers in the whole dataset of `total`, of which these may be
    a part.
    """

    y: Ints
    users: Ints | None = None
    user_names: tuple[str, ...] = ()
    numbers: Ints | None = None
    total: int | None = None


@dataclass(frozen=True)
class Rule:
    """How examples are dealt: a name in `PARTITIONS`, and the settings that it heeds.

    `num_nodes` None is one for each user, or as many as a file has; so with `num_edges`.
    """

    kind: str
    num_nodes: int | None = 100
    num_edges: int | None = 10
    alpha: float = 0.5
    min_partition_size: int = 1
    shards_per_node: int = 2
    classes_per_node: int = 2
    spread: Spread = field(default_factory=Spread)
    placement: Placement = "paper"
    file: str = ""

    @property
    def n(self) -> int:
        """Number of nodes, where the kind of partition needs it set."""
        assert self.num_nodes is not None, "make_partition has checked it"
        return self.num_nodes


@dataclass(frozen=True, eq=False)
class Dealt:
    """The node of every example [N]; and if the rule says so, the nodes' edges [n] and names."""

    node_of: Ints
    edge_of: Ints | None = None
    names: tuple[str, ...] = ()
    edge_names: tuple[str, ...] = ()
