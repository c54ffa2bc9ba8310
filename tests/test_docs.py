"""What the documents say is so: links lead somewhere, cited tests exist, commands run."""

import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import coterie
from coterie.cli import main
from coterie.simulation.algorithms import MAKERS
from pages import DOCS, PAGES, PRINTED, README, ROOT, Block, blocks, named, prose

WIDEST = 120
ALL = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
FIELDS = {"test_examples", "test_loss", "test_accuracy"}
# Commands of the README that other tests run, by how they begin.
ELSEWHERE = {"make test": ".ci/run"}
MY = """
[partition]
kind = "iid"
num_nodes = 6
num_edges = 2
[algorithm]
num_groups = 2
[train]
steps = 5
"""
LINKS = "a,b\n" + "".join(f"n{i},s{i % 2}\n" for i in range(6)) + "s0,s1\n"
TO_RUN = [b for page in PAGES for b in blocks(page) if b.commands and not b.not_run]
QUICK = [page for page in PAGES if any(b.page == page and not b.long for b in TO_RUN)]
LONG = [page for page in PAGES if any(b.page == page and b.long for b in TO_RUN)]


@pytest.mark.parametrize("page", ALL, ids=named)
def test_every_cited_test_exists(page: Path) -> None:
    cited = set(re.findall(r"`(test_\w+)`", page.read_text())) - FIELDS
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in cited if f"def {name}(" not in sources} == set()


@pytest.mark.parametrize("page", ALL, ids=named)
def test_every_cited_file_exists(page: Path) -> None:
    cited = set(
        re.findall(r"`((?:tests|benchmarks|scripts|experiments)/[\w/.]+)`", page.read_text())
    )
    gone = {"benchmarks/groupings.py"}
    assert {name for name in cited - gone if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("page", ALL, ids=named)
def test_every_link_resolves(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_line_of_prose_is_too_long(page: Path) -> None:
    assert [number for number, line in prose(page) if len(line) > WIDEST] == []


@pytest.mark.parametrize("page", [*PAGES, *sorted(PRINTED.iterdir())], ids=named)
def test_no_column_tells_what_somebody_wanted(page: Path) -> None:
    assert not re.search(r"^\|.*\|\s*asked\s*\|", page.read_text(), re.MULTILINE)
    assert not re.search(r"\(asked:|^\s*asked:", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_list_has_an_empty_line_before_it(page: Path) -> None:
    """Otherwise the site shows it as a part of the paragraph."""
    before = ""
    for number, line in prose(page):
        if re.match(r"([-*] |1\. )", line) and before.strip():
            assert re.match(r"([-*] |\d+\. | {2,})", before), f"{named(page)} line {number}"
        before = line


@pytest.mark.parametrize("page", [p for p in PAGES if p != README], ids=named)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert [block.line for block in blocks(page) if not block.language] == []


def test_no_two_pages_write_a_file_of_the_same_name() -> None:
    titles = [(block.title, page) for page in PAGES for block in blocks(page) if block.title]
    named = [title for title, _ in dict.fromkeys(titles)]
    assert [title for title in named if named.count(title) > 1] == []


def test_every_page_of_the_docs_is_on_the_site() -> None:
    shelves = (ROOT / "mkdocs.yml").read_text()
    there = {p.relative_to(DOCS).as_posix() for p in PAGES if p != README}
    assert there == set(re.findall(r": ([\w/-]+\.md)$", shelves, re.MULTILINE))


def test_every_public_name_is_in_the_reference() -> None:
    told = (DOCS / "reference" / "api.md").read_text()
    assert {name for name in coterie.__all__ if not re.search(rf"coterie\.{name}\b", told)} == set()


def test_every_algorithm_is_in_the_reference_with_its_options() -> None:
    told = (DOCS / "reference" / "algorithms.md").read_text().splitlines()
    for name, make in MAKERS.items():
        takes = inspect.signature(make).parameters.items()
        options = [f"`{key} = {p.default}`" for key, p in takes]
        (line, *_) = [line for line in told if line.startswith(f"| `{name}` |")]
        assert [option for option in options if option not in line] == [], name


@pytest.mark.parametrize("name", ["reference.py", "verdict.py"])
def test_a_written_page_is_as_it_would_be_written(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / name), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_python_of_the_readme_runs_and_is_the_example() -> None:
    (block,) = (block for block in blocks(README) if block.language == "python")
    code = "\n".join(block.lines)
    assert code.strip() in (ROOT / "examples" / "quickstart.py").read_text()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "groups of [20, 20, 20, 20, 20]"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pages take for granted: an experiment, runs, files, the examples."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "my.toml").write_text(MY)
    (folder / "links.csv").write_text(LINKS)
    who = "".join(f"{i},phone {i % 6},site {i % 2}\n" for i in range(7000))
    (folder / "who.csv").write_text("example,node,edge\n" + who)
    for block in blocks(DOCS / "tutorials" / "plan-your-fleet.md"):
        if block.title:
            _write(block, folder)
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "docs").symlink_to(DOCS)
    for name, algorithm in (("a", "fedavg"), ("b", "fedavg-ic"), ("demo", "fedavg")):
        words = ["run", "my.toml", "--out", f"runs/{name}", "--set", f"algorithm.name={algorithm}"]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            _coterie(words)
    return folder


def test_the_page_of_the_run_folder_has_every_file_and_key(prepared: Path) -> None:
    told = (DOCS / "reference" / "run-folder.md").read_text()
    run = prepared / "runs" / "b"
    assert [path.name for path in run.iterdir() if f"`{path.name}`" not in told] == []
    row = (run / "rows.jsonl").read_text().partition("\n")[0]
    texts = [row, (run / "summary.json").read_text(), (run / "grouping.json").read_text()]
    assert {key for text in texts for key in json.loads(text) if f"`{key}`" not in told} == set()


@pytest.mark.parametrize("page", QUICK, ids=named)
def test_the_commands_of_a_page_run(
    page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _follow(page, prepared, tmp_path, monkeypatch, long=False)


@pytest.mark.long
@pytest.mark.parametrize("page", LONG, ids=named)
def test_all_commands_of_a_page_run(
    page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _follow(page, prepared, tmp_path, monkeypatch, long=True)


def _follow(
    page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, long: bool
) -> None:
    """Do what a page says, from its first block to its last, as a reader would in a folder."""
    folder = tmp_path / "folder"
    shutil.copytree(prepared, folder, symlinks=True)
    if "tutorials" in page.parts:  # which begin with nothing
        shutil.rmtree(folder / "runs")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for block in blocks(page):  # another test may have a module of that name
        if block.title.endswith(".py"):
            monkeypatch.delitem(sys.modules, Path(block.title).stem, raising=False)
    before = set(sys.modules)
    for block in blocks(page):
        if block.title:
            _write(block, folder)
        if block.commands and not block.not_run and (long or not block.long):
            _run(block, folder, monkeypatch)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def _write(block: Block, folder: Path) -> None:
    (folder / block.title).write_text("\n".join([*block.lines, ""]))


def _run(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for line in block.commands:
        command = line.replace(".venv/bin/", "").replace("make demo", "coterie demo")
        words = shlex.split(command, comments=True)
        if any(command.startswith(known) for known in ELSEWHERE) and block.page == README:
            continue
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
        elif words[0] == "coterie" and "&&" not in words:
            _coterie(words[1:])
        else:
            ours = [sys.executable, *words[1:]] if words[0] == "python" else ["bash", "-c", command]
            subprocess.run(ours, check=True, capture_output=True)


def _coterie(words: list[str]) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, f"coterie {shlex.join(words)}: {done.output}"


def test_what_runs_the_commands_of_the_readme_elsewhere_is_there() -> None:
    assert [path for path in ELSEWHERE.values() if not (ROOT / path).exists()] == []


def test_links_that_leave_the_docs_become_text() -> None:
    script = ROOT / "scripts" / "site_links.py"
    subprocess.run([sys.executable, "-m", "doctest", str(script)], check=True)
