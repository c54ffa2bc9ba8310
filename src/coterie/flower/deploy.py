"""A deployment on disk: the commands of every machine, the apps, certificates and keys.

One SuperLink for each group and one for the coordinator; each edge is a SuperNode of the
coordinator's. Everything is by paths inside one folder, which every machine has a copy of, but for
the private keys of others.
"""

import json
import math
import shlex
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.core.files import read_object, write_atomically, write_json
from coterie.flower import FlowerError
from coterie.flower.algorithm import FEDAVG
from coterie.flower.edge import edge_name
from coterie.flower.hosts import COORDINATOR, LOOPBACK, is_loopback, places_of, wrong_host
from coterie.preview.planfile import Plan
from coterie.preview.planfile.reading import read_plan
from coterie.preview.planfile.writing import as_json

QUIET = {  # what is started reports to nobody, and fetches nothing
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
HOSTS = "certificates/hosts.json"  # whom they are for; it is there when all of them and keys are
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
        return places_of(self.plan)

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
            config = f"node-id={quoted(place)} folder={quoted(str(self.folder.absolute()))}"
            commands[place] = self.supernode(COORDINATOR, self.node_port + n + k, place, config)
        return commands

    def nodes(self) -> dict[str, list[str]]:
        """Return the command of every node's SuperNode, by key; node i trains as number i."""
        n, commands = len(self.plan.nodes), {}
        for i, node in enumerate(self.plan.nodes):
            config = f"node-id={quoted(node.node)} partition-id={i} num-partitions={n}"
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

    def copies(self) -> list[list[str]]:
        """Return the commands that give every other machine the folder, and its own keys alone.

        A group's nodes are taken to be where their edge is.
        """
        home = str(self.folder.absolute())
        found = []
        for host in dict.fromkeys(self.host(place) for place in self.places):
            if is_loopback(host) or host == self.host(COORDINATOR):
                continue
            here = [k for k, place in enumerate(self.places[1:]) if self.host(place) == host]
            own = [f"{home}/./certificates/{edge_name(k)}.key" for k in here]
            own += [f"{home}/./keys/{edge_name(k)}" for k in here]
            own += [
                f"{home}/./keys/node-{i}" for i, n in enumerate(self.plan.nodes) if n.group in here
            ]
            to = f"{f'[{host}]' if ':' in host else host}:{home}/"
            others = ["--exclude", "keys/*", "--exclude", "certificates/*.key"]
            found += [["rsync", "-a", *others, f"{home}/", to], ["rsync", "-aR", *own, to]]
        return found

    def runs(self) -> list[list[str]]:
        """Return the commands that start the apps: on every edge, then on the coordinator."""
        edges = [
            ["flwr", "run", "edge-app", place, "--run-config", f"coterie-group={k}"]
            for k, place in enumerate(self.places[1:])
        ]
        return [*edges, ["flwr", "run", "coordinator-app", COORDINATOR]]


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
    app = _check(deployment)
    folder.mkdir(parents=True, exist_ok=True)
    if deployment.secure:
        _write_secrets(deployment)
    _write_apps(deployment, app)
    _write_connections(deployment)
    scripts = _write_scripts(deployment)
    write_json(folder / "plan.json", plan)
    return scripts


def _check(d: Deployment) -> dict[str, Any]:
    """Refuse a deployment that cannot be; return the settings of its app."""
    before, app, folder = d.folder / "plan.json", d.app.resolve(), d.folder.resolve()
    if before.exists() and as_json(read_plan(before)) != as_json(d.plan):
        raise FlowerError(f"{d.folder} is of another plan; choose another --out")
    if folder.is_relative_to(app) or app.is_relative_to(folder):
        raise FlowerError(
            f"{d.folder} and the app {d.app} are one inside the other; choose another --out"
        )
    for place in d.places:
        if wrong_host(d.host(place)):
            raise FlowerError(f"{place} cannot be reached by others as {d.host(place)!r}")
    if not (math.isfinite(d.timeout_s) and d.timeout_s > 0):
        raise FlowerError(f"--timeout must be above 0 and finite, got {d.timeout_s}")
    links = range(d.port, d.port + len(d.places))
    nodes = range(d.node_port, d.node_port + len(d.plan.nodes) + len(d.plan.servers))
    if max(links[-1], nodes[-1]) > 65535:
        raise FlowerError(f"port {max(links[-1], nodes[-1])} is beyond 65535; lower --port")
    if links[0] <= nodes[-1] and nodes[0] <= links[-1]:
        raise FlowerError(
            f"ports {links[0]} to {links[-1]} of SuperLinks and {nodes[0]} to {nodes[-1]} of "
            "SuperNodes overlap; choose another --node-port"
        )
    return _read_app(d)


def _write_secrets(d: Deployment) -> None:
    """Write certificates and keys, unless they are there, all of them, and for these hosts."""
    from coterie.flower.certificates import write_certificates, write_node_keys

    hosts, sign = {place: d.host(place) for place in d.places}, d.folder / HOSTS
    if read_object(sign) == hosts:
        return
    sign.unlink(missing_ok=True)
    write_node_keys(d.folder / "keys", [*d.places[1:], *d.nodes()])
    write_certificates(d.folder / "certificates", hosts)
    write_json(sign, hosts)


def _read_app(d: Deployment) -> dict[str, Any]:
    """Return what the app's pyproject.toml says, with the deployment's settings among its own."""
    try:
        raw = tomllib.loads((d.app / "pyproject.toml").read_text(encoding="utf-8"))
        config = raw["tool"]["flwr"]["app"].setdefault("config", {})
        raw["tool"]["flwr"]["app"]["components"]["clientapp"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FlowerError(f"{d.app}: is not a Flower app ({error})") from error
    for key in ("coterie-initial", "coterie-evaluate"):
        if key not in config:
            raise FlowerError(
                f"{d.app}: [tool.flwr.app.config] needs {key}, a function by its import path; "
                "see docs/howto/flower.md"
            )
    unknown = [key for key in d.run_config if key not in config]
    if unknown:
        raise FlowerError(f"{d.app}: its config has no {unknown[0]!r}")
    chosen = {**config, **d.run_config}.get("algorithm") or FEDAVG.name
    if chosen != FEDAVG.name:
        raise FlowerError(
            f"{d.app}: algorithm = {chosen!r} is not offered on the edge tier, whose edges send "
            "models alone; set it to 'fedavg', or run GroupStrategy on one SuperLink"
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
