from dataclasses import replace
from itertools import permutations, product
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import GroupingError
from coterie.divergences.gram import divergence
from coterie.grouping import Evidence, Grouping, check_grouping, with_servers
from coterie.grouping.baselines import at_random, by_edge, single
from coterie.grouping.medoids import Weights, assignment_cost, new_medoids, node_grouping
from coterie.simulation.algorithms import ALGORITHMS
from coterie.simulation.search import Search
from coterie.topology import Speed, Topology, assemble, jellyfish
from plain_assignment import assign_plainly
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
    assert list(found.cost_trace) == sorted(set(found.cost_trace), reverse=True)
    assert len(found.sizes) == e.num_groups
    check_grouping(found, n)


@pytest.mark.parametrize("seed", range(20))
def test_fedavg_c_never_beats_brute_force_and_says_its_cost_truly(seed: int) -> None:
    """With hops alone the planner's last cost is the mean hops to the medoids over C."""
    e = _on_jellyfish(8, 2, seed)
    found = plan("paper", e, 0.0, 1.0, seed)
    rng = np.random.default_rng(seed)
    medoids = rng.choice(8, 2, replace=False)
    first = next(i for i in rng.permutation(8) if i not in medoids)
    said = found.cost_trace[-1] * e.hops[first, medoids[0]]  # C is the first cost met
    every = {
        (pair, z): assignment_cost("paper", e, np.array(z), np.array(pair), Weights(0.0, 1.0))
        for pair in permutations(range(8), 2)
        for z in product(range(2), repeat=8)
        if z[pair[0]] == 0 and z[pair[1]] == 1
    }
    assert said >= min(every.values()) - 1e-12
    assert said < np.mean(list(every.values()))
    own = [cost for (_, z), cost in every.items() if z == tuple(found.z)]
    assert min(abs(said - cost) for cost in own) < 1e-12


def test_scaling_gradients_or_hops_changes_no_grouping() -> None:
    e = random_evidence(25, 4, 1, edges=5)
    farther = replace(e.topology)
    farther.__dict__["hops"] = 3 * e.hops
    scaled = Evidence(4, e.p, e.edge_of, farther, 1e4 * e.inner)
    for kind in ("paper", "reference"):
        one, other = (
            node_grouping(kind, 1.0, 1.0)(x, np.random.default_rng(2)) for x in (e, scaled)
        )
        assert np.array_equal(one.z, other.z)


def test_fedavg_c_has_the_shortest_ways_and_fedavg_i_the_least_divergence() -> None:
    e = random_evidence(40, 4, 2, edges=8)
    found = {
        name: ALGORITHMS[name].planner(Search())(e, np.random.default_rng(0))
        for name in ("fedavg-c", "fedavg-i", "fedavg-ic")
    }
    far = {name: e.hops[np.arange(40), g.servers[g.z]].sum() for name, g in found.items()}
    Delta = {name: divergence(e.inner, e.p, g.z).Delta for name, g in found.items()}
    assert far["fedavg-c"] < min(far["fedavg-i"], far["fedavg-ic"])
    assert max(Delta["fedavg-i"], Delta["fedavg-ic"]) < Delta["fedavg-c"]


def line(n: int) -> Topology:
    """One host on each of n switches in a row."""
    links = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    return assemble(np.arange(n), links, ("core",) * (n - 1), n, Speed(), Speed())


def _on_jellyfish(n: int, num_groups: int, seed: int) -> Evidence:
    base = random_evidence(n, num_groups, seed)
    edge_of = np.arange(n)
    net = jellyfish(edge_of, 2, np.random.default_rng(seed))
    return Evidence(num_groups, base.p, edge_of, net, base.gram)


def test_with_the_iid_cost_opposite_nodes_are_put_together() -> None:
    # Nodes 0-3 pull one way, 4-7 the other; a good group of any size has as many of both.
    g = np.array([[1.0]] * 4 + [[-1.0]] * 4)
    edge_of = np.repeat([0, 1], 4)
    p = np.full(8, 1 / 8)
    base = random_evidence(8, 2, 0)
    e = Evidence(2, p, edge_of, base.topology, g @ g.T)
    for seed in range(10):
        found = plan("reference", e, 1.0, 0.0, seed)
        assert divergence(e.inner, p, found.z).Delta < divergence(e.inner, p, edge_of).Delta


def test_the_printed_cost_gathers_nearly_everyone_in_one_group() -> None:
    # A finding, see docs/explanation/paper.md: Delta^k of the group joined falls with the group's
    # size, so the literal rule sends every node to the largest group.
    e = random_evidence(60, 4, 3, edges=6)
    assert max(plan("paper", e, 1.0, 0.0, 0).sizes) >= 50
    assert max(plan("reference", e, 1.0, 0.0, 0).sizes) < 50


@pytest.mark.parametrize("kind", ["paper", "reference"])
@pytest.mark.parametrize("seed", range(5))
def test_the_incremental_search_equals_one_that_recounts_everything(kind: Kind, seed: int) -> None:
    e = random_evidence(20, 3, seed)
    found = plan(kind, e, 1.0, 1.0, seed)
    again = node_grouping(kind, 1.0, 1.0, assign_plainly)(e, np.random.default_rng(seed))
    assert np.array_equal(found.z, again.z)
    assert found.cost_trace == pytest.approx(again.cost_trace)


@pytest.mark.parametrize("kind", ["paper", "reference"])
@pytest.mark.parametrize("seed", range(5))
def test_nodes_without_data_are_grouped_too(kind: Kind, seed: int) -> None:
    e = random_evidence(12, 3, seed)
    p = np.where(np.arange(12) < 3, 1 / 3, 0.0)
    found = plan(kind, replace(e, p=p), 1.0, 1.0, seed)
    assert len(check_grouping(found, 12).sizes) == 3
    again = node_grouping(kind, 1.0, 1.0, assign_plainly)(
        replace(e, p=p), np.random.default_rng(seed)
    )
    assert np.array_equal(found.z, again.z)


def test_the_medoid_is_the_member_of_least_update_cost() -> None:
    # A line of four hosts in one group and two in another; Cost_U,iid = p_i |g_i|, and
    # Cost_U,comm = 12, 10, 10, 12 and 3, 3.
    p = np.array([0.1, 0.2, 0.1, 0.1, 0.2, 0.3])
    gram = np.diag([1.0, 4.0, 9.0, 0.04, 1.0, 0.25])  # |g| = 1, 2, 3, 0.2, 1, 0.5
    e = Evidence(2, p, np.zeros(6, int), line(6), gram)
    z = np.array([0, 0, 0, 0, 1, 1])
    assert new_medoids(e, z, Weights(1.0, 0.0)).tolist() == [3, 5]  # 0.1 0.4 0.3 0.02; 0.2 0.15
    assert new_medoids(e, z, Weights(0.0, 1.0)).tolist() == [1, 4]  # the first of equals
    assert new_medoids(e, z, Weights(1.0, 0.01)).tolist() == [3, 5]  # 0.22 0.5 0.4 0.14; 0.23 0.18
    assert new_medoids(e, z, Weights(1.0, 0.2)).tolist() == [2, 5]  # 2.5 2.4 2.3 2.42; 0.8 0.75


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
    # Four hosts on two switches, two groups of two: any member is central, so the tie goes by load.
    pair = np.array([[0, 1]])
    top = assemble(np.array([0, 1, 0, 1]), pair, ("core",), 2, Speed(), Speed())
    e = Evidence(2, np.full(4, 0.25), np.zeros(4, int), top)
    found = with_servers(np.array([0, 0, 1, 1]), e)
    assert found.servers.tolist() == [0, 3]


def test_the_server_is_the_member_with_the_least_sum_of_hops() -> None:
    # A line of five hosts: the middle one is nearest to all.
    e = Evidence(1, np.full(5, 0.2), np.zeros(5, int), line(5))
    assert with_servers(np.zeros(5, dtype=np.int64), e).servers.tolist() == [2]
    assert with_servers(np.array([0, 0, 0, 1, 1]), e).servers.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([0, 0, 1], "must return a coterie.Grouping, got list"),
        (Grouping(np.array([0, 0, 2]), np.array([0, 1, 2])), "number every one of 3 nodes"),
        (Grouping(np.array([0, 1, -1]), np.array([0, 1])), "number every one of 3 nodes"),
        (Grouping(np.array([0, 1]), np.array([0, 1])), "number every one of 3 nodes"),
        (Grouping(np.array([0.0, 1.0, 1.0]), np.array([0, 1])), "whole numbers"),
        (Grouping(np.array([0, 1, 1]), np.array([0, 0])), "one of its members"),
        (Grouping(np.array([0, 0, 0]), np.array([-1])), "one of the 3 nodes as server"),
        (Grouping(np.array([0, 0, 0]), np.array([999])), "one of the 3 nodes as server"),
        (Grouping(np.array([0, 0, 0]), np.array([0, 1])), "one of the 3 nodes as server"),
    ],
)
def test_a_planners_bad_answer_is_refused(answer: object, says: str) -> None:
    with pytest.raises(GroupingError, match=says):
        check_grouping(answer, 3)


@pytest.mark.parametrize("kind", ["paper", "reference"])
def test_more_nodes_than_memory_has_room_for_are_refused(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.grouping import medoids

    e = random_evidence(12, 3, 0)
    monkeypatch.setattr(medoids, "physical_memory", lambda: 17 * len(e.p) ** 2 - 1)
    with pytest.raises(GroupingError, match=rf"^{kind} compares every two nodes: .* use coterie$"):
        node_grouping(kind, 1.0, 1.0)(e, np.random.default_rng(0))
    monkeypatch.setattr(medoids, "physical_memory", lambda: 17 * len(e.p) ** 2)
    node_grouping(kind, 1.0, 1.0)(e, np.random.default_rng(0))
