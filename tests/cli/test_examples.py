"""`coterie examples`: what ships is copied whole, and nothing is written over."""

from pathlib import Path

from click.testing import CliRunner, Result

from coterie.cli import main
from coterie.cli.examples import examples
from pages import ROOT


def copy(folder: Path) -> Result:
    return CliRunner().invoke(main, ["examples", str(folder)])


def test_all_examples_are_copied_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()  # an empty folder is as good as none
    done = copy(tmp_path / "mine")
    assert done.exit_code == 0, done.output
    copied = {p.relative_to(tmp_path / "mine") for p in tmp_path.rglob("*") if p.is_file()}
    assert f"copied {len(copied)} files" in done.output
    assert {Path("notebook.ipynb"), Path("flower_app/group_app/task.py")} <= copied
    assert not any("__pycache__" in path.parts for path in copied)
    for path in copied:
        there = ROOT / "examples" / path
        assert (tmp_path / "mine" / path).read_bytes() == there.read_bytes()


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own_model.py").write_text("mine")
    for taken in (tmp_path / "mine", tmp_path / "mine" / "own_model.py"):
        done = copy(taken)
        assert done.exit_code == 2
        assert f"{taken} is there already; name a new folder" in done.output
    assert [p.read_text() for p in (tmp_path / "mine").iterdir()] == ["mine"]


def test_the_help_names_every_example() -> None:
    told = str(examples.help)
    there = {p.name for p in (ROOT / "examples").iterdir() if not p.name.startswith(("_", "."))}
    assert {name for name in there if name not in told} == set()
