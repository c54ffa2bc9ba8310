from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.grouping import Evidence, Grouping, Limits, Planner, check_grouping, labels
from coterie.grouping.baselines import at_random
from coterie.grouping.labels import assign, astraea, cov, fedseq, imbalance, label_ilp, similar
from coterie.grouping.shapefl import associate, dissimilarity, shapefl
from coterie.topology import Speed, Topology, assemble, edge_cloud
from problems import random_evidence

UNHURRIED_S = 1e6  # the answer does not depend on how busy the machine is
ilp = partial(label_ilp, UNHURRIED_S)
ILP = ilp(gap=0.1)
BY_LABELS: dict[str, Planner] = {"cov": cov, "astraea": astraea, "fedseq": fedseq, "ilp": ILP}
PLANNERS = {**BY_LABELS, "similar": similar, "shapefl": shapefl(most_swaps=20)}


def plan(planner: Planner, evidence: Evidence, seed: int = 0) -> Grouping:
    return planner(evidence, np.random.default_rng(seed))


def row(switch_of: Sequence[int]) -> Topology:
    """Hosts on switches in a row, by the number of their switch: |a - b| + 2 hops."""
    S = max(switch_of) + 1
    links = np.stack([np.arange(S - 1), np.arange(1, S)], axis=1)
    return assemble(np.array(switch_of), links, ("core",) * (S - 1), S, Speed(), Speed())


def labelled(
    counts: list[list[int]], K: int, topology: Topology | None = None, limits: Limits | None = None
) -> Evidence:
    each = np.array(counts)
    n, p = len(each), each.sum(axis=1) / each.sum()
    net = topology or row(range(n))
    return Evidence(K, p, np.zeros(n, int), net, label_counts=each, limits=limits or Limits())


def pulled(gradients: list[float], topology: Topology) -> Evidence:
    """Two groups of nodes with as much data each and gradients on a line."""
    n, g = len(gradients), np.array(gradients, dtype=np.float64)
    return Evidence(2, np.full(n, 1 / n), np.zeros(n, int), topology, np.outer(g, g))


def random_labels(n: int, K: int, seed: int) -> Evidence:
    """Random gradients and, apart from them, random label counts; some nodes have none."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 20, (n, 3)) * (rng.random((n, 1)) < 0.9)
    counts[0] += 1
    p = counts.sum(axis=1) / counts.sum()
    return replace(random_evidence(n, K, seed, min(2, n)), p=p, label_counts=counts)


def groups(z: Ints) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(z == k).tolist()) for k in range(int(z.max()) + 1)}


@settings(deadline=None, max_examples=30)
@pytest.mark.parametrize("name", sorted(PLANNERS))
@given(n_and_K=st.tuples(st.integers(1, 14), st.integers(1, 14)), seed=st.integers(0, 99))
@example(n_and_K=(10, 6), seed=0)  # mediators of ceil(10/6) = 2 would be 5
def test_every_rival_makes_exactly_k_groups_and_the_same_again(
    name: str, n_and_K: tuple[int, int], seed: int
) -> None:
    n, K = max(n_and_K), min(n_and_K)
    e = random_labels(n, K, seed)
    found, again = (plan(PLANNERS[name], e, 5) for _ in range(2))
    assert len(check_grouping(found, n).sizes) == K
    if name in BY_LABELS:
        assert set(found.sizes) <= {n // K, n // K + 1}
    elif name == "shapefl":
        assert max(found.sizes) <= -(-n // K)
    assert np.array_equal(found.z, again.z)
    assert np.array_equal(found.servers, again.servers)


@pytest.mark.parametrize("name", sorted(PLANNERS))
def test_places_serve_where_there_are_any(name: str) -> None:
    e = replace(random_labels(12, 3, 1), topology=edge_cloud(np.arange(12) % 4))
    found = plan(PLANNERS[name], e)
    check_grouping(found, 12, e.places)
    assert set(found.servers) <= set(e.places)


@pytest.mark.parametrize("name", sorted(PLANNERS))
def test_a_rival_says_what_it_needs_to_know(name: str) -> None:
    e = random_evidence(6, 2, 0)
    needs = "the nodes' label counts"
    if name not in BY_LABELS:
        e, needs = replace(e, gram=None), ".* gradients or label counts"
    with pytest.raises(GroupingError, match=f"needs {needs}"):
        plan(PLANNERS[name], e)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("planner", [cov, astraea, ilp(gap=0.0)])
def test_opposites_of_one_size_are_paired(planner: Planner, seed: int) -> None:
    # Counts together: 0+1 and 2+3 are (10, 10) and (1, 1), even; 0+3 is (10, 1), 0+2 is (11, 0).
    e = labelled([[10, 0], [0, 10], [1, 0], [0, 1]], 2)
    assert groups(plan(planner, e, seed).z) == {frozenset({0, 1}), frozenset({2, 3})}


def test_cov_starts_from_any_client_and_astraea_from_the_most_even() -> None:
    # Alone, node 0 is even and 3 nearly; 0+3 = (11, 9), 0+1 = (15, 5), and 1+2 = (10, 10).
    e = labelled([[5, 5], [10, 0], [0, 10], [6, 4]], 2)
    firsts: dict[str, set[int]] = {"cov": set(), "astraea": set()}
    for seed in range(20):
        for name, first in firsts.items():
            z = plan(PLANNERS[name], e, seed).z
            assert groups(z) == {frozenset({0, 3}), frozenset({1, 2})}
            first.add(int(z[0]))
    assert firsts == {"cov": {0, 1}, "astraea": {0}}


def test_cov_and_astraea_measure_as_they_say() -> None:
    # (2, 0, 2): CoV = sqrt(8/9) / (4/3), KL = log 3/2.
    # (7, 1, 1): CoV = sqrt(8) / 3, KL = log 3 + 7/9 log 7/9 + 2/9 log 1/9.
    group, nodes = np.array([1.0, 0.0, 1.0]), np.array([[1.0, 0.0, 1.0], [6.0, 1.0, 0.0]])
    assert labels._variation(group, nodes) == pytest.approx([0.5**0.5, 8**0.5 / 3])
    KL = [np.log(1.5), np.log(3) + (7 * np.log(7 / 9) + 2 * np.log(1 / 9)) / 9]
    assert labels._from_uniform(group, nodes) == pytest.approx(KL)


@pytest.mark.parametrize("planner", [astraea, fedseq])
def test_nodes_without_data_make_no_group_while_others_are_left(planner: Planner) -> None:
    e = labelled([[0, 0], [0, 0], [3, 0], [0, 3], [4, 1], [1, 4]], 3)
    for seed in range(5):
        assert (np.bincount(plan(planner, e, seed).z, weights=e.p)[:2] > 0).all()


@pytest.mark.parametrize("seed", range(10))
def test_fedseq_puts_all_classes_in_every_group(seed: int) -> None:
    # Each node is of one class. After the first, the other classes are at cosine distance 1 and its
    # own at 0; after two, the third class is at 1 and the two at 1 - 1/sqrt(2).
    e = labelled([[5, 0, 0], [0, 5, 0], [0, 0, 5]] * 2, 2)
    z = plan(fedseq, e, seed).z
    assert (z[:3] != z[3:]).all()


def test_the_mean_of_a_fedseq_group_is_weighted_by_data() -> None:
    # (9, 1): cosines 9/sqrt(82) and 1/sqrt(82) to either class, so the second is farther.
    found = labels._likeness(np.array([9.0, 1.0]), np.array([[5.0, 0.0], [0.0, 2.0]]))
    assert found == pytest.approx(np.array([9, 1]) / np.sqrt(82))
    # An empty group's mean is uniform: (3, 1) is at 4 / sqrt(20), and one class at 1 / sqrt(2).
    found = labels._likeness(np.zeros(2), np.array([[3.0, 1.0], [0.0, 2.0]]))
    assert found == pytest.approx([4 / np.sqrt(20), 1 / np.sqrt(2)])


@pytest.mark.parametrize("seed", range(5))
def test_label_ilp_is_as_good_as_brute_force(seed: int) -> None:
    e = random_labels(8, 2, seed)
    counts = np.asarray(e.label_counts, dtype=np.float64)
    halves = [np.array(z) for z in product(range(2), repeat=8) if sum(z) == 4]
    least = min(imbalance(counts, z) for z in halves)
    assert plan(ilp(gap=0.0, most_nodes=10_000), e).cost_trace == pytest.approx((least,))
    anywhere = np.ones((2, 8), dtype=np.bool_)
    z, gap = assign(counts, anywhere, 4, np.array([4, 4]), labels.Effort(UNHURRIED_S, 0.0, 10_000))
    assert imbalance(counts, z) == pytest.approx(least)
    assert gap == pytest.approx(0.0, abs=1e-6)
    z, gap = assign(counts, anywhere, 4, np.array([4, 4]), labels.Effort(UNHURRIED_S, 0.2))
    assert gap <= 0.2
    assert imbalance(counts, z) - least <= gap * (counts.sum() + imbalance(counts, z))


@pytest.mark.parametrize("seed", range(5))
def test_swaps_end_where_none_would_lower_the_imbalance(seed: int) -> None:
    e = random_labels(12, 3, seed)
    counts = np.asarray(e.label_counts, dtype=np.float64)
    rough = plan(ilp(gap=0.9), e).z
    assert np.array_equal(labels.swapped(counts, rough, np.ones((3, 12), dtype=np.bool_)), rough)
    start = np.arange(12) % 3
    reach = (np.random.default_rng(seed).random((3, 12)) < 0.7) | (start == [[0], [1], [2]])
    z = labels.swapped(counts, start, reach)
    assert imbalance(counts, z) < imbalance(counts, start)
    assert reach[z, np.arange(12)].all()
    for i, j in combinations(range(12), 2):
        trial = z.copy()
        trial[[i, j]] = z[[j, i]]
        if reach[trial, np.arange(12)].all():
            assert imbalance(counts, trial) >= imbalance(counts, z) - 1e-6


def test_label_ilp_keeps_to_the_limits_on_sizes() -> None:
    # Node 0 has as much of class 0 as the others of class 1: only with all of them is it even.
    counts = [[4, 0], [0, 1], [0, 1], [0, 1], [0, 1], [3, 3]]
    wide = plan(ilp(gap=0.0), labelled(counts, 2, limits=Limits(max_size=5)))
    assert groups(wide.z) == {frozenset({0, 1, 2, 3, 4}), frozenset({5})}
    for limits in (Limits(), Limits(min_size=2), Limits(max_size=4)):
        assert min(plan(ilp(gap=0.0), labelled(counts, 2, limits=limits)).sizes) >= 2
    with pytest.raises(GroupingError, match="no 2 groups of 1 to 2 nodes hold the 6 nodes"):
        plan(ilp(), labelled(counts, 2, limits=Limits(max_size=2)))


def test_label_ilp_stays_within_reach_of_the_seats() -> None:
    # Any traversal of the line ends on hosts 2 or more steps from some node, which is 4 hops.
    counts = [[4, 0]] * 3 + [[0, 4]] * 3
    mixed = plan(ilp(gap=0.0), labelled(counts, 2))
    assert mixed.cost_trace == pytest.approx((8.0,))  # two to one and one to two
    e = labelled(counts, 2, limits=Limits(max_hops=4))
    near = plan(ilp(gap=0.0), e)
    assert (e.hops[np.arange(6), near.servers[near.z]] <= 4).all()
    with pytest.raises(GroupingError, match=r"node [1-4] is farther than max_hops = 3"):
        plan(ilp(), labelled(counts, 2, limits=Limits(max_hops=3)))


def test_sizes_that_cannot_be_within_reach_are_refused() -> None:
    counts, sites = [[1, 1]] * 6, row([0, 0, 0, 0, 3, 3])
    with pytest.raises(GroupingError, match="no 2 groups of 3 to 3 nodes hold the 6 nodes"):
        plan(ilp(), labelled(counts, 2, sites, Limits(max_hops=2)))
    found = plan(ilp(), labelled(counts, 2, sites, Limits(max_hops=2, max_size=4)))
    assert groups(found.z) == {frozenset({0, 1, 2, 3}), frozenset({4, 5})}


def test_seats_are_nodes_that_can_serve_their_group() -> None:
    # Farthest-first would seat the ends of the line, but hosts 1 and 2 alone can serve enough.
    capacity = np.array([1, 4, 2, 1, 1, 0])
    limits = Limits(max_size=6, capacity=capacity)
    found = plan(ilp(), labelled([[1, 2]] * 6, 2, limits=limits))
    assert set(found.servers) == {1, 2}
    assert (np.array(found.sizes) <= capacity[found.servers]).all()
    check_grouping(found, 6)
    for tight in (capacity // 2, np.ones(6, int)):  # for 3 nodes in all, and for less than n//K
        with pytest.raises(GroupingError, match="change min_size, max_size, max_hops or capacity"):
            plan(ilp(), labelled([[1, 2]] * 6, 2, limits=Limits(capacity=tight)))


def test_label_ilp_says_when_its_time_is_up() -> None:
    with pytest.raises(GroupingError, match="found in 0 s; raise time_limit_s"):
        plan(label_ilp(time_limit_s=0.0), random_labels(40, 4, 0))


def test_label_ilp_does_not_begin_what_it_cannot_end() -> None:
    with pytest.raises(
        GroupingError, match="1,000 nodes and 5 groups are too many to balance in 1 s"
    ):
        plan(label_ilp(time_limit_s=1.0), random_labels(1000, 5, 0))


@pytest.mark.parametrize("seed", range(10))
def test_similar_puts_like_directions_together(seed: int) -> None:
    # By length nodes 0 and 2 would be nearer to each other than to 1 and 3.
    sketch = np.array([[1.0, 0.0], [9.0, 0.5], [0.0, 1.0], [0.5, 9.0]])
    base = Evidence(2, np.full(4, 0.25), np.zeros(4, int), row(range(4)))
    pairs = {frozenset({0, 1}), frozenset({2, 3})}
    assert groups(plan(similar, replace(base, sketch=sketch), seed).z) == pairs
    assert groups(plan(similar, replace(base, gram=sketch @ sketch.T), seed).z) == pairs
    e = labelled([[8, 2], [80, 20], [2, 8], [1, 5]], 2)
    assert groups(plan(similar, e, seed).z) == pairs


def test_similar_fills_every_cluster_of_equal_nodes() -> None:
    e = replace(random_evidence(7, 5, 0), gram=np.ones((7, 7)))
    assert len(check_grouping(plan(similar, e), 7).sizes) == 5


def test_k_means_finds_clusters_and_says_their_inertia() -> None:
    # Two nodes at 1 from each of three means, twice 1 squared.
    x = np.array([[0.0, 1], [0, -1], [50, 1], [50, -1], [0, 91], [0, 89]])
    runs = [labels._k_means(x, 3, np.random.default_rng(seed)) for seed in range(10)]
    z, inertia = min(runs, key=lambda run: run[1])
    assert groups(z) == {frozenset({0, 1}), frozenset({2, 3}), frozenset({4, 5})}
    assert inertia == pytest.approx(6.0)


@pytest.mark.parametrize("seed", range(10))
def test_shapefl_prefers_near_nodes_when_data_does_not_count(seed: int) -> None:
    # 2 hops on a switch, 5 across: mean (12 * 2 + 18 * 5) / 30 = 3.8 over pairs. With a server on
    # either switch the other four nodes have 2.
    e = pulled([1, 1, 1, -1, -1, -1], row([0, 0, 0, 3, 3, 3]))
    found = plan(shapefl(alpha_iid=0.0), e, seed)
    assert groups(found.z) == {frozenset({0, 1, 2}), frozenset({3, 4, 5})}
    assert found.cost_trace[-1] == pytest.approx((4 / 3) / 3.8)


@pytest.mark.parametrize("seed", range(10))
def test_shapefl_prefers_opposites_when_hops_do_not_count(seed: int) -> None:
    # S is 2 for opposites, else 0: its mean over pairs is 4 * 2 / 6 = 4/3. A pair of opposites has
    # S_e = 2 * 2 / 4 = 1, so that the total is -1 / (4/3).
    e = pulled([1, 3, -2, -1], row([0, 0, 3, 3]))
    found = plan(shapefl(alpha_comm=0.0), e, seed)
    assert (found.z[[0, 2]] != found.z[[1, 3]]).all()
    assert found.cost_trace[-1] == pytest.approx(-3 / 4)


def test_shapefl_goes_by_the_last_layer_where_it_is_known() -> None:
    # By their gradients 0 and 1 are alike, by the last layer 0 and 2.
    e = pulled([1, 1, -1, -1], row(range(4)))
    known = replace(e, last_layer=pulled([1, -1, 1, -1], row(range(4))).inner)
    for seed in range(5):
        z = plan(shapefl(alpha_comm=0.0), known, seed).z
        assert (z[:2] != z[2:]).all()
    assert dissimilarity(pulled([0, 2], row(range(2)))).tolist() == [[0, 1], [1, 0]]
    broken = np.eye(4)
    broken[2] = broken[:, 2] = np.nan
    with pytest.raises(GroupingError, match="cosines of node 2 are not finite"):
        plan(shapefl(), replace(e, last_layer=broken))


@pytest.mark.parametrize("seed", range(5))
def test_shapefl_association_equals_one_that_recounts_everything(seed: int) -> None:
    e = random_evidence(17, 3, seed, edges=4)
    S, far = dissimilarity(e), e.hops / 10.0
    servers = np.array([2, 9, 16])
    found, total = associate(far, S, e.p, servers)
    z = np.full(17, -1)
    z[servers] = np.arange(3)
    for _ in range(14):
        now = _total(far, S, e.p, servers, z)
        rises = {
            (i, k): _total(far, S, e.p, servers, np.where(np.arange(17) == i, k, z)) - now
            for i, k in product(np.flatnonzero(z < 0), range(3))
            if (z == k).sum() < 6  # ceil(17 / 3)
        }
        i, k = min(rises, key=lambda pair: rises[pair])
        z[i] = k
    assert np.array_equal(found, z)
    assert total == pytest.approx(_total(far, S, e.p, servers, z))


def _total(far: Floats, S: Floats, p: Floats, servers: Ints, z: Ints) -> float:
    """Sum of the ways to the servers less the servers' diversity, from the definitions."""
    total = 0.0
    for k, server in enumerate(servers):
        members = np.flatnonzero(z == k)
        pairs = sum(S[i, j] * p[i] * p[j] for i in members for j in members if i < j)
        total += far[members, server].sum() - pairs / (p[members].sum() ** 2 / 2)
    return float(total)


def test_shapefl_swaps_servers_only_to_lower_the_total() -> None:
    e = random_evidence(40, 4, 0, edges=8)
    traces = [plan(shapefl(), e, seed).cost_trace for seed in range(5)]
    assert all(list(trace) == sorted(set(trace), reverse=True) for trace in traces)
    assert max(len(trace) for trace in traces) > 2
    assert len(plan(shapefl(most_swaps=0), e).cost_trace) == 1


@pytest.mark.parametrize("name", BY_LABELS)
def test_grouping_by_labels_mixes_them_better_than_chance_and_similar_worse(name: str) -> None:
    # As many examples of every class, in shards of one class, two to a node.
    shards = np.random.default_rng(4).permutation(np.arange(60) % 5).reshape(30, 2)
    counts = np.array([np.bincount(pair, minlength=5) for pair in shards])
    e = labelled(counts.tolist(), 4)

    def apart(planner: Planner) -> float:
        return float(np.mean([imbalance(1.0 * counts, plan(planner, e, s).z) for s in range(3)]))

    assert apart(PLANNERS[name]) < 0.6 * apart(at_random)
    assert apart(similar) > 1.5 * apart(at_random)
