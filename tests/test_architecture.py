"""The layers: a module imports only from modules to its left, and torch stays where it belongs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import coterie

SOURCE = Path(coterie.__file__).parent
ORDER = [
    "errors",
    "imports",
    "parquet",
    "cluster",
    "data",
    "partition",
    "models",
    "topology",
    "network",
    "costs",
    "sketch",
    "grouping",
    "schedule",
    "algorithms",
    "engine",
    "theory",
    "clock",
    "attendance",
    "planning",
    "tuning",
    "problem",
    "steering",
    "run",
    "schema",
    "sections",
    "config",
    "provenance",
    "readback",
    "record",
    "build",
    "prepare",
    "checkpoint",
    "experiment",
    "retime",
    "survey",
    "netview",
    "pricing",
    "planview",
    "bylabels",
    "explained",
    "planfile",
    "straying",
    "sweep",
    "comparison",
    "looks",
    "aligned",
    "selection",
    "table",
    "reproduction",
    "report",
    "watch",
    "export",
    "figures",
    "tracking",
    "flower",
    "cli",
]
HOMES = {
    "PIL": "data/celeba.py",
    "msgspec": "data/leaf.py",
    "platformdirs": "data/cache.py",
    "pyarrow": "parquet.py",
    "ray": "cluster.py",
    "tensorboard": "tracking/tensorboard.py",
    "mlflow": "tracking/mlflow.py",
    "wandb": "tracking/wandb.py",
    "flwr": "flower/",
}
WITHOUT_TORCH = [
    "grouping",
    "sketch",
    "costs",
    "schedule",
    "clock",
    "attendance",
    "partition",
    "topology",
    "network",
]
MODULES = [
    (path, path.relative_to(SOURCE).parts[0].removesuffix(".py"))
    for path in sorted(SOURCE.rglob("*.py"))
    if path.name not in ("__main__.py",) and path != SOURCE / "__init__.py"
]


def imports(path: Path) -> set[str]:
    """Dotted names of everything a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "coterie":
                found |= {f"coterie.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize(("path", "layer"), MODULES, ids=lambda v: str(v)[-30:])
def test_a_module_imports_only_from_its_left(path: Path, layer: str) -> None:
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "coterie" and len(parts) > 1:
            assert ORDER.index(parts[1]) <= ORDER.index(layer), f"{path.name} imports {name}"


@pytest.mark.parametrize(("path", "layer"), MODULES, ids=lambda v: str(v)[-30:])
def test_heavy_libraries_stay_in_their_place(path: Path, layer: str) -> None:
    found = {name.split(".")[0] for name in imports(path)}
    if layer in WITHOUT_TORCH:
        assert "torch" not in found
    if layer not in ("report", "figures"):
        assert "matplotlib" not in found
    for library, home in HOMES.items():
        assert library not in found or path.relative_to(SOURCE).as_posix().startswith(home)


def test_what_trains_nothing_does_not_import_torch() -> None:
    """Nor matplotlib or SciPy: together they take more than two seconds."""
    parts = "cli config sweep report reproduction watch export figures tracking"
    modules = ", coterie.".join(f"coterie {parts}".split(" "))
    code = f"import sys, {modules}; print({{'torch', 'matplotlib', 'scipy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_the_public_names_are_all_there() -> None:
    for name in coterie.__all__:
        assert getattr(coterie, name) is not None
    assert dir(coterie) == coterie.__all__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = coterie.nothing
