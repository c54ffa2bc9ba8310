"""A deployment on disk: the commands of every machine, the apps, certificates and keys.

One SuperLink for each group and one for the coordinator; each edge is a SuperNode of the
coordinator's. Everything is by paths inside one folder, which every machine has a copy of, but for
the private keys of others. One script starts any process by its name; `deployment.json` has what it
needs to know.
"""

import csv
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from coterie.config.toml import check_depth, read_toml
from coterie.core.convert import convert
from coterie.core.errors import short
from coterie.core.files import lock, write_atomically, write_json
from coterie.core.regular import read_mapping
from coterie.flower import FlowerError
from coterie.flower.algorithm import FEDAVG
from coterie.flower.edge import edge_name
from coterie.flower.hosts import COORDINATOR, LOOPBACK, is_loopback, places_of, wrong_host
from coterie.flower.units import write_units
from coterie.preview.planfile import MOST, Plan
from coterie.preview.planfile.reading import read_plan
from coterie.preview.planfile.writing import as_json

QUIET = {  # what is started reports to nobody, and fetches nothing
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
SETTINGS = "deployment.json"
FORMAT, VERSION = "coterie-deployment", 1
LAST_PORT = 65535
MOST_NUMBER = 2.0**63  # that Flower sends
STORED = ("port", "node_port", "rounds", "timeout_s", "min_per_group", "tls", "device_keys")
LINKS = "links"  # what SuperLinks remember: their nodes' keys, their apps
HOSTS = "certificates/hosts.json"  # whom they are for; it is there when all of them and keys are
LEFT_BEHIND = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")

Port = Annotated[int, Meta(ge=1, le=LAST_PORT)]
Count = Annotated[int, Meta(ge=0, le=MOST)]


class Stored(Struct, frozen=True, forbid_unknown_fields=True):
    """What `deployment.json` has, beside the plan; `folder` is where it was written."""

    format: str
    version: int
    port: Port
    node_port: Port
    rounds: Count
    timeout_s: Annotated[float, Meta(gt=0, le=sys.float_info.max)]
    min_per_group: Annotated[int, Meta(ge=1, le=MOST)]
    tls: bool
    device_keys: bool
    hosts: dict[str, str]
    numbers: dict[str, Annotated[int, Meta(ge=0, le=LAST_PORT)]]
    folder: str = ""


@dataclass(frozen=True)
class Deployment:
    """Where everything is: a plan, an app, the hosts of the coordinator and the edges, ports.

    Hosts that are not given are this machine's loopback. `secure` is TLS and authentication of
    SuperNodes: always beyond loopback. `numbers` are the nodes' own, by name: their places in the
    plan, unless they had others in a deployment before. With `device_keys` each SuperNode's key is
    made where it runs. `machines` are the hosts of nodes by name; others are where their edge is.
    """

    plan: Plan
    app: Path
    folder: Path
    hosts: Mapping[str, str] = field(default_factory=dict)
    port: int = 8000
    node_port: int = 9100
    rounds: int = 0
    timeout_s: float = 600.0
    min_per_group: int = 1
    tls: bool = False
    run_config: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    device_keys: bool = False
    machines: Mapping[str, str] = field(default_factory=dict)

    @property
    def places(self) -> list[str]:
        """The coordinator and the edges."""
        return places_of(self.plan)

    @property
    def local(self) -> bool:
        """Whether nothing leaves this machine."""
        return all(is_loopback(self.host(place)) for place in self.places)

    @property
    def secure(self) -> bool:
        """Whether TLS and keys are used."""
        return self.tls or not self.local

    def number(self, i: int) -> int:
        """Return the number of node i of the plan."""
        return self.numbers.get(self.plan.nodes[i].node, i)

    def key(self, i: int) -> str:
        """Return the name of the process of node i of the plan, and of its key."""
        return f"node-{self.number(i)}"

    @property
    def top(self) -> int:
        """One above the highest number of a node."""
        return 1 + max(self.number(i) for i in range(len(self.plan.nodes)))

    def host(self, place: str) -> str:
        """Return the host of a place."""
        return self.hosts.get(place, LOOPBACK)

    def address(self, place: str) -> str:
        """Return host and port of a place's SuperLink."""
        host = self.host(place)
        return f"{f'[{host}]' if ':' in host else host}:{self.port + self.places.index(place)}"

    def superlink(self, place: str) -> list[str]:
        """Return the command of a place's SuperLink; it listens on the place's host alone."""
        port = str(self.port + self.places.index(place))
        command = ["flower-superlink", "--host", self.host(place), "--port", port]
        command += ["--disable-runtime-dependency-installation"]
        command += ["--database", f"{LINKS}/{place}.db"]
        if not self.secure:
            return [*command, "--insecure"]
        return [
            *command,
            *("--ssl-ca-certfile", "certificates/ca.crt"),
            *("--ssl-certfile", f"certificates/{place}.pem"),
            *("--ssl-keyfile", f"certificates/{place}.key"),
            "--enable-supernode-auth",
        ]

    def supernode(self, to: str, port: int, key: str, config: str) -> list[str]:
        """Return the command of a SuperNode; its own port is on loopback, wherever it runs."""
        command = ["flower-supernode", "--superlink", self.address(to), "--host", LOOPBACK]
        command += ["--port", str(port), "--node-config", config]
        if not self.secure:
            return [*command, "--insecure"]
        command += ["--root-certificates", "certificates/ca.crt"]
        return [*command, "--auth-supernode-private-key", f"keys/{key}"]

    def bridges(self) -> dict[str, list[str]]:
        """Return the command by which each edge is a node of the coordinator's SuperLink."""
        first, commands = self.node_port + self.top, {}
        for k, place in enumerate(self.places[1:]):
            config = f"node-id={quoted(place)} folder={quoted(str(self.folder.absolute()))}"
            commands[place] = self.supernode(COORDINATOR, first + k, place, config)
        return commands

    def nodes(self) -> dict[str, list[str]]:
        """Return the command of every node's SuperNode, by key; a node trains as its number."""
        top = self.top
        return {self.key(i): self.node(i, top) for i in range(len(self.plan.nodes))}

    def node(self, i: int, top: int = 0) -> list[str]:
        """Return the command of the SuperNode of node i of the plan; `top` saves counting."""
        node, number = self.plan.nodes[i], self.number(i)
        of = top or self.top
        config = f"node-id={quoted(node.node)} partition-id={number} num-partitions={of}"
        to = edge_name(node.group)
        return self.supernode(to, self.node_port + number, self.key(i), config)

    def copies(self) -> list[list[str]]:
        """Return the commands that give every other machine the folder, and its own keys alone."""
        home = str(self.folder.absolute())
        found = []
        nodes = [self.machine(i) for i in range(len(self.plan.nodes))]
        for host in dict.fromkeys([*map(self.host, self.places), *nodes]):
            if is_loopback(host) or host == self.host(COORDINATOR):
                continue
            here = [place for place in self.places[1:] if self.host(place) == host]
            own = [f"{home}/./certificates/{place}.key" for place in here]
            if not self.device_keys:
                keys = [*here, *(self.key(i) for i, at in enumerate(nodes) if at == host)]
                own += [f"{home}/./keys/{key}" for key in keys]
            to = f"{f'[{host}]' if ':' in host else host}:{home}/"
            others = ["--include", "keys/*.pub"]
            for kept in ("keys/*", "certificates/*.key", f"{LINKS}/*", "logs/*", "state/*"):
                others += ["--exclude", kept]
            found.append(["rsync", "-a", *others, f"{home}/", to])
            if own:
                found.append(["rsync", "-aR", *own, to])
        return found

    def machine(self, i: int) -> str:
        """Return the host of node i of the plan: its own, or that of its edge."""
        node = self.plan.nodes[i]
        return self.machines.get(node.node) or self.host(edge_name(node.group))

    def run(self, place: str) -> list[str]:
        """Return the command that starts the app of a place."""
        if place == COORDINATOR:
            return ["flwr", "run", "coordinator-app", COORDINATOR]
        group = self.places.index(place) - 1
        return ["flwr", "run", "edge-app", place, "--run-config", f"coterie-group={group}"]


def quoted(text: str) -> str:
    """Write text as Flower's --node-config reads it: in quotes, with none inside.

    >>> print(quoted('a"b'))
    "a\\u0022b"
    """
    inside = json.dumps(text, ensure_ascii=False)[1:-1]
    return '"' + inside.replace('\\"', "\\u0022") + '"'


def write(deployment: Deployment) -> list[Path]:
    """Write the folder, or leave it as it is if it is of this deployment already.

    What cannot be is refused before anything is written.
    """
    folder, plan = deployment.folder, as_json(deployment.plan)
    app = check(deployment)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LINKS).mkdir(mode=0o700, exist_ok=True)  # SuperLinks keep models there, too
    if deployment.secure:
        _write_secrets(deployment)
    _write_apps(deployment, app)
    _write_connections(deployment)
    _write_table(deployment)
    scripts = [*_write_scripts(deployment), *write_units(folder, Path(sys.executable).parent)]
    write_json(folder / SETTINGS, stored(deployment))
    write_json(folder / "plan.json", plan)
    return scripts


@contextmanager
def whole(folder: Path) -> Iterator[None]:
    """Leave nothing of a folder that is new, or empty, and cannot be written to its end."""
    home = folder.absolute()
    missing = [path for path in (home, *home.parents) if not os.path.lexists(path)]
    empty = not missing and folder.is_dir() and not any(folder.iterdir())
    try:
        yield
    except Exception:
        for path in [missing[-1]] if missing else folder.iterdir() if empty else []:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        raise


@contextmanager
def held(d: Deployment, names: Sequence[str]) -> Iterator[None]:
    """Keep other commands from writing the folder, and from running these processes of it."""
    d.folder.mkdir(parents=True, exist_ok=True)
    (d.folder / LINKS).mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as files:
        for name in names:
            lock(files.enter_context((d.folder / LINKS / f"{name}.lock").open("wb")), d.folder)
        yield


def stored(d: Deployment) -> dict[str, Any]:
    """Return what `deployment.json` has, beside the plan."""
    found = {key: getattr(d, key) for key in STORED}
    maps = {"hosts": dict(d.hosts), "numbers": dict(d.numbers), "folder": str(d.folder.absolute())}
    return {"format": FORMAT, "version": VERSION, **found, **maps}


def read_deployment(folder: Path) -> Deployment:
    """Read a folder that `write` wrote, on whichever machine it is now."""
    raw = _settings(folder)
    plan = read_plan(folder / "plan.json")
    values = {key: raw[key] for key in (*STORED, "hosts", "numbers")}
    found = Deployment(plan, folder / "edge-app", folder, **values)
    try:
        _check_addresses(found)
    except FlowerError as error:
        raise FlowerError(f"{folder / SETTINGS}: {error}") from error
    return found


def _settings(folder: Path) -> dict[str, Any]:
    """Read `deployment.json`, every value of which is as `Stored` has it."""
    path = folder / SETTINGS
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        check_depth(raw)
    except OSError as error:
        raise FlowerError(
            f"{path}: cannot be read ({error.strerror}); give the folder that coterie flower up "
            "wrote"
        ) from error
    except (ValueError, RecursionError) as error:
        raise FlowerError(f"{path}: is not JSON ({error})") from error
    if not isinstance(raw, dict) or (raw.get("format"), raw.get("version")) != (FORMAT, VERSION):
        raise FlowerError(f"{path}: is no deployment of version {VERSION}; write it again")
    try:
        convert(raw, Stored, str(path))
    except ValueError as error:
        raise FlowerError(f"{error}; write the folder again") from error
    return raw


def check_place(folder: Path) -> None:
    """Refuse to serve from a folder that is not where it was written: apps have those paths."""
    before = Path(_settings(folder).get("folder") or folder.absolute())
    if before.exists() and before.samefile(folder):
        return
    if before != folder.absolute():
        raise FlowerError(
            f"{folder} was written as {short(str(before))}; move it back, or write it here with "
            "coterie flower up PLAN -o DIR, which goes on where it is"
        )


def real(path: Path) -> Path:
    """Return where a path leads; links that lead around in a circle are left as they are."""
    return Path(os.path.realpath(path))


def check(d: Deployment) -> dict[str, Any]:
    """Refuse a deployment that cannot be; return the settings of its app."""
    before, app, folder = d.folder / "plan.json", real(d.app), real(d.folder)
    if before.exists() and as_json(read_plan(before)) != as_json(d.plan):
        raise FlowerError(f"{d.folder} is of another plan; choose another --out")
    if folder.is_relative_to(app) or app.is_relative_to(folder):
        raise FlowerError(
            f"{d.folder} and the app {d.app} are one inside the other; choose another --out"
        )
    if not str(d.folder.absolute()).isprintable():
        raise FlowerError(f"no unit can name the folder {str(d.folder)!r}; choose another --out")
    if not (math.isfinite(d.timeout_s) and d.timeout_s > 0):
        raise FlowerError(f"--timeout must be above 0 and finite, got {d.timeout_s}")
    _check_addresses(d)
    return _read_app(d)


def _check_addresses(d: Deployment) -> None:
    """Refuse hosts that cannot be reached, and ports or numbers that two would have."""
    for place in d.places:
        if wrong_host(d.host(place)):
            raise FlowerError(f"{place} cannot be reached by others as {short(d.host(place))}")
    numbers = [d.number(i) for i in range(len(d.plan.nodes))]
    if len(set(numbers)) < len(numbers):
        raise FlowerError("numbers must be different for every node; write the folder again")
    links = range(d.port, d.port + len(d.places))
    nodes = range(d.node_port, d.node_port + d.top + len(d.plan.servers))
    if max(links[-1], nodes[-1]) > LAST_PORT:
        raise FlowerError(f"port {max(links[-1], nodes[-1])} is beyond {LAST_PORT}; lower --port")
    if links[0] <= nodes[-1] and nodes[0] <= links[-1]:
        raise FlowerError(
            f"ports {links[0]} to {links[-1]} of SuperLinks and {nodes[0]} to {nodes[-1]} of "
            "SuperNodes overlap; choose another --node-port"
        )


def _write_secrets(d: Deployment) -> None:
    """Write certificates and keys, unless they are there, all of them, and for these hosts."""
    from coterie.flower.certificates import write_certificates, write_node_keys

    hosts, sign = {place: d.host(place) for place in d.places}, d.folder / HOSTS
    names = [*d.places[1:], *d.nodes()]
    (d.folder / "keys").mkdir(exist_ok=True)
    if not d.device_keys and not all((d.folder / "keys" / f"{n}.pub").exists() for n in names):
        write_node_keys(d.folder / "keys", names)
    if read_mapping(sign) == hosts:
        return
    sign.unlink(missing_ok=True)
    write_certificates(d.folder / "certificates", hosts)
    write_json(sign, hosts)


def _read_app(d: Deployment) -> dict[str, Any]:
    """Return what the app's pyproject.toml says, with the deployment's settings among its own."""
    path = d.app / "pyproject.toml"
    try:
        raw = read_toml(path.read_text(encoding="utf-8"))
        app = raw["tool"]["flwr"]["app"]
        config = app.setdefault("config", {})
        client = app["components"]["clientapp"]
        if not (isinstance(config, dict) and isinstance(client, str)):
            raise TypeError("config must be a table, and clientapp text")
    except OSError as error:
        raise FlowerError(f"{path}: is not a Flower app ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FlowerError(f"{path}: is not a Flower app ({short(str(error))})") from error
    for key in ("coterie-initial", "coterie-evaluate"):
        if key not in config:
            raise FlowerError(
                f"{d.app}: [tool.flwr.app.config] needs {key}, a function by its import path; "
                "see docs/howto/flower.md"
            )
    unknown = [key for key in d.run_config if key not in config]
    if unknown:
        raise FlowerError(f"{d.app}: its config has no {short(unknown[0])}")
    for key, value in d.run_config.items():
        number = isinstance(value, int | float) and abs(value) < MOST_NUMBER
        if not (number or isinstance(value, str)):
            raise FlowerError(
                f"--run-config: {key} must be text, true, false or a number of 64 bits, got "
                f"{short(value)}"
            )
    chosen = {**config, **d.run_config}.get("algorithm") or FEDAVG.name
    if chosen != FEDAVG.name:
        raise FlowerError(
            f"{d.app}: algorithm = {short(chosen)} is not offered on the edge tier, whose edges "
            "send models alone; set it to 'fedavg', or run GroupStrategy on one SuperLink"
        )
    config |= {
        **d.run_config,
        "coterie-folder": str(d.folder.absolute()),
        "coterie-timeout": d.timeout_s,
        "coterie-group": 0,
        "coterie-rounds": d.rounds,
        "coterie-min-per-group": d.min_per_group,
    }
    return raw


def _write_apps(d: Deployment, raw: dict[str, Any]) -> None:
    parts = raw["tool"]["flwr"]["app"]["components"]
    for name, server, app in (
        ("edge-app", "edge", parts["clientapp"]),
        ("coordinator-app", COORDINATOR, "coterie.flower.apps:bridge"),
    ):
        parts |= {"serverapp": f"coterie.flower.apps:{server}", "clientapp": app}
        shutil.copytree(d.app, d.folder / name, dirs_exist_ok=True, ignore=LEFT_BEHIND)
        _write_toml(d.folder / name / "pyproject.toml", raw)


def _write_connections(d: Deployment) -> None:
    """Write Flower's own settings: how its command line reaches the SuperLinks."""
    links: dict[str, Any] = {"default": COORDINATOR}
    for place in d.places:
        how: dict[str, Any] = {"insecure": True}
        if d.secure:
            ca = d.folder.absolute() / "certificates" / "ca.crt"
            how = {"insecure": False, "root-certificates": str(ca)}
        links[place] = {"address": d.address(place), **how}
    (d.folder / "home").mkdir(exist_ok=True)
    _write_toml(d.folder / "home" / "config.toml", {"superlink": links})


def _write_toml(path: Path, content: Mapping[str, Any]) -> None:
    import tomli_w

    write_atomically(path, tomli_w.dumps(content).encode())


def _write_table(d: Deployment) -> None:
    """Write who is who: the process of every node, its group, and where it connects to."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["process", "node", "group", "superlink", "port"])
    at_edge = {place: d.address(place) for place in d.places}
    for i, node in enumerate(d.plan.nodes):
        at = at_edge[edge_name(node.group)], d.node_port + d.number(i)
        rows.writerow([d.key(i), node.node, node.group, *at])
    write_atomically(d.folder / "nodes.csv", text.getvalue().encode())


def _write_scripts(d: Deployment) -> list[Path]:
    """Write the script of every process, one that registers keys, and one that starts the apps."""
    folder, names = d.folder, f"coordinator, {d.places[1]}, {d.key(0)}"
    return [
        _script(folder / "start.sh", f"./start.sh NAME, such as {names}", "keep"),
        _script(folder / "register.sh", "make the keys in keys/ known; again, too", "register"),
        _script(folder / "run.sh", "start the apps, or go on with them", "run"),
    ]


def _script(path: Path, about: str, command: str) -> Path:
    lines = ["#!/bin/sh", f"# {about}", "set -e", 'cd "$(dirname "$0")"']
    lines += [f"export {key}={value}" for key, value in QUIET.items()]
    lines += [f'exec coterie flower {command} . "$@"']
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    path.chmod(0o755)
    return path
