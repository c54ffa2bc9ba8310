"""`coterie network`: what an experiment's means do to its network."""

import json
from pathlib import Path

import click

from coterie.cli.commands import echo, loading
from coterie.cli.options import (
    DRAWS_BY_OUT,
    json_option,
    out_option,
    own_files,
    own_or_file,
    set_option,
)
from coterie.cli.pages import page_path, print_page, write_files
from coterie.config.shipped import read_configs


@click.command("network")
@click.argument("file", required=False)
@own_files
@set_option()
@out_option("PAGE", "Page to write, with pictures beside it [runs/network-FILE.html, or -NODES].")
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
@json_option(DRAWS_BY_OUT)
def network_command(
    file: str | None,
    nodes: Path | None,
    network: Path | None,
    model_bytes: int | None,
    overrides: tuple[str, ...],
    out: Path | None,
    top: int,
    against: str | None,
    as_json: bool,
) -> None:
    """Show what the means of the experiment FILE do to its network, before anything is trained; or
    what a mean costs in a network of your own.

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

    \b
    Without an experiment, from two files of your own:
      coterie network --nodes nodes.csv --network net.csv --model-bytes 5MB
    nodes.csv                    net.csv
      node,site,up_mbit_per_s      from,to,mbit_per_s,latency_ms,server,capacity
      cam 1,north,20               north,south,900,12,yes,40
      cam 2,south,5Mbit            south,,,,yes,

    Shows who serves, the mean of every edge (column edge, or else the sites or switches) and the
    global mean. Nothing is trained: a local step has no time. All forms of the two files are in
    docs/reference/network-files.md. --set takes network.* and seed.

    --against ns3 needs ns-3 (pip install 'coterie[ns3]') and some seconds a pattern; its TCP is the
    profile in network.tcp. See 'coterie list settings' for all of network.*.
    """
    from coterie.cli.network_tables import plain, tables
    from coterie.preview.network import view_of_files, views
    from coterie.render.page.html import page_files
    from coterie.render.page.network import network_page

    own, ns3 = own_or_file("network", file, nodes, network, model_bytes), against is not None
    name, configs = read_configs(file, overrides) if file else (str(nodes and nodes.stem), [])
    path = page_path("network", name, out, as_json=as_json)
    with loading(name) as progress:
        if own is None:
            found = list(views(configs, against=ns3, progress=progress))
        else:
            found = [view_of_files(*own, overrides, against=ns3, progress=progress)]
        progress("drawing", 0, 0)
        page = network_page(found, [tables(view, top) for view in found])
        files = page_files(page, path)
    if as_json:
        echo(json.dumps([plain(view, top) for view in found], indent=1))
    else:
        print_page(page)
    write_files(files, err=as_json)
