"""`coterie plan --trials`: what it prints and writes, and what it does not take."""

import json
from pathlib import Path

import pytest

from known import coterie

TINY = """
[data]
sample = 0.1
[partition]
kind = "Dqh"
num_nodes = 6
num_edges = 2
[train]
steps = 5
lr = 0.2
[network]
topology = "edge-cloud"
link_mbytes_per_s = 1
access_mbytes_per_s = 10
"""
QUICKLY = ("--set", "algorithm.budget_s=0.01")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def test_it_says_what_is_soonest_and_writes_a_page_a_picture_and_what_was_tried(
    tiny: Path,
) -> None:
    done = coterie("plan", tiny, "--trials", 3)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("In short: ")
    assert "as advised: --set algorithm.name=" in done.stdout
    for kind in ("FedAvg", "the network edges as groups", "searched groups"):
        assert f"\n{kind} " in done.stdout
    files = sorted(path.name for path in Path("runs").iterdir())
    assert files == ["trials-tiny.html", "trials-tiny.png", "trials-tiny.trials.jsonl"]
    again = coterie("plan", tiny, "--trials", 3)
    assert again.stdout == done.stdout


def test_json_says_the_same_and_writes_nothing(tiny: Path) -> None:
    done = coterie("plan", tiny, "--trials", 2, "--json", *QUICKLY)
    said = json.loads(done.stdout, parse_constant=pytest.fail)
    assert {each["method"] for each in said["options"]} >= {said["chosen"], "FedAvg"}
    assert said["settings"].startswith("--set algorithm.name=")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "more",
    [("--explain",), ("--methods", "edge"), ("--by", "time"), ("--save", "a.csv")],
)
def test_what_it_does_not_take_is_refused_in_one_line(tiny: Path, more: tuple[str, ...]) -> None:
    done = coterie("plan", tiny, "--trials", 2, *more)
    assert done.exit_code != 0
    assert done.stderr == "coterie: --trials takes FILE, --set, --out and --json only\n"
    assert not Path("runs").exists()


def test_nodes_of_ones_own_cannot_be_trained(tiny: Path) -> None:
    done = coterie("plan", "--nodes", tiny, "--network", tiny, "--model-bytes", 5, "--trials", 2)
    assert "--trials takes FILE" in done.stderr


def test_ctrl_c_tells_how_to_go_on(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coterie.analysis.trials.trained", stopped)
    done = coterie("plan", tiny, "--trials", 2, *QUICKLY)
    assert done.exit_code != 0
    assert (
        f"go on with: coterie plan {tiny} --trials 2 --set algorithm.budget_s=0.01" in done.stderr
    )
