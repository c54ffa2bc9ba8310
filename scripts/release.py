"""Make a release in dist/ and try it as a stranger would. Nothing is uploaded.

    python scripts/release.py            of the last commit, into dist/
    python scripts/release.py -o DIR

Wheel and sdist are built twice from the commit, in two folders and under two umasks, and must be
the same bytes. The wheel must hold what git has in src/coterie, examples and experiments, and
nothing else.
Wheel and sdist are installed into fresh environments outside the repository, with constraints.txt,
and used there. The SBOM (CycloneDX 1.6) is of what the wheel's environment then holds. Needs the
extra `release`.
"""

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import uuid
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    "src/coterie/": "coterie/",
    "examples/": "coterie/examples/",
    "experiments/": "coterie/experiments/",
}  # git's, the wheel's
INFO = ("METADATA", "RECORD", "WHEEL", "entry_points.txt")
TRIED = (
    "--version",
    "demo",
    "run quickstart",
    "plan quickstart",
    "plan --nodes phones.csv --network stations.csv --model-bytes 5MB --set algorithm.num_groups=3",
    "report runs/quickstart",
)
GPL = re.compile(r"\bA?GPL|GNU (Affero )?General Public", re.IGNORECASE)
SERIAL = re.compile(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NEEDS = re.compile(r"[A-Za-z0-9._-]+")
COLLECT = """
import importlib.metadata as m, json
print(json.dumps([{
    "name": d.metadata["Name"], "version": d.version, "requires": d.requires or [],
    "expression": d.metadata["License-Expression"], "licence": d.metadata["License"],
    "classifiers": d.metadata.get_all("Classifier") or [],
} for d in m.distributions()]))
"""
Package = Mapping[str, Any]


def main() -> None:
    """Build, check, try, and print what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "dist", help="default: dist")
    out = parser.parse_args().out
    commit = _git("rev-parse", "HEAD").strip()
    epoch = int(_git("show", "-s", "--format=%ct", "HEAD"))
    say(f"commit {commit[:12]} of {datetime.fromtimestamp(epoch, UTC):%Y-%m-%d %H:%M} UTC")
    if _git("status", "--porcelain"):
        say("note: there are changes that are not committed; they are not in it")
    with tempfile.TemporaryDirectory(prefix="coterie-release-") as name:
        folder = Path(name)
        built = [
            _build(folder / f"build-{i}", epoch, umask) for i, umask in enumerate((0o22, 0o77))
        ]
        _check_same(*built)
        wheel, sdist = built[0]
        say(f"built {wheel.name} and {sdist.name}, twice the same bytes")
        _call([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], folder)
        say("twine check --strict: nothing to say")
        n_files = _check_wheel(wheel)
        say(f"the wheel has the {n_files} files of {', '.join(PLACES)}, and no others")
        packages = [_try(built_file, folder) for built_file in (wheel, sdist)]
        sbom = bom(packages[0], epoch, _sha256(wheel))
        check_bom(sbom)
        out.mkdir(parents=True, exist_ok=True)
        files = [
            out / wheel.name,
            out / sdist.name,
            out / f"{wheel.name.split('-py3')[0]}.cdx.json",
        ]
        files[0].write_bytes(wheel.read_bytes())
        files[1].write_bytes(sdist.read_bytes())
        files[2].write_text(json.dumps(sbom, indent=1) + "\n", encoding="utf-8")
    say(f"SBOM: {len(sbom['components'])} packages at run time, a licence for each, none GPL")
    for file in files:
        print(f"{_sha256(file)}  {os.path.relpath(file)}")


def say(line: str) -> None:
    """Print a line at once."""
    print(f"release: {line}", flush=True)


def wheel_names(tracked: Iterable[str]) -> set[str]:
    """Name the files of the wheel, but for its .dist-info, from what git has.

    >>> sorted(wheel_names(["src/coterie/py.typed", "experiments/demo.toml", "tests/light.py"]))
    ['coterie/experiments/demo.toml', 'coterie/py.typed']
    """
    return {
        inside + path.removeprefix(place)
        for path in tracked
        for place, inside in PLACES.items()
        if path.startswith(place)
    }


def odd_names(names: Iterable[str], wanted: set[str], licences: Iterable[str]) -> list[str]:
    """Say what a wheel lacks, and what it should not have."""
    own = {name for name in names if ".dist-info/" not in name}
    info = {name.partition(".dist-info/")[2] for name in names if ".dist-info/" in name}
    needed = {*INFO, *(f"licenses/{path}" for path in licences)}
    return [
        *(f"lacks {name}" for name in sorted(wanted - own)),
        *(f"has {name}" for name in sorted(own - wanted)),
        *(f"lacks .dist-info/{name}" for name in sorted(needed - info)),
        *(f"has .dist-info/{name}" for name in sorted(info - needed)),
    ]


def licence_of(package: Package) -> tuple[str, str]:
    """Return the kind of a licence in an SBOM, expression or name, and what it is.

    >>> licence_of({"expression": "MIT", "licence": None, "classifiers": []})
    ('expression', 'MIT')
    """
    if package["expression"]:
        return "expression", package["expression"]
    begin = "License :: OSI Approved :: "
    said = [c.removeprefix(begin) for c in package["classifiers"] if c.startswith(begin)]
    name = " or ".join(said) or (package["licence"] or "").strip().partition("\n")[0]
    if not name:
        raise SystemExit(f"release: {package['name']} says no licence; look at it by hand")
    return "name", name


def is_gpl(licence: str) -> bool:
    """Whether a licence is the GPL or AGPL, with no other to choose and no exception for linking.

    >>> is_gpl("MIT AND GPL-2.0-only"), is_gpl("MIT OR GPL-2.0-only"), is_gpl("LGPL-2.1-only")
    (True, False, False)
    """
    plain = re.sub(r"\bA?GPL[\w.+-]* WITH [\w.-]+", "", licence)
    choices = [plain] if "(" in plain or " AND " in plain else re.split(r" OR ", plain)
    return all(GPL.search(choice) for choice in choices)


def bom(packages: Sequence[Package], epoch: int, wheel_sha256: str) -> dict[str, Any]:
    """Describe packages, of which one is coterie, as a CycloneDX document; the same for the same.

    Coterie's own licence names the GPL for ns3_driver.cc, a program of its own that is compiled on
    request; a package that it needs may not be GPL.
    """
    by_name = {normal(package["name"]): package for package in packages}
    components = {name: _component(package) for name, package in sorted(by_name.items())}
    own = components.pop("coterie")
    if gpl := [name for name, c in components.items() if is_gpl(_licence_text(c))]:
        raise SystemExit(f"release: {', '.join(gpl)} is GPL, which coterie must not need")
    own = {"type": "application", **{key: own[key] for key in own if key != "type"}}
    own["hashes"] = [{"alg": "SHA-256", "content": wheel_sha256}]
    seen = json.dumps([own, *components.values()], sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, seen)}",
        "version": 1,
        "metadata": {
            "timestamp": f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "component": own,
        },
        "components": list(components.values()),
        "dependencies": [
            {
                "ref": _purl(package),
                "dependsOn": [_purl(by_name[n]) for n in needs(package, by_name)],
            }
            for _, package in sorted(by_name.items())
        ],
    }


def check_bom(document: Mapping[str, Any]) -> None:
    """Refuse an SBOM without what CycloneDX requires, or a component without its licence."""
    own, components = document["metadata"]["component"], document["components"]
    refs = [component["bom-ref"] for component in (own, *components)]
    edges = [
        (d["ref"], ref) for d in document["dependencies"] for ref in (d["ref"], *d["dependsOn"])
    ]
    faults = {
        "bomFormat": document["bomFormat"] != "CycloneDX",
        "specVersion": document["specVersion"] != "1.6",
        "version": document["version"] < 1,
        "serialNumber": not SERIAL.fullmatch(document["serialNumber"]),
        "bom-ref, one twice": len(set(refs)) < len(refs),
        "dependencies on what is not there": not {ref for edge in edges for ref in edge}
        <= set(refs),
        "components, none": not components,
    }
    for component in (own, *components):
        for key in ("type", "name", "version", "purl", "licenses"):
            faults[f"{key} of {component['bom-ref']}"] = not component.get(key)
    if wrong := [what for what, is_wrong in faults.items() if is_wrong]:
        raise SystemExit(f"release: the SBOM is not CycloneDX: {', '.join(wrong)}")


def normal(name: str) -> str:
    """Return a package's name as indexes have it.

    >>> normal("Tomli_W")
    'tomli-w'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(package: Package, installed: Iterable[str]) -> list[str]:
    """Name the packages that one needs without extras, of those that are installed."""
    found = {
        normal(match[0])
        for line in package["requires"]
        if "extra ==" not in line and (match := NEEDS.match(line))
    }
    return sorted(found.intersection(installed))


def _component(package: Package) -> dict[str, Any]:
    kind, licence = licence_of(package)
    stated: dict[str, Any] = {"license": {"name": licence}}
    return {
        "type": "library",
        "bom-ref": _purl(package),
        "name": package["name"],
        "version": package["version"],
        "licenses": [{"expression": licence} if kind == "expression" else stated],
        "purl": _purl(package),
    }


def _licence_text(component: Mapping[str, Any]) -> str:
    (entry,) = component["licenses"]
    return str(entry.get("expression") or entry["license"]["name"])


def _purl(package: Package) -> str:
    return f"pkg:pypi/{normal(package['name'])}@{quote(package['version'], safe='.')}"


def _build(folder: Path, epoch: int, umask: int) -> tuple[Path, Path]:
    """Build the sdist of the last commit, and from it the wheel."""
    source, out = folder / "coterie", folder / "out"
    source.mkdir(parents=True)
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        tar.extractall(source)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    _call(command, folder, {"SOURCE_DATE_EPOCH": str(epoch)}, umask=umask)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def _check_same(first: tuple[Path, Path], second: tuple[Path, Path]) -> None:
    for one, other in zip(first, second, strict=True):
        if one.name != other.name or one.read_bytes() != other.read_bytes():
            raise SystemExit(
                f"release: two builds of {one.name} differ; a build must be repeatable"
            )


def _check_wheel(wheel: Path) -> int:
    """Compare the wheel's names with git's, and return how many there are."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    wanted = wheel_names(_git("ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0"))
    licences = ["LICENSE", *(path for path in _git("ls-files").split() if "/LICENSE." in path)]
    if odd := odd_names(names, wanted, licences):
        raise SystemExit(f"release: {wheel.name} {', '.join(odd[:10])} ({len(odd)} in all)")
    return len(wanted)


def _try(built: Path, folder: Path) -> list[Package]:
    """Install a file into a fresh environment, use it from an empty folder, list what is there."""
    kind = "wheel" if built.suffix == ".whl" else "sdist"
    env, work = folder / f"env-{kind}", folder / f"work-{kind}"
    work.mkdir()
    for path in (ROOT / "examples" / "base_stations").glob("*.csv"):
        (work / path.name).write_bytes(path.read_bytes())
    constraints = str(ROOT / "constraints.txt")
    # without pip, so that the environment holds what coterie needs and nothing else
    _call([sys.executable, "-m", "venv", "--without-pip", str(env)], folder)
    python, pip = env / "bin" / "python", [sys.executable, "-m", "pip", "--python"]
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "-c", constraints]
    _call(
        [*pip, str(python), "install", *options, str(built)],
        folder,
        {"PIP_CONSTRAINT": constraints},
    )
    where = _call([str(python), "-c", "import coterie; print(coterie.__file__)"], work).strip()
    if not Path(where).is_relative_to(env):
        raise SystemExit(f"release: coterie was imported from {where}, not from the {kind}")
    own = {"HOME": str(work), "COTERIE_DATA": str(work / "data"), "MPLCONFIGDIR": str(work / "mpl")}
    for arguments in TRIED:
        said = _call([str(env / "bin" / "coterie"), *arguments.split()], work, own)
        say(f"{kind}: coterie {arguments}: {said.strip().splitlines()[-1][:80]}")
    packages: list[Package] = json.loads(_call([str(python), "-I", "-c", COLLECT], work))
    shutil.rmtree(env)  # 1.5 GB, and the next has as much
    return packages


def _call(
    command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None, *, umask: int = -1
) -> str:
    """Run a program in a folder, without this repository on its path, and return its output."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=env | dict(more or {}),
        umask=umask,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise SystemExit(
            f"{done.stdout}\nrelease: {' '.join(command)} ended with {done.returncode}"
        )
    return done.stdout


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, encoding="utf-8"
    )
    return done.stdout


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
