"""What is soonest by trials: which runs are made, what is chosen, and where it goes on."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from coterie.config.factories import load_dataset
from coterie.config.files import changed, make_config, parse_override
from coterie.config.prepare import prepare
from coterie.config.settings import Config
from coterie.core.errors import CoterieError
from coterie.preview import trials
from coterie.preview.kept_trials import NO_END, End, Kept
from coterie.preview.scenarios import survey
from coterie.preview.trials import (
    APART,
    SEEDS,
    TAU2,
    Doing,
    Ran,
    Tried,
    doing,
    settings,
    trained,
    try_out,
)
from coterie.simulation.loop import rounds

NOT_COMBINED = dict.fromkeys((1, *TAU2), False)
BEGIN = {"algorithm.tau1": 3, "algorithm.tau2": 4, "algorithm.num_groups": 2}


def config(**train: Any) -> Config:
    return make_config(
        {
            "data": {"sample": 0.1},
            "partition": {"kind": "Dhh", "num_nodes": 10, "num_edges": 2},
            "network": {"topology": "edge-cloud"},
            "train": {"steps": 8, "lr": 0.1, **train},
        }
    )


def both(of: Config) -> list[Doing]:
    return [
        doing("FedAvg", "fedavg", of, BEGIN, NOT_COMBINED),
        doing("edges", "hierfavg", of, BEGIN, dict.fromkeys((1, *TAU2), True)),
    ]


def tried(of: Config, kept: Kept | None = None, number: int = 4) -> Tried:
    return try_out(of, both(of), "uplink", number, kept or Kept())


def test_a_search_begins_at_the_files_rate_and_nearest_to_where_it_is_told() -> None:
    fedavg, edges = both(config())
    assert fedavg.settings(fedavg.first) == {
        "algorithm.name": "fedavg",
        "algorithm.num_groups": 1,
        "algorithm.tau1": 2,
        "algorithm.tau2": 1,
        "train.lr": 0.1,
        "network.combine": "none",
    }
    assert edges.settings(edges.first)["algorithm.tau2"] == 5
    assert edges.settings(edges.first)["network.combine"] == "all"
    begin = {**BEGIN, "algorithm.num_groups": 3}
    groups = doing("groups", "coterie", config(), begin, NOT_COMBINED)
    assert groups.settings(groups.first)["algorithm.num_groups"] == 3
    assert {a.name: a.values for a in groups.space}["algorithm.num_groups"] == (2, 3, 5)
    assert max({a.name: a.values for a in fedavg.space}["algorithm.tau1"]) == 25  # of 48


def test_what_is_chosen_is_soonest_on_all_seeds_and_none_is_the_next_one() -> None:
    of = config()
    found = tried(of)
    assert found.chosen is not None
    assert found.chosen.rank == min(ran.rank for ran in found.found)
    assert {ran.name for ran in found.found} == {"FedAvg", "edges"}
    for ran in found.found:
        assert list(ran.ends) == [0, *(APART + k for k in range(1, SEEDS))]


def test_a_run_by_the_settings_that_are_told_is_at_the_target_when_that_was_said() -> None:
    of = config()
    found = tried(of)
    assert found.chosen is not None
    told = dict(parse_override(text) for text in settings(found).split("--set ")[1:])
    told = {key: value.strip() if isinstance(value, str) else value for key, value in told.items()}
    for seed, seconds in found.chosen.reached.seconds.items():
        more = {"seed": seed, "train.measure": ["loss"], "train.eval_every": 1}
        states = rounds(prepare(changed(of, {**told, **more})).problem)
        first = next(
            (s for s in states if s.t and (s.row.train_loss or math.inf) <= found.target), None
        )
        assert (None if first is None else first.row.seconds) == seconds


def test_the_target_is_the_loss_with_a_mean_after_each_step_at_the_best_rate() -> None:
    of = config()
    losses = []
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
        more = {"algorithm.name": "fedavg", "algorithm.tau1": 1, "algorithm.tau2": 1}
        *_, last = rounds(prepare(changed(of, {**more, "train.lr": factor * 0.1})).problem)
        losses.append(last.row.train_loss)
    assert tried(of, number=1).target == pytest.approx(min(losses))  # type: ignore[type-var]


def test_what_is_kept_is_not_run_again_and_a_line_that_is_cut_off_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, path = config(), tmp_path / "deep" / "trials.jsonl"
    whole = tried(of, Kept(path))
    lines = path.read_text().splitlines()
    ran: list[Any] = []

    def counted(*given: Any) -> End:
        ran.append(given)
        return trained(*given)

    monkeypatch.setattr(trials, "trained", counted)
    assert tried(of, Kept(path)) == whole and not ran
    path.write_text("\n".join([*lines[:-1], lines[-1][:20], '{"trial": 1}', "[]", ""]))
    assert tried(of, Kept(path)) == whole and len(ran) == 1
    assert tried(of, Kept(path)) == whole and len(ran) == 1


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", '"x"', "[]", '"1e999"'])
def test_a_kept_line_without_numbers_is_left_out(tmp_path: Path, value: str) -> None:
    path = tmp_path / "trials.jsonl"
    more = '"slow_bytes": null, "steps": 3, "least": 0.5'
    path.write_text(f'{{"trial": "a", "seconds": {value}, {more}}}\n')
    assert Kept(path).known == {}


def test_stopped_in_its_middle_it_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, path = config(), tmp_path / "trials.jsonl"
    whole = tried(of)
    ran: list[Any] = []

    def stopped(*given: Any) -> End:
        if len(ran) == 7:
            raise KeyboardInterrupt
        ran.append(given)
        return trained(*given)

    monkeypatch.setattr(trials, "trained", stopped)
    with pytest.raises(KeyboardInterrupt):
        tried(of, Kept(path))
    assert len(path.read_text().splitlines()) == 7
    monkeypatch.setattr(trials, "trained", trained)
    assert tried(of, Kept(path)) == whole


def test_a_trial_ends_where_it_is_slower_than_the_best() -> None:
    of = changed(config(), {"algorithm.name": "fedavg"})
    data, slow = load_dataset(of), survey("", "", of).slow
    end = trained(of, data, 0.0, slow)
    assert end.seconds is None and end.least is not None
    at = trained(of, data, end.least, slow)
    assert at.seconds is not None and at.steps is not None and at.slow_bytes
    assert trained(of, data, end.least, slow, at.seconds) == at
    cut = trained(of, data, end.least, slow, 0.99 * at.seconds)
    assert cut.seconds is None and (cut.least is None or cut.least > end.least)


def test_a_run_that_diverges_has_no_end_and_if_all_do_so_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = config(lr=1e38, batch_size=4)
    assert trained(of, load_dataset(of), 1.0, "uplink") == NO_END
    monkeypatch.setattr(trials, "trained", lambda *given: NO_END)
    of = config()
    with pytest.raises(CoterieError, match=r"diverges at every learning rate .* smaller train\.lr"):
        tried(of)


def test_where_nothing_is_at_the_target_nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    of = config()
    monkeypatch.setattr(trials._Search, "target", lambda self: 1e-9)
    found = tried(of)
    assert found.chosen is None
    assert {(ran.rank[0], ran.mean) for ran in found.found} == {(SEEDS, math.inf)}


def test_what_has_no_steps_for_one_more_round_comes_after_what_has() -> None:
    told = {"algorithm.tau1": 5, "algorithm.tau2": 4}
    soon, sure, never = (
        Ran("", told, {0: End(seconds, 0.0, steps, 0.5), 1: End(seconds, 0.0, 20, 0.5)}, 60)
        for seconds, steps in ((4.0, 60), (9.0, 40), (None, None))
    )
    assert (soon.steps, sure.steps, never.steps) == (80, 60, 40)
    assert sorted([never, soon, sure], key=lambda ran: ran.rank) == [sure, soon, never]
    assert (soon.mean, sure.mean, never.mean) == pytest.approx((4.0, 9.0, math.inf))


def test_what_diverges_in_all_its_trials_is_left_out_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_edges(config: Config, *more: Any) -> End:
        return NO_END if config.algorithm.name == "hierfavg" else trained(config, *more)

    monkeypatch.setattr(trials, "trained", without_edges)
    found = tried(config())
    assert [ran.name for ran in found.found] == ["FedAvg"]
    assert "edges was left out: it diverges, or no groups keep to the limits" in found.notes


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoterieError, match="cannot be written"):
        Kept(tmp_path / "file" / "trials.jsonl").keep("a", NO_END)


def test_kept_trials_are_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    Kept(path).keep("a", End(1.5, 2.0, 3, 0.5))
    (line,) = path.read_text().splitlines()
    assert json.loads(line) == {
        "trial": "a",
        "seconds": 1.5,
        "slow_bytes": 2.0,
        "steps": 3,
        "least": 0.5,
    }
    assert Kept(path).known == {"a": End(1.5, 2.0, 3, 0.5)}
