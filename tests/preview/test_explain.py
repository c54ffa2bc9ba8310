"""`coterie plan --explain`: what the pilot leads to, why, and what others would take."""

import json
from pathlib import Path

import pytest

from coterie.config.files import load_experiment
from coterie.config.shipped import experiment_path
from coterie.preview.schedule import Explained, explain, opened
from coterie.render.page.explain import explain_figure
from resuming import coterie

SMALL = (
    "[data]\nsample = 0.1\n[partition]\nnum_nodes = 10\nnum_edges = 10\n"
    "[algorithm]\nname = 'fedavg-ic'\nshakes = 0\n[train]\nsteps = 60\n"
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Explained:
    path = tmp_path_factory.mktemp("explain") / "small.toml"
    path.write_text(SMALL)
    return explain(opened(load_experiment(path)))


def test_the_table_the_page_and_the_picture_are_there(small: Path, tmp_path: Path) -> None:
    done = coterie("plan", small, "--explain", "-o", tmp_path / "why.html")
    assert done.exit_code == 0, done.output
    for words in (
        "chosen",
        "FedAvg, tau = 5",
        "the paper's",
        "pilot: 7 steps",
        "a global mean takes",
    ):
        assert words in done.output
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "why.html").read_text()
    assert "how often to average" in page and "data:image/png" in page


def test_as_json_all_forecasts_are_there_and_no_file_is_written(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = coterie("plan", small, "--explain", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [p.name for p in tmp_path.iterdir()] == ["small.toml"]
    keys = {(f["num_groups"], f["tau1"], f["tau2"]) for f in told["forecasts"]}
    assert {(1, 5, 1), (5, 1, 5)} <= keys
    times = [f["seconds"] for f in told["forecasts"] if f["seconds"] is not None]
    assert told["chosen"]["seconds"] == pytest.approx(min(times), rel=0.1)
    assert len(told["z"]) == 10


def test_what_the_file_gives_is_kept(small: Path) -> None:
    settings = ["algorithm.tau1=2", "algorithm.num_groups=auto"]
    found = explain(opened(load_experiment(small), settings))
    assert {f.tau1 for f in found.choice.forecasts} == {2}
    assert {f.option.num_groups for f in found.choice.forecasts} == {1, 2, 5, 10}
    assert {f.tau2 for f in found.choice.forecasts} == {1, 5}  # one group has no group means


def test_runners_up_are_no_better_and_each_has_its_name(found: Explained) -> None:
    first, *others = found.runners_up()
    assert first == (found.chosen, "chosen")
    assert all(f.rank() >= found.choice.forecasts[0].rank() for f, _ in others)
    assert {name for _, name in others} >= {"FedAvg, tau = 5", "the paper's", "next best schedule"}


def test_the_picture_rings_the_chosen_cell(found: Explained) -> None:
    left, right = explain_figure(found).axes
    ringed = [[t for t in axis.texts if t.get_bbox_patch()] for axis in (left, right)]
    assert [len(texts) for texts in ringed] == [1, 1]
    (text,) = ringed[1]
    assert text.get_text() == f"{found.total_s(found.chosen):.3g}"


def test_a_target_out_of_reach_is_said_with_where_it_ends(small: Path, tmp_path: Path) -> None:
    words = ("--set", "algorithm.tau1=auto", "--set", "algorithm.target_loss=0.01")
    done = coterie("plan", small, "--explain", *words, "-o", tmp_path / "why.html")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "a loss of 0.01 is not reached in 60 steps by what is chosen" in said


def test_where_an_accuracy_is_wanted_the_table_ends_with_accuracies(
    small: Path, tmp_path: Path
) -> None:
    words = ("--set", "algorithm.tau1=auto", "--set", "algorithm.target_accuracy=0.6")
    done = coterie("plan", small, "--explain", *words, "-o", tmp_path / "why.html")
    assert done.exit_code == 0, done.output
    head, chosen = (
        next(line for line in done.output.splitlines() if word in line)
        for word in ("accuracy in", "chosen")
    )
    assert "loss in" not in head
    told = json.loads(coterie("plan", small, "--explain", *words, "--json").stdout)["chosen"]
    assert chosen.split()[-1] == f"{100 * told['accuracy']:.1f}"


def test_a_sweep_with_other_algorithms_may_be_given_a_target() -> None:
    path = experiment_path("demo")
    config = opened(load_experiment(path), ["algorithm.target_accuracy=0.8"])
    assert config.algorithm.name == "fedavg-ic"
    assert config.algorithm.open == ("num_groups", "tau1", "tau2")
    assert config.algorithm.target_accuracy == 0.8


def test_what_is_beyond_the_bytes_is_marked(small: Path, tmp_path: Path) -> None:
    free = json.loads(coterie("plan", small, "--explain", "--json").stdout)
    least = min(f["bytes"] for f in free["forecasts"] if f["seconds"] is not None)
    words = ("--set", f"algorithm.max_gbytes={1.01 * least / 1e9}")
    done = coterie("plan", small, "--explain", *words, "-o", tmp_path / "why.html")
    assert done.exit_code == 0, done.output
    assert "*: beyond algorithm.max_gbytes" in done.output
    chosen = next(line for line in done.output.splitlines() if line.startswith("chosen"))
    assert "*" not in chosen


def test_without_explain_a_number_is_asked_for(small: Path, tmp_path: Path) -> None:
    done = coterie("plan", small, "--set", "algorithm.tau1=auto", "-o", tmp_path / "p.html")
    assert done.exit_code == 2
    assert "algorithm.tau1 is 'auto': --explain says" in done.output
    assert not (tmp_path / "p.html").exists()


def test_other_options_are_refused(small: Path) -> None:
    done = coterie("plan", small, "--explain", "--model-bytes", 1000)
    assert done.exit_code == 2
    assert "--explain takes FILE, --set, --out and --json only" in done.output
