"""A deployment on disk: the commands of every machine, the apps, certificates and keys.

One SuperLink for each group and one for the coordinator; each edge is a SuperNode of the
coordinator's. Everything is by paths inside one folder, which is copied to every machine.
"""

import csv
import ipaddress
import json
import shlex
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.flower import FlowerError
from coterie.flower.edge import edge_name
from coterie.planfile import Plan
from coterie.planfile.writing import as_json
from coterie.record import write_atomically, write_json

LOOPBACK = "127.0.0.1"
COORDINATOR = "coordinator"
QUIET = {  # what is started reports to nobody, and fetches nothing
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
LEFT_BEHIND = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")


@dataclass(frozen=True)
class Deployment:
    """Where everything is: a plan, an app, the hosts of the coordinator and the edges, ports.

    Hosts that are not given are this machine's loopback. `secure` is TLS and authentication of
    SuperNodes: always beyond loopback.
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

    @property
    def places(self) -> list[str]:
        """The coordinator and the edges."""
        return [COORDINATOR, *(edge_name(k) for k in range(len(self.plan.servers)))]

    @property
    def local(self) -> bool:
        """Whether nothing leaves this machine."""
        return all(is_loopback(self.host(place)) for place in self.places)

    @property
    def secure(self) -> bool:
        """Whether TLS and keys are used."""
        return self.tls or not self.local

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
        n, commands = len(self.plan.nodes), {}
        for k, place in enumerate(self.places[1:]):
            config = f'node-id="{place}" folder="{self.folder.absolute()}"'
            commands[place] = self.supernode(COORDINATOR, self.node_port + n + k, place, config)
        return commands

    def nodes(self) -> dict[str, list[str]]:
        """Return the command of every node's SuperNode, by key; node i trains as number i."""
        n, commands = len(self.plan.nodes), {}
        for i, node in enumerate(self.plan.nodes):
            quoted = json.dumps(node.node, ensure_ascii=False)
            config = f"node-id={quoted} partition-id={i} num-partitions={n}"
            to = edge_name(node.group)
            commands[f"node-{i}"] = self.supernode(to, self.node_port + i, f"node-{i}", config)
        return commands

    def registrations(self) -> list[list[str]]:
        """Return the commands that make the SuperNodes' keys known, edge by edge."""
        if not self.secure:
            return []
        found = [
            ["flwr", "supernode", "register", f"keys/{place}.pub", COORDINATOR]
            for place in self.places[1:]
        ]
        for i, node in enumerate(self.plan.nodes):
            key = f"keys/node-{i}.pub"
            found.append(["flwr", "supernode", "register", key, edge_name(node.group)])
        return found

    def runs(self) -> list[list[str]]:
        """Return the commands that start the apps: on every edge, then on the coordinator."""
        edges = [
            ["flwr", "run", "edge-app", place, "--run-config", f"coterie-group={k}"]
            for k, place in enumerate(self.places[1:])
        ]
        return [*edges, ["flwr", "run", "coordinator-app", COORDINATOR]]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and no other can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_hosts(path: Path, plan: Plan) -> dict[str, str]:
    """Read a CSV with the columns place and host: the coordinator, and edge-0, edge-1, ..."""
    places = [COORDINATOR, *(edge_name(k) for k in range(len(plan.servers)))]
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FlowerError(f"{path}: cannot be read ({error})") from error
    found: dict[str, str] = {}
    for row in rows:
        place, host = (str(row.get(key) or "").strip() for key in ("place", "host"))
        if place not in places:
            raise FlowerError(f"{path}: place must be one of {', '.join(places)}, got {place!r}")
        if place in found:
            raise FlowerError(f"{path}: {place} is there twice")
        if not host or any(c in host for c in " /\"'") or host in ("0.0.0.0", "::"):
            raise FlowerError(
                f"{path}: {place} needs the host that others reach it by, got {host!r}"
            )
        found[place] = host
    if missing := [place for place in places if place not in found]:
        raise FlowerError(f"{path}: {missing[0]} is missing; it needs a host")
    return found


def write(deployment: Deployment) -> list[Path]:
    """Write the folder, or leave it as it is if it is of this deployment already."""
    folder, plan = deployment.folder, as_json(deployment.plan)
    before = folder / "plan.json"
    if before.exists() and json.loads(before.read_text(encoding="utf-8")) != plan:
        raise FlowerError(f"{folder} is of another plan; choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    if deployment.secure and not (folder / "certificates" / "ca.crt").exists():
        from coterie.flower.certificates import write_certificates, write_node_keys

        hosts = {place: deployment.host(place) for place in deployment.places}
        write_certificates(folder / "certificates", hosts)
        keys = [*deployment.places[1:], *deployment.nodes()]
        write_node_keys(folder / "keys", keys)
    _write_apps(deployment)
    _write_connections(deployment)
    scripts = _write_scripts(deployment)
    write_json(before, plan)
    return scripts


def _write_apps(d: Deployment) -> None:
    try:
        raw = tomllib.loads((d.app / "pyproject.toml").read_text(encoding="utf-8"))
        parts = raw["tool"]["flwr"]["app"]["components"]
        config = raw["tool"]["flwr"]["app"].setdefault("config", {})
        client = parts["clientapp"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FlowerError(f"{d.app}: is not a Flower app ({error})") from error
    for key in ("coterie-initial", "coterie-evaluate"):
        if key not in config:
            raise FlowerError(
                f"{d.app}: [tool.flwr.app.config] needs {key}, a function by its import path; "
                "see docs/flower.md"
            )
    unknown = [key for key in d.run_config if key not in config]
    if unknown:
        raise FlowerError(f"{d.app}: its config has no {unknown[0]!r}")
    config |= {
        **d.run_config,
        "coterie-folder": str(d.folder.absolute()),
        "coterie-timeout": d.timeout_s,
        "coterie-group": 0,
        "coterie-rounds": d.rounds,
        "coterie-min-per-group": d.min_per_group,
    }
    for name, server, app in (
        ("edge-app", "edge", client),
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


def _write_scripts(d: Deployment) -> list[Path]:
    """Write a script for every process, one that registers keys, and one that starts the apps."""
    scripts = {f"{place}.sh": [d.superlink(place)] for place in d.places}
    scripts |= {f"bridge-{place}.sh": [command] for place, command in d.bridges().items()}
    scripts |= {f"{key}.sh": [command] for key, command in d.nodes().items()}
    if d.secure:
        scripts["register.sh"] = d.registrations()
    scripts["run.sh"] = [["rm", "-f", "result.json"], *d.runs()]
    return [_script(d.folder / name, commands) for name, commands in scripts.items()]


def _script(path: Path, commands: list[list[str]]) -> Path:
    lines = ["#!/bin/sh", "set -e", 'cd "$(dirname "$0")"', 'export FLWR_HOME="$PWD/home"']
    lines += [f"export {key}={value}" for key, value in QUIET.items()]
    lines += [shlex.join(command) for command in commands]
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    path.chmod(0o755)
    return path
