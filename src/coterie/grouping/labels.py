"""Rival groupings by the nodes' labels, and by likeness.

`cov`, `astraea` and `fedseq` fill groups greedily, `label_ilp` solves for the best assignment; all
four want every group's labels to be as mixed as can be. `similar` wants the opposite. Where a
published rule lets K follow, it is fixed here. Only `label_ilp` keeps to `evidence.limits`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, cycle

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.core.quiet import quiet
from coterie.grouping import Evidence, Grouping, Planner, with_servers

TIME_LIMIT_S = 10.0
CHOICES_A_SECOND = 4_000  # of a node and a group: with more, HiGHS finds nothing in its time
GAP = 0.01
MOST_NODES = 30  # of the solver's search tree
INFEASIBLE = 2  # milp's status
ROUNDING = 1e-9  # of all examples: a fall of the imbalance that is none
RESTARTS = 10
MOST_STEPS = 100  # of one k-means

# From a group's label counts so far [classes] and those of m nodes [m, classes]: the cost of each.
Cost = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True)
class Effort:
    """When to end the search for the best assignment: see `label_ilp`."""

    time_limit_s: float = TIME_LIMIT_S
    gap: float = GAP
    most_nodes: int = MOST_NODES


def cov(evidence: Evidence, rng: np.random.Generator) -> Grouping:
    """Even out the label counts of each group by their coefficient of variation, as Group-FEL does.

    Liu et al., "Group-based hierarchical federated learning: convergence, group formation, and
    sampling", ICPP 2023. A group starts from a random client; then the client joins with which
    std/mean of the group's label counts is least. Published, a group ends once that is below a
    bound and the group has a least size; here, once it has its share of the nodes.
    """
    return _filled(evidence, rng, _variation)


def astraea(evidence: Evidence, rng: np.random.Generator) -> Grouping:
    """Fill mediators whose labels are near to uniform, as Astraea does.

    Duan et al., "Astraea: self-balancing federated learning for improving classification accuracy
    of mobile deep learning applications", ICCD 2019. A mediator takes, from its first client on,
    the one that minimises KL(labels of mediator and client || uniform), until it has gamma clients.
    Here gamma = ceil(n/K), less one for the last mediators where K does not divide n: full ones
    would leave others empty.
    """
    return _filled(evidence, rng, _from_uniform)


def fedseq(evidence: Evidence, rng: np.random.Generator) -> Grouping:
    """Gather clients that are unlike their group, as the greedy superclients of FedSeq are.

    Zaccone et al., "Speeding up heterogeneous federated learning with sequentially trained
    superclients", ICPR 2022. A group takes the client whose label distribution is farthest, by
    cosine distance, from the group's mean weighted by data; an empty group's mean is uniform.
    Published, a group ends at a least number of examples or a most of clients; here, at its share
    of the nodes.
    """
    return _filled(evidence, rng, _likeness)


def label_ilp(
    time_limit_s: float = TIME_LIMIT_S, gap: float = GAP, most_nodes: int = MOST_NODES
) -> Planner:
    """Return the assignment that brings the groups' labels nearest to everyone's, as a planner.

    Mhaisen et al., "Optimal user-edge assignment in hierarchical federated learning based on
    statistical properties and network topology constraints", IEEE TNSE 2022: the `imbalance` is
    minimised as an integer program, each node in one group that it can reach. HiGHS ends when it
    proves the imbalance within gap times all examples of the least, else with the best it has after
    most_nodes of its search tree or time_limit_s. Only the last makes the answer depend on the
    machine's speed. Since that best may be poor, nodes are then swapped while the imbalance falls.

    Published, the edges are given. Here there are K groups, of n//K to ceil(n/K) nodes unless
    `evidence.limits` has a min_size or max_size. With max_hops or capacity, every group has a seat,
    spread out by farthest-first traversal, which serves it and which its nodes can reach.
    """
    effort = Effort(time_limit_s, gap, most_nodes)

    def plan(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        counts = _counts(evidence)
        n, K, limits = len(counts), evidence.num_groups, evidence.limits
        low, high = n // K, -(-n // K)
        if limits.min_size > 1 or limits.max_size is not None:
            low, high = max(limits.min_size, 1), limits.max_size or n
        most, seats = np.full(K, high), None
        within = np.ones((K, n), dtype=np.bool_)
        allowed = _without_symmetry(counts, K)
        if limits.max_hops is not None or limits.capacity is not None:
            seats = _seats(evidence)
            allowed = within = _reachable(evidence, seats)
            if limits.capacity is not None:
                most = np.minimum(most, limits.capacity[seats])
        if n * K > CHOICES_A_SECOND * max(effort.time_limit_s, 1.0):
            raise GroupingError(
                f"{n:,} nodes and {K} groups are too many to balance in {effort.time_limit_s:g} s; "
                "raise time_limit_s"
            )
        z, _ = assign(counts, allowed, low, most, effort)
        z = swapped(counts, z, within)
        cost = (imbalance(counts, z),)
        return with_servers(z, evidence, cost) if seats is None else Grouping(z, seats, cost)

    return plan


def similar(evidence: Evidence, rng: np.random.Generator) -> Grouping:
    """Cluster nodes that are alike: the opposite goal, as a contrast.

    The clusters of IFCA (Ghosh et al., "An efficient framework for clustered federated learning",
    NeurIPS 2020) and CFL (Sattler et al., "Clustered federated learning", IEEE TNNLS 2020) each
    train a model of their own, from nodes whose gradients agree. Here k-means with k-means++ starts
    finds K clusters of the directions of `evidence.vectors`, or of the Gram matrix's rows; a
    cluster that falls empty takes the node farthest from its own centre.
    """
    if evidence.vectors is None and evidence.gram is None:
        raise GroupingError("grouping alike nodes needs their gradients or label counts")
    rows = evidence.inner if evidence.vectors is None else evidence.vectors
    x = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    runs = [_k_means(x, evidence.num_groups, rng) for _ in range(RESTARTS)]
    z, inertia = min(runs, key=lambda run: run[1])
    return with_servers(z, evidence, (inertia,))


def imbalance(counts: Floats, z: Ints) -> float:
    """Sum over groups and classes of |n_kc - N_k p_c|: examples too many or too few of a class.

    Of 10 and 6 examples, groups of (8, 1) and (2, 5): 2 |8 - 9 * 10/16| + 2 |2 - 7 * 10/16|.

    >>> imbalance(np.array([[8.0, 1.0], [2.0, 2.0], [0.0, 3.0]]), np.array([0, 1, 1]))
    9.5
    """
    of_group = np.zeros((int(z.max()) + 1, len(z)))
    of_group[z, np.arange(len(z))] = 1
    return float(np.abs(of_group @ _surplus(counts)).sum())


def assign(
    counts: Floats, allowed: NDArray[np.bool_], low: int, most: Ints, effort: Effort
) -> tuple[Ints, float]:
    """Find z of least imbalance, and how far it may be from the least as a share of all examples.

    Node i may be in group k where allowed [K, n]; group k has from low to most[k] nodes. The
    variables are for every group x_k [n], 1 for its members, and t_k [classes], its surpluses,
    which are half of its imbalance. Members cost their examples, which adds the same to every
    grouping's objective: the solver's relative gap then is one of all examples, not of nearly none.
    """
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    (n, C), K = counts.shape, len(allowed)
    one_group = sparse.kron(np.ones((1, K)), np.eye(n, n + C))
    size = np.concatenate([np.ones(n), np.zeros(C)])
    surplus = np.hstack([_surplus(counts).T, -np.eye(C)])
    of_group = sparse.kron(sparse.eye_array(K), np.vstack([size, surplus]))
    least = np.hstack([np.full((K, 1), low), np.full((K, C), -np.inf)])
    greatest = np.hstack([most[:, None], np.zeros((K, C))])
    with quiet():  # HiGHS says some things however little it is asked to
        found = milp(
            np.tile(np.concatenate([counts.sum(axis=1), np.full(C, 2.0)]), K),
            integrality=np.tile(size, K),
            bounds=Bounds(0, np.hstack([allowed, np.full((K, C), np.inf)]).ravel()),
            constraints=[
                LinearConstraint(one_group, 1, 1),
                LinearConstraint(of_group, least.ravel(), greatest.ravel()),
            ],
            options={
                "time_limit": effort.time_limit_s,
                "mip_rel_gap": effort.gap,
                "node_limit": effort.most_nodes,
            },
        )
    if found.x is not None:
        z: Ints = found.x.reshape(K, n + C)[:, :n].argmax(axis=0).astype(np.int64)
        return z, float(found.mip_gap)
    if found.status == INFEASIBLE:
        raise GroupingError(
            f"no {K} groups of {low} to {int(most.max())} nodes hold the {n} nodes within the "
            "limits; change min_size, max_size, max_hops or capacity"
        )
    raise GroupingError(
        f"no {K} groups of {n} nodes were found in {effort.time_limit_s:g} s; raise time_limit_s"
    )


def swapped(counts: Floats, z: Ints, allowed: NDArray[np.bool_]) -> Ints:
    """Swap two nodes of two groups, the best pair first, while that lowers the imbalance."""
    z, surplus, K = z.copy(), _surplus(counts), len(allowed)
    of_group = np.array([surplus[z == k].sum(axis=0) for k in range(K)])  # [K, classes]
    unchanged = 0  # pairs of groups in a row that no swap improves
    for a, b in cycle(combinations(range(K), 2)):
        if unchanged == K * (K - 1) // 2:
            break
        unchanged += 1
        in_a = np.flatnonzero((z == a) & allowed[b])
        in_b = np.flatnonzero((z == b) & allowed[a])
        gain = surplus[in_b] - surplus[in_a][:, None]  # [in a, in b, classes]: of group a
        now = np.abs(of_group[a]).sum() + np.abs(of_group[b]).sum()
        then = np.abs(of_group[a] + gain).sum(axis=2) + np.abs(of_group[b] - gain).sum(axis=2)
        if then.size and then.min() < now - ROUNDING * counts.sum():
            i, j = np.unravel_index(int(then.argmin()), then.shape)
            z[in_a[i]], z[in_b[j]] = b, a
            of_group[a] += gain[i, j]
            of_group[b] -= gain[i, j]
            unchanged = 0
    return z


def _filled(evidence: Evidence, rng: np.random.Generator, cost: Cost) -> Grouping:
    """Fill one group after another, each time with the node of least cost; ties at random."""
    counts, K = _counts(evidence), evidence.num_groups
    n = len(counts)
    left = rng.permutation(n)
    z = np.empty(n, dtype=np.int64)
    for k in range(K):
        group = np.zeros(counts.shape[1])
        for _ in range(n // K + (k < n % K)):
            at = int(np.argmin(cost(group, counts[left])))
            group += counts[left[at]]
            z[left[at]] = k
            left = np.delete(left, at)
    return with_servers(z, evidence)


def _variation(group: Floats, nodes: Floats) -> Floats:
    """Coefficient of variation of the group's label counts with each node; 0 for a first node."""
    if not group.any():
        return np.zeros(len(nodes))
    grown = group + nodes
    variation: Floats = grown.std(axis=1) / grown.mean(axis=1)
    return variation


def _from_uniform(group: Floats, nodes: Floats) -> Floats:
    """KL from uniform of the group's labels with each node; where none is, as of one class."""
    from scipy.special import xlogy

    C, grown = len(group), group + nodes
    shares = grown / np.maximum(grown.sum(axis=1, keepdims=True), 1)
    divergence: Floats = xlogy(shares, C * shares).sum(axis=1)
    return np.where(grown.any(axis=1), divergence, np.log(C))


def _likeness(group: Floats, nodes: Floats) -> Floats:
    """Cosine of the group's labels, uniform if it has none, and each node's: 1 if that has none."""
    mean = group if group.any() else np.ones(len(group))
    norms = np.linalg.norm(nodes, axis=1) * np.linalg.norm(mean)
    return np.where(norms > 0, nodes @ mean / np.where(norms > 0, norms, 1.0), 1.0)


def _counts(evidence: Evidence) -> Floats:
    """Label counts [n, classes]; `label_shares` refuses evidence without them."""
    shape = evidence.label_shares.shape
    return np.asarray(evidence.label_counts, dtype=np.float64).reshape(shape)


def _surplus(counts: Floats) -> Floats:
    """Examples of every class that a node has above its fair share [n, classes]."""
    of_class = counts.sum(axis=0) / max(float(counts.sum()), 1.0)
    surplus: Floats = counts - counts.sum(axis=1, keepdims=True) * of_class
    return surplus


def _without_symmetry(counts: Floats, K: int) -> NDArray[np.bool_]:
    """Allow the r-th node groups 0..r: of groups that differ in number only, one order is enough.

    The nodes with the most to balance come first, which prunes the search the most.
    """
    order = np.argsort(-np.abs(_surplus(counts)).sum(axis=1), kind="stable")
    allowed: NDArray[np.bool_] = np.arange(K)[:, None] <= np.argsort(order)
    return allowed


def _seats(evidence: Evidence) -> Ints:
    """Nodes that serve the groups [K], by farthest-first traversal on hops.

    Every start is tried, and the one kept that leaves the farthest node nearest to a seat. Nodes
    that can serve less than a fair share are passed over while there are others.
    """
    n, K = len(evidence.p), evidence.num_groups
    able = np.arange(n)
    if (capacity := evidence.limits.capacity) is not None:
        able = np.flatnonzero(capacity >= min(-(-n // K), np.sort(capacity)[-K]))
    hops = evidence.between(able, np.arange(n))
    seats = np.arange(len(able))[:, None]  # [starts, seats so far], numbers in able
    nearest = hops
    for _ in range(K - 1):
        farthest = nearest[:, able].argmax(axis=1)
        seats = np.column_stack([seats, farthest])
        nearest = np.minimum(nearest, hops[farthest])
    best: Ints = able[seats[nearest.max(axis=1).argmin()]]
    return best


def _reachable(evidence: Evidence, seats: Ints) -> NDArray[np.bool_]:
    """Which nodes can be in which seat's group [K, n]; a seat in its own only."""
    K, max_hops = len(seats), evidence.limits.max_hops
    hops = evidence.between(seats, np.arange(len(evidence.p)))
    allowed: NDArray[np.bool_] = hops <= (hops.max() if max_hops is None else max_hops)
    if (cut_off := np.flatnonzero(~allowed.any(axis=0))).size:
        raise GroupingError(
            f"{evidence.topology.name(int(cut_off[0]))} is farther than max_hops = {max_hops} from "
            f"the server of each of {K} groups; raise max_hops or num_groups"
        )
    allowed[:, seats] = np.eye(K, dtype=np.bool_)
    return allowed


def _k_means(x: Floats, K: int, rng: np.random.Generator) -> tuple[Ints, float]:
    """Cluster rows x [n, r] by Lloyd's steps from a k-means++ start, and sum the squared distances.

    k-means++ draws each next centre with chance in proportion to squared distance from the others.
    """
    n, norms = len(x), (x**2).sum(axis=1)

    def squares(centres: Floats) -> Floats:
        apart: Floats = norms[:, None] - 2 * x @ centres.T + (centres**2).sum(axis=1)
        return apart.clip(min=0.0)

    starts = [int(rng.integers(n))]
    nearest = np.full(n, np.inf)
    while len(starts) < K:
        nearest = np.minimum(nearest, squares(x[starts[-1:]])[:, 0])
        chance = nearest / nearest.sum() if nearest.any() else None
        starts.append(int(rng.choice(n, p=chance)))
    centres, z = x[starts], np.full(n, -1, dtype=np.int64)
    for _ in range(MOST_STEPS):
        apart = squares(centres)
        last, z = z, _without_empty(apart.argmin(axis=1), apart)
        if np.array_equal(last, z):
            break
        member = (z == np.arange(K)[:, None]).astype(np.float64)  # [K, n]
        centres = member @ x / member.sum(axis=1, keepdims=True)
    return z, float(squares(centres)[np.arange(n), z].sum())


def _without_empty(z: Ints, apart: Floats) -> Ints:
    """Give every empty cluster the node farthest from its centre, of those that are not alone."""
    for k in range(apart.shape[1]):
        sizes = np.bincount(z, minlength=apart.shape[1])
        if sizes[k] == 0:
            far = np.where(sizes[z] > 1, apart[np.arange(len(z)), z], -np.inf)
            z[far.argmax()] = k
    return z
