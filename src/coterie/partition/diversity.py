"""Who holds what: examples dealt to nodes, and nodes placed under network edges.

The paper's six settings are two-level: an edge holds some of the classes, and each of its nodes
some of the edge's. `Dtq` reads: a node holds a *tenth* of the classes, an edge a *quarter*.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from coterie.errors import PartitionError, unknown

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SHARES = {"t": ("tenth", 0.1), "q": ("quarter", 0.25), "h": ("half", 0.5)}
DIVERSITIES = ("Dtt", "Dtq", "Dth", "Dqq", "Dqh", "Dhh")
PARTITIONS: dict[str, str] = {
    **{
        d: f"a {SHARES[d[1]][0]} of the classes per node, a {SHARES[d[2]][0]} per edge"
        for d in DIVERSITIES
    },
    "iid": "every node a uniform sample of all examples",
}


@dataclass(frozen=True, eq=False)
class Partition:
    """Example numbers of each node, and the edge each node sits under.

    >>> part = Partition((np.array([0, 3]), np.array([1])), np.array([0, 1]))
    >>> part.p.round(2).tolist()
    [0.67, 0.33]
    """

    indices: tuple[Ints, ...]
    edge_of: Ints

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
    """How counts vary around their mean: a normal with this SD, or an exponential."""

    kind: Literal["normal", "exponential"] = "normal"
    sd: float = 1.0


def make_partition(
    kind: str,
    y: Ints,
    num_nodes: int,
    num_edges: int,
    spread: Spread,
    rng: np.random.Generator,
) -> Partition:
    """Deal the examples labelled y to nodes under edges, in one of the settings of `PARTITIONS`."""
    _check_sizes(len(y), num_nodes, num_edges)
    if kind == "iid":
        parts = np.array_split(rng.permutation(len(y)), num_nodes)
        return Partition(tuple(np.sort(part) for part in parts), place(num_nodes, num_edges))
    node_share, edge_share = diversity(kind)
    return two_level(y, num_nodes, num_edges, node_share, edge_share, spread, rng)


def diversity(kind: str) -> tuple[float, float]:
    """Read a setting such as "Dtq" as (share of classes per node, share per edge).

    >>> diversity("Dtq")
    (0.1, 0.25)
    """
    if len(kind) == 3 and kind[0] == "D" and set(kind[1:]) <= set(SHARES):
        (node, node_share), (edge, edge_share) = SHARES[kind[1]], SHARES[kind[2]]
        if node_share > edge_share:
            raise PartitionError(
                f"a node of {kind!r} holds a {node} of the classes but its edge only a {edge}, and "
                f"a node's classes are drawn from its edge's; did you mean 'D{kind[2]}{kind[1]}'?"
            )
        return node_share, edge_share
    raise PartitionError(unknown("partition", kind, PARTITIONS))


def place(num_nodes: int, num_edges: int) -> Ints:
    """Put nodes under edges in order, as evenly as possible.

    >>> place(5, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    per_edge = [len(part) for part in np.array_split(np.arange(num_nodes), num_edges)]
    return np.repeat(np.arange(num_edges), per_edge)


def two_level(
    y: Ints,
    num_nodes: int,
    num_edges: int,
    node_share: float,
    edge_share: float,
    spread: Spread,
    rng: np.random.Generator,
) -> Partition:
    """Give each edge a share of the classes and each node a share of its edge's.

    The counts of classes are drawn around their mean and then fitted to it exactly: over all edges
    they sum to E * max(1, C * edge_share), and over all nodes likewise, as far as a node can have
    no more classes than its edge. A class's examples go to the nodes that hold it.
    """
    edge_of = place(num_nodes, num_edges)
    n_classes = int(y.max()) + 1
    present = np.flatnonzero(np.bincount(y, minlength=n_classes))
    per_node = max(1.0, len(present) * node_share)
    per_edge = max(1.0, len(present) * edge_share)

    of_edge = _classes_of_edges(edge_of, len(present), per_node, per_edge, spread, rng)
    held = _classes_of_nodes(edge_of, of_edge, per_node, spread, rng)  # [n, C] bool

    parts: list[list[Ints]] = [[] for _ in range(num_nodes)]
    for column, c in enumerate(present):
        holders = np.flatnonzero(held[:, column])
        examples = rng.permutation(np.flatnonzero(y == c))
        if len(examples) < len(holders):
            raise PartitionError(
                f"class {c} has {len(examples)} examples for the {len(holders)} nodes that should "
                "hold some; use fewer nodes, more data, or a narrower node type"
            )
        mean = len(examples) / len(holders)
        drawn = _draw(mean, 1, len(examples), len(holders), spread, rng)
        counts = fit_counts(drawn, len(examples), 1, len(examples))
        for i, piece in zip(holders, np.split(examples, np.cumsum(counts)[:-1]), strict=True):
            parts[i].append(piece)
    return Partition(tuple(np.sort(np.concatenate(part)) for part in parts), edge_of)


def fit_counts(x: Floats, total: int, lo: int | Ints, hi: int | Ints) -> Ints:
    """Scale x and round it to whole numbers within [lo, hi] that sum to total.

    The scale is found by bisection, the rounding is by largest remainder.

    >>> fit_counts(np.array([1.0, 1.0, 2.0]), 10, 1, 4).tolist()
    [3, 3, 4]
    """
    low = np.broadcast_to(np.asarray(lo, dtype=np.float64), x.shape)
    high = np.broadcast_to(np.asarray(hi, dtype=np.float64), x.shape)
    assert low.sum() <= total <= high.sum(), "callers check that the total can be met"
    x = np.maximum(x, 1e-9)
    below, above = 0.0, float((high / x).max()) + 1.0
    for _ in range(100):
        scale = (below + above) / 2
        if np.clip(scale * x, low, high).sum() < total:
            below = scale
        else:
            above = scale
    exact = np.clip(above * x, low, high)
    counts = np.floor(exact + 1e-9)
    missing = total - int(counts.sum())
    for i in np.argsort(counts - exact, kind="stable"):
        step = np.clip(np.sign(missing), low[i] - counts[i], high[i] - counts[i])
        counts[i] += step
        missing -= int(step)
    assert missing == 0
    return counts.astype(np.int64)


def _check_sizes(n_examples: int, num_nodes: int, num_edges: int) -> None:
    if num_edges > num_nodes:
        raise PartitionError(
            f"num_edges must be <= num_nodes so that no edge is empty, got {num_edges} edges "
            f"for {num_nodes} nodes"
        )
    if num_nodes > n_examples:
        raise PartitionError(
            f"num_nodes must be <= the number of training examples, got {num_nodes} nodes "
            f"for {n_examples} examples"
        )


def _draw(
    mean: float, lo: float, hi: float, size: int, spread: Spread, rng: np.random.Generator
) -> Floats:
    """Draw counts around mean within [lo, hi]; the normal is cut evenly, to keep its mean."""
    if spread.kind == "exponential":
        return np.minimum(lo + rng.exponential(max(mean - lo, 0.0), size), hi)
    half = max(min(mean - lo, hi - mean), 0.0)
    if half == 0 or spread.sd == 0:
        return np.full(size, mean)
    edge = float(ndtr(half / spread.sd))
    return mean + spread.sd * ndtri(rng.uniform(1 - edge, edge, size))


def _classes_of_edges(
    edge_of: Ints,
    n_classes: int,
    per_node: float,
    per_edge: float,
    spread: Spread,
    rng: np.random.Generator,
) -> list[Ints]:
    """Choose the classes of every edge, each class in at least one."""
    nodes = np.bincount(edge_of)
    most = np.minimum(n_classes, np.floor(nodes * per_node + 1e-9)).astype(np.int64)
    total = int(np.rint(len(nodes) * per_edge))
    if total < n_classes:
        raise PartitionError(
            f"{len(nodes)} edges with {per_edge:g} classes each cannot hold all {n_classes} "
            f"classes; use at least {int(np.ceil(n_classes / per_edge))} edges or a wider edge type"
        )
    if total > most.sum():
        raise PartitionError(
            f"edges of {nodes.min()} to {nodes.max()} nodes with {per_node:g} classes a node "
            f"cannot hold {per_edge:g} classes an edge; use more nodes or a wider node type"
        )
    drawn = _draw(per_edge, 1, n_classes, len(nodes), spread, rng)
    counts = fit_counts(drawn, total, 1, most)
    return [np.flatnonzero(row) for row in _deal(counts, n_classes, rng)]


def _classes_of_nodes(
    edge_of: Ints,
    of_edge: list[Ints],
    per_node: float,
    spread: Spread,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Choose the classes of every node among its edge's, each of the edge's on at least one."""
    nodes = np.bincount(edge_of)
    classes = np.array([len(c) for c in of_edge])
    least, most = np.maximum(nodes, classes), nodes * classes
    total = int(np.clip(np.rint(len(edge_of) * per_node), least.sum(), most.sum()))
    totals = fit_counts(nodes.astype(np.float64) * per_node, total, least, most)
    n_classes = max(int(c.max()) for c in of_edge) + 1
    held = np.zeros((len(edge_of), n_classes), dtype=bool)
    starts = np.concatenate([[0], np.cumsum(nodes)])
    for e, (start, stop) in enumerate(pairwise(starts)):
        drawn = _draw(totals[e] / nodes[e], 1, classes[e], nodes[e], spread, rng)
        counts = fit_counts(drawn, int(totals[e]), 1, classes[e])
        held[start:stop, of_edge[e]] = _deal(counts, int(classes[e]), rng)
    return held


def _deal(counts: Ints, n_kinds: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Give taker j counts[j] distinct kinds, always the least used ones, ties at random."""
    dealt = np.zeros((len(counts), n_kinds), dtype=bool)
    used = np.zeros(n_kinds)
    for j in rng.permutation(len(counts)):
        taken = np.argsort(used + rng.random(n_kinds))[: counts[j]]
        dealt[j, taken] = True
        used[taken] += 1
    return dealt
