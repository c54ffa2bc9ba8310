"""What a planner is shown in a run, what that costs, and when it is asked again."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.core.errors import ConfigError, CoterieError, GroupingError
from coterie.divergences.gram import divergence
from coterie.divergences.sketch import Privacy, Sketch
from coterie.grouping import Evidence, Grouping, Limits
from coterie.simulation.loop import first_evidence, rounds
from coterie.simulation.policies.regroup import Regroup
from coterie.simulation.policies.searched import Searched
from coterie.simulation.problem import Problem
from coterie.simulation.search import METHODS
from coterie.simulation.state import Planned
from coterie.simulation.view import View
from problems import fixed, make_problem, some_nodes

NODES = some_nodes(12)


def asked(problem: Problem) -> list[tuple[int, Evidence]]:
    """Run a problem; return when its planner was asked, and what it saw."""
    seen: list[Evidence] = []
    now: list[int] = []

    def spy(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        seen.append(evidence)
        return problem.planner(evidence, rng)

    for state in rounds(replace(problem, planner=spy)):
        now += [state.t] * (len(seen) - len(now))
    return list(zip(now, seen, strict=True))


def searching(steps: int = 21, **changes: object) -> Problem:
    base = make_problem(NODES, fixed([0, 1] * 6), 1, 5, steps, searched=True)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_groups_are_planned_once_unless_told_otherwise() -> None:
    assert [t for t, _ in asked(searching())] == [1]


def test_groups_are_planned_again_every_so_many_global_means() -> None:
    assert [t for t, _ in asked(searching(policy=Searched(Regroup(every=1))))] == [1, 5, 10, 15, 20]
    assert [t for t, _ in asked(searching(policy=Searched(Regroup(every=2))))] == [1, 10, 20]


def test_groups_are_planned_again_when_delta_has_grown_by_so_much() -> None:
    shown = first_evidence(searching())
    z = np.arange(12) % 2
    Delta = divergence(shown.inner, shown.p, z).Delta
    rule = Regroup(drift=0.25)
    assert rule.looks(1)
    assert rule.due(1, Planned(0, Delta / 1.26), shown, z)
    assert not rule.due(1, Planned(0, Delta / 1.24), shown, z)


def test_growth_is_judged_by_what_nodes_have_shown() -> None:
    # Nothing is shown, so nothing can be seen to grow, whatever the gradients do.
    silent = searching(view=View("nothing"), policy=Searched(Regroup(drift=1e-9)))
    assert [t for t, _ in asked(silent)] == [1]
    # Noise differs from look to look, so its Delta grows now and then.
    noisy = View(sketch=Sketch(20, 0), privacy=Privacy(1.0, 1e-5, 1.0))
    assert len(asked(searching(steps=60, view=noisy, policy=Searched(Regroup(drift=1e-9))))) > 1


def test_while_delta_falls_nothing_is_planned_again() -> None:
    Delta = [s.row.Delta for s in rounds(searching()) if s.row.event == "global"]
    assert all(b < a for a, b in pairwise(d for d in Delta if d is not None))
    assert [t for t, _ in asked(searching(policy=Searched(Regroup(drift=1e-9))))] == [1]


def test_every_look_at_the_data_is_charged_to_the_clock() -> None:
    view = View(charged_bytes=1_000_000)

    def grouping_s(regroup: Regroup) -> float:
        return list(rounds(searching(view=view, policy=Searched(regroup))))[-1].clock.grouping_s

    once = grouping_s(Regroup())
    assert once > 0
    assert grouping_s(Regroup(every=2)) == pytest.approx(3 * once)
    assert grouping_s(Regroup(drift=1e9)) == pytest.approx(5 * once)  # looks, never plans again


def shown(e: Evidence) -> set[str]:
    every = ("gram", "sketch", "label_counts", "last_layer")
    return {name for name in every if getattr(e, name) is not None}


def test_a_planner_sees_a_sketch_or_labels_and_nothing_else_of_the_data() -> None:
    (_, whole), *_ = asked(searching(view=View()))
    assert shown(whole) == {"gram", "last_layer"}
    (_, few), *_ = asked(searching(view=View(sketch=Sketch(20, 0))))
    assert few.sketch is not None
    assert few.sketch.shape == (12, 20)
    assert shown(few) == {"sketch"}
    by_labels = searching(view=View("labels"))
    (_, labels), *_ = asked(by_labels)
    assert labels.label_counts is by_labels.fleet.class_counts
    assert shown(labels) == {"label_counts"}
    (_, nothing), *_ = asked(searching(view=View("nothing")))
    assert shown(nothing) == set()


def test_a_sketch_as_long_as_the_gradient_is_the_gradient() -> None:
    exact = first_evidence(searching())
    sketched = first_evidence(searching(view=View(sketch=Sketch(51, 0))))  # 4 * 4 * 3 + 3
    assert np.allclose(sketched.inner, exact.inner, atol=1e-6)


def test_privacy_noise_differs_between_plans_and_not_between_runs() -> None:
    view = View(sketch=Sketch(20, 0), privacy=Privacy(1.0, 1e-5, 1.0))
    runs = [asked(searching(view=view, policy=Searched(Regroup(every=1)))) for _ in range(2)]
    sketches = [[e.sketch for _, e in run] for run in runs]
    assert all(np.array_equal(a, b) for a, b in zip(*sketches, strict=True))
    noise = [a - b for a, b in pairwise(sketches[0])]  # type: ignore[operator]
    assert min(np.abs(n).mean() for n in noise) > 1.0  # two draws of sigma = 7.46


def tiny(**algorithm: object) -> dict[str, object]:
    return {
        "data": {"sample": 0.2},
        "partition": {"kind": "dirichlet", "num_nodes": 20, "num_edges": 4},
        "train": {"steps": 2},
        "algorithm": {"num_groups": 3, **algorithm},
    }


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ({}, 7850),
        ({"evidence": "sketch"}, 256),
        ({"evidence": "sketch", "sketch_size": 32}, 32),
        ({"evidence": "labels"}, 10),
        ({"grouping": "cov"}, 10),
        ({"grouping": "shapefl"}, 7850),
        ({"grouping": "random"}, 0),
        ({"name": "fedavg-c"}, 0),
        ({"charge_grouping": False}, 0),
    ],
)
def test_nodes_upload_what_the_search_needs(settings: dict[str, object], numbers: int) -> None:
    problem = prepare(make_config(tiny(**settings))).problem
    assert problem.view.charged_bytes == 4 * numbers


@pytest.mark.parametrize("method", METHODS)
def test_every_method_groups_in_a_run(method: str) -> None:
    problem = prepare(make_config(tiny(grouping=method))).problem
    last = list(rounds(problem))[-1]
    assert last.groups is not None
    assert len(last.groups.grouping.sizes) == (4 if method == "edge" else 3)


def test_labels_and_sketches_give_nearly_as_good_groups_as_gradients() -> None:
    Delta = {}
    for evidence in ("gradients", "sketch", "labels"):
        config = make_config({"algorithm": {"evidence": evidence}, "train": {"steps": 1}})
        problem = prepare(config).problem
        last = list(rounds(problem))[-1]
        assert last.groups is not None
        gram = problem.engine.gradients(last.models.w[0]).gram
        assert gram is not None
        Delta[evidence] = divergence(gram, problem.fleet.p, last.groups.grouping.z).Delta
    by_chance = prepare(
        make_config({"algorithm": {"grouping": "random"}, "train": {"steps": 1}})
    ).problem
    chance = list(rounds(by_chance))[-1].row.Delta
    assert chance is not None
    assert Delta["gradients"] < Delta["sketch"] < Delta["labels"] < 0.25 * chance


def test_limits_of_a_config_reach_the_planner(tmp_path: Path) -> None:
    capacity = tmp_path / "capacity.csv"
    rows = [f"{i},{10 if i in (2, 5, 11) else 1}" for i in range(20)]
    capacity.write_text("\n".join(["node,capacity", *rows]))
    config = make_config(tiny(min_group_size=5, max_group_size=9, capacity_file=str(capacity)))
    last = list(rounds(prepare(config).problem))[-1]
    assert last.groups is not None
    assert sorted(last.groups.grouping.servers.tolist()) == [2, 5, 11]
    assert 5 <= min(last.groups.grouping.sizes) <= max(last.groups.grouping.sizes) <= 9


def test_an_epsilon_that_would_cover_nothing_is_refused() -> None:
    for settings in ({}, {"evidence": "labels"}, {"evidence": "sketch", "grouping": "cov"}):
        with pytest.raises(ConfigError, match="privacy_epsilon covers sketches only"):
            prepare(make_config(tiny(privacy_epsilon=1.0, **settings)))
    assert prepare(make_config(tiny(privacy_epsilon=1.0, evidence="sketch"))).problem.view.privacy


def test_bad_settings_of_a_search_are_named() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.sketch_size"):
        make_config(tiny(sketch_size=0))
    with pytest.raises(ConfigError, match=r"algorithm\.evidence"):
        make_config(tiny(evidence="guess"))
    with pytest.raises(CoterieError, match="3 groups of at least 8 need more than 20 nodes"):
        list(rounds(prepare(make_config(tiny(min_group_size=8))).problem))


def limited(**algorithm: object) -> dict[str, object]:
    """Twenty nodes on a fifth of the data, in three groups."""
    return {
        "data": {"sample": 0.2},
        "partition": {"kind": "dirichlet", "num_nodes": 20, "num_edges": 4},
        "train": {"steps": 2},
        "algorithm": {"num_groups": 3, **algorithm},
    }


def test_similar_groups_by_gradients_whatever_the_weights() -> None:
    problem = prepare(make_config(limited(name="fedavg-c", grouping="similar"))).problem
    last = list(rounds(problem))[-1]
    assert last.groups is not None
    assert len(last.groups.grouping.sizes) == 3


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        ({"min_group_size": 8}, "3 groups of at least 8"),
        ({"min_group_size": 2, "grouping": "random"}, "'random' does not keep to min_group_size"),
    ],
    ids=str,
)
def test_limits_that_cannot_be_kept_are_refused_before_a_run(
    algorithm: dict[str, object], says: str
) -> None:
    with pytest.raises(GroupingError, match=says):
        prepare(make_config(limited(**algorithm)))
    prepare(make_config(limited(name="fedavg", min_group_size=8)))


def test_a_fraction_of_a_member_is_no_capacity(tmp_path: Path) -> None:
    table = tmp_path / "capacity.csv"
    lines = [f"{i},{7.5 if i == 3 else 9}" for i in range(20)]
    table.write_text("\n".join(["node,capacity", *lines]))
    with pytest.raises(GroupingError, match=r"node 3 must be a whole number of members, got 7\.5"):
        prepare(make_config(limited(capacity_file=str(table))))


def test_a_planner_of_ones_own_that_breaks_a_limit_is_refused() -> None:
    problem = make_problem(some_nodes(8), fixed([0] * 7 + [1]), 1, 2, searched=True)
    view = replace(problem.view, limits=Limits(min_size=2))
    with pytest.raises(GroupingError, match="do not keep to min_group_size: 1"):
        list(rounds(replace(problem, view=view)))
