"""Claims of docs/explanation/security.md that no other test makes."""

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "coterie").rglob("*.py"))
RAY = "engine/ray/"  # whose actors get their module from the process that started them
RUNS_CODE = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS_CODE = {"torch.load", "yaml.load", "eval", "exec", "pickle.load", "pd.read_pickle"}
LISTENS = "0A"


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def faults(text: str, place: str) -> list[str]:
    """What in a module could run code because a file says so."""
    tree, found = ast.parse(text), []
    if RAY not in place:
        found += sorted(imported(tree) & RUNS_CODE)
    for name, call in calls(tree):
        if name in CALLS_CODE:
            found.append(name)
        if name in ("np.load", "numpy.load") or name.endswith("read_array"):
            told = {word.arg: ast.unparse(word.value) for word in call.keywords}
            if told.get("allow_pickle") != "False":
                found.append(f"{name} without allow_pickle=False")
    return found


def test_no_file_is_read_by_what_can_run_code() -> None:
    found = {
        place: wrong
        for path in SOURCES
        if (wrong := faults(path.read_text(encoding="utf-8"), place := path.as_posix()))
    }
    assert len(SOURCES) > 100
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib import load",
        "import torch\ntorch.load('model.pt', weights_only=True)",
        "import numpy as np\nnp.load('x.npy')",
        "np.load('x.npy', allow_pickle=True)",
        "np.lib.format.read_array(file)",
        "eval('1')",
    ],
)
def test_what_can_run_code_is_found(text: str) -> None:
    assert len(faults(text, "src/coterie/data/new.py")) == 1


def family(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(after_name[1]), []).append(int(status.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def listening(pid: int) -> list[str]:
    """Addresses on which a process listens by TCP."""
    own = set()
    for handle in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            own.add(str(handle.readlink()))
        except OSError:
            continue
    tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    rows = [
        line.split()
        for table in tables
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    ]
    return [row[1] for row in rows if row[3] == LISTENS and f"socket:[{row[9]}]" in own]


SWEEP = """
[data]
sample = 0.1
[partition]
num_nodes = 10
num_edges = 10
[train]
steps = 40
[sweep]
seed = [0, 1]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_sweep_listens_nowhere(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SWEEP)
    command = [sys.executable, "-m", "coterie", "sweep", "small.toml", "--jobs", "2"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        most, found = 0, []
        while process.poll() is None:
            pids = family(process.pid)
            most = max(most, len(pids))
            found += [address for pid in pids for address in listening(pid)]
            time.sleep(0.05)
        assert process.stdout
        said = process.stdout.read()
    assert process.returncode == 0, said
    assert most >= 3, "the command and two workers were looked at"
    assert found == []
