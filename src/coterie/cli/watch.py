"""`coterie watch`: runs and sweeps on a page of this machine, while they are under way."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coterie.cli.commands import echo
from coterie.cli.options import PATH, view_options

if TYPE_CHECKING:
    from coterie.analysis.lines import View


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the page [any free one].")
@view_options
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
def watch(folder: Path, port: int | None, target: float | None, view: "View", opens: bool) -> None:
    """Follow the runs in DIR, a run, a sweep or a folder of several, on a page in the browser.

    \b
    coterie run my.toml &                    a sweep, into runs/my
    coterie watch runs/my --open             how far every run is, and the report as it grows
    coterie watch runs/ --port 8000          the same address every time
    coterie watch runs/my --best train.lr    each line at its best learning rate so far

    The page is that of 'coterie report', redrawn as rows come; what was chosen on it stays. Lines
    are those of 'coterie compare', with the same options. A run that is not complete is a line of
    its own, named so, and never part of a mean with others; with --best it is no line yet. Runs
    are only read: nothing is written to DIR, and a run does not notice. The page can be seen from
    this machine alone; from another one: ssh -L 8000:127.0.0.1:8000 HOST, with --port 8000 here.
    Ctrl-C ends watching. See docs/howto/watch.md.
    """
    from coterie.render.watch import Live, Server

    live = Live(folder, target, view)
    live.check()
    server = Server(live, port or 0)
    try:
        echo(f"watching {folder} at {server.url} (Ctrl-C ends it)")
        if opens:
            import webbrowser

            if not webbrowser.open(server.url):
                echo("no browser could be opened; open the address yourself", err=True)
        server.serve_forever()
    except KeyboardInterrupt:
        echo("\nstopped watching; runs under way go on")
    finally:
        server.server_close()
