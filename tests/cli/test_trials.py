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
    for kind in ("FedAvg", "grouping by edge", "grouping by search"):
        assert f"\n{kind} " in done.stdout
    (line,) = (x for x in done.stdout.splitlines() if x.startswith("coterie run "))
    ran = coterie(*line.split()[1:], "--out", "ran")
    assert ran.exit_code == 0, ran.output
    rows = Path("ran/rows.jsonl").read_text().splitlines()
    losses = [json.loads(row)["train_loss"] for row in rows]
    target = json.loads(coterie("plan", tiny, "--trials", 1, "--json", *QUICKLY).stdout)
    assert min(losses) <= target["target_loss"]
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


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (("name=ditto",), "the file has algorithm.name = 'ditto'; leave it out"),
        (("name=fedprox", "options.mu=0.5"), "algorithm.name = 'fedprox'; leave it out"),
        (("name=fedavg", "groups=edge"), "the file has algorithm.groups; leave it out"),
        (("num_groups=auto", "target_accuracy=0.8"), "leave out algorithm.target_accuracy"),
        (("tau2=never",), "algorithm.tau2 is 'never': a plan compares times"),
    ],
)
def test_a_file_whose_algorithm_would_not_be_tried_is_refused(
    tiny: Path, settings: tuple[str, ...], told: str
) -> None:
    words = [word for each in settings for word in ("--set", f"algorithm.{each}")]
    done = coterie("plan", tiny, "--trials", 2, *words)
    assert done.exit_code != 0
    assert told in done.stderr and done.stderr.count("\n") == 1
    assert not Path("runs").exists()


def test_what_a_run_would_choose_is_tried_and_a_loss_that_is_given_is_the_target(
    tiny: Path,
) -> None:
    words = ("num_groups=auto", "tau1=auto", "tau2=auto", "target_loss=2.0")
    given = [word for each in words for word in ("--set", f"algorithm.{each}")]
    done = coterie("plan", tiny, "--trials", 1, "--json", *given, *QUICKLY)
    assert json.loads(done.stdout)["target_loss"] == 2.0


def test_trials_of_a_file_that_has_changed_are_made_again(tiny: Path) -> None:
    rows = ["," + ",".join(f"n{i}" for i in range(6))]
    rows += [f"n{i}," + ",".join("1" if i != j else "" for j in range(6)) for i in range(6)]
    Path("net.csv").write_text("\n".join(rows))
    text = TINY[: TINY.index("[network]")].replace("num_edges = 2", "num_edges = 2")
    tiny.write_text(f'{text}[network]\ntopology = "matrix"\nfile = "net.csv"\n')
    words = ("plan", tiny, "--trials", 1, *QUICKLY)
    first = coterie(*words)
    assert first.exit_code == 0, first.output
    kept = Path("runs/trials-tiny.trials.jsonl")
    count = len(kept.read_text().splitlines())
    coterie(*words)
    assert len(kept.read_text().splitlines()) == count
    Path("net.csv").write_text("\n".join(rows).replace(",1", ",2"))
    other = coterie(*words)
    assert len(kept.read_text().splitlines()) == 2 * count
    assert other.stdout != first.stdout


def test_nodes_of_ones_own_cannot_be_trained(tiny: Path) -> None:
    done = coterie("plan", "--nodes", tiny, "--network", tiny, "--model-bytes", 5, "--trials", 2)
    assert "--trials takes FILE" in done.stderr


def test_ctrl_c_tells_how_to_go_on(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coterie.preview.trials.trained", stopped)
    done = coterie("plan", tiny, "--trials", 2, *QUICKLY)
    assert done.exit_code != 0
    assert (
        f"go on with: coterie plan {tiny} --trials 2 --set algorithm.budget_s=0.01" in done.stderr
    )
