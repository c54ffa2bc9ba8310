"""Python for notebooks: objects in place of names, and values that show themselves."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from torch import nn

import coterie
from coterie.cli import main
from coterie.config.objects import configured
from coterie.core.errors import CoterieError
from coterie.grouping.baselines import by_edge
from coterie.models.nets import make_sr
from coterie.notebook import frames
from coterie.render.page.plan_tables import plain
from made_runs import made_run, write_run
from pages import ROOT

SETTINGS: dict[str, Any] = {
    "partition": {"kind": "dirichlet", "num_nodes": 6, "num_edges": 2},
    "algorithm": {"num_groups": 2, "tau2": 2},
    "train": {"steps": 4, "lr": 0.5, "batch_size": 8, "measure": ["accuracy", "nodes"]},
}
FAKE = """
class DataFrame:
    def __init__(self, columns):
        self.columns = columns
"""
STRICT = """
class DataFrame:
    def __init__(self, columns):
        for name, values in columns.items():
            if len({type(value) for value in values if value is not None}) > 1:
                raise TypeError(f"unexpected value while building Series {name}")
        self.columns = columns
"""
COUNTS = "node,edge,cat,dog\na,n,9,1\nb,n,0,8\nc,s,4,0\nd,s,1,7\n"
LINKS = "a,b,mbytes_per_s\na,x,10\nb,x,10\nc,y,5\nd,y,5\nx,y,2\n"


def readings() -> tuple[np.ndarray, np.ndarray]:
    """Examples of three classes that lie apart."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    return rng.normal(size=(120, 5)) + 3 * np.eye(3, 5)[y], y


def rows(*args: Any, **more: Any) -> list[Any]:
    return [state.row for state in coterie.simulate(*args, **more)]


def told(run: coterie.Run) -> list[dict[str, Any]]:
    """The rows of a run, without real time."""
    return [{k: v for k, v in row.items() if k != "wall_s"} for row in run.rows]


def test_objects_give_what_their_names_give() -> None:
    named = {**SETTINGS, "algorithm": {**SETTINGS["algorithm"], "grouping": "edge"}}
    by_name = rows(named, dataset="mnist-f-mini", model="sr", algorithm="fedavg-ic")
    dataset = coterie.Dataset("mine", **_arrays())
    algorithm = coterie.Algorithm("searched", groups="search")
    objects = {"dataset": dataset, "model": make_sr, "algorithm": algorithm, "grouping": by_edge}
    found = rows(SETTINGS, **objects)
    assert [(r.t, r.train_loss, r.test_accuracy) for r in found] == [
        (r.t, r.train_loss, r.test_accuracy) for r in by_name
    ]


def _arrays() -> dict[str, Any]:
    from coterie.data import load

    data = load("mnist-f-mini")
    return {"x": data.x, "y": data.y, "n_classes": 10, "test": data.test}


def test_a_module_is_trained_as_a_copy() -> None:
    net = nn.Linear(5, 3)
    before = net.weight.detach().clone()
    first = rows(SETTINGS, dataset=readings(), model=net)
    assert (net.weight == before).all()
    assert rows(SETTINGS, dataset=readings(), model=net) == first


def test_auto_is_decided_by_the_objects() -> None:
    """As by the name of the same thing: full batches are for sr, own models split by node."""
    update = coterie.Update(personal=lambda model: ["bias"])
    mine = coterie.Algorithm("mine", update)
    config, own = configured({}, model=make_sr, algorithm=mine)
    assert (config.train.batch_size, config.data.split) == (128, "per-node")
    grouped, own = configured({"algorithm": {"groups": "edge"}}, algorithm=mine)
    assert own.algorithm is not None
    assert (own.algorithm.groups, grouped.algorithm.name) == ("edge", "object:mine")
    assert configured(config)[0] is config


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ({"model": 3}, "model must be a torch.nn.Module, or a function that makes one"),
        ({"grouping": 3}, r"grouping must be a function of \(evidence, rng\)"),
        ({"dataset": [1]}, r"dataset must be a coterie.Dataset, NumPy arrays \(x, y\), or a name"),
        ({"dataset": (np.zeros((4, 2)), np.array([0, 1, 1, 5]))}, "labels must be whole numbers"),
        ({"algorithm": coterie.At}, "must be a coterie.Algorithm or Update, got type; call it"),
        ({"model": lambda: nn.Linear(1, 1)}, "'object:lambda' does not run on inputs"),
        ({"algorithm": "fedavg-ci"}, "did you mean 'fedavg-ic'"),
    ],
)
def test_what_cannot_be_run_is_told_in_a_line(objects: dict[str, Any], says: str) -> None:
    with pytest.raises(CoterieError, match=says) as caught:
        rows(SETTINGS, **objects)
    assert "\n" not in str(caught.value)


def test_settings_that_an_object_would_not_read_are_refused() -> None:
    mine = coterie.Algorithm("mine")
    options = {"algorithm": {"name": "fedprox", "options": {"mu": 0.5}}}
    with pytest.raises(CoterieError, match="options are not read with an algorithm"):
        rows(options, algorithm=mine)
    with pytest.raises(CoterieError, match="'reference' is not known for a model"):
        rows({"compute": {"flops": "reference"}}, model=make_sr)
    with pytest.raises(CoterieError, match="begins with 2 models that differ"):
        rows(SETTINGS, "ifca", dataset=readings(), model=nn.Linear(5, 3))
    with pytest.raises(CoterieError, match=r"demo.toml: has \d+ runs"):
        rows("demo")


def test_a_run_of_objects_goes_on_if_they_are_passed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    objects: dict[str, Any] = {
        "dataset": readings(),
        "model": nn.Linear(5, 3),
        "algorithm": coterie.Algorithm("<b>mine", groups="search"),
        "grouping": by_edge,
    }
    whole = coterie.run(SETTINGS, **objects)
    assert whole.folder == Path("runs/b-mine")
    assert whole.config["model"]["name"] == "object:Linear"
    assert whole.config["data"]["name"] == "object:arrays"

    def stop(state: coterie.State) -> None:
        if state.t == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coterie.run(SETTINGS, "again", **objects, on_state=stop)
    done = CliRunner().invoke(main, ["run", "--resume", "again"])
    assert done.exit_code == 2
    assert "was an object in Python; pass it again: coterie.run(..., resume=True)" in done.output
    said: list[str] = []
    coterie.run(SETTINGS, "again", **objects, resume=True, say=said.append)
    assert told(coterie.read_run("again")) == told(whole)

    page = whole._repr_html_()
    assert "&lt;b&gt;mine" in page
    assert "<b>mine" not in page
    assert "data:image/png;base64," in page
    nodes = whole.node_columns()
    assert nodes["group"] == whole.grouping["z"]
    assert np.mean(nodes["accuracy"]) == pytest.approx(whole.summary["node_mean"])
    assert whole.plot()._repr_png_()[:4] == b"\x89PNG"


def test_runs_are_compared_by_value_and_by_folder(tmp_path: Path) -> None:
    first, second = (made_run(tmp_path / name, name) for name in ("fedavg", "fedavg-ic"))
    for run in (first, second):
        write_run(run)
    by_folder = coterie.compare(str(tmp_path))
    by_value = coterie.compare([first, coterie.read_run(str(second.folder))])
    assert repr(by_folder) == repr(by_value)
    assert [line.algorithm for line in by_value[0].lines] == ["fedavg", "fedavg-ic"]
    assert by_value.columns()["algorithm"] == ["fedavg", "fedavg-ic"]
    assert "FedAvg's final accuracy" in repr(by_value)
    assert coterie.compare([first], target=0.5)[0].target == "50.0%"
    assert "<td>fedavg-ic</td>" in by_value._repr_html_()
    assert len(by_value.plot("train_loss", x="epoch").axes[0].lines) == 2
    with pytest.raises(CoterieError, match="block must be 0 to 0, got 3"):
        by_value.plot(block=3)
    with pytest.raises(CoterieError, match="x must be one of seconds, epoch"):
        by_value.plot(x="t")
    with pytest.raises(CoterieError, match="nothing to draw: no row has node_mean"):
        by_value.plot("node_mean")
    with pytest.raises(CoterieError, match="no runs to compare"):
        coterie.compare([])


def test_what_is_left_out_of_a_comparison_is_named(tmp_path: Path) -> None:
    write_run(made_run(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "rows.jsonl").write_text("")
    assert "left out: " in repr(coterie.compare(tmp_path))
    assert "unfinished" in coterie.compare(tmp_path)._repr_html_()


@pytest.mark.parametrize("libraries", [["pandas"], ["polars"], ["pandas", "polars"]])
def test_a_frame_is_of_the_library_that_is_there(
    libraries: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in libraries:
        (tmp_path / f"{name}.py").write_text(FAKE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in frames.LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    if len(libraries) == 1:
        monkeypatch.setattr(frames, "LIBRARIES", tuple(libraries))
    made = coterie.compare(write_run(made_run(tmp_path / "run"))).frame()
    assert type(made).__module__ == libraries[0]
    assert made.columns["algorithm"] == ["fedavg"]
    for name in libraries:
        sys.modules.pop(name, None)


def test_a_setting_of_text_in_one_run_and_a_number_in_another_is_text_in_a_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "polars.py").write_text(STRICT)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    monkeypatch.setattr(frames, "LIBRARIES", ("polars",))
    monkeypatch.chdir(tmp_path)
    train = {**SETTINGS["train"], "batch_size": "full"}
    runs = [coterie.run(settings) for settings in (SETTINGS, {**SETTINGS, "train": train})]
    made = coterie.compare(runs).frame()
    assert sorted(made.columns["train.batch_size"]) == ["8", "full"]
    sys.modules.pop("polars", None)


def test_without_a_library_of_frames_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LIBRARIES", ("no_such_library",))
    with pytest.raises(CoterieError, match=r"pip install pandas, or take .columns\(\)"):
        frames.frame({"x": [1]})


def test_a_fleet_is_planned_as_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text(COUNTS.replace("a,n", "<i>a,n"))
    Path("net.csv").write_text(LINKS.replace("\na,x", "\n<i>a,x"))
    settings = {"algorithm": {"num_groups": 2}, "seed": 3}
    plan = coterie.plan(
        settings, nodes="nodes.csv", network="net.csv", model_bytes="5MB", methods="coterie,edge"
    )
    words = "plan --nodes nodes.csv --network net.csv --model-bytes 5MB --methods coterie,edge"
    more = ["--set", "algorithm.num_groups=2", "--set", "seed=3", "--json"]
    done = CliRunner().invoke(main, [*words.split(), *more])
    assert _timeless(json.loads(done.stdout)) == _timeless(json.loads(json.dumps(plan.plain())))
    assert plan.columns()["node"] == ["<i>a", "b", "c", "d"]
    assert "In short: " in repr(plan)
    assert "&lt;i&gt;a" in plan._repr_html_()
    assert "<i>a" not in plan._repr_html_()
    plan.save("groups.csv")
    plan.export("plan.json")
    assert Path("groups.csv").read_text().startswith("node,group,server\n")
    assert plan.plain() == plain(plan.view)


def _timeless(told: Any) -> Any:
    """Leave out what a method took of real time."""
    if isinstance(told, dict):
        return {k: _timeless(v) for k, v in told.items() if k not in ("ms", "planning_ms")}
    return [_timeless(v) for v in told] if isinstance(told, list) else told


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"nodes": "nodes.csv"}, "network and model_bytes must be given too"),
        ({"epsilon": 1.0}, "epsilon needs nodes"),
        ({"by": "taste"}, "by must be 'cost' or 'time', got 'taste'"),
        (
            {"nodes": "a", "network": "b", "model_bytes": "5 apples"},
            "model_bytes must be a size such as 5MB",
        ),
        ({"nodes": "a", "network": "b", "model_bytes": 0}, "model_bytes must be whole bytes"),
        ({"nodes": "a", "network": "b", "model_bytes": 1, "model": make_sr}, "with no dataset"),
    ],
)
def test_what_cannot_be_planned_is_told_in_a_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(CoterieError, match=says):
        coterie.plan(**given)


def test_the_notebook_runs_from_its_first_cell_to_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cells are executed in one namespace, as a kernel would: no nbclient is needed."""
    book = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "__main__"}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), cell["id"], "exec"), space)
    assert (tmp_path / "accuracy.png").stat().st_size > 0
    lines = {line.algorithm: line for line in space["both"][0].lines}
    assert len(lines["fedavg"].group_sizes) == 1
    (own,) = (line for name, line in lines.items() if name != "fedavg")
    assert own.group_sizes == [12] * 5
    assert own.accuracy > 0.5
    assert len({round(float(np.mean(found)), 3) for found in space["by_group"].values()}) > 1
    assert set(os.listdir("runs")) == {"pulled", "fedavg"}  # noqa: PTH208
