"""What rows say, and when: by a list, by interval, of one model or of several."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from coterie.config.files import make_config
from coterie.core.errors import DivergenceError
from coterie.engine.contract import LocalSteps, Models, NodeScores
from coterie.engine.module import Nodes
from coterie.engine.sequential import Sequential
from coterie.grouping import Grouping
from coterie.models import make_model
from coterie.runs.execute import simulate
from coterie.simulation.loop import rounds
from coterie.simulation.measures import Measures, read_measures
from coterie.simulation.measuring import first_row, node_spread, row_after
from coterie.simulation.pace import lockstep
from coterie.simulation.problem import Problem
from coterie.simulation.row import Row
from coterie.simulation.schedule import Schedule
from coterie.simulation.state import Plan
from problems import CLASSES, SHAPE, fixed, make_problem, some_nodes

NODES = some_nodes()
Z = [0, 1, 0, 1, 0, 1, 0, 1]
HELD = some_nodes(seed=1)  # other examples of the same eight nodes


def problem_of(*words: str, groups: bool = False, own: bool = False, tau2: int = 2) -> Problem:
    """Eight nodes in two groups, a global mean every other step."""
    problem = make_problem(NODES, fixed(Z), 1, tau2, steps=30, engine=engine(own=own))
    return replace(problem, measures=read_measures(words, groups))


def engine(*, own: bool = False) -> Sequential:
    torch.manual_seed(7)
    held = Nodes.of(HELD)
    part = held.x, held.y
    sizes = {"test": held.sizes} if own else None
    return Sequential(
        make_model("sr", SHAPE, CLASSES).double(),
        Nodes.of(NODES),
        {"val": part, "test": part},
        LocalSteps(0.5, 0.99, None, "epoch", 3),
        held_sizes=sizes,  # type: ignore[arg-type]
    )


def steps_with(rows: Sequence[Row], name: str) -> list[int]:
    return [row.t for row in rows if getattr(row, name) is not None]


def rows_of(problem: Problem) -> list[Row]:
    return [state.row for state in rounds(problem)]


def test_each_is_measured_as_often_as_it_says_and_all_at_the_ends() -> None:
    rows = rows_of(problem_of("accuracy", "loss/3", "Delta/5", "nodes/7", "classes/4"))
    assert steps_with(rows, "test_accuracy") == list(range(0, 31, 2))
    assert steps_with(rows, "Delta") == [0, 10, 20, 30]
    assert steps_with(rows, "train_loss") == sorted({*range(0, 31, 6), 10, 20})
    assert steps_with(rows, "node_mean") == [0, 14, 28, 30]
    assert steps_with(rows, "by_class") == [0, 8, 16, 24, 30]
    assert steps_with(rows, "delta") == steps_with(rows, "Delta")
    assert steps_with(rows, "test_loss") == steps_with(rows, "test_accuracy")


def test_intervals_count_evaluations_not_means() -> None:
    problem = replace(problem_of("accuracy", "loss/2"), eval_every=3)
    rows = rows_of(problem)
    assert steps_with(rows, "test_accuracy") == [0, 6, 12, 18, 24, 30]
    assert steps_with(rows, "train_loss") == [0, 12, 24, 30]


def test_the_ends_have_accuracy_whatever_the_list_says() -> None:
    rows = rows_of(problem_of())
    assert steps_with(rows, "test_accuracy") == [0, 30]
    assert steps_with(rows, "train_loss") == steps_with(rows, "Delta") == []


def test_the_ends_have_the_loss_if_the_list_does() -> None:
    assert steps_with(rows_of(problem_of("loss/99")), "train_loss") == [0, 30]


def test_what_is_left_out_changes_nothing_else() -> None:
    everything, little = (
        rows_of(problem_of(*words)) for words in (("accuracy", "loss", "Delta"), ("accuracy/4",))
    )
    assert everything[-1].test_accuracy == little[-1].test_accuracy
    assert everything[-1].test_loss == little[-1].test_loss
    for a, b in zip(everything, little, strict=True):
        assert (a.t, a.seconds, a.event) == (b.t, b.seconds, b.event)


def test_gradients_are_taken_for_divergences_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()
    for name in ("measure", "gradients", "losses", "evaluate", "score_nodes"):
        plain = getattr(Sequential, name)

        def counted(self: Sequential, *given: object, of: str = name, plain=plain) -> object:  # type: ignore[no-untyped-def]
            asked[of] += 1
            return plain(self, *given)

        monkeypatch.setattr(Sequential, name, counted)
    rows_of(problem_of("accuracy", "loss", "Delta/5"))
    # 16 evaluations; Delta brings the loss along in four of them.
    assert asked == {"evaluate": 16, "measure": 4, "losses": 12}


def test_a_plan_measures_all_that_is_listed() -> None:
    planned = make_problem(NODES, fixed(Z), 2, 3, steps=13, searched=True)
    rows = rows_of(replace(planned, measures=read_measures(["accuracy", "Delta/99", "nodes/99"])))
    assert steps_with(rows, "Delta") == [1, 13]
    assert steps_with(rows, "node_mean") == [0, 1, 13]


def test_a_pilot_has_the_loss_of_every_global_mean() -> None:
    config = make_config(
        {
            "data": {"sample": 0.1},
            "partition": {"num_nodes": 10, "num_edges": 10},
            "algorithm": {"tau1": "auto", "tau2": "auto", "num_groups": 2, "grouping": "edge"},
            "train": {"steps": 20, "measure": ["accuracy/9"]},
        }
    )
    rows = [state.row for state in simulate(config)]
    assert steps_with(rows, "train_loss") == [r.t for r in rows if r.event != "group"]
    assert len(steps_with(rows, "train_loss")) >= 4


def test_several_models_weigh_as_much_as_their_nodes_data() -> None:
    problem = problem_of("accuracy", "loss", "nodes", "classes", groups=True)
    models = problem.engine.advance(problem.engine.initial(), 0, 3, np.array(Z))
    plan = Plan(Schedule(1, 2), problem.everyone)
    row = first_row(problem, models, plan)
    p, z = problem.fleet.p, np.array(Z)
    scores = [problem.engine.evaluate(w, "test") for w in models.w]
    mass = [p[z == k].sum() for k in (0, 1)]
    assert row.test_accuracy == pytest.approx(sum(m * s.accuracy for m, s in zip(mass, scores)))  # noqa: B905
    assert row.test_loss == pytest.approx(sum(m * s.loss for m, s in zip(mass, scores)))  # noqa: B905
    losses = problem.engine.losses(models.w)
    assert row.train_loss == pytest.approx(float(p @ losses[np.arange(8), z]))
    each = np.array([scores[k].accuracy for k in Z])
    assert row.node_mean == pytest.approx(each.mean())
    assert row.node_sd == pytest.approx(each.std())
    assert row.node_worst == pytest.approx(each.min())
    assert row.Delta is None  # there is no one model to take gradients at
    found = [score.class_right / score.class_count for score in scores]  # type: ignore[operator]
    expected = sum(m * by_class for m, by_class in zip(mass, found))  # noqa: B905
    assert row.by_class == pytest.approx(expected.tolist())


def test_nodes_with_test_examples_of_their_own_are_scored_on_those() -> None:
    problem = problem_of("accuracy", own=True)
    models = problem.engine.advance(problem.engine.initial(), 0, 3, np.array(Z))
    row = first_row(problem, models, Plan(Schedule(1, 2), problem.everyone))
    scores = problem.engine.score_nodes(models, "test")
    assert row.test_accuracy == pytest.approx(scores.right.sum() / scores.count.sum())
    assert row.test_loss == pytest.approx(scores.loss @ scores.count / scores.count.sum())
    each = scores.right / scores.count
    assert (row.node_mean, row.node_worst) == pytest.approx((each.mean(), each.min()))
    assert scores.class_right is not None and scores.class_count is not None
    assert row.tested == pytest.approx((scores.class_right / scores.class_count).tolist())


def test_nodes_are_measured_unasked_where_that_costs_nothing() -> None:
    pooled, own = (rows_of(problem_of("accuracy", own=own)) for own in (False, True))
    assert steps_with(pooled, "node_mean") == []
    assert steps_with(own, "node_mean") == steps_with(own, "test_accuracy")
    for a, b in zip(pooled, own, strict=True):  # one model: the same examples, the same score
        assert a.test_accuracy == b.test_accuracy
        if a.test_loss is not None:
            assert b.test_loss == pytest.approx(a.test_loss, rel=1e-9)


def test_group_means_are_scored_when_asked_for() -> None:
    plain, scored = (
        rows_of(problem_of("accuracy/3", "loss/3", groups=groups)) for groups in (False, True)
    )
    group = [row.t for row in plain if row.event == "group"]
    assert len(group) == 15
    assert set(group).isdisjoint(steps_with(plain, "test_accuracy"))
    assert set(group) <= set(steps_with(scored, "test_accuracy"))
    assert steps_with(plain, "train_loss") == steps_with(scored, "train_loss")
    assert all(row.node_sd is not None for row in scored if row.event == "group")


def test_the_worst_tenth_has_at_least_one_node() -> None:
    def worst(right: list[int]) -> float:
        counts = np.full(len(right), 100)
        models = np.zeros(len(right))
        return node_spread(NodeScores(models, np.array(right), counts))["node_worst"]

    assert worst([50, 20, 90]) == pytest.approx(0.2)
    assert worst([*range(40, 60)]) == pytest.approx(0.405)  # of twenty, two


@pytest.mark.parametrize("words", [("accuracy",), ("loss",), ("Delta",), ("nodes",)])
@pytest.mark.parametrize("own", [False, True])
def test_a_loss_that_is_no_number_ends_a_run(words: tuple[str, ...], own: bool) -> None:
    problem = problem_of(*words, own=own)
    state = next(rounds(problem))
    broken = replace(state.models, w=state.models.w * float("nan"))
    turn = lockstep(problem, state.plan, 1)
    with pytest.raises(DivergenceError, match=r"loss is nan.* after step 2; lower train\.lr"):
        row_after(problem, replace(state, t=2, models=broken), turn, due=True)


def test_a_default_measures_gradients_a_tenth_as_often() -> None:
    config = make_config({})
    every = read_measures(config.train.measure).every
    assert every == {"accuracy": 1, "loss": 10, "Delta": 10}
    assert Measures().at(7) == {"accuracy", "loss", "Delta"}  # of a problem made by hand


def test_personal_models_are_what_nodes_are_scored_by(monkeypatch: pytest.MonkeyPatch) -> None:
    def personal(models: Models, nodes: np.ndarray) -> torch.Tensor:
        return models.w[models.of_node[nodes]] * (1 + torch.from_numpy(nodes).double()[:, None])

    for module in ("engine.own_models", "engine.sequential", "simulation.measuring"):
        monkeypatch.setattr(f"coterie.{module}.own_models", personal)
    for module in ("engine.own_models", "simulation.measuring"):
        monkeypatch.setattr(f"coterie.{module}.sharing", lambda models: np.arange(8))
    problem = problem_of("accuracy", "loss", "Delta")
    models = problem.engine.advance(problem.engine.initial(), 0, 3, np.zeros(8, dtype=np.int64))
    halves = problem.fleet.averaging(Grouping(np.arange(8) % 2, np.array([0, 1])), 1)
    row = first_row(problem, models, Plan(Schedule(1, 2), halves))
    losses = problem.engine.losses(personal(models, np.arange(8)))
    assert row.train_loss == pytest.approx(float(problem.fleet.p @ losses.diagonal()))
    assert row.node_sd is not None
    assert row.Delta is not None  # at the common model
    alone = first_row(problem, models, Plan(Schedule(1, 1), problem.everyone))
    assert alone.Delta is None  # one group is not apart from itself
