"""The field's common ways to deal examples to nodes, by the names that flwr-datasets gives them."""

from collections.abc import Callable

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import PartitionError
from coterie.partition.counts import deal_kinds, draw, fit_counts, hand_out
from coterie.partition.placement import place
from coterie.partition.values import Dealt, Examples, Rule

ATTEMPTS = 100


def iid(examples: Examples, rule: Rule, rng: np.random.Generator) -> Dealt:
    """Deal a random permutation in equal pieces."""
    total = len(examples.y)
    return _in_turn(rng.permutation(total), place(total, rule.n))


def dirichlet(examples: Examples, rule: Rule, rng: np.random.Generator) -> Dealt:
    """Split every class over the nodes by shares drawn from a Dirichlet(alpha).

    A draw that leaves a node below `min_partition_size` is thrown away, as in flwr-datasets.
    """
    y, n, least = examples.y, rule.n, rule.min_partition_size
    if n * least > len(y):
        raise PartitionError(
            f"min_partition_size must be <= {len(y) // n}, got {least}: {n} nodes share "
            f"{len(y)} examples"
        )
    classes, totals = np.unique(y, return_counts=True)
    for _ in range(ATTEMPTS):
        ends = np.cumsum(rng.dirichlet(np.full(n, rule.alpha), len(classes)), axis=1)  # [C, n]
        ends = np.rint(ends * totals[:, None]).astype(np.int64)
        ends[:, -1] = totals
        counts = np.diff(ends, axis=1, prepend=0)
        if counts.sum(axis=0).min() >= least:
            break
    else:
        raise PartitionError(
            f"{ATTEMPTS} draws left some of {n} nodes below min_partition_size {least}; raise "
            f"alpha from {rule.alpha:g}, use fewer nodes, or more data"
        )
    node_of = np.empty(len(y), dtype=np.int64)
    for c, of_class in zip(classes, counts, strict=True):
        members = rng.permutation(np.flatnonzero(y == c))
        node_of[members] = np.repeat(np.arange(n), of_class)
    return Dealt(node_of)


def shards(examples: Examples, rule: Rule, rng: np.random.Generator) -> Dealt:
    """Sort by class, cut into equal shards, and deal each node so many of them at random."""
    total = rule.n * rule.shards_per_node
    if total > len(examples.y):
        raise PartitionError(
            f"shards_per_node must be <= {len(examples.y) // rule.n}, got {rule.shards_per_node}: "
            f"{rule.n} nodes share {len(examples.y)} examples"
        )
    order = rng.permutation(len(examples.y))
    order = order[np.argsort(examples.y[order], kind="stable")]
    owner = rng.permutation(np.repeat(np.arange(rule.n), rule.shards_per_node))
    return _in_turn(order, owner[place(len(order), total)])


def pathological(examples: Examples, rule: Rule, rng: np.random.Generator) -> Dealt:
    """Give each node exactly so many classes, every class to about as many nodes, dealt evenly."""
    classes = np.unique(examples.y)
    per_node = rule.classes_per_node
    if per_node > len(classes):
        raise PartitionError(f"classes_per_node must be <= {len(classes)} classes, got {per_node}")
    if rule.n * per_node < len(classes):
        raise PartitionError(
            f"{rule.n} nodes with {per_node} classes each cannot hold all {len(classes)} classes; "
            "use more nodes or classes_per_node"
        )
    held = deal_kinds(np.full(rule.n, per_node), len(classes), rng)
    return Dealt(hand_out(examples.y, classes, held, None, rng))


def natural(examples: Examples, rule: Rule, rng: np.random.Generator) -> Dealt:
    """Make each user a node; or deal the users to nodes at random, as many users to each.

    A user without an example to deal is left out.
    """
    if examples.users is None:
        raise PartitionError(
            "partition 'natural' needs data with users, such as femnist, celeba or arrays with "
            "'user'"
        )
    users, user_of = np.unique(examples.users, return_inverse=True)
    n = rule.num_nodes or len(users)
    if n > len(users):
        raise PartitionError(
            f"num_nodes must be <= the {len(users)} users with examples to deal, got {n}; "
            "num_nodes = 'auto' makes each user a node"
        )
    node_of_user = np.arange(len(users))
    names = tuple(examples.user_names[u] for u in users) if examples.user_names else ()
    if n < len(users):
        node_of_user, names = rng.permutation(node_of_user % n), ()
    return Dealt(node_of_user[user_of], names=names)


def quantity(examples: Examples, rule: Rule, rng: np.random.Generator) -> Dealt:
    """Deal at random, with node sizes that vary as `spread` and `sd` say."""
    total = len(examples.y)
    drawn = draw(total / rule.n, 1, total, rule.n, rule.spread, rng)
    return _sized(total, drawn, rng)


def sized_by(weight: Callable[[Floats], Floats]) -> Callable[..., Dealt]:
    """Deal at random, node i = 1..n in proportion to weight(i), and at least one example."""

    def deal(examples: Examples, rule: Rule, rng: np.random.Generator) -> Dealt:
        i = np.arange(1, rule.n + 1, dtype=np.float64)
        return _sized(len(examples.y), weight(i), rng)

    return deal


def _sized(total: int, weights: Floats, rng: np.random.Generator) -> Dealt:
    sizes = fit_counts(weights, total, 1, total)
    return _in_turn(rng.permutation(total), np.repeat(np.arange(len(sizes)), sizes))


def _in_turn(order: Ints, owners: Ints) -> Dealt:
    """Give example order[i] to node owners[i]."""
    node_of = np.empty(len(order), dtype=np.int64)
    node_of[order] = owners
    return Dealt(node_of)
