"""What `coterie data show` says and draws."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from coterie.cli import main
from coterie.config.factories import divide, load_dataset
from coterie.config.files import expand, make_config
from coterie.partition.measure import pooled
from coterie.preview.data import Parts, Survey, cells, surveys
from coterie.runs.execute import execute

SWEEP = {
    "partition": {"num_nodes": 20, "num_edges": 10},
    "sweep": {"seed": [0, 1], "algorithm.name": ["fedavg", "hierfavg", "fedavg-i", "centralized"]},
}


def survey_of(content: dict[str, object]) -> list[Survey]:
    return list(surveys(expand(content), groups=True, progress=lambda what, done, of: None))


def test_a_sweep_is_shown_once_for_each_partition_with_the_groups_of_each_algorithm() -> None:
    (one,) = survey_of(SWEEP)
    assert [part.label for part in one.parts] == ["nodes", "edges", "groups of fedavg-i"]
    nodes, edges, groups = one.parts
    assert nodes.counts.shape == (20, 10)
    for parts in (edges, groups):
        assert np.array_equal(parts.counts.sum(axis=0), nodes.counts.sum(axis=0))
    assert nodes.distances == pytest.approx(1.8)  # one class of ten each
    assert edges.distances == pytest.approx(1.8)
    assert groups.distance < edges.distance / 2
    both = survey_of({"sweep": {"partition.kind": ["iid", "Dtt"]}, "algorithm": {"name": "fedavg"}})
    assert [survey.title for survey in both] == [
        "mnist-f-mini, iid, seed 0",
        "mnist-f-mini, Dtt, seed 0",
    ]


def test_the_line_of_a_case_worked_by_hand() -> None:
    (one,) = survey_of({"partition": {"kind": "iid"}, "algorithm": {"name": "hierfavg"}})
    label, number, nodes, examples, classes, _ = cells(one.parts[1])
    assert (label, number, nodes) == ("edges", "10", "10/10/10")
    assert examples == "420/420/420"
    assert classes == "10/10/10"
    assert "7,000 examples (4,200 train, 1,400 validation, 1,400 test), 10 classes" in one.facts


def test_a_survey_says_how_it_was_split_and_what_nodes_are_tested_on() -> None:
    content = {
        "partition": {"kind": "iid"},
        "algorithm": {"name": "hierfavg"},
        "sweep": {"data.split": ["pooled", "per-node", "official"]},
    }
    pooled, own, official = survey_of(content)
    assert pooled.title == "mnist-f-mini, iid, seed 0"
    assert own.title == "mnist-f-mini, iid, split per-node, seed 0"
    assert own.facts.endswith("; a node has 14/14/14 for validation and 14/14/14 to test on")
    assert official.title == "mnist-f-mini, iid, split official, seed 0"
    assert "1,014 test" in official.facts
    assert official.facts.endswith("each 1x28x28")


def test_the_picture_and_the_page_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["data", "show", "quickstart", "--set", "partition.kind=DirichletPartitioner"]
    done = CliRunner().invoke(main, [*words, "--set", "partition.alpha=0.3"])
    assert done.exit_code == 0, done.output
    assert "mnist-f-mini, dirichlet (alpha 0.3), seed" in done.output
    assert "groups of fedavg-ic" in done.output
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == [
        "data-quickstart.html",
        "data-quickstart.png",
    ]
    page = (tmp_path / "runs" / "data-quickstart.html").read_text()
    assert "dirichlet (alpha 0.3)" in page
    assert "data:image/png;base64," in page
    assert "://" not in page
    assert (tmp_path / "runs" / "data-quickstart.png").read_bytes()[:4] == b"\x89PNG"


def test_no_groups_trains_nothing(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "show.html"
    words = ["data", "show", "quickstart", "--no-groups", "--set", "model.name=no_such:model"]
    done = CliRunner().invoke(main, [*words, "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "groups of" not in done.output
    assert out.is_file()
    assert out.with_suffix(".png").is_file()


def test_your_own_data_users_and_partition_go_all_the_way_through_a_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = (rng.normal(size=(300, 5)) + y[:, None]).astype(np.float32)
    np.savez(tmp_path / "mine.npz", x=x, y=y, user=np.arange(300) // 20)
    rows = "".join(f"{e},device-{e % 12},site-{e % 12 // 4}\n" for e in range(300))
    (tmp_path / "who.csv").write_text(f"example,node,edge\n{rows}")
    for number, lines in enumerate(
        (f'kind = "file"\nfile = "{tmp_path / "who.csv"}"', 'kind = "natural"\nnum_edges = 3')
    ):
        file = tmp_path / f"mine{number}.toml"
        file.write_text(
            f'[data]\nname = "arrays"\npath = "{tmp_path / "mine.npz"}"\n[partition]\n{lines}\n'
            "[algorithm]\nnum_groups = 3\n[train]\nsteps = 6\n"
        )
        done = CliRunner().invoke(main, ["run", str(file), "--out", str(tmp_path / f"r{number}")])
        assert done.exit_code == 0, done.output
    grouping = (tmp_path / "r0" / "grouping.json").read_text()
    assert '"device-11"' in grouping
    assert '"14"' in (tmp_path / "r1" / "grouping.json").read_text()


def test_the_groups_shown_are_those_of_the_run(tmp_path: Path) -> None:
    content = {"partition": {"num_nodes": 20, "kind": "Dqh"}, "train": {"steps": 5}}
    (config,) = expand(content)
    (shown,) = surveys([config], groups=True, progress=lambda what, done, of: None)
    execute(config, tmp_path / "run")
    grouping = json.loads((tmp_path / "run" / "grouping.json").read_text())
    counts = pooled(np.array(grouping["class_counts"]), np.array(grouping["z"]))
    assert np.array_equal(shown.parts[-1].counts, counts)


def test_groups_of_a_single_node_are_noted() -> None:
    counts = np.array([[5, 5], [9, 1], [1, 9]])
    parts = tuple(
        Parts(label, np.array([1, 2, 1]), counts) for label in ("nodes", "edges", "groups")
    )
    assert Survey("", "", np.arange(3), parts).notes == ["note: 2 of 3 groups are a single node"]


def test_a_sampled_part_is_dealt_by_the_numbers_of_the_whole(tmp_path: Path) -> None:
    """A partition file numbers the whole dataset, also when a sample of it is used."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(400) % 2)
    np.savez(tmp_path / "mine.npz", x=rng.normal(size=(400, 3)).astype(np.float32), y=y)
    rows = "".join(f"{e},{'one' if y[e] else 'zero'}\n" for e in range(400))
    (tmp_path / "who.csv").write_text(f"example,node\n{rows}")
    config = make_config(
        {
            "data": {"name": "arrays", "path": str(tmp_path / "mine.npz"), "sample": 0.5},
            "partition": {"kind": "file", "file": str(tmp_path / "who.csv"), "num_edges": 1},
            "algorithm": {"num_groups": 1},
        }
    )
    divided = divide(config, load_dataset(config))
    assert len(divided.dataset.y) == 200
    assert divided.partition.names == ("one", "zero")
    for labels, node in zip((1, 0), divided.partition.indices, strict=True):
        assert (divided.train_y[node] == labels).all()


@pytest.mark.parametrize("name", ["a$x_$.toml", "w[red].toml", "d[/b].toml"])
def test_odd_names_are_shown_as_they_are(tmp_path: Path, name: str) -> None:
    (tmp_path / "who.csv").write_text(
        "example,node\n" + "".join(f"{e},{e % 7}\n" for e in range(7000))
    )
    path = tmp_path / name.replace("/", "-").replace(".toml", ".csv")
    (tmp_path / "who.csv").rename(path)
    words = ["data", "show", "quickstart", "--no-groups", "--set", "partition.kind=file"]
    words += ["--set", f"partition.file={path}", "-o", str(tmp_path / "show.html")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert path.name in done.output.replace("\n", "")


def test_a_page_without_a_name_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["data", "show", "quickstart", "-o", str(tmp_path)])
    assert done.exit_code == 2
    assert "--out must name a file, such as data.html" in done.output
