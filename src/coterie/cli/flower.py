"""`coterie flower up`: a plan as a deployment of Flower, one SuperLink for every group."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coterie.cli.commands import Commands
from coterie.cli.options import PATH, SETTING, Option, out_option
from coterie.core.errors import CoterieError

if TYPE_CHECKING:
    from coterie.flower.deploy import Deployment


def _port_option(name: str, first: int, what: str) -> Option:
    text = f"First port of the {what} [{first}]."
    return click.option(name, type=click.IntRange(1, 65000), default=first, help=text)


@click.group(cls=Commands)
def flower() -> None:
    """Deploy a plan on Flower: see docs/howto/flower.md."""


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
    "--hosts",
    type=PATH,
    help="CSV of place and host, for other machines; nothing is started then.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="Global rounds [the plan's steps].")
@click.option("--timeout", type=float, default=600.0, help="Seconds to wait for a node [600].")
@click.option(
    "--min-per-group", type=click.IntRange(min=1), default=1, help="Nodes a mean needs [1]."
)
@_port_option("--port", 8000, "SuperLinks")
@_port_option("--node-port", 9100, "SuperNodes")
@click.option("--tls", is_flag=True, help="Use TLS and SuperNode keys on loopback, too.")
@click.option("--write-only", is_flag=True, help="Write the commands, and start nothing.")
@click.option(
    "--run-config", multiple=True, metavar=SETTING, help="Setting of the app, written as in TOML."
)
def up(
    plan: Path,
    app: Path,
    out: Path | None,
    hosts: Path | None,
    rounds: int | None,
    timeout: float,
    min_per_group: int,
    port: int,
    node_port: int,
    tls: bool,
    write_only: bool,
    run_config: tuple[str, ...],
) -> None:
    """Write the start commands of a PLAN's deployment, and start it on this machine.

    \b
    coterie plan my.toml --export plan.json
    coterie flower up plan.json                       everything here, on loopback, until it is done
    coterie flower up plan.json --write-only          scripts, apps and settings in deploy-plan/
    coterie flower up plan.json --hosts hosts.csv     the same for other machines: TLS and keys on

    Every group has a SuperLink of its own, to which its nodes connect; a coordinator averages the
    groups' models once in a global round. Stopped or killed, the same command goes on from the last
    global round.
    """
    from coterie.flower import needs_flower
    from coterie.flower.deploy import Deployment, write
    from coterie.flower.hosts import read_hosts
    from coterie.preview.planfile.reading import read_plan

    needs_flower("1.40")  # the first whose SuperLink has one port for all
    found = read_plan(plan)
    deployment = Deployment(
        found,
        app,
        out or Path(f"deploy-{plan.stem}"),
        {} if hosts is None else read_hosts(hosts, found),
        port,
        node_port,
        rounds or 0,
        timeout,
        min_per_group,
        tls,
        dict(_pair(text) for text in run_config),
    )
    scripts = write(deployment)
    click.echo(f"wrote {len(scripts)} scripts and what they need into {deployment.folder}")
    if write_only or not deployment.local:
        for command in deployment.copies():
            click.echo(shlex.join(command))
        click.echo("run on every machine the scripts of what is there; see docs/howto/flower.md")
        return
    _start(deployment)


def _start(deployment: "Deployment") -> None:
    from coterie.flower.edge import said_scores
    from coterie.flower.local import run_locally

    try:
        result = run_locally(deployment, click.echo)
    except KeyboardInterrupt:
        raise click.Abort from None
    rows = result["rows"]
    assert isinstance(rows, list)
    for row in rows:
        said = ", ".join([f"{row['counted']} edges", *said_scores(row)])
        click.echo(f"round {row['round']}: {said}")


def _pair(text: str) -> tuple[str, object]:
    """Read KEY=VALUE, the value as in TOML."""
    import tomllib

    key, _, value = text.partition("=")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise CoterieError(f"--run-config must be such as tau1=2, got {text!r}") from error
