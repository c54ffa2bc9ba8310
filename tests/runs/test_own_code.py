"""A run by one's own code: whose word calls it, and what is noted when it has changed."""

import hashlib
import json
import sys
from pathlib import Path

import pytest

from coterie.config.files import make_config
from coterie.render.page.network_data import network_of
from coterie.runs.execute import Interrupted, execute
from coterie.runs.record import read_run
from resuming import coterie, stopped_at, sweep, tiny

ALGORITHM = """
from coterie import Pull, Update

def pulled(mu: float = 0.1) -> Update:
    return Update(pull=lambda at: Pull(towards=at.given, strength=mu))
"""


def test_code_that_changed_under_a_run_is_noted_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "changing.py"
    file.write_text(ALGORITHM, encoding="utf-8")
    config = make_config(
        {
            "algorithm": {"name": "changing:pulled", "tau2": 1},
            "data": {"sample": 0.2},
            "partition": {"num_nodes": 10, "num_edges": 10},
            "train": {"steps": 4},
        }
    )
    told: list[str] = []
    for text in (ALGORITHM, ALGORITHM, ALGORITHM + "# mended\n"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(Interrupted):
            execute(config, tmp_path / "run", resume=True, stop=lambda: True, say=told.append)
    notes = [line for line in told if line.startswith("note:")]
    assert notes == [
        "note: the file of changing:pulled has changed since; the steps so far are by the old one"
    ]


TRAP = """
from pathlib import Path
Path("called").touch()

def load(path=None):
    return None
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a module in it that leaves a file where it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trap", raising=False)
    (tmp_path / "trap.py").write_text(TRAP, encoding="utf-8")
    return tmp_path


def name_in(file: Path, section: str, key: str, path: str) -> None:
    """Let config.toml name code in a section."""
    lines, at = file.read_text(encoding="utf-8").splitlines(), ""
    for number, line in enumerate(lines):
        at = line if line.startswith("[") else at
        if at == f"[{section}]" and line.startswith(f"{key} = "):
            lines[number] = f'{key} = "{path}"'
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("section", "key"),
    [("data", "name"), ("model", "name"), ("algorithm", "name"), ("algorithm", "grouping")],
)
def test_no_code_is_called_because_the_folder_of_a_run_names_it(
    here: Path, section: str, key: str
) -> None:
    stopped_at(2, tiny(), here / "r")
    name_in(here / "r/config.toml", section, key, "trap:load")
    done = coterie("run", "--resume", "r")
    assert done.exit_code == 2
    assert done.output == (
        f"coterie: r: {section}.{key} names code, 'trap:load', which is not run on a folder's word "
        f"alone; if you trust it, go on with: coterie run --resume r --set {section}.{key}="
        "trap:load\n"
    )
    assert not Path("called").exists()


def test_code_that_the_user_names_again_is_called(here: Path) -> None:
    stopped_at(2, tiny(), here / "r")
    name_in(here / "r/config.toml", "data", "name", "trap:load")
    done = coterie("run", "--resume", "r", "--set", "data.name=trap:load")
    assert "'trap:load' returned NoneType, not a coterie.Dataset" in done.output
    assert Path("called").exists()


@pytest.mark.parametrize("again", ["file", "set"])
def test_a_run_by_ones_own_code_goes_on_where_file_or_set_names_it(here: Path, again: str) -> None:
    (here / "mine_again.py").write_text(ALGORITHM, encoding="utf-8")
    own = tiny("mine_again:pulled", steps=4)
    stopped_at(2, own, here / "r")
    words = {"file": ["r/config.toml"], "set": ["--set", "algorithm.name=mine_again:pulled"]}
    done = coterie("run", "--resume", "r", *words[again])
    assert done.exit_code == 0, done.output
    assert "goes on from step 2" in done.output


def test_code_that_no_run_was_begun_with_cannot_be_set_when_it_goes_on(here: Path) -> None:
    stopped_at(2, tiny(), here / "r")
    done = coterie("run", "--resume", "r", "--set", "data.name=trap:load")
    assert done.output == "coterie: --set data.name=trap:load: no run of r was begun with it\n"
    assert not Path("called").exists()


def test_no_code_is_called_because_the_folder_of_a_sweep_names_it(here: Path) -> None:
    file = sweep(here, seeds=2, steps=2)
    assert coterie("sweep", file, "--jobs", 1, "-o", "s").exit_code == 0
    runs = json.loads(Path("s/runs.json").read_text())
    (here / "s/seed1/summary.json").unlink()
    runs["runs"][1]["config"]["algorithm"]["name"] = "trap:load"
    Path("s/runs.json").write_text(json.dumps(runs))
    done = coterie("run", "--resume", "s")
    assert done.output.startswith("coterie: s: algorithm.name names code, 'trap:load', which is")
    coterie("sweep", file, "--jobs", 1, "-o", "s")
    assert not Path("called").exists()


def test_no_code_is_called_because_config_toml_differs_from_the_list_of_its_sweep(
    here: Path,
) -> None:
    assert coterie("sweep", sweep(here, 2, 2), "--jobs", 1, "-o", "s").exit_code == 0
    name_in(here / "s/seed1/config.toml", "algorithm", "name", "trap:load")
    for words in (["run", "--resume", "s"], ["sweep", "sweep.toml", "-o", "s"]):
        done = coterie(*words)
        assert "config.toml: algorithm.name names code, 'trap:load'" in done.output
        assert done.exit_code == 2
    assert not Path("called").exists()


def test_tables_pages_and_other_clocks_call_no_code_that_a_run_names(here: Path) -> None:
    execute(tiny(steps=2), here / "r")
    name_in(here / "r/config.toml", "algorithm", "name", "trap:load")
    assert coterie("compare", "r").exit_code == 0
    assert coterie("report", "r", "-o", "r.html").exit_code == 0
    page = Path("r.html").read_text(encoding="utf-8")
    assert "names code" not in page
    assert '"networks":[{"kind"' in page
    done = coterie("retime", "r", "--set", "compute.gflops=1")
    assert done.output == (
        "coterie: r: algorithm.name names code, 'trap:load', which is not run on a folder's word "
        "alone; if you trust it, add --set algorithm.name=trap:load\n"
    )
    assert not Path("called").exists()


def test_a_network_is_drawn_of_a_run_by_ones_own_algorithm_without_calling_it(here: Path) -> None:
    execute(tiny(steps=2), here / "r")
    ours = network_of(read_run(here / "r"))
    for key in ("name", "grouping"):
        name_in(here / "r/config.toml", "algorithm", key, "trap:load")
    name_in(here / "r/config.toml", "model", "name", "trap:load")
    assert network_of(read_run(here / "r")) == ours
    assert len(ours["examples"]) == 10
    assert not Path("called").exists()


def test_a_run_by_ones_own_code_is_timed_again_where_the_user_names_it(here: Path) -> None:
    (here / "mine_timed.py").write_text(ALGORITHM, encoding="utf-8")
    execute(tiny("mine_timed:pulled", steps=2), here / "r")
    words = ["--set", "compute.gflops=1", "--set", "algorithm.name=mine_timed:pulled"]
    done = coterie("retime", "r", *words, "-o", "slow")
    assert done.exit_code == 0, done.output


def test_a_checkpoint_names_no_code_that_is_called(here: Path) -> None:
    what = tiny()
    stopped_at(2, what, here / "r")
    (kept,) = (here / "r").glob("checkpoint-*")
    first, head, body = kept.read_bytes().split(b"\n", 2)
    told = json.loads(head)
    told["origin"]["config"] = told["origin"]["config"].replace("fedavg-ic", "trap:load")
    rest = json.dumps(told).encode() + b"\n" + body
    kind = first.rpartition(b" ")[0]
    kept.write_bytes(kind + b" " + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
    done = coterie("run", "--resume", "r")
    assert "algorithm.name is fedavg-ic and was trap:load; put it back" in done.output
    assert not Path("called").exists()
