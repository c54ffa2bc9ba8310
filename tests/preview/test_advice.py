"""What a plan advises: what is quickest by its own estimate, what it costs, and what changes it."""

import json
import math
from pathlib import Path

import pytest

from coterie.preview.advice import WORTH_IT, Advice
from coterie.preview.from_labels import plans_by_labels
from coterie.render.page.advice import plain_advice, sentence, settings
from resuming import coterie as command

MB = 1_000_000
ALIKE = "node,edge,car,truck\n" + "".join(f"{s}{i},{s},50,50\n" for s in "ab" for i in (1, 2, 3))
UNLIKE = "node,edge,car,truck\n" + "".join(
    f"{s}{i},{s},{100 * (s == 'a')},{100 * (s == 'b')}\n" for s in "ab" for i in (1, 2, 3)
)


def links(uplink: float, access: float = 10.0) -> str:
    """Two sites of three devices; both switches and the core serve."""
    rows = [f"{s}{i},switch {s},{access},access," for s in "ab" for i in (1, 2, 3)]
    rows += [f"switch {s},core,{uplink},uplink,yes" for s in "ab"]
    return "\n".join(["a,b,mbytes_per_s,tier,server", *rows, "core,,,,yes", ""])


def advised(tmp_path: Path, nodes: str, network: str, *more: str) -> Advice:
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "net.csv").write_text(network)
    files = tmp_path / "nodes.csv", tmp_path / "net.csv"
    told = ("algorithm.num_groups=2", *more)
    return Advice(plans_by_labels(*files, MB, told, methods=("edge",), budget_s=0.01))


def test_sites_that_are_alike_behind_slow_links_are_the_groups(tmp_path: Path) -> None:
    advice = advised(tmp_path, ALIKE, links(uplink=0.1))
    assert advice.best.what.kind == "edges"
    assert sentence(advice).startswith("take the 2 network edges as groups, served by switch a")
    assert "algorithm.name=hierfavg" in settings(advice)


def test_sites_of_one_class_each_behind_fast_links_are_no_groups(tmp_path: Path) -> None:
    advice = advised(tmp_path, UNLIKE, links(uplink=1000.0))
    assert advice.best.what.kind == "fedavg"
    assert sentence(advice).startswith("do not group: FedAvg, a mean every step")
    assert "algorithm.name=fedavg" in settings(advice)


def test_steps_are_advised_where_those_of_the_file_do_not_reach_its_target(tmp_path: Path) -> None:
    """A mean after each of 7 steps is the target; groups need more steps, in whole rounds."""
    grouped = advised(tmp_path, ALIKE, links(uplink=0.1), "train.steps=7")
    means = grouped.best.means
    steps = grouped.costs(grouped.best).steps
    gained = means.gained(grouped.view.rivals.reach)
    rounds, left = divmod(steps, means.tau1 * means.tau2)
    assert left == 0 and (rounds - 1) * gained < 7 <= rounds * gained
    assert f"--set train.steps={steps}" in settings(grouped)
    assert plain_advice(grouped)["settings"] == settings(grouped)
    alone = advised(tmp_path, UNLIKE, links(uplink=1000.0), "train.steps=7")
    assert (alone.best.means.tau1, alone.best.means.tau2) == (1, 1)
    assert "train.steps" not in settings(alone)


@pytest.mark.parametrize("nodes", [ALIKE, UNLIKE])
@pytest.mark.parametrize("uplink", [0.1, 3.0, 100.0])
def test_nothing_else_is_faster_by_more_than_what_simplicity_is_worth(
    tmp_path: Path, nodes: str, uplink: float
) -> None:
    advice = advised(tmp_path, nodes, links(uplink))
    fastest = max(option.speed for option in advice.options.values())
    assert advice.best.speed * WORTH_IT >= fastest
    simpler = advice.options["fedavg"]
    assert advice.best is simpler or advice.best.speed >= WORTH_IT * simpler.speed


def test_a_round_of_fedavg_sends_each_model_up_and_down_the_slow_tier(tmp_path: Path) -> None:
    advice = advised(tmp_path, UNLIKE, links(uplink=1000.0), "network.combine=none")
    option = advice.options["fedavg"]
    costs = advice.costs(option)
    assert advice.slow_tier == "access"
    assert not option.what.combined
    assert costs.round_bytes == 2 * 6 * MB  # six devices, no device serves
    assert costs.round_s == pytest.approx(option.means.global_s)
    assert costs.day_bytes == pytest.approx(86_400 / costs.round_s * costs.round_bytes)
    rounds = advice.steps  # a mean after each step
    assert costs.target_s == pytest.approx(rounds * costs.round_s)
    assert costs.low_s <= costs.target_s <= costs.high_s


def test_a_link_as_fast_as_told_changes_the_advice_and_a_little_less_does_not(
    tmp_path: Path,
) -> None:
    """Files with that other speed are planned anew."""
    advice = advised(tmp_path, UNLIKE.replace("100,0", "70,30"), links(uplink=1.0))
    change = next(c for c in advice.changes if c.what == "uplink links' speed")
    assert change.factor is not None
    other = advised(tmp_path, UNLIKE.replace("100,0", "70,30"), links(uplink=change.factor))
    assert other.best.what.kind == change.kind != advice.best.what.kind
    near = (
        math.sqrt(change.factor)
        if abs(math.log(change.factor)) < math.log(1.6)
        else (change.factor**0.3)
    )
    same = advised(tmp_path, UNLIKE.replace("100,0", "70,30"), links(uplink=near))
    assert same.best.what.kind == advice.best.what.kind


def test_nodes_that_are_alike_have_no_skew_to_change(tmp_path: Path) -> None:
    advice = advised(tmp_path, ALIKE, links(uplink=0.1))
    assert "the nodes' skew" not in {change.what for change in advice.changes}


def test_the_command_says_it_first_and_to_programs(tmp_path: Path) -> None:
    advice = advised(tmp_path, ALIKE, links(uplink=0.1))
    files = ("--nodes", tmp_path / "nodes.csv", "--network", tmp_path / "net.csv")
    words = ("plan", *files, "--model-bytes", MB, "--methods", "edge", "--budget", "10ms")
    more = ("--set", "algorithm.num_groups=2", "-o", tmp_path / "plan.html")
    done = command(*words, *more)
    assert done.exit_code == 0, done.output
    assert " ".join(done.output.split()).startswith(f"In short: {sentence(advice)}")
    assert "What would change the answer" in done.output
    told = json.loads(command(*words, *more[:2], "--json").stdout)
    assert told["advice"] == json.loads(json.dumps(plain_advice(advice)))
