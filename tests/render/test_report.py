"""What the page of runs is told: means, bands, targets, fronts, networks, and what is left out."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from coterie.analysis.compare import compare
from coterie.analysis.curves import Column, thin
from coterie.analysis.lines import read_view
from coterie.cli import main
from coterie.render.page import page_data, render, write_picture, write_report
from coterie.render.page.curve_data import bound
from coterie.render.page.network_data import MOST_NODES
from coterie.render.page.render import ASSETS
from made_runs import NODES, made_run, write_run
from recorded import recorded

HERE = Path("runs")


def only(data: dict[str, Any], label: str) -> dict[str, Any]:
    (block,) = data["blocks"]
    found: dict[str, Any] = next(line for line in block["lines"] if line["label"] == label)
    return found


def test_curves_are_means_and_bands_over_seeds() -> None:
    runs = [
        made_run(HERE / "a", seed=0, accuracies=[0.1, 0.4, 0.6], step_s=1.0),
        made_run(HERE / "b", seed=1, accuracies=[0.1, 0.6, 0.8], step_s=3.0),
    ]
    curve = only(page_data(runs), "fedavg")["curve"]
    assert curve["x"]["seconds"] == [0, 2, 4]
    assert curve["x"]["t"] == [0, 1, 2]
    accuracy = curve["y"]["test_accuracy"]
    assert accuracy["mean"] == pytest.approx([10, 50, 70])
    assert accuracy["low"] == pytest.approx([10, 40, 60])
    assert accuracy["high"] == pytest.approx([10, 60, 80])
    assert accuracy["sd"] == pytest.approx([0, 200**0.5, 200**0.5], rel=1e-5)
    assert curve["y"]["train_loss"]["mean"] == pytest.approx([1.9, 1.5, 1.3])


def test_the_bound_is_drawn_where_it_holds() -> None:
    ic: dict[str, Any] = {"algorithm": {"name": "fedavg-ic"}, "train": {"lr": 0.5, "lr_decay": 0.9}}
    run = recorded([(0, 0.1), (1, 0.2)], **ic)
    row = {"t": 2, "Delta": 3.0, "delta": 7.0}
    assert bound(run)(row) == pytest.approx(0.5 * 0.9**2 * 5 * 3.0)  # tau1 = 1: no delta
    fedavg = recorded([(0, 0.1)], algorithm={"name": "fedavg"})
    assert bound(fedavg)({"t": 0, "Delta": 0.0, "delta": 2.0}) == pytest.approx(0.1 * 5 * 2.0)
    assert bound(run)({"t": 0, "Delta": None, "delta": None}) is None
    assert bound(recorded([(0, 0.1)], model={"name": "2nn"}))(row) is None
    assert bound(recorded([(0, 0.1)], train={"batch_size": 8}))(row) is None
    assert bound(recorded([(0, 0.1)], optimizer={"momentum": 0.9}))(row) is None


def test_one_seed_has_no_band() -> None:
    curve = only(page_data([made_run(HERE / "a")]), "fedavg")["curve"]
    assert set(curve["y"]["test_accuracy"]) == {"mean"}


def test_steps_that_only_some_seeds_measured_are_left_out_and_said() -> None:
    runs = [
        made_run(HERE / "a", seed=0, accuracies=[0.1, 0.4, 0.6]),
        made_run(HERE / "b", seed=1, accuracies=[0.1, 0.6], settings={"train": {"steps": 2}}),
    ]
    data = page_data(runs)
    assert only(data, "fedavg")["curve"]["x"]["t"] == [0, 1]
    assert any("1 steps that not all seeds measured" in note for note in data["blocks"][0]["notes"])


def test_a_target_is_hit_where_the_table_says() -> None:
    runs = [
        made_run(HERE / "a", "fedavg", 0, [0.1, 0.5, 0.7]),
        made_run(HERE / "b", "fedavg", 1, [0.1, 0.6, 0.6]),
        made_run(HERE / "c", "fedavg-ic", 0, [0.1, 0.7, 0.9]),
        made_run(HERE / "d", "fedavg-ic", 1, [0.1, 0.2, 0.3]),
        made_run(HERE / "e", "hierfavg", 0, [0.1, 0.2, 0.3]),
    ]
    for target in (None, 0.55):
        data = page_data(runs, target)
        lines = {line.algorithm: line for line in compare(runs, target)[0].lines}
        for name, line in lines.items():
            hit = only(data, name)["hit"]
            assert (hit and hit["seconds"]) == line.target_s
            assert (hit["reached"] if hit else 0) == line.reached
    data = page_data(runs)
    assert data["blocks"][0]["target"] == pytest.approx({"mean": 65, "low": 60, "high": 70})
    hit = only(data, "fedavg-ic")["hit"]
    assert (hit["seconds"], hit["epoch"], hit["reached"], hit["of"]) == (1, 1, 1, 2)
    assert hit["wall_s"] == pytest.approx(0.1)
    assert only(data, "hierfavg")["hit"] is None
    assert "different seeds" in data["blocks"][0]["notes"][0]


def test_a_run_that_measured_nothing_has_no_curve() -> None:
    run = made_run(HERE / "a")
    run.rows.clear()
    assert only(page_data([run]), "fedavg")["curve"]["x"]["t"] == []


def test_without_fedavg_there_is_no_target() -> None:
    data = page_data([made_run(HERE / "a", "hierfavg")])
    assert data["blocks"][0]["target"] is None
    assert only(data, "hierfavg")["hit"] is None


def test_the_front_joins_groupings_that_nothing_beats() -> None:
    places = {"a": (0.1, 0.4), "b": (0.2, 0.4), "c": (0.3, 0.1), "d": (0.5, 0.3), "e": (0.1, 0.4)}
    runs = [
        made_run(HERE / name, "fedavg-ic", seed, Delta=x, group_s=y)
        for seed, (name, (x, y)) in enumerate(places.items())
    ]
    points = page_data([*runs, made_run(HERE / "f", "fedavg")])["blocks"][0]["pareto"]
    assert {p["name"]: p["efficient"] for p in points} == {
        "a": True,
        "b": False,
        "c": True,
        "d": False,
        "e": True,
    }
    assert points[0]["y"] == pytest.approx(400)


def test_bars_are_means_over_seeds() -> None:
    runs = [made_run(HERE / "a", "fedavg"), made_run(HERE / "b", "hierfavg")]
    seconds, delays, carried = page_data(runs)["blocks"][0]["bars"]
    assert seconds["values"] == [[1, 0, 3, 0], [1, 2, 3, 0.5]]
    assert np.array(delays["values"]) == pytest.approx(np.array([[10, 0, 300], [10, 200, 300]]))
    assert (carried["kinds"], carried["values"][0]) == (["access", "pod"], [200, 100])


def test_groups_are_told_by_share_over_share_in_the_whole() -> None:
    groups = only(page_data([made_run(HERE / "a", "fedavg-ic")]), "fedavg-ic")["groups"]
    assert groups["sizes"] == [5, 5, 5, 5]
    # Group 0 has nodes 0, 4, .., 16 with classes 0, 4, 8, 2, 6: a fifth each, a tenth in the whole.
    assert groups["ratio"][0] == [2, 0, 2, 0, 2, 0, 2, 0, 2, 0]
    assert groups["edges"]["nodes"][0] == [1, 1, 0, 0]


def test_a_network_is_rebuilt_once_for_all_that_have_it() -> None:
    names = [f"device {i}" for i in range(NODES)]
    runs = [made_run(HERE / a, a, names=names) for a in ("fedavg", "fedavg-ic", "centralized")]
    data = page_data(runs)
    (net,) = data["networks"]
    assert (net["kind"], net["nodes"], net["names"][3]) == ("fat-tree", NODES, "device 3")
    assert net["held"][13] == [[3, 10]]
    assert net["examples"] == [10] * NODES
    assert len(net["at"]) == NODES + net["switches"]
    assert np.array(net["at"]).min() == 0
    assert np.array(net["at"]).max() == 1
    assert only(data, "centralized")["network"] is None
    assert only(data, "fedavg-ic")["z"][5] == 1
    assert only(data, "fedavg-ic")["servers"] == [0, 1, 2, 3]


def test_a_network_whose_file_is_gone_is_said() -> None:
    gone = {"network": {"topology": "file", "file": "gone.csv"}}
    data = page_data([made_run(HERE / "a", "fedavg-ic", settings=gone)])
    assert re.match(r"the network could not be rebuilt: .*gone.csv", data["networks"][0]["problem"])
    assert only(data, "fedavg-ic")["groups"]["sizes"] == [5, 5, 5, 5]


def test_a_large_network_is_summed_up() -> None:
    many = {"partition": {"num_nodes": MOST_NODES + 1}}
    data = page_data([made_run(HERE / "a", "fedavg-ic", settings=many)])
    (net,) = data["networks"]
    assert net["large"]
    assert "at" not in net
    line = only(data, "fedavg-ic")
    assert line["z"] is None
    assert np.sum(line["groups"]["edges"]["nodes"]) == MOST_NODES + 1


def test_other_settings_are_blocks_of_their_own() -> None:
    runs = [
        made_run(HERE / "a", seed=0, accuracies=[0.1, 0.5]),
        made_run(HERE / "b", seed=1, accuracies=[0.1, 0.9], settings={"train": {"lr": 0.7}}),
        made_run(HERE / "c", seed=2, accuracies=[0.1, 0.7], settings={"train": {"lr": 0.7}}),
    ]
    data = page_data(runs)
    assert [len(block["lines"][0]["seeds"]) for block in data["blocks"]] == [1, 2]
    assert [block["lines"][0]["accuracy"] for block in data["blocks"]] == pytest.approx([0.5, 0.8])
    assert data["differs"] == ["seed", "train.lr"]
    assert "train.lr" not in data["shared"]
    assert [run["block"] for run in data["runs"]] == [0, 1, 1]


def test_a_setting_that_only_newer_runs_have_is_not_averaged_away() -> None:
    old, new, other = (made_run(HERE / name, seed=seed) for seed, name in enumerate("abc"))
    del old.config["participation"]
    other.config["participation"]["fraction"] = 0.5
    data = page_data([old, new, other])
    assert [len(block["lines"][0]["seeds"]) for block in data["blocks"]] == [1, 1, 1]


def test_another_version_is_remarked_on() -> None:
    runs = [made_run(HERE / f"{v}-{s}", seed=s, version=v) for s, v in enumerate(["1", "1", "2"])]
    data = page_data(runs)
    assert data["notes"] == [
        "1 of 3 runs are from coterie 2, the others from 1; figures may not compare: 2-2"
    ]
    assert "fedavg is a mean over runs of coterie 1 and 2." in data["blocks"][0]["notes"]
    assert [run["origin"] for run in data["runs"]] == [0, 0, 1]


def test_many_points_keep_their_extremes_and_it_is_said() -> None:
    accuracies = [0.5 + 0.1 * np.sin(t / 50) for t in range(6000)]
    accuracies[3456] = 0.99
    accuracies[4567] = 0.01
    data = page_data([made_run(HERE / "a", accuracies=accuracies)])
    curve = only(data, "fedavg")["curve"]
    assert len(curve["x"]["t"]) <= 2000 < curve["points"]
    kept = dict(zip(curve["x"]["t"], curve["y"]["test_accuracy"]["mean"], strict=True))
    assert (kept[3456], kept[4567]) == (99, 1)
    assert {0, 5999} <= kept.keys()
    assert "Curves of up to 6,000 points" in data["blocks"][0]["notes"][0]


@pytest.mark.parametrize("most", [2, 10, 100])
def test_thinning_keeps_to_its_limit(most: int) -> None:
    rng = np.random.default_rng(0)
    bands: list[Column] = [list(rng.normal(size=500)) for _ in range(3)]
    kept = thin([{"low": band, "high": band} for band in bands], 500, most)
    assert len(kept) <= max(most, 8)
    assert kept == sorted(set(kept))


def test_a_page_of_many_long_curves_stays_small() -> None:
    runs = [
        made_run(HERE / f"{n}", seed=n, accuracies=list(np.linspace(0.1, 0.9, 1500)))
        for n in range(3)
    ]
    many = [
        replace(run, folder=HERE / f"{n}-{lr}", config={**run.config, "train": {"lr": lr}})
        for n, run in enumerate(runs)
        for lr in range(30)
    ]
    assert len(render(page_data(many))) < 4_000_000


def test_no_name_ends_the_data_or_becomes_markup() -> None:
    evil = "</script><script>alert(1)</script><!--\u2028\udcff"
    run = made_run(HERE / "<b>run</b>", "fedavg-ic", names=[evil] * NODES)
    run.meta["commit"] = evil
    page = render(page_data([run], left_out=[evil])).decode()
    assert page.count("<script") == 2
    assert page.count("</script") == 2
    assert "<b>run" not in page
    assert "<!--" not in page
    content = re.search(r"id='data'>(.*?)</script>", page, re.DOTALL)
    assert content
    assert json.loads(content[1])["left_out"] == [evil]


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    runs = [made_run(HERE / "a"), made_run(HERE / "b", "fedavg-ic")]
    write_report(runs, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "default-src 'none'" in page
    assert set(re.findall(r"https?://[^\s\"'`)]*", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(img|iframe|link)[^>]*(src|href)=.(?!data:)", page)
    write_picture(runs, tmp_path / "picture.png")
    drawn = (tmp_path / "picture.png").read_bytes()
    assert drawn.startswith(b"\x89PNG")
    repeated = made_run(HERE / "c", "fedavg-ic", accuracies=(0.2, 0.3, 0.4))  # the first counts
    write_picture([*runs, repeated], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes() == drawn


def test_the_same_runs_give_the_same_page_in_every_process(tmp_path: Path) -> None:
    for name in ("fedavg", "fedavg-ic"):
        write_run(made_run(tmp_path / "runs" / name, name))
    pages = []
    for seed in ("1", "4"):  # of hashes, by which sets are ordered
        page = tmp_path / f"{seed}.html"
        words = [sys.executable, "-m", "coterie", "report", str(tmp_path / "runs")]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*words, "-o", str(page)], check=True, capture_output=True, env=env)
        pages.append(page.read_bytes())
    assert pages[0] == pages[1]


def test_components_never_take_markup_from_data() -> None:
    for path in ASSETS.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write", path.read_text()
        )


def test_help_teaches_what_is_on_the_page() -> None:
    said = CliRunner().invoke(main, ["report", "--help"]).output
    for words in ("coterie report runs/demo", "needs no network", "never averaged", "left out"):
        assert words in said


def test_an_upper_bound_is_not_called_first_at_the_target() -> None:
    times = {"fedavg": 2.0, "hierfavg": 1.0, "centralized": 0.1}
    runs = [made_run(HERE / name, name, step_s=step_s) for name, step_s in times.items()]
    (block,) = page_data(runs)["blocks"]
    assert block["lines"][block["first"]]["label"] == "hierfavg"
    (alone,) = page_data([runs[-1]])["blocks"]
    assert alone["first"] is None


def test_the_page_has_the_lines_baseline_and_best_that_were_chosen() -> None:
    runs = [
        made_run(HERE / f"{name}-{lr}", name, accuracies=(0.1, end), settings={"train": {"lr": lr}})
        for name in ("fedavg", "hierfavg")
        for lr, end in ((0.1, 0.5), (0.2, 0.7))
    ]
    data = page_data(runs, view=read_view(best="train.lr", baseline="hierfavg"))
    (block,) = data["blocks"]
    assert data["columns"][:3] == ["algorithm", "best lr", "accuracy %"]
    assert [line["cells"][:3] for line in block["lines"]] == [
        ["fedavg", "0.2", "70.0"],
        ["hierfavg", "0.2", "70.0"],
    ]
    assert "target: hierfavg's final accuracy" in block["footing"]
    assert [run["label"] for run in data["runs"]] == ["fedavg", "fedavg", "hierfavg", "hierfavg"]
    by_rate = page_data(runs, view=read_view("train.lr"))["blocks"]
    assert [[line["label"] for line in each["lines"]] for each in by_rate] == [
        ["lr = 0.1", "lr = 0.2"]
    ] * 2
