"""`coterie network`: what an experiment's means do to its network."""

import json
from pathlib import Path

import click

from coterie.cli.commands import loading
from coterie.cli.experiments import read_configs
from coterie.cli.options import DRAWS_BY_OUT, json_option, out_option, set_option
from coterie.cli.pages import page_path, print_page, write_files


@click.command()
@click.argument("file")
@set_option()
@out_option("PAGE", "Page to write, with pictures beside it [network-FILE.html].")
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
    from coterie.cli.network_tables import plain, tables
    from coterie.preview.network import views
    from coterie.render.page.html import page_files
    from coterie.render.page.network import network_page

    name, configs = read_configs(file, overrides)
    path = page_path("network", name, out, as_json=as_json)
    with loading(name) as progress:
        found = list(views(configs, against=against is not None, progress=progress))
        progress("drawing", 0, 0)
        page = network_page(found, [tables(view, top) for view in found])
        files = page_files(page, path)
    if as_json:
        click.echo(json.dumps([plain(view, top) for view in found], indent=1))
    else:
        print_page(page)
    write_files(files, err=as_json)
