"""Tasks: their losses by hand, their metrics by brute force, and engines that agree on them."""

import copy
import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import own_losses
from coterie.core.errors import ConfigError, MetricError, ModelError
from coterie.data.targets import TARGETS
from coterie.engine.contract import Engine, HeldPart, LocalSteps, NodeScores, Score
from coterie.engine.fitting import check_fit
from coterie.engine.metrics import auc, macro_auc, r2
from coterie.engine.module import Nodes
from coterie.engine.ray.engine import Sharded
from coterie.engine.sequential import Sequential
from coterie.engine.task import TASKS, Task, away, make_task
from coterie.engine.vectorized import Vectorized
from sharding import Here
from tasked import NAMES, dataset, model

SIZES = np.array([20, 3, 31, 17, 9])
GROUPS = np.array([0, 1, 0, 1, 1])
OWN = {"regression": "tasked:far", "binary": "tasked:brier"}


def test_every_task_has_a_target_and_the_metrics_that_it_names() -> None:
    assert list(TASKS) == list(TARGETS)
    for name, task in TASKS.items():
        assert task.target == name
        assert tuple(task.known) == TARGETS[name].metrics


# ---- losses, by hand


def test_the_loss_of_regression_is_the_mean_squared_error() -> None:
    answers, y = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    task = TASKS["regression"]
    assert task.loss(answers, y, "none").tolist() == [2.0, 4.5]
    assert task.loss(answers, y) == functional.mse_loss(answers, y) == 3.25


def test_the_loss_of_binary_is_that_of_a_logit() -> None:
    answers, y = torch.tensor([[0.0], [2.0], [-1.0]]), torch.tensor([1, 1, 0])
    by_hand = [math.log(2), math.log1p(math.exp(-2)), math.log1p(math.exp(-1))]
    assert TASKS["binary"].loss(answers, y, "none").tolist() == pytest.approx(by_hand)
    assert float(TASKS["binary"].loss(answers, y)) == pytest.approx(sum(by_hand) / 3)


def test_the_loss_of_several_labels_is_the_mean_over_them() -> None:
    answers, y = torch.randn(4, 3), torch.tensor([[1, 0, 0], [1, 1, 1], [0, 0, 0], [0, 1, 0]])
    whole = functional.binary_cross_entropy_with_logits(answers, y.float())
    assert float(TASKS["multi-label"].loss(answers, y)) == pytest.approx(float(whole))


def test_the_loss_of_tokens_is_the_mean_over_those_that_are_scored() -> None:
    answers, y = torch.randn(2, 3, 4), torch.tensor([[1, -1, 2], [3, -1, -1]])
    each = functional.cross_entropy(answers.flatten(0, 1), y.flatten().clamp(0), reduction="none")
    first = float(each[0] + each[2]) / 2
    found = TASKS["next-token"].loss(answers, y, "none").tolist()
    assert found == pytest.approx([first, float(each[3])])
    whole = torch.tensor([[1, 3, 2], [3, 0, 0]])
    plain = functional.cross_entropy(answers.flatten(0, 1), whole.flatten())
    assert float(TASKS["next-token"].loss(answers, whole)) == pytest.approx(float(plain))


@pytest.mark.parametrize("name", NAMES)
def test_a_mean_and_a_sum_are_of_the_losses_of_examples(name: str) -> None:
    data = dataset(name, 12)
    answers = model(name)(torch.from_numpy(data.x)).detach()
    y = torch.from_numpy(data.y)
    each = TASKS[name].loss(answers, y, "none")
    assert each.shape == (12,)
    assert float(TASKS[name].loss(answers, y, "sum")) == pytest.approx(float(each.sum()))
    assert float(TASKS[name].loss(answers, y)) == pytest.approx(float(each.mean()))


# ---- metrics, by hand and by brute force


def test_an_auc_is_the_share_of_pairs_in_the_right_order() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores, y = rng.integers(0, 6, 30) / 4, rng.integers(0, 2, 30)
        pairs = [(a > b) + 0.5 * (a == b) for a in scores[y == 1] for b in scores[y == 0]]
        assert auc(scores, y) == pytest.approx(np.mean(pairs))


def test_an_auc_of_one_kind_is_not_defined() -> None:
    assert math.isnan(auc(np.array([0.1, 0.2]), np.array([1, 1])))
    columns = np.array([[0.1, 5.0], [0.2, 5.0]])
    assert macro_auc(columns, np.array([[0, 1], [1, 1]])) == 1.0  # of the first label alone
    task = make_task("binary", ["auc"])
    assert task.measured([np.zeros((2, 1))], np.array([1, 1])) == {"auc": None}


def test_r2_is_one_less_the_share_of_variance_that_is_left() -> None:
    y, predicted = np.array([[1.0], [2.0], [6.0]]), np.array([[2.0], [2.0], [5.0]])
    assert r2(predicted, y) == pytest.approx(1 - 2 / 14)
    assert r2(np.full((3, 1), 3.0), y) == 0.0
    assert math.isnan(r2(predicted, np.ones((3, 1))))


def test_perplexity_is_e_to_the_mean_cross_entropy_of_scored_tokens() -> None:
    data = dataset("next-token", 30)
    answers, y = model("next-token")(torch.from_numpy(data.x)).detach(), torch.from_numpy(data.y)
    task = make_task("next-token")
    found = task.measured([rows.numpy() for rows in task.rows(answers, y)], data.y)
    flat, wanted = answers.flatten(0, 1), y.flatten()
    mean = functional.cross_entropy(flat, wanted, ignore_index=-1)
    right = (flat.argmax(1) == wanted)[wanted >= 0]
    assert found["perplexity"] == pytest.approx(math.exp(float(mean)))
    assert found["accuracy"] == pytest.approx(float(right.float().mean()))


def test_metrics_of_labels_count_labels_and_whole_examples() -> None:
    answers = torch.tensor([[1.0, -1.0], [2.0, 2.0], [-1.0, 1.0]])
    y = torch.tensor([[1, 0], [1, 0], [0, 1]])
    task = make_task("multi-label")
    found = task.measured([rows.numpy() for rows in task.rows(answers, y)], y.numpy())
    assert found == {"accuracy": pytest.approx(5 / 6), "auc": 0.75, "exact": pytest.approx(2 / 3)}


def test_errors_of_numbers_are_squared_or_not() -> None:
    answers, y = torch.tensor([[1.0], [2.0]]), torch.tensor([[2.0], [5.0]])
    task = make_task("regression", ["mse", "mae"])
    found = task.measured([rows.numpy() for rows in task.rows(answers, y)], y.numpy())
    assert found == {"mse": 5.0, "mae": 2.0}


# ---- metrics of one's own


def test_a_metric_of_ones_own_sees_targets_and_predictions() -> None:
    data = dataset("binary", 40)
    answers = model("binary")(torch.from_numpy(data.x)).detach()
    task = make_task("binary", ["accuracy", "tasked:brier"])
    kept = [rows.numpy() for rows in task.rows(answers, torch.from_numpy(data.y))]
    chances = 1 / (1 + np.exp(-answers[:, 0].double().numpy()))
    brier = task.measured(kept, data.y)["brier"]
    assert brier == pytest.approx(np.square(chances - data.y).mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("tasked:breaks", r"metric 'breaks' raised ValueError: no such luck"),
        ("tasked:says_nothing", "metric 'says_nothing' must return a number, got NoneType"),
        ("tasked:without_end", "metric 'without_end' must return a number, got inf"),
        ("tasked:whole_without_end", "must return a number, got one too large for a float"),
        ("tasked:writes_targets", "'writes_targets' raised ValueError: .* read-only"),
        ("tasked:writes_predictions", "'writes_predictions' raised ValueError: .* read-only"),
    ],
)
def test_a_metric_that_fails_is_named(metric: str, says: str) -> None:
    task = make_task("regression", [metric])
    with pytest.raises(MetricError, match=says):
        task.measured([np.zeros((2, 1))], np.zeros((2, 1), np.float32))


@pytest.mark.skipif(np.finfo(np.longdouble).maxexp == 1024, reason="a long double is a double")
def test_a_metric_beyond_a_double_is_refused() -> None:
    task = make_task("regression", ["tasked:long_without_end"])
    with pytest.raises(MetricError, match="got one too large for a float"):
        task.measured([np.zeros((2, 1))], np.zeros((2, 1), np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_no_metric_of_ones_own_can_write_what_the_next_is_shown(name: str) -> None:
    data = dataset(name, 12)
    answers, y = model(name)(torch.from_numpy(data.x)).detach(), torch.from_numpy(data.y)
    task = make_task(name, ["tasked:writes_predictions", "tasked:far"])
    kept = [rows.numpy() for rows in task.rows(answers, y)]
    before = kept[0].copy()
    with pytest.raises(MetricError, match="'writes_predictions' raised ValueError"):
        task.measured(kept, data.y)
    np.testing.assert_array_equal(kept[0], before)


@pytest.mark.parametrize(
    ("name", "metrics", "says"),
    [
        ("clustering", [], "unknown task 'clustering'"),
        ("regression", ["auc"], "unknown task.metrics 'auc'; choose one of mse, mae, r2"),
        ("regression", ["tasked:nothing"], "has no function 'nothing'"),
        ("regression", ["no_such_module:f"], "no module 'no_such_module'"),
        ("regression", ["mae", "mae"], "has 'mae' twice"),
        ("tasked:far", [], "must be a coterie.Task, got function"),
        ("tasked:MISAIMED", [], "'tasked:MISAIMED': unknown target 'regresion'; did you mean 're"),
        ("tasked:AIMED_AT_A_LIST", [], "unknown target .*; did you mean 'regression'"),
        ("tasked:KNOWS_NOTHING", [], "known must be a dict of metrics, got NoneType; {} has none"),
    ],
)
def test_what_is_no_task_or_metric_is_refused(name: str, metrics: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_task(name, metrics)


def test_classification_without_an_accuracy_has_the_metrics_that_it_knows() -> None:
    assert [metric.name for metric in make_task("tasked:UNCOUNTED").metrics] == ["accuracy"]
    assert make_task("classification").metrics == ()


# ---- engines


def parts(name: str) -> tuple[Nodes, dict[HeldPart, Any], dict[HeldPart, Any]]:
    data, n = dataset(name), int(SIZES.sum())
    nodes = Nodes(data.x[:n], data.y[:n], SIZES)
    val, test = (data.x[n : n + 20], data.y[n : n + 20]), (data.x[:60], data.y[:60])
    held_out: dict[HeldPart, Any] = {"val": val, "test": test}
    return nodes, held_out, {"test": np.array([30, 0, 5, 15, 10])}


def tasked(name: str) -> Task:
    names = [*TASKS[name].known, *([OWN[name]] if name in OWN else [])]
    return make_task(name, names)


def engines(name: str, *, own: bool) -> dict[str, Engine]:
    """Return the plain engine, and all others that there are."""
    nodes, held_out, sizes = parts(name)
    steps, task = LocalSteps(0.2, 0.99, 4, "epoch", 3), tasked(name)
    held_sizes = sizes if own else None

    def module() -> torch.nn.Module:
        return copy.deepcopy(model(name)).double()

    found: dict[str, Engine] = {
        "sequential": Sequential(module(), nodes, held_out, steps, held_sizes=held_sizes, task=task)
    }
    for kernel in ("single", "stacked"):
        found[kernel] = Vectorized(
            module(), nodes, held_out, steps, held_sizes=held_sizes, task=task, kernel=kernel
        )
        actors = Sharded(
            module(), nodes, held_out, steps, Here(), 2, held_sizes=held_sizes, task=task
        )
        actors.choose({"kernel": kernel, "actors": "2"})
        found[f"ray-{kernel}"] = actors
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("own", [False, True], ids=["pooled", "per-node"])
def test_every_engine_agrees_with_the_plain_one(name: str, own: bool) -> None:
    plain, *others = [scored(engine) for engine in engines(name, own=own).values()]
    for other in others:
        for one, its in zip(plain, other, strict=True):
            assert its == pytest.approx(one, rel=1e-9, abs=1e-9, nan_ok=True)


def scored(engine: Engine) -> list[Any]:
    """Train for two steps, and return all that is measured then."""
    models = engine.advance(engine.initial(), 0, 2, GROUPS)
    models = engine.advance(models, 2, 3, np.zeros(len(SIZES), dtype=np.int64))
    apart = engine.advance(models, 3, 4, GROUPS)
    measured = engine.measure(models.w[0], GROUPS)
    whole = engine.evaluate(models.w[0], "test")
    return [
        models.w[0].numpy(),
        apart.w.numpy(),
        measured.losses,
        measured.Delta,
        engine.losses(models.w)[:, 0],
        engine.own_losses(apart),
        *of_score(whole),
        *of_nodes(engine.score_nodes(apart, "test")),
    ]


def of_score(score: Score) -> list[Any]:
    assert score.metrics is not None
    return [score.loss, score.accuracy or 0.0, *score.metrics.values()]


def of_nodes(scores: NodeScores) -> list[Any]:
    metrics = [
        [np.nan if v is None else v for v in each] for each in (scores.metrics or {}).values()
    ]
    overall = [np.nan if v is None else v for v in (scores.overall or {}).values()]
    return [scores.loss, scores.right, scores.count, *metrics, overall]


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_examples_at_hand(name: str) -> None:
    nodes, held_out, _ = parts(name)
    task, module = tasked(name), model(name)
    engine = Vectorized(
        copy.deepcopy(module), nodes, held_out, LocalSteps(0.1, 1, 4, "epoch", 0), task=task
    )
    x, y = (torch.from_numpy(part) for part in held_out["test"])
    answers = module(x).detach()
    found = engine.evaluate(engine.initial().w[0], "test")
    assert found.loss == pytest.approx(float(task.loss(answers, y)), rel=1e-6)
    by_hand = task.measured([rows.numpy() for rows in task.rows(answers, y)], y.numpy())
    assert found.metrics == pytest.approx(by_hand, rel=1e-6)
    if task.right is None:
        assert found.accuracy is None
    else:
        assert found.accuracy == pytest.approx(by_hand["accuracy"])


def test_metrics_of_nodes_are_of_their_own_examples() -> None:
    _, held_out, sizes = parts("binary")
    engine = engines("binary", own=True)["single"]
    models = engine.initial()
    scores = engine.score_nodes(models, "test")
    assert scores.metrics is not None and scores.overall is not None
    x, y = held_out["test"]
    answers = model("binary").double()(torch.from_numpy(x).double()).detach()[:, 0].numpy()
    ends = np.cumsum(sizes["test"])
    each = [slice(end - size, end) for end, size in zip(ends, sizes["test"], strict=True)]
    assert scores.metrics["auc"][1] is None  # it holds nothing out
    for i in (0, 2, 3, 4):
        assert scores.metrics["auc"][i] == pytest.approx(auc(answers[each[i]], y[each[i]]))
    assert scores.overall["auc"] == pytest.approx(auc(answers, y))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "classification"])
def test_written_out_kernels_serve_labels_alone(name: str) -> None:
    engine = engines(name, own=False)["single"]
    with pytest.raises(ModelError, match="'dense', which cannot train this model here"):
        engine.choose({"kernel": "dense"})


def test_a_task_passes_to_another_process() -> None:
    task = pickle.loads(pickle.dumps(away(tasked("binary"))))
    assert task.loss is TASKS["binary"].loss
    assert len(task.kept) == 2


# ---- what does not fit


def test_a_token_outside_of_what_a_model_knows_is_refused() -> None:
    data = dataset("next-token", 20)
    x = data.x.copy()
    x[7, 2] = 99
    with pytest.raises(ModelError, match=r"fails on the dataset, whose tokens are 0 to 99: Index"):
        check_fit(model("next-token"), TASKS["next-token"], x, data.y, data.width)


def test_answers_of_another_shape_are_refused() -> None:
    rows, letters = dataset("regression", 20), dataset("next-token", 20)
    with pytest.raises(
        ModelError, match=r"must return .* \[batch, targets\], \[2, 2\] .*got \[2, 1\]"
    ):
        check_fit(model("binary"), TASKS["regression"], rows.x, rows.y, rows.width)
    with pytest.raises(ModelError, match=r"\[batch, length, vocabulary\], \[2, 7, 9\]"):
        check_fit(model("next-token"), TASKS["next-token"], letters.x, letters.y, 9)


def fit(kind: str, **parts: Any) -> None:
    """Try a task that has other parts on examples and a model of its kind."""
    data = dataset(kind, 20)
    task = replace(TASKS[kind], name="own", **parts)
    check_fit(model(kind), task, data.x, data.y, data.width)


@pytest.mark.parametrize("kind", NAMES)
def test_tasks_that_are_built_in_fit(kind: str) -> None:
    fit(kind, metrics=make_task(kind, ["tasked:far"]).metrics)


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ("sums", r"must be the mean of the examples' losses with reduction 'mean', .* here, got "),
        ("means", r"must be the sum of the examples' losses with reduction 'sum', .* here, got "),
        ("sums_unless_told", "must be the mean of the examples' losses without reduction, "),
        ("each_alone", r"must be one number with reduction 'sum', got \[2\] of float32"),
        ("floats", "must be one number with reduction 'sum', got float$"),
        ("lists", "must be one number for each of 2 examples, got list$"),
        ("detached", "must have a gradient; use torch's functions, and no detach"),
        ("whole_numbers", "must have a gradient"),
        ("writes_targets", "must not write into the answers or y; write into a copy"),
        ("writes_answers", "must not write into the answers or y; write into a copy"),
    ],
)
def test_a_loss_that_is_not_what_it_must_be_is_refused(loss: str, says: str) -> None:
    with pytest.raises(ModelError, match=f"^the loss of task 'own' {says}") as caught:
        fit("regression", loss=getattr(own_losses, loss))
    assert "\n" not in str(caught.value)


def test_a_loss_may_draw_random_numbers_which_the_check_gives_back() -> None:
    torch.manual_seed(1)
    fit("regression", loss=own_losses.noisy)
    found = torch.rand(3)
    torch.manual_seed(1)
    assert found.equal(torch.rand(3))


def test_a_loss_that_is_no_number_is_left_to_training_which_names_the_node() -> None:
    fit("regression", loss=own_losses.no_number)


@pytest.mark.parametrize(
    ("kind", "parts", "says"),
    [
        ("binary", {"right": lambda a, y: y.tolist()}, "right of .* each of 2 examples, got list"),
        ("binary", {"right": lambda a, y: (y > 0).sum()}, r"right of .* got \[\] of int64"),
        ("binary", {"right": lambda a, y: y / 0 * [1]}, "right of task 'own' fails: TypeError"),
        ("binary", {"right": lambda a, y: y + 2}, r"right of .* at most \[1, 1\], its units, got "),
        ("multi-label", {"units": len}, r"units of .* each of 2 examples, got \[\] of int64"),
        ("regression", {"predict": lambda a: a.tolist()}, "predict of .* 2 examples, got list"),
        ("regression", {"predict": lambda a: a[:1]}, r"predict of .* got \[1, 2\] of float32"),
        ("regression", {"predict": lambda a: a.no}, "predict of task 'own' fails: AttributeError"),
        ("regression", {"predict": lambda a: a.zero_()}, "predict of .* must not write into the"),
    ],
)
def test_parts_of_a_task_that_do_not_fit_are_refused(
    kind: str, parts: dict[str, Any], says: str
) -> None:
    with pytest.raises(ModelError, match=f"^{says}"):
        fit(kind, metrics=make_task(kind, ["tasked:far"]).metrics, **parts)


def test_answers_that_are_whole_numbers_are_refused() -> None:
    class Whole(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).long()

    data = dataset("regression", 20)
    with pytest.raises(ModelError, match=r"must return floating-point .* got \[2, 2\] of int64"):
        check_fit(Whole(5, 2), TASKS["regression"], data.x, data.y, data.width)
