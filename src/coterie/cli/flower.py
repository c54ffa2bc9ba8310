"""`coterie flower`: a plan as a deployment of Flower, a SuperLink for every group, kept running."""

import os
import shlex
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coterie.cli.commands import Commands, echo
from coterie.cli.options import (
    PATH,
    SETTING,
    Number,
    Option,
    Quantity,
    json_option,
    out_option,
)
from coterie.config.toml import read_toml
from coterie.core.errors import CoterieError, short

if TYPE_CHECKING:
    from coterie.flower.deploy import Deployment
    from coterie.preview.planfile import Plan

LEAST = "1.40"  # the first Flower whose SuperLink has one port for all
FROM_PLAN = "plan"  # as --hosts: the names of the plan's servers are hosts


def _port_option(name: str, first: int, what: str) -> Option:
    text = f"First port of the {what} [{first}]."
    return click.option(name, type=click.IntRange(1, 65000), default=first, help=text)


folder_argument = click.argument("folder", type=PATH, metavar="DIR")


class FlowerCommands(Commands):
    """Says in one line what the system refuses: a folder, a file, a program."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except ModuleNotFoundError:
            from coterie.flower import needs_flower

            needs_flower()
            raise
        except OSError as error:
            raise CoterieError(_refused(error)) from error


def _refused(error: OSError) -> str:
    """Say which file the system refuses, and why.

    >>> _refused(PermissionError(13, "Permission denied", "/proc/x"))
    '/proc/x: cannot be used (Permission denied)'
    """
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        path, _, why = error.args[0][0]  # the first of many copies that failed
        return f"{path}: cannot be copied ({' '.join(str(why).split())})"
    try:
        Path.cwd()
    except FileNotFoundError:
        return "the current folder was deleted; change to another one"
    what = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    why = "it is no folder" if isinstance(error, FileExistsError) else error.strerror or error
    return f"{what}cannot be used ({why})"


@click.group(cls=FlowerCommands)
def flower() -> None:
    """Deploy a plan on Flower, and keep it running.

    \b
    coterie flower up plan.json                       write everything, and run it here
    coterie flower up plan.json --hosts hosts.csv     write everything, for other machines
    coterie flower keep DIR edge-0                    on a machine: keep one process running
    coterie flower run DIR                            start the training, or go on with it
    coterie flower status DIR --watch                 rounds as they happen, and who is there

    See docs/howto/flower.md, and docs/howto/flower-recovery.md for what to do when something died.
    """


@flower.command()
@click.argument("plan", type=PATH)
@click.option(
    "--app",
    type=PATH,
    metavar="DIR",
    default=Path("examples/flower_app"),
    help="Folder of the Flower app [examples/flower_app].",
)
@out_option("DIR", "Folder to write [deploy-PLAN].")
@click.option(
    "--from",
    "old",
    type=PATH,
    metavar="OLD",
    help="Go on where this deployment of another plan is: its model, rounds, numbers and keys.",
)
@click.option(
    "--hosts",
    type=PATH,
    metavar="FILE|plan",
    help="CSV of place (or server) and host, or 'plan': the plan's servers are hosts. For other "
    "machines; nothing is started then.",
)
@click.option(
    "--coordinator", default="", metavar="HOST", help="Its host [the file's, or edge 0's]."
)
@click.option("--rounds", type=click.IntRange(min=1), help="Global rounds [the plan's steps].")
@click.option(
    "--timeout",
    type=Quantity("time"),
    metavar="TIME",
    default=600.0,
    help="Time to wait for a node, such as 90s or 10m [10m].",
)
@click.option(
    "--min-per-group", type=click.IntRange(min=1), default=1, help="Nodes a mean needs [1]."
)
@_port_option("--port", 8000, "SuperLinks")
@_port_option("--node-port", 9100, "SuperNodes")
@click.option("--tls", is_flag=True, help="Use TLS and SuperNode keys on loopback, too.")
@click.option(
    "--device-keys", is_flag=True, help="Make no SuperNode's key here: see coterie flower key."
)
@click.option("--write-only", is_flag=True, help="Write the files, and start nothing.")
@click.option(
    "--run-config", multiple=True, metavar=SETTING, help="Setting of the app, written as in TOML."
)
def up(
    plan: Path,
    app: Path,
    out: Path | None,
    old: Path | None,
    hosts: Path | None,
    coordinator: str,
    rounds: int | None,
    timeout: float,
    min_per_group: int,
    port: int,
    node_port: int,
    tls: bool,
    device_keys: bool,
    write_only: bool,
    run_config: tuple[str, ...],
) -> None:
    """Write a PLAN's deployment, and run it on this machine until it is done.

    \b
    coterie plan my.toml --export plan.json
    coterie flower up plan.json                       everything here, on loopback, until it is done
    coterie flower up plan.json --write-only          scripts, units and apps in deploy-plan/
    coterie flower up plan.json --hosts hosts.csv     the same for other machines: TLS and keys on
    coterie flower up new.json --from deploy-plan     other nodes, other groups, the same model

    Every group has a SuperLink of its own, to which its nodes connect; a coordinator averages the
    groups' models once in a global round. What is killed is started again. Stopped or killed
    itself, the same command goes on from the last global round.
    """
    from coterie.flower import needs_flower
    from coterie.flower.deploy import Deployment, held, whole
    from coterie.preview.planfile.reading import read_plan

    needs_flower(LEAST)
    found = read_plan(plan)
    deployment = Deployment(
        found,
        app,
        out or Path(f"deploy-{plan.stem}"),
        _hosts(found, hosts, coordinator),
        port,
        node_port,
        rounds or 0,
        timeout,
        min_per_group,
        tls,
        dict(_pair(text) for text in run_config),
        device_keys=device_keys,
        machines=_machines(found, hosts),
    )
    deployment, carried = _checked(deployment, old)
    with ExitStack() as until_done:
        with whole(deployment.folder):
            until_done.enter_context(held(deployment, deployment.places))
            _write(deployment, old, carried)
        if not (write_only or device_keys) and deployment.local:
            _start(deployment)
            return
    for command in deployment.copies():
        echo(shlex.join(command))
    echo("next: ./start.sh NAME on every machine, then ./run.sh; docs/howto/flower.md")


def _hosts(plan: "Plan", hosts: Path | None, coordinator: str) -> dict[str, str]:
    """Return the hosts of places, none for loopback."""
    from coterie.flower.hosts import hosts_of, read_hosts

    if hosts is None:
        if coordinator:
            raise CoterieError("--coordinator is for other machines; give --hosts, too")
        return {}
    if str(hosts) == FROM_PLAN and not hosts.exists():
        return hosts_of(plan, coordinator)
    return read_hosts(hosts, plan, coordinator)


def _machines(plan: "Plan", hosts: Path | None) -> dict[str, str]:
    """Return the hosts of nodes, as far as they are told."""
    from coterie.flower.hosts import machines_of

    if hosts is None:
        return {}
    return machines_of(hosts if hosts.exists() else None, plan)


def _checked(deployment: "Deployment", old: Path | None) -> "tuple[Deployment, str]":
    """Return a deployment as it is to be written, and what an old one gives it.

    What cannot be is refused; nothing is written.
    """
    from coterie.flower.carry import as_before, prepared
    from coterie.flower.deploy import check

    carried = ""
    if old is None:
        deployment = as_before(deployment)
    else:
        deployment, changes = prepared(old, deployment)
        carried = str(changes)
    check(deployment)
    return deployment, carried


def _write(deployment: "Deployment", old: Path | None, carried: str) -> None:
    """Write a deployment, and what goes over into it from an old one."""
    from coterie.flower.carry import carry_keys, carry_run
    from coterie.flower.deploy import write

    if old is not None:
        carry_keys(old, deployment)
        echo(carried)
    written = write(deployment)
    if old is not None:
        carry_run(old, deployment)
    echo(f"wrote {len(written)} scripts and units, and what they need, into {deployment.folder}")


def _start(deployment: "Deployment") -> None:
    from coterie.flower.local import run_locally

    try:
        run_locally(deployment, echo)
    except KeyboardInterrupt:
        raise click.Abort from None


@flower.command()
@folder_argument
@click.argument("name")
def keep(folder: Path, name: str) -> None:
    """Keep the process NAME of the deployment in DIR running: start it whenever it ends.

    \b
    coterie flower keep deploy-plan coordinator       its SuperLink and its app
    coterie flower keep deploy-plan edge-0            the same, and its way to the coordinator
    coterie flower keep deploy-plan node-17           a node: which is which is in nodes.csv

    Run one for every process, by hand (./start.sh NAME) or by units/coterie@.service. Keys that are
    in DIR/keys are made known by the place that they connect to. Ctrl-C ends it.
    """
    from coterie.flower.keep import keep as keep_running

    try:
        keep_running(_read(folder), name, _say)
    except KeyboardInterrupt:
        raise click.Abort from None


def _say(line: str) -> None:
    echo(f"{time.strftime('%H:%M:%S')} {line}")


def _read(folder: Path) -> "Deployment":
    from coterie.flower import needs_flower
    from coterie.flower.deploy import read_deployment

    needs_flower(LEAST)
    return read_deployment(folder)


@flower.command()
@folder_argument
@click.argument("places", nargs=-1)
def register(folder: Path, places: tuple[str, ...]) -> None:
    """Make the public keys in DIR/keys known to the SuperLinks, several at a time.

    \b
    coterie flower register deploy-plan               at all places, which must be up
    coterie flower register deploy-plan edge-1        at one of them

    Done again, it adds what is new. Places that `keep` started do this themselves.
    """
    from coterie.flower.control import register_all

    deployment = _read(folder)
    if not deployment.secure:
        raise CoterieError(f"{folder} has no keys: it is on loopback, without --tls")
    for place in places:
        if place not in deployment.places:
            known = ", ".join(deployment.places)
            raise CoterieError(f"unknown place {short(place)}; {folder} has {known}")
    register_all(deployment, places or deployment.places, echo)


@flower.command()
@folder_argument
def run(folder: Path) -> None:
    """Start the training of the deployment in DIR, or go on with it after it failed.

    Its SuperLinks must be up. An app that runs already is left alone. From then on whoever keeps a
    place begins its app again if that is killed.
    """
    from coterie.flower.keep import begin_all

    begin_all(_read(folder), echo)


@flower.command()
@folder_argument
@click.option("--watch", is_flag=True, help="Print rounds as they happen, until the training ends.")
@click.option("--every", type=Number(1, 1e6), default=30.0, help="Seconds between lines [30].")
@json_option()
def status(folder: Path, watch: bool, every: float, as_json: bool) -> None:
    """Say in a line who is there of the deployment in DIR, and which round is over.

    It asks the SuperLinks, so run it where they can be reached; rounds are known where the
    coordinator is. Exit 1 if somebody is missing.
    """
    from coterie.flower.health import watch_health

    if not watch_health(_read(folder), echo, watch=watch, every_s=every, as_json=as_json):
        raise SystemExit(1)


@flower.command()
@folder_argument
@click.argument("names", nargs=-1, required=True)
def key(folder: Path, names: tuple[str, ...]) -> None:
    """Make the key of the SuperNodes NAMES here, where they run, and print the public ones.

    \b
    coterie flower key . node-17                      on the device; the private key stays there

    Put the line that it prints into keys/node-17.pub where the node's edge is (the coordinator for
    an edge). A key that is there is kept.
    """
    from coterie.flower.certificates import write_node_keys
    from coterie.flower.control import keys_of, public_key

    deployment = _read(folder)
    known = {name for place in deployment.places for name in keys_of(deployment, place)}
    for name in names:
        if name not in known:
            raise CoterieError(f"unknown SuperNode {short(name)}; see {folder / 'nodes.csv'}")
    if not deployment.secure:
        raise CoterieError(f"{folder} has no keys: it is on loopback, without --tls")
    write_node_keys(folder / "keys", names)
    for name in names:
        path = folder / "keys" / f"{name}.pub"
        public_key(path)  # refused if it is none
        echo(path.read_text(encoding="utf-8", errors="replace").strip())


def _pair(text: str) -> tuple[str, object]:
    """Read KEY=VALUE, the value as in TOML."""
    key, _, value = text.partition("=")
    try:
        found = read_toml(f"value = {value}")
        if len(found) > 1:
            raise ValueError("more than one line")
    except ValueError as error:
        raise CoterieError(f"--run-config must be such as tau1=2, got {short(text)}") from error
    return key.strip(), found["value"]
