from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.arrays import Ints
from coterie.core.errors import GroupingError
from coterie.divergences.gram import divergence
from coterie.grouping import Delays, Evidence, Grouping, Limits, check_grouping
from coterie.grouping.objective import Objective, price
from coterie.grouping.planner import Effort, coterie, search
from coterie.grouping.search import ByGram, ByVectors, Field, deal, descend, exchange
from coterie.network import Network
from coterie.topology import Speed, edge_cloud, fat_tree, jellyfish
from problems import random_evidence


def timed(e: Evidence, nbytes: int = 31_400, tau2: int = 5) -> Evidence:
    """Let a planner time groupings on the network of some evidence."""
    network = Network(e.topology, e.edge_of)
    everyone = np.zeros(len(e.p), dtype=np.int64)
    whole = network.aggregation(everyone, np.array([0]), nbytes).seconds
    return replace(e, delays=Delays(network, nbytes, tau2, whole))


def plan(e: Evidence, seed: int = 0, iid: float = 1.0, comm: float = 1.0) -> Grouping:
    return coterie(iid, comm)(e, np.random.default_rng(seed))


def open_field(e: Evidence, iid: float = 1.0) -> Field:
    n, K = len(e.p), e.num_groups
    none = np.zeros((n, K))
    size = np.ones(K, dtype=np.int64)
    return Field(iid, 0.0, none, none[0], np.ones((n, K), dtype=bool), size, n * size)


def sums(e: Evidence) -> ByGram:
    return ByGram(e.p[:, None] * e.inner * e.p[None, :], e.num_groups)


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 20), st.integers(0, 999), st.booleans())
def test_it_makes_as_many_groups_as_asked_none_empty(n: int, seed: int, by_clock: bool) -> None:
    e = random_evidence(n, min(n, 1 + seed % 5), seed)
    planner = coterie(effort=Effort(shakes=20))
    found = planner(timed(e) if by_clock else e, np.random.default_rng(seed))
    assert len(found.sizes) == e.num_groups
    check_grouping(found, n)


def test_the_same_seed_gives_the_same_groups() -> None:
    e = timed(random_evidence(40, 4, 1, edges=8))
    one, same = plan(e, 3), plan(e, 3)
    assert np.array_equal(one.z, same.z)
    assert np.array_equal(one.servers, same.servers)


@pytest.mark.parametrize("seed", range(6))
def test_on_few_nodes_it_finds_what_brute_force_does(seed: int) -> None:
    e = random_evidence(9, 2, seed)
    objective = Objective(e)

    def cost(z: Ints) -> float:
        grouping = objective.rough.serve(z)
        return price(objective, grouping).cost

    every = [np.array((0, *z)) for z in product(range(2), repeat=8)]
    best = min(cost(z) for z in every if z.any())
    assert cost(plan(e, seed).z) <= best * 1.01


def test_delta_is_what_the_equation_says() -> None:
    e = random_evidence(20, 4, 5)
    z = np.arange(20) % 4
    known = divergence(e.inner, e.p, z).Delta
    assert Objective(e).divergence(z) == pytest.approx(known)
    values, turn = np.linalg.eigh(e.inner)
    sketched = replace(e, gram=None, sketch=turn * np.sqrt(np.maximum(values, 0)))
    assert Objective(sketched).divergence(z) == pytest.approx(known)
    assert Objective(sketched).iid == pytest.approx(Objective(e).iid)


@pytest.mark.parametrize("seed", range(5))
def test_kept_sums_equal_a_recount_after_any_moves(seed: int) -> None:
    e = random_evidence(15, 3, seed)
    rng = np.random.default_rng(seed)
    kept, z = sums(e), rng.permutation(15) % 3
    kept.fill(z)
    for _ in range(30):
        i, j = rng.choice(15, 2, replace=False)
        a, b = int(z[i]), int(z[j])
        if a != b:
            kept.swap(i, j, a, b)
            z[i], z[j] = b, a
        k = int(rng.integers(3))
        if k != z[i]:
            kept.move(i, int(z[i]), k)
            z[i] = k
    fresh = sums(e)
    fresh.fill(z)
    assert np.allclose(kept.V, fresh.V)
    assert np.allclose(kept.square, fresh.square)


@pytest.mark.parametrize("seed", range(5))
def test_no_swap_or_move_is_left_that_would_lower_delta(seed: int) -> None:
    e = random_evidence(14, 3, seed)
    field = open_field(e)
    found = descend(sums(e), np.arange(14) % 3, field)
    least = divergence(e.inner, e.p, found).Delta
    assert least <= divergence(e.inner, e.p, np.arange(14) % 3).Delta
    for i, k in product(range(14), range(3)):
        other = found.copy()
        other[i] = k
        if len(np.unique(other)) == 3:
            assert divergence(e.inner, e.p, other).Delta >= least - 1e-9
    for i, j in product(range(14), repeat=2):
        other = found.copy()
        other[[i, j]] = other[[j, i]]
        assert divergence(e.inner, e.p, other).Delta >= least - 1e-9


def test_sweeps_over_many_nodes_lower_delta_and_keep_sizes() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 12)).astype(np.float32)
    X -= X.mean(axis=0)
    p = np.full(700, 1 / 700)
    tree = fat_tree(np.arange(700) // 70)
    e = Evidence(10, p, np.arange(700) // 70, tree, sketch=X.astype(np.float64))
    z = rng.permutation(700) % 10
    swept = exchange(ByVectors(X / np.float32(700), 10), z, open_field(e), np.arange(700))
    Delta = Objective(e).divergence
    assert Delta(swept) < 0.5 * Delta(z)
    assert np.bincount(swept).tolist() == [70] * 10
    dealt = deal(ByVectors(X / np.float32(700), 10), np.arange(700), open_field(e))
    assert Delta(dealt) < 0.5 * Delta(z)
    assert Delta(plan(e, comm=0.0).z) <= Delta(swept)


def test_a_large_gram_matrix_is_as_good_as_the_vectors_it_came_from() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 6))
    X -= X.mean(axis=0)
    edges = np.arange(400) // 40
    e = Evidence(8, np.full(400, 1 / 400), edges, fat_tree(edges), sketch=X)
    by_gram = replace(e, sketch=None, gram=X @ X.T)
    Delta = Objective(e).divergence
    random = Delta(rng.permutation(400) % 8)
    assert max(Delta(plan(e).z), Delta(plan(by_gram).z)) < 0.2 * random


def test_weights_choose_between_likeness_and_nearness() -> None:
    # Every edge holds one kind of node: near groups are unlike the whole, and the other way round.
    edge_of = np.repeat(np.arange(4), 6)
    g = np.eye(4)[edge_of] - 0.25
    p = np.full(24, 1 / 24)
    speed = Speed(1e6, 0.001)
    top = edge_cloud(edge_of, speed, Speed(1e6, 0.05))
    e = timed(Evidence(4, p, edge_of, top, g @ g.T))
    alike, near = plan(e, comm=0.0), plan(e, iid=0.0)
    o = Objective(e)
    assert o.divergence(alike.z) == pytest.approx(0.0, abs=1e-7)  # the root of a rounding error
    assert o.group_s(near) < 0.7 * o.group_s(alike)
    assert o.divergence(near.z) > 0.5


def test_with_unlike_links_the_server_is_a_fast_one() -> None:
    e = random_evidence(12, 2, 0)
    up = np.full(12, 1e6)
    up[[4, 9]] = 1e8
    e = timed(replace(e, topology=e.topology.with_access(up, up, np.full(12, 1e-3))), 10**6)
    found = plan(e)
    assert set(found.servers.tolist()) == {4, 9}


def test_group_sizes_keep_to_their_limits() -> None:
    e = random_evidence(20, 4, 2)
    for least, most in ((5, 5), (4, 6), (1, 20)):
        found = plan(replace(e, limits=Limits(least, most)), 1)
        assert least <= min(found.sizes) <= max(found.sizes) <= most


def test_servers_take_no_more_than_they_can() -> None:
    e = random_evidence(20, 3, 2)
    capacity = np.ones(20, dtype=np.int64)
    capacity[[3, 7, 12]] = [4, 6, 10]
    found = plan(replace(e, limits=Limits(capacity=capacity)), 1)
    assert sorted(found.servers.tolist()) == [3, 7, 12]
    assert all(size <= capacity[s] for size, s in zip(found.sizes, found.servers, strict=True))


def test_limits_hold_among_many_nodes_too() -> None:
    rng = np.random.default_rng(0)
    edges = np.arange(400) // 40
    X = rng.normal(size=(400, 8))
    X -= X.mean(axis=0)
    top = jellyfish(edges, 2, rng)
    e = Evidence(5, np.full(400, 1 / 400), edges, top, sketch=X, limits=Limits(max_hops=4))
    found = plan(e)
    assert top.hops[np.arange(400), found.servers[found.z]].max() <= 4
    free = plan(replace(e, limits=Limits()))
    assert top.hops[np.arange(400), free.servers[free.z]].max() > 4


def test_places_serve_within_limits() -> None:
    edges = np.repeat(np.arange(5), 4)
    base = random_evidence(20, 5, 0)
    top = edge_cloud(edges, Speed(), Speed())
    e = Evidence(5, base.p, edges, top, base.gram)
    near = plan(replace(e, limits=Limits(max_hops=1)))
    assert (e.between(np.unique(near.servers), np.arange(20)).min(axis=0) == 1).all()
    some = plan(replace(e, num_groups=3, limits=Limits(max_hops=2)))
    assert len(some.sizes) == 3


def test_nobody_is_farther_from_its_server_than_allowed() -> None:
    e = random_evidence(24, 4, 3, edges=4)
    found = plan(replace(e, limits=Limits(max_hops=4)), 0)
    assert e.hops[np.arange(24), found.servers[found.z]].max() <= 4
    assert e.hops[np.arange(24), plan(e).servers[plan(e).z]].max() > 4


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(min_size=6), "4 groups of at least 6 need more than 20 nodes"),
        (Limits(max_size=4), "4 groups of at most 4 have no room for 20 nodes"),
        (Limits(max_hops=2), "node [0-9]+ has no server within 2 hops"),
        (Limits(capacity=np.ones(20, dtype=np.int64)), "take 4 of 20 nodes"),
        (Limits(5, 5, 4), "no 4 groups were found within the limits"),
    ],
)
def test_limits_that_cannot_be_kept_are_named(limits: Limits, says: str) -> None:
    edges = np.repeat([0, 1, 2, 3], [8, 4, 4, 4])
    base = random_evidence(20, 4, 0)
    e = Evidence(4, base.p, edges, fat_tree(edges), base.gram, limits=limits)
    with pytest.raises(GroupingError, match=says):
        plan(e)


def _evidence(**changes: object) -> Evidence:
    return replace(random_evidence(6, 2, 0), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_groups": 7}, "got 7 groups for 6 nodes"),
        ({"num_groups": 0}, "got 0 groups for 6 nodes"),
        ({"p": np.full(6, 0.1)}, "must sum to 1, got 0.6"),
        ({"p": np.array([0.5, 0.7, -0.2, 0, 0, 0])}, "must be numbers from 0"),
        ({"gram": np.eye(5)}, "a row for each of 6 nodes"),
        ({"gram": np.arange(36.0).reshape(6, 6)}, r"symmetric, but \[0, 5\] is 5"),
        ({"gram": np.diag([1, 1, 1, np.nan, 1, 1])}, "the gradient of node 3 is not finite"),
        ({"gram": None, "sketch": np.full((6, 2), np.inf)}, "of several nodes is not finite"),
        ({"gram": None, "sketch": np.diag([0, 0, np.nan, 0, 0, 0])}, "of node 2 is not finite"),
    ],
)
def test_evidence_that_cannot_be_is_refused_in_one_line(
    changes: dict[str, object], says: str
) -> None:
    with pytest.raises(GroupingError, match=says):
        _evidence(**changes)


def test_deals_descents_and_sweeps_end_when_time_is_over() -> None:
    e = random_evidence(300, 3, 0)
    field, z = open_field(e), np.arange(300) % 3
    by_gram, by_rows = sums(e), ByVectors(np.eye(300, 5, dtype=np.float32), 3)
    assert not np.array_equal(descend(by_gram, z, field), z)
    assert np.array_equal(descend(by_gram, z, field, over=lambda: True), z)
    assert np.array_equal(exchange(by_rows, z, field, np.arange(300), lambda: True), z)
    assert deal(sums(e), np.arange(300), field, over=lambda: True).min() == -1


def test_with_nothing_to_weigh_there_are_still_groups() -> None:
    e = random_evidence(12, 3, 0)
    assert len(plan(e, iid=0.0, comm=0.0).sizes) == 3
    assert plan(replace(e, num_groups=1), comm=0.0).sizes == [12]
    bare = replace(e, gram=None)
    assert len(plan(bare, comm=0.0).sizes) == 3


def test_a_limit_that_the_best_groups_keep_anyway_costs_next_to_nothing() -> None:
    e = timed(random_evidence(40, 4, 7, edges=4))
    free = price(Objective(e), plan(e)).cost
    harmless = replace(e, limits=Limits(max_hops=6))
    assert price(Objective(e), plan(harmless)).cost <= free * 1.03  # other random shakes


def test_with_nothing_known_of_the_data_shakes_still_find_nearer_groups() -> None:
    e = replace(timed(random_evidence(40, 4, 7, edges=5)), gram=None)
    o = Objective(e, 0.0, 1.0)
    found = search(e, o, Effort(shakes=20), np.random.default_rng(0)).found
    assert len(found) > 1  # not one kept because all have the same Delta, which is 0
