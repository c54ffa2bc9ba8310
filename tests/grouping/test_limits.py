"""Limits on groups: what is refused, when, and for whom."""

from dataclasses import replace

import numpy as np
import pytest

from coterie.core.errors import GroupingError
from coterie.grouping import Evidence, Grouping, Limits
from coterie.grouping.evidence import whole_capacity
from coterie.grouping.labels import label_ilp
from coterie.grouping.limits import KEEPERS, broken, check_keeper, check_limits
from coterie.simulation.search import METHODS
from coterie.topology import edge_cloud, fat_tree
from problems import random_evidence

TREE = fat_tree(np.repeat(np.arange(4), 5))
ALL = Limits(2, 9, 5, np.full(20, 5))


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(min_size=6), "4 groups of at least 6 need more than 20 nodes"),
        (Limits(max_size=4), "4 groups of at most 4 have no room for 20 nodes"),
        (Limits(min_size=5, max_size=4), "min_group_size must be <= max_group_size, got 5 and 4"),
        (Limits(max_hops=1), "no node has a server but itself within 1 hops; raise max_hops"),
        (Limits(capacity=np.ones(20, dtype=np.int64)), "the 4 servers of most capacity take 4 of"),
        (Limits(capacity=np.ones(3, dtype=np.int64)), "a number for each of 20 nodes, got 3"),
        (Limits(3, capacity=np.repeat([17, 1], [1, 19])), "a server of capacity 1 cannot have 3"),
    ],
)
def test_limits_that_no_groups_could_keep_are_refused_before_any_search(
    limits: Limits, says: str
) -> None:
    with pytest.raises(GroupingError, match=says) as refused:
        check_limits(limits, TREE, 4)
    assert "\n" not in str(refused.value)


def test_limits_that_some_groups_keep_are_not_refused() -> None:
    for limits in (Limits(), Limits(5, 5), Limits(max_hops=2), ALL):
        check_limits(limits, TREE, 4)
    check_limits(Limits(max_hops=0), TREE, 20)


def test_where_places_serve_nodes_need_one_within_reach_and_no_capacity() -> None:
    edges = np.repeat(np.arange(4), 5)
    stations = edge_cloud(edges)
    check_limits(Limits(max_hops=1), stations, 4)
    far = replace(stations, places=(4,))  # the cloud alone
    with pytest.raises(GroupingError, match=r"node 0 has no server within 1 hops; .* to 2 or more"):
        check_limits(Limits(max_hops=1), far, 4)
    with pytest.raises(GroupingError, match="capacity is of nodes, but here cloud and such serve"):
        check_limits(ALL, stations, 4)


@pytest.mark.parametrize("method", [*METHODS, "my_pkg.groups:plan"])
def test_limits_are_refused_for_groupings_that_would_pass_over_them(method: str) -> None:
    check_keeper(Limits(), method)
    if method in KEEPERS or ":" in method:
        check_keeper(ALL, method)
        return
    for limits, name in (
        (Limits(min_size=2), "min_group_size"),
        (Limits(max_size=9), "max_group_size"),
        (Limits(max_hops=4), "max_hops"),
        (Limits(capacity=np.ones(3, dtype=np.int64)), "capacity_file"),
    ):
        says = f"'{method}' does not keep to {name}; use 'coterie' or 'label-ilp', or leave {name}"
        with pytest.raises(GroupingError, match=says):
            check_keeper(limits, method)


@pytest.mark.parametrize("method", KEEPERS)
def test_who_is_said_to_keep_limits_does(method: str) -> None:
    from coterie.simulation.search import Search

    base = random_evidence(20, 4, 0, edges=4)
    counts = np.random.default_rng(0).integers(1, 9, (20, 3))
    limits = Limits(3, 7, 6, np.where(np.arange(20) % 3 == 0, 7, 1))
    e = replace(base, label_counts=counts, limits=limits)
    assert broken(e, Search(method).planner()(e, np.random.default_rng(0))) == ""


def test_a_capacity_is_a_whole_number_of_members() -> None:
    with pytest.raises(GroupingError, match=r"node 1 must be a whole number of members, got 2\.5"):
        Limits(capacity=np.array([2.0, 2.5]))
    with pytest.raises(GroupingError, match="node b must be a whole number of members, got -1"):
        whole_capacity(np.array([2.0, -1.0]), ["a", "b"])
    assert whole_capacity(np.array([2.0, 7.0])).dtype == np.int64


def test_capacities_of_other_nodes_than_there_are_is_one_line_for_every_method() -> None:
    base = replace(random_evidence(6, 2, 0), label_counts=np.ones((6, 2), dtype=np.int64))
    with pytest.raises(GroupingError, match="a number for each of 6 nodes, got 3"):
        label_ilp()(replace(base, limits=Limits(capacity=np.full(3, 6))), np.random.default_rng(0))


def test_a_limit_is_broken_by_one_more_than_it_allows() -> None:
    e: Evidence = random_evidence(20, 2, 0, edges=4)
    z = np.arange(20) // 15  # 15 and 5
    grouping = Grouping(z, np.array([0, 19]))
    far = int(e.hops[np.arange(20), grouping.servers[z]].max())
    capacity = np.full(20, 15)
    for limit, message in (
        (Limits(min_size=5, max_size=15, max_hops=far, capacity=capacity), ""),
        (Limits(min_size=6), "min_group_size: 5"),
        (Limits(max_size=14), "max_group_size: 15"),
        (Limits(max_hops=far - 1), f"max_hops: {far}"),
        (Limits(capacity=capacity - 1), "capacity: 15"),
    ):
        assert broken(replace(e, limits=limit), grouping) == message
