from itertools import combinations, product
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.costs import Ints, divergence
from coterie.errors import GroupingError
from coterie.grouping import Evidence, Grouping, check_grouping, with_servers
from coterie.grouping.baselines import at_random, by_edge, single
from coterie.grouping.medoids import Weights, _assign, assignment_cost, node_grouping
from coterie.topology import jellyfish
from problems import random_evidence

Kind = Literal["paper", "reference"]


def plan(kind: Kind, e: Evidence, iid: float, comm: float, seed: int) -> Grouping:
    return node_grouping(kind, iid, comm)(e, np.random.default_rng(seed))


@settings(deadline=None)
@given(st.sampled_from(["paper", "reference"]), st.integers(2, 30), st.integers(0, 999))
def test_the_cost_trace_never_rises_and_every_group_has_a_server(
    kind: Kind, n: int, seed: int
) -> None:
    e = random_evidence(n, min(n, 1 + seed % 5), seed)
    found = plan(kind, e, 1.0, 1.0, seed)
    assert all(a > b for a, b in zip(found.cost_trace, found.cost_trace[1:], strict=False))
    assert len(found.cost_trace) >= 1
    assert len(found.sizes) == e.num_groups
    check_grouping(found, n)


@pytest.mark.parametrize("seed", range(20))
def test_fedavg_c_never_beats_brute_force_and_always_beats_a_random_grouping(seed: int) -> None:
    e = _on_jellyfish(8, 2, seed)
    found = plan("paper", e, 0.0, 1.0, seed)
    every = [
        assignment_cost("paper", e, np.array(z), np.array(medoids), Weights(0.0, 1.0))
        for medoids in combinations(range(8), 2)
        for z in product(range(2), repeat=8)
        if z[medoids[0]] == 0 and z[medoids[1]] == 1
    ]
    reached = min(
        assignment_cost("paper", e, found.z, np.array(medoids), Weights(0.0, 1.0))
        for medoids in product(*(np.flatnonzero(found.z == k) for k in range(2)))
    )
    assert reached >= min(every) - 1e-12
    assert reached < np.mean(every)


def _on_jellyfish(n: int, num_groups: int, seed: int) -> Evidence:
    base = random_evidence(n, num_groups, seed)
    edge_of = np.arange(n)
    net = jellyfish(edge_of, 2, np.random.default_rng(seed))
    return Evidence(num_groups, base.p, edge_of, net.switch_of, net.hops, base.gram)


def test_with_the_iid_cost_opposite_nodes_are_put_together() -> None:
    # Nodes 0-3 pull one way, 4-7 the other; a good group of any size has as many of both.
    g = np.array([[1.0]] * 4 + [[-1.0]] * 4)
    edge_of = np.repeat([0, 1], 4)
    p = np.full(8, 1 / 8)
    base = random_evidence(8, 2, 0)
    e = Evidence(2, p, edge_of, base.switch_of, base.hops, g @ g.T)
    for seed in range(10):
        found = plan("reference", e, 1.0, 0.0, seed)
        assert divergence(e.gram, p, found.z).Delta < divergence(e.gram, p, edge_of).Delta


def test_the_printed_cost_gathers_nearly_everyone_in_one_group() -> None:
    # A finding, see docs/paper.md: Delta^k of the group joined falls with the group's size, so the
    # literal rule sends every node to the largest group.
    e = random_evidence(60, 4, 3, edges=6)
    assert max(plan("paper", e, 1.0, 0.0, 0).sizes) >= 50
    assert max(plan("reference", e, 1.0, 0.0, 0).sizes) < 50


@pytest.mark.parametrize("kind", ["paper", "reference"])
@pytest.mark.parametrize("seed", range(5))
def test_the_incremental_assignment_equals_one_that_recounts_everything(
    kind: Kind, seed: int
) -> None:
    e = random_evidence(20, 3, seed)
    medoids = np.array([3, 11, 17])
    weights = Weights(1.0, 0.01)
    found = _assign(kind, e, medoids, weights, np.random.default_rng(seed))
    z = np.full(20, -1)
    z[medoids] = np.arange(3)
    for i in np.random.default_rng(seed).permutation(20):
        if z[i] < 0:
            z[i] = np.argmin([_recounted(kind, e, z, i, k, medoids, weights) for k in range(3)])
    assert np.array_equal(found, z)


def _recounted(
    kind: Kind, e: Evidence, z: Ints, i: int, k: int, medoids: Ints, weights: Weights
) -> float:
    """Cost_A(i, k) from the definitions, with nothing kept from before."""
    trial = z.copy()
    trial[i] = k
    hops = e.hops[i, medoids[k]]

    def apart(members: Ints) -> float:
        q = np.zeros(len(e.p))
        q[members] = e.p[members]
        return float(np.sqrt(q @ e.gram @ q) / q.sum())

    if kind == "paper":
        return weights.iid * apart(np.flatnonzero(trial == k)) + weights.comm * float(hops)
    groups = [np.flatnonzero(trial == j) for j in range(len(medoids))]
    assigned = e.p[trial >= 0].sum()
    total = sum(apart(g) * e.p[g].sum() for g in groups) / assigned
    return weights.iid * float(total) + weights.comm * float(hops)


def test_more_groups_than_nodes_is_refused() -> None:
    with pytest.raises(GroupingError, match="got 9 groups for 8 nodes"):
        plan("paper", random_evidence(8, 9, 0), 1.0, 1.0, 0)


def test_baselines_group_as_they_say() -> None:
    e = random_evidence(12, 3, 0, edges=4)
    rng = np.random.default_rng(0)
    assert single(e, rng).sizes == [12]
    assert np.array_equal(by_edge(e, rng).z, e.edge_of)
    assert at_random(e, rng).sizes == [4, 4, 4]


def test_servers_are_central_and_spread_over_switches() -> None:
    # Four hosts on one switch, two groups of two: any member is central, so the tie goes by load.
    hops = np.full((4, 4), 2) - 2 * np.eye(4, dtype=np.int64)
    e = Evidence(
        2, np.full(4, 0.25), np.zeros(4, int), np.array([0, 1, 0, 1]), hops, np.zeros((4, 4))
    )
    found = with_servers(np.array([0, 0, 1, 1]), e)
    assert found.servers.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("z", "servers"),
    [([0, 0, 2], [0, 1, 2]), ([0, 1, -1], [0, 1]), ([0, 1], [0, 1]), ([0, 1, 1], [0, 0])],
)
def test_a_planners_bad_answer_is_refused(z: list[int], servers: list[int]) -> None:
    with pytest.raises(GroupingError, match="a planner must"):
        check_grouping(Grouping(np.array(z), np.array(servers)), 3)
