"""`coterie figures` and `coterie export`: runs for a paper, and for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coterie.cli.commands import echo, loading
from coterie.cli.options import out_option, runs_argument, view_options
from coterie.cli.pages import write_files
from coterie.cli.tables import find_complete
from coterie.core.errors import CoterieError
from coterie.core.files import standard_stream

if TYPE_CHECKING:
    from coterie.analysis.lines import View


@click.command()
@runs_argument
@out_option("DIR", "Folder for the files.", required=True)
@click.option(
    "--format",
    "suffix",
    type=click.Choice(["pdf", "svg", "png"]),
    default="pdf",
    help="Format of the figures [pdf]; png has 300 dots per inch.",
)
@view_options
@click.option(
    "--width",
    type=click.Choice(["column", "page"]),
    default="column",
    help="Width of the figures: that of a column, 3.5 inches, or of a page, 7.2 [column].",
)
def figures(
    runs: tuple[Path, ...],
    out: Path,
    suffix: str,
    target: float | None,
    view: "View",
    width: str,
) -> None:
    """Draw figures for a paper from RUNS, run folders or folders of some, into a folder.

    \b
    coterie figures runs/demo -o paper/figures
    coterie figures runs/demo -o paper/figures --width page --format svg
    coterie figures runs/a runs/b -o paper/figures --target 0.8
    coterie figures runs/my -o paper/figures --best train.lr --baseline SCAFFOLD

    \b
      accuracy-by-time    test accuracy by simulated seconds, logarithmic
      accuracy-by-epoch   the same by epochs of local work
      loss                training and test loss by simulated seconds
      delta-by-time       Delta, how far groups' gradients are from the whole's
      groups              each class's share in every group over its share in the whole
      seconds-by-kind     local steps, group means, global means, grouping
      bytes-by-tier       what crossed which tier of the network
      time-to-target      simulated seconds to the target accuracy
      comparison.tex      the table of 'coterie compare', for booktabs
      comparison.csv      the same with all digits

    Curves are means over the seeds with a band of one standard deviation; the heat map is of the
    first seed. Lines are those of 'coterie compare', with the same options. Runs that differ in
    more than names lines have figures of their own, with the setting's name in front. Colours are
    told apart with any colour vision, dashes, markers and hatches in grey print. Fonts are
    embedded. The same runs give the same bytes.
    """
    from coterie.render.figures import draw_figures

    if out.exists() and not out.is_dir():
        raise CoterieError(f"--out must be a folder, got {str(out)!r}")
    with loading("figures") as show:
        found = find_complete(runs, show)
        files = draw_figures(
            found, suffix=suffix, width=width, target=target, view=view, progress=show
        )
    write_files({out / name: content for name, content in files.items()})


@click.command()
@runs_argument
@out_option("FILE", "File to write, .csv or .parquet.", required=True)
@click.option("--summary", is_flag=True, help="Write one line for every run: how it ended.")
def export(runs: tuple[Path, ...], out: Path, summary: bool) -> None:
    """Write all rows of RUNS, run folders or folders of some, as one tidy table.

    \b
    coterie export runs/demo -o rows.csv
    coterie export runs/demo -o rows.parquet             pip install 'coterie[parquet]'
    coterie export runs/a runs/b --summary -o runs.csv   one line for every run

    The columns are the run's folder, its label where runs have some, the settings in which the runs
    differ, the seed, and what a row of rows.jsonl holds (with --summary: of summary.json). Group
    sizes become groups, smallest_group, largest_group and group_sizes ('20, 2x10': one of 20, two
    of 10); bytes a column for every tier of the network, such as bytes.core. What was not measured
    is empty.

    In a CSV, a text that a spreadsheet would evaluate (it begins with = + - or @) has an apostrophe
    in front; numbers are as they are. Parquet has every text as it is.
    """
    from coterie.analysis.export import check_format, encode, rows_table, summary_table
    from coterie.render.page.html import write

    check_format(out)
    with loading("export") as show:
        found = find_complete(runs, show)
        table = summary_table(found) if summary else rows_table(found, show)
        show("encoding", 0, 0)
        content = encode(table, out)
    write(out, content)
    lines = len(next(iter(table.values()), []))
    said = f"wrote {out}: {lines:,} lines, {len(table)} columns, {len(found):,} runs"
    echo(said, err=standard_stream(out) == 1)
