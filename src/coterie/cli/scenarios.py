"""`coterie scenarios`: the gallery of networks, and where their figures come from."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from coterie.cli.commands import echo, loading, print_table
from coterie.cli.options import json_option
from coterie.config.shipped import scenarios
from coterie.core.errors import CoterieError, did_you_mean

if TYPE_CHECKING:
    from coterie.preview.scenarios import Scenario

MBIT = 125_000


@click.command("scenarios")
@click.argument("name", required=False)
@json_option()
def scenarios_command(name: str | None, as_json: bool) -> None:
    """List networks with measured speeds, from hospitals to ships, or show the one called NAME.

    \b
    coterie scenarios                        name, devices, tiers, slow link
    coterie scenarios ships                  its file with its sources, and its tiers
    coterie plan ships                       like any experiment file that ships with coterie
    coterie run ships --set algorithm.name=hierfavg

    The slow link is the one that the mean of all devices keeps busy for longest, with no models
    combined on the way. docs/howto/scenarios.md shows the gallery.
    """
    from coterie.config.files import load_experiment
    from coterie.preview.scenarios import survey

    there = scenarios()
    if name is not None and name not in there:
        raise CoterieError(f"no scenario called {name!r}{did_you_mean(name, there)}")
    found = []
    with loading("scenarios") as show:
        for at, key in enumerate(there if name is None else [name]):
            show("networks", at, len(there))
            text = there[key].read_text(encoding="utf-8")
            found.append(survey(key, text, load_experiment(there[key])[0]))
    if as_json:
        echo(json.dumps([asdict(each) for each in found], indent=1))
    elif name is None:
        _print_gallery(found)
    else:
        echo(there[name].read_text(encoding="utf-8"))
        _print_tiers(found[0])
        echo(f"\n{there[name]}")


def _print_gallery(found: "list[Scenario]") -> None:
    rows = [
        [each.name, str(each.devices), ", ".join(tier.name for tier in each.tiers), slow(each)]
        for each in found
    ]
    head = ("scenario", "devices", "tiers", "slow link")
    print_table("", head, rows, "slow link: busy for longest in a mean of all devices", words=True)
    echo()
    for each in found:
        echo(f"{each.name}: {each.about}")


def _print_tiers(scenario: "Scenario") -> None:
    rows = [
        [
            tier.name,
            f"{tier.links:,}",
            *(f"{speed / MBIT:,.4g}" for speed in (tier.up, tier.down, tier.least_up)),
            f"{1000 * tier.latency_s:g}",
        ]
        for tier in scenario.tiers
    ]
    head = ("tier", "links", "up\nMbit/s", "down\nMbit/s", "least up\nMbit/s", "ms")
    print_table("", head, rows, f"medians of links; slow link: {slow(scenario)}")


def slow(scenario: "Scenario") -> str:
    """Say which link is slow, and how fast."""
    return f"{scenario.slow}, {scenario.slow_bytes_per_s / MBIT:,.3g} Mbit/s"
