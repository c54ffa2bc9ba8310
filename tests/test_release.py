"""What scripts/release.py says of a wheel's files, of licences, and of the SBOM that it writes."""

import copy
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "release.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load()
TRACKED = [
    "src/coterie/__init__.py",
    "src/coterie/py.typed",
    "src/coterie/network/ns3_driver.cc",
    "experiments/demo.toml",
    "examples/own_model.py",
    "tests/test_docs.py",
    "runs/demo/rows.jsonl",
]
INFO = [f"coterie-1.dist-info/{name}" for name in release.INFO]
WHEEL = [
    "coterie/__init__.py",
    "coterie/py.typed",
    "coterie/network/ns3_driver.cc",
    "coterie/experiments/demo.toml",
    "coterie/examples/own_model.py",
    *INFO,
    "coterie-1.dist-info/licenses/LICENSE",
]


def package(name: str, version: str = "1", expression: str | None = "MIT", **more: Any) -> Any:
    about: dict[str, Any] = {
        "requires": [],
        "licence": None,
        "classifiers": [],
        "expression": expression,
    }
    return {"name": name, "version": version, **about, **more}


def odd(names: list[str]) -> list[str]:
    found: list[str] = release.odd_names(names, release.wheel_names(TRACKED), ["LICENSE"])
    return found


def made(*packages: Any) -> Any:
    return release.bom(packages, 1_700_000_000, "ab" * 32)


def test_a_wheel_holds_what_git_has_in_the_package_and_the_experiments() -> None:
    assert odd(WHEEL) == []


@pytest.mark.parametrize("name", WHEEL)
def test_a_file_that_a_wheel_lacks_is_named(name: str) -> None:
    (said,) = odd([other for other in WHEEL if other != name])
    assert said == f"lacks {name.removeprefix('coterie-1')}"


@pytest.mark.parametrize(
    "name", ["tests/test_docs.py", "coterie/tests/test_a.py", "coterie/runs/demo/rows.jsonl"]
)
def test_a_file_that_a_wheel_should_not_have_is_named(name: str) -> None:
    assert odd([*WHEEL, name]) == [f"has {name}"]


@pytest.mark.parametrize(
    ("licence", "gpl"),
    [
        ("GPL-3.0-or-later", True),
        ("AGPL-3.0-only", True),
        ("MIT AND GPL-2.0-only", True),
        ("(MIT OR GPL-2.0-only) AND GPL-3.0-only", True),
        ("GNU General Public License v3 (GPLv3)", True),
        ("GNU Affero General Public License v3", True),
        ("MIT OR GPL-2.0-only", False),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", False),
        ("LGPL-2.1-only", False),
        ("GNU Lesser General Public License v3 (LGPLv3)", False),
        ("BSD-3-Clause AND 0BSD AND MIT", False),
    ],
)
def test_the_gpl_is_told_from_what_may_be_linked(licence: str, gpl: bool) -> None:
    assert release.is_gpl(licence) is gpl


def test_a_needed_package_that_is_gpl_ends_the_release() -> None:
    own = package("coterie", expression="Apache-2.0 AND GPL-2.0-only")
    made(own, package("numpy"))
    with pytest.raises(SystemExit, match="readline is GPL"):
        made(own, package("readline", expression="GPL-3.0-only"))


def test_a_package_without_a_licence_ends_the_release() -> None:
    with pytest.raises(SystemExit, match="odd says no licence"):
        made(package("coterie"), package("odd", expression=None))


def test_a_licence_is_the_expression_else_the_classifiers_else_the_first_line() -> None:
    classifiers = [f"License :: OSI Approved :: {name}" for name in ("BSD License", "MIT License")]
    text = {"licence": "Copyright\nmore"}
    assert release.licence_of(package("a", expression="MIT", **text)) == ("expression", "MIT")
    said = release.licence_of(package("a", expression=None, classifiers=classifiers, **text))
    assert said == ("name", "BSD License or MIT License")
    assert release.licence_of(package("a", expression=None, **text)) == ("name", "Copyright")


def test_an_sbom_names_versions_licences_and_what_needs_what() -> None:
    needed = ["NumPy>=1.26", "torch", "pyarrow>=15; extra == 'parquet'", "absent"]
    own, torch = package("coterie", "0.1.0", requires=needed), package("torch", "2.13.0+cpu")
    document = made(own, package("numpy", "2.4.6"), torch, package("pyarrow"))
    release.check_bom(document)
    assert document["metadata"]["component"]["name"] == "coterie"
    assert [(c["name"], c["version"]) for c in document["components"]] == [
        ("numpy", "2.4.6"),
        ("pyarrow", "1"),
        ("torch", "2.13.0+cpu"),
    ]
    edges = {entry["ref"]: entry["dependsOn"] for entry in document["dependencies"]}
    needed_by_own = ["pkg:pypi/numpy@2.4.6", "pkg:pypi/torch@2.13.0%2Bcpu"]
    assert edges["pkg:pypi/coterie@0.1.0"] == needed_by_own
    assert all(entry["licenses"] == [{"expression": "MIT"}] for entry in document["components"])


def test_an_sbom_is_the_same_for_the_same_packages_in_any_order() -> None:
    packages = [package("coterie"), package("torch"), package("numpy")]
    assert made(*packages) == made(*reversed(packages))
    assert made(*packages)["serialNumber"] != made(*packages[:2])["serialNumber"]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("bomFormat",), "SPDX", "bomFormat"),
        (("specVersion",), "9", "specVersion"),
        (("version",), 0, "version"),
        (("serialNumber",), "1", "serialNumber"),
        (("components",), [], "components, none"),
        (("components", 0, "licenses"), [], "licenses of pkg:pypi/numpy@1"),
        (("components", 0, "version"), "", "version of pkg:pypi/numpy@1"),
        (("dependencies", 0, "dependsOn"), ["pkg:pypi/gone@1"], "what is not there"),
    ],
)
def test_an_sbom_that_lacks_what_it_must_have_is_refused(
    path: tuple[Any, ...], value: object, said: str
) -> None:
    document = made(package("coterie"), package("numpy"))
    release.check_bom(copy.deepcopy(document))
    *way, last = path
    inside = document
    for key in way:
        inside = inside[key]
    inside[last] = value
    with pytest.raises(SystemExit, match=said):
        release.check_bom(document)
