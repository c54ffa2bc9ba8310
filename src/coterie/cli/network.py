"""`coterie network`: what an experiment's means do to its network."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coterie.cli.commands import loading, print_table, set_option
from coterie.core.arrays import Floats
from coterie.core.errors import CoterieError

if TYPE_CHECKING:
    from coterie.preview.network import Mean, NetworkView
    from coterie.render.page.network import Table


@click.command()
@click.argument("file")
@set_option
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="Page to write; the pictures go beside it [network-FILE.html].",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=5,
    metavar="N",
    help="How many of the busiest links and slowest flows to list [5].",
)
@click.option(
    "--against",
    type=click.Choice(["ns3"]),
    help="Time the same flows on the same routes with ns-3 too, and compare.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead; a page only with --out.")
def network(
    file: str,
    overrides: tuple[str, ...],
    out: Path | None,
    top: int,
    against: str | None,
    as_json: bool,
) -> None:
    """Show what the means of the experiment FILE do to its network, before anything is trained.

    \b
    coterie network quickstart
    coterie network quickstart --set network.topology=jellyfish --set model.name=cnn
    coterie network quickstart --top 20 -o pages/net.html
    coterie network quickstart --against ns3          is the fast clock right here?
    coterie network quickstart --json                 everything, for a program

    FILE is a TOML file or the name of one that ships with coterie. Prints, for each algorithm, the
    simulated delays and what they are made of:

    \b
      d_local    one local step on the slowest node
      d_group    one group mean: models up to the groups' servers, their mean back down
      d_global   one global mean: the same with everyone in one group
      MB         payload over the links of each tier, in one such mean

    Then the link directions that are busy for longest, which is where more speed would help, and
    the flows that arrive last, which names the stragglers. Draws the network with its groups in
    colours, servers as stars and loads as widths, and the arrivals of the flows, into an HTML page
    and a PNG.

    An algorithm that searches for its groups takes one training step to find them. Of a sweep,
    each network is shown once, with its first seed and every setting that changes the groups.

    --against ns3 needs ns-3 (pip install 'coterie[ns3]') and some seconds a pattern; its TCP is the
    profile in network.tcp. See 'coterie list settings' for all of network.*.
    """
    from coterie.cli.experiments import experiment_path
    from coterie.config.files import load_experiment
    from coterie.preview.network import views
    from coterie.render.page.html import write
    from coterie.render.page.network import render

    path = experiment_path(file)
    page = out or Path(f"network-{path.stem}.html")
    _check_page(page)
    configs = load_experiment(path, overrides)
    with loading(path.stem) as progress:
        found = list(views(configs, against=against is not None, progress=progress))
        progress("drawing", 0, 0)
        said = [_tables(view, top) for view in found]
        files = {} if as_json and out is None else render(found, said, page)
    for name, content in files.items():
        write(name, content)
    if as_json:
        click.echo(json.dumps([_plain_view(view, top) for view in found], indent=1))
    else:
        for view, tables in zip(found, said, strict=True):
            _print_view(view, tables)
    for name in reversed(files):
        click.echo(f"wrote {name}", err=as_json)


def _check_page(page: Path) -> None:
    """Refuse, before anything takes its time, a page that cannot be written."""
    if not page.name or any(p.is_dir() for p in (page, *map(page.with_suffix, (".html", ".png")))):
        raise CoterieError(f"--out must name a page, such as network.html, got {str(page)!r}")
    folder = next(parent for parent in page.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise CoterieError(f"--out must be in a folder that can be written, got {str(page)!r}")


def _print_view(view: "NetworkView", tables: "list[Table]") -> None:
    click.echo(view.title)
    for title, head, rows, foot in tables:
        print_table(title, head, rows, foot, wrap="group")
        click.echo()


def _tables(view: "NetworkView", top: int) -> "list[Table]":
    """Write all figures about a network."""
    tables = [_delays(view), _busiest(view, top), _slowest(view, top), _against(view)]
    return [table for table in tables if table.rows]


def _facts(view: "NetworkView") -> str:
    """Say what the network is made of and how it is timed."""
    net, c = view.topology, view.config
    speed, latency = _range(net.bytes_per_s / 1e6), _range(net.latency_s * 1e3)
    procedure = ", reference procedure" if c.procedure == "reference" else ""
    return (
        f"{net.n_devices:,} devices, {net.n_switches:,} switches, {len(net.ends):,} links of "
        f"{speed} MByte/s and {latency} ms; routing {c.routing}, clock {c.clock}, TCP {c.tcp}, "
        f"combine {c.combine}{procedure}; model {view.model}, {view.nbytes:,} bytes"
    )


def _range(values: "Floats") -> str:
    low, high = (f"{value:.3g}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _delays(view: "NetworkView") -> "Table":
    """Give a line to a local step, the group mean and the global mean of every algorithm."""
    from coterie.analysis.format import sizes
    from coterie.render.page.network import Table

    tiers = [f"{tier}\nMB" for tier in dict.fromkeys(view.topology.tier_of)]
    head = ("algorithm", "delay", "ms", "up\nms", "down\nms", *tiers, "group\nsizes")
    rows: list[tuple[str, ...]] = []
    for member in view.members:
        blank = [""] * (len(head) - 3)
        rows.append((member.label, "d_local", _ms(member.step_s), *blank))
        for name, mean in (("d_group", member.group), ("d_global", member.everyone)):
            if mean:
                up, down = mean.transfers
                both = up + down
                took = _ms(both.seconds), _ms(up.seconds), _ms(down.seconds)
                moved = map(_mb, both.bytes_by_tier.values())
                rows.append(("", name, *took, *moved, sizes(mean.grouping.sizes)))
    foot = (
        "up: models to the servers; down: their mean back; up 1, up 2: phases of a combined mean; "
        "MB: payload, both ways, all links"
    )
    if note := view.means[0].network.note:
        foot += f"\n{note}"
    return Table(_facts(view), head, rows, foot)


def _busiest(view: "NetworkView", top: int) -> "Table":
    from coterie.render.page.network import Table

    rows = [
        (
            "" if at else mean.label,
            b.link,
            b.way,
            _mb(b.nbytes),
            _mb(b.bytes_per_s),
            _share(b.share),
        )
        for mean in view.means
        for at, b in enumerate(mean.busiest(top))
    ]
    foot = "busy: share of its phase for which this direction of a link sends, headers included"
    return Table("Busiest links", ("of", "link", "way", "MB", "MByte/s", "busy"), rows, foot)


def _slowest(view: "NetworkView", top: int) -> "Table":
    from coterie.render.page.network import Table

    rows = [
        (
            "" if at else mean.label,
            f.flow,
            f.way,
            _ms(f.seconds),
            f"{f.over_median:.2f}",
            f"{f.hops}",
        )
        for mean in view.means
        for at, f in enumerate(mean.slowest(top))
    ]
    foot = "ms: from the start of its phase to its last byte; x median: over the phase's median"
    return Table("Slowest flows", ("of", "flow", "way", "ms", "x median", "hops"), rows, foot)


def _against(view: "NetworkView") -> "Table":
    from coterie.analysis.format import number
    from coterie.render.page.network import Table

    head = ("pattern", "flow\nms", "ns-3\nms", "error\n%", "arrivals\n%", "drops")
    rows = [
        (
            each.pattern,
            _ms(each.flow_s),
            _ms(each.ns3_s),
            f"{100 * each.error:+.1f}",
            f"{100 * each.arrival_error:.1f}",
            f"{each.drops:,}",
            number(each.flow_cpu_s),
            number(each.ns3_cpu_s),
            f"{each.ns3_cpu_s / each.flow_cpu_s:,.0f}x" if each.flow_cpu_s else "-",
        )
        for each in view.compared
    ]
    title = f"The flow clock against ns-3, TCP {view.config.tcp}: the same flows on the same routes"
    foot = "error: flow / ns-3 - 1 of the last arrival; arrivals: mean of its size over all flows"
    return Table(title, (*head, "flow\nCPU s", "ns-3\nCPU s", "ratio"), rows, foot)


def _ms(seconds: float) -> str:
    from coterie.analysis.format import number

    return number(seconds, 1e3)


def _mb(nbytes: float) -> str:
    from coterie.analysis.format import number

    return number(nbytes, 1e-6)


def _share(part: float) -> str:
    return f"{part:.0%}"


def _plain_view(view: "NetworkView", top: int) -> dict[str, Any]:
    """Return everything about a network as plain values."""
    net = view.topology
    return {
        "title": view.title,
        "network": vars(view.config),
        "devices": net.n_devices,
        "switches": net.n_switches,
        "links": len(net.ends),
        "model": view.model,
        "model_bytes": view.nbytes,
        "algorithms": [
            {
                "algorithm": member.label,
                "d_local": member.step_s,
                "d_group": _plain_mean(member.group, top) if member.group else None,
                "d_global": _plain_mean(member.everyone, top),
            }
            for member in view.members
        ],
    }


def _plain_mean(mean: "Mean", top: int) -> dict[str, Any]:
    net, grouping = mean.network.topology, mean.grouping
    up, down = mean.transfers
    both = up + down
    return {
        "seconds": both.seconds,
        "up_s": up.seconds,
        "down_s": down.seconds,
        "bytes_by_tier": both.bytes_by_tier,
        "group_sizes": grouping.sizes,
        "z": grouping.z.tolist(),
        "servers": [net.name(int(server)) for server in grouping.servers],
        "busiest": [vars(busy) for busy in mean.busiest(top)],
        "slowest": [vars(late) for late in mean.slowest(top)],
        "against_ns3": [vars(compared) for compared in mean.compared],
    }
