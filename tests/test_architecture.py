"""The house: a package imports lower levels alone, and heavy libraries have one home each."""

import ast
import importlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import coterie
from coterie import _moved

SOURCE = Path(coterie.__file__).parent
LEVELS = [
    {"core"},
    {"data", "partition", "models", "topology", "divergences"},
    {"network", "engine"},
    {"grouping"},
    {"simulation"},
    {"config"},
    {"runs", "theory"},
    {"analysis"},
    {"preview"},
    {"paper"},
    {"render", "trackers", "flower"},
    {"cli", "notebook"},
]
HOMES = {
    "PIL": ("data/celeba.py", "data/images.py"),
    "platformdirs": ("core/cache_folder.py",),
    "llvmlite": ("engine/kernels/loops.py",),
    "numba": ("engine/kernels/loops.py",),
    "pandas": ("notebook/frames.py",),
    "polars": ("notebook/frames.py",),
    "pyarrow": ("core/parquet.py",),
    "ray": ("engine/ray/cluster.py",),
    "tensorboard": ("trackers/tensorboard.py",),
    "mlflow": ("trackers/mlflow.py",),
    "wandb": ("trackers/wandb.py",),
    "flwr": ("flower/",),
    "matplotlib": ("render/",),
}
WITHOUT_TORCH = ("core", "data", "partition", "topology", "divergences", "network", "grouping")
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE]


@cache
def imports(path: Path) -> set[str]:
    """Dotted names of everything a file imports, wherever in it."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


def test_every_package_has_a_level() -> None:
    there = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert there == set().union(*LEVELS)


def test_a_package_imports_only_packages_of_lower_levels() -> None:
    level = {name: at for at, names in enumerate(LEVELS) for name in names}
    for path in FILES:
        for name in imports(path):
            root, inside, *_ = [*name.split("."), ""]
            if root == "coterie" and inside in level and inside != package(path):
                assert level[inside] < level[package(path)], f"{path} imports {name}"


@pytest.mark.parametrize("library", HOMES)
def test_a_heavy_library_stays_in_its_place(library: str) -> None:
    for path in FILES:
        if any(name.split(".")[0] == library for name in imports(path)):
            assert path.relative_to(SOURCE).as_posix().startswith(HOMES[library]), path


def test_planning_needs_no_torch() -> None:
    for path in FILES:
        if package(path) in WITHOUT_TORCH:
            assert not any(name.split(".")[0] == "torch" for name in imports(path)), path


def test_what_trains_nothing_does_not_import_torch() -> None:
    """Nor matplotlib or SciPy: together they take more than two seconds."""
    parts = "cli config.files runs.sweep render.page paper render.watch analysis.export "
    parts += "render.figures trackers"
    modules = ", coterie.".join(f"coterie {parts}".split(" "))
    code = f"import sys, {modules}; print({{'torch', 'matplotlib', 'scipy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_the_public_names_are_all_there() -> None:
    for name in coterie.__all__:
        assert getattr(coterie, name) is not None
    assert dir(coterie) == sorted(coterie.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = coterie.nothing


def test_no_public_name_is_that_of_a_package() -> None:
    """Importing the package would put it in the place of the function."""
    packages = {path.name.removesuffix(".py") for path in SOURCE.iterdir()}
    assert packages & set(coterie.__all__) == set()


def test_old_import_paths_work_and_say_where_things_are_now() -> None:
    with pytest.warns(FutureWarning, match=r"coterie\.build is now coterie\.config\.factories"):
        old = importlib.import_module("coterie.build")
    assert old.load_dataset is importlib.import_module("coterie.config.factories").load_dataset
    with pytest.warns(FutureWarning, match=r"coterie\.config\.make_config is now"):
        assert importlib.import_module("coterie.config").make_config is coterie.make_config
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("coterie.nothing")


def test_every_old_path_leads_somewhere() -> None:
    for old in _moved.MOVED:
        new = _moved.new_name(f"coterie.{old}").removeprefix("coterie.").replace(".", "/")
        assert (SOURCE / f"{new}.py").is_file() or (SOURCE / new / "__init__.py").is_file(), old


def test_the_page_of_the_house_is_as_it_would_be_drawn() -> None:
    script = SOURCE.parents[1] / "scripts" / "house.py"
    if not script.exists():
        pytest.skip("not in a source checkout")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_the_way_from_a_command_to_algorithm_1_is_short() -> None:
    script = SOURCE.parents[1] / "scripts" / "way_in.py"
    if not script.exists():
        pytest.skip("not in a source checkout")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    counted = re.match(r"(\d+) modules, (\d+) changes of package", done.stdout)
    assert counted, done.stderr
    assert int(counted[2]) < 40, done.stdout
