"""What a line of the comparison holds: the score, the baseline, deviations, who is first."""

from statistics import stdev
from typing import Any

import pytest

from coterie.analysis.compare import compare, first_at_target
from coterie.analysis.lines import read_view
from coterie.core.errors import ConfigError, RecordError
from coterie.runs.record import RecordedRun
from recorded import recorded

RISES = [(0.0, 0.1), (2.0, 0.9), (4.0, 0.5), (6.0, 0.6)]
SEARCHED = "fedavg (random, groups = search)"
ALL = {"fedavg": 2.0, "hierfavg": 1.0, "centralized": 0.5}  # seconds of a step


def run(algorithm: str = "fedavg", seed: int = 0, step_s: float = 1.0, **more: Any) -> RecordedRun:
    """A run that is at 60% after three steps."""
    curve = [(step_s * t, accuracy) for t, accuracy in enumerate((0.1, 0.3, 0.5, 0.6))]
    return recorded(curve, seed, algorithm={"name": algorithm}, **more)


@pytest.mark.parametrize(
    ("score", "accuracy"), [("last", 0.6), ("best", 0.9), ("mean:1", 0.6), ("mean:3", 2.0 / 3)]
)
def test_the_accuracy_of_a_run_is_its_last_its_best_or_a_mean(score: str, accuracy: float) -> None:
    runs = [recorded(RISES, algorithm={"name": "fedavg"})]
    (block,) = compare(runs, None, read_view(score=score))
    assert block.lines[0].accuracy == pytest.approx(accuracy)
    assert block.score == score


def test_the_target_is_the_baseline_by_the_same_score() -> None:
    curve = [(0.0, 0.1), (2.0, 0.62), (4.0, 0.9), (6.0, 0.6)]
    runs = [recorded(curve, algorithm={"name": "fedavg"})]
    first = {
        score: compare(runs, None, read_view(score=score))[0].lines[0].target_s
        for score in ("last", "best", "mean:2")
    }
    assert first == {"last": 2.0, "best": 4.0, "mean:2": 4.0}
    assert compare(runs, None, read_view(score="best"))[0].target == (
        "FedAvg's best accuracy, seed by seed"
    )


def test_a_mean_of_more_evaluations_than_there_are_is_refused() -> None:
    with pytest.raises(RecordError, match=r"--score mean:5 needs as many evaluations, it has 4"):
        compare([run()], None, read_view(score="mean:5"))


def test_target_and_speed_ups_refer_to_the_baseline() -> None:
    runs = [run(name, step_s=step_s) for name, step_s in ALL.items()]
    (usual,), (other,) = compare(runs), compare(runs, None, read_view(baseline="hierfavg"))
    assert (usual.baseline, other.baseline) == ("fedavg", "hierfavg")
    assert {line.algorithm: line.speed_up for line in usual.lines} == pytest.approx(
        {"fedavg": 1.0, "hierfavg": 2.0, "centralized": 4.0}
    )
    assert {line.algorithm: line.speed_up for line in other.lines} == pytest.approx(
        {"fedavg": 0.5, "hierfavg": 1.0, "centralized": 2.0}
    )
    assert other.target == "hierfavg's final accuracy, seed by seed"


def test_a_label_is_a_baseline_in_whatever_case() -> None:
    runs = [run(label="FedAvg"), run(label="SCAFFOLD", optimizer={"scaffold": True})]
    assert compare(runs)[0].baseline == "FedAvg"
    assert compare(runs, None, read_view(baseline="scaffold"))[0].baseline == "SCAFFOLD"


def test_a_baseline_that_no_line_is_called_is_refused_with_what_was_meant() -> None:
    runs = [run(label="FedAvg"), run(label="SCAFFOLD", optimizer={"scaffold": True})]
    with pytest.raises(ConfigError) as refused:
        compare(runs, None, read_view(baseline="scafold"))
    assert str(refused.value) == (
        "--baseline: no line is called 'scafold'; did you mean 'SCAFFOLD'?"
    )


@pytest.mark.parametrize(
    ("wanted", "meant"), [("hierfavg", "edges"), ("fedavg", SEARCHED), ("ed", "edges")]
)
def test_a_baseline_may_be_meant_by_its_algorithm(wanted: str, meant: str) -> None:
    search = {"name": "fedavg", "groups": "search", "grouping": "random"}
    searched = recorded(RISES, algorithm=search)
    with pytest.raises(ConfigError) as refused:
        compare([run("hierfavg", label="edges"), searched], None, read_view(baseline=wanted))
    assert str(refused.value) == (
        f"--baseline: no line is called {wanted!r}; did you mean {meant!r}?"
    )


def test_without_a_baseline_there_is_no_target_and_the_table_says_how_to_have_one() -> None:
    (block,) = compare([run("hierfavg"), run("fedavg-ic")])
    assert block.baseline is None
    assert block.target == "none; no line is called fedavg, --baseline names another"
    assert [line.target_s for line in block.lines] == [None, None]


def test_a_note_says_of_how_many_lines_the_best_value_is_at_an_end_of_the_list() -> None:
    best = {"fedavg": 0.1, "hierfavg": 0.1, "fedavg-c": 0.5, "fedavg-i": 1.0}
    runs = [run(name, train={"lr": lr}) for name in best for lr in (0.1, 0.5, 1.0)]
    for each in runs:
        chosen = best[each.config["algorithm"]["name"]] == each.config["train"]["lr"]
        each.summary["val_accuracy"] = float(chosen)
    runs.append(run("fedavg-ic", train={"lr": 0.1}))  # one value has no ends
    (block,) = compare(runs, None, read_view(best="train.lr"))
    assert block.notes == (
        "the best train.lr of 2 lines is the least in the list; lengthen it",
        "the best train.lr of 1 line is the largest in the list; lengthen it",
    )
    words = [run("fedavg-ic", model={"name": name}) for name in ("sr", "2nn")]
    assert compare(words, None, read_view(best="model.name"))[0].notes == ()
    assert compare(runs)[0].notes == ()


def test_every_mean_over_seeds_has_its_deviation() -> None:
    steps = (1.0, 1.5, 3.0)
    runs = [run("fedavg", seed) for seed in range(3)]
    runs += [run("hierfavg", seed, step_s) for seed, step_s in enumerate(steps)]
    for seed, each in enumerate(runs[3:]):
        each.summary["Delta"] = 0.5 + seed
    line = compare(runs)[0].lines[1]
    assert line.target_s_sd == pytest.approx(stdev(3 * s for s in steps))
    assert line.seconds_sd == pytest.approx(stdev(3 * s for s in steps))
    assert line.speed_up == pytest.approx(3 / sum(steps))
    assert line.speed_up_sd == pytest.approx(stdev(1 / s for s in steps))
    assert line.Delta_sd == pytest.approx(1.0)
    assert line.d_local_sd == 0
    alone = compare(runs[:1])[0].lines[0]
    assert (alone.accuracy_sd, alone.target_s_sd, alone.Delta_sd) == (None, None, None)


def test_an_upper_bound_is_not_the_first_at_the_target() -> None:
    (block,) = compare([run(name, step_s=step_s) for name, step_s in ALL.items()])
    assert [line.pooled for line in block.lines] == [False, False, True]
    first = first_at_target(block.lines)
    assert first is not None
    assert first.algorithm == "hierfavg"
    assert first_at_target([line for line in block.lines if line.pooled]) is None
