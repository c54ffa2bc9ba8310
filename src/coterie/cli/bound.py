"""`coterie bound`: how far groups stray from learning in one place, and how far they may."""

import csv
import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coterie.cli.commands import echo, loading, print_table
from coterie.cli.options import DRAWS_BY_OUT, OUT, json_option, out_option, set_option
from coterie.cli.pages import write_files
from coterie.config.shipped import read_configs
from coterie.core.errors import CoterieError

if TYPE_CHECKING:
    from coterie.theory.measure import Straying

MOST_ROWS = 12
FOOT = (
    "apart: ||w - v||, v learning in one place since the last global mean; bound: what it cannot "
    "pass (docs/explanation/theory.md); printed: the paper's lemma. gap: F(w) less the lowest loss "
    "found; its bound is Theorem 1 with the bound that holds."
)


@click.command()
@click.argument("file")
@set_option()
@out_option("PICTURE", "Picture to write [bound-FILE.png].")
@click.option("--csv", "table", type=OUT, help="CSV to write, of every step.")
@json_option(DRAWS_BY_OUT)
def bound(
    file: str, overrides: tuple[str, ...], out: Path | None, table: Path | None, as_json: bool
) -> None:
    """Measure how far the experiment FILE strays from learning in one place, and bound it.

    \b
      coterie bound quickstart
      coterie bound quickstart --set algorithm.tau1=5 --set train.steps=50
      coterie bound mnist-f-sr --set algorithm.name=hierfavg -o bound.png --csv bound.csv

    Trains with full batches in double precision, and beside every group and the whole a virtual
    model that learns on all their data in one place, as in the paper's proof. Prints how far they
    are apart after every global round, the bound that holds and the one that the paper prints, and
    the loss above the lowest that was found with the bound of Theorem 1. Of a sweep, the first run.
    """
    from coterie.render.page.bound import bound_figure
    from coterie.render.page.html import png
    from coterie.theory.measure import stray

    name, (config, *_) = read_configs(file, overrides)
    picture = out or (None if as_json else Path(f"bound-{name}.png"))
    if picture and picture.suffix != ".png":
        raise CoterieError(f"--out must be a .png, got {str(picture)!r}")
    with loading(name) as progress:
        found = stray(config, progress)
    for note in found.notes:
        echo(f"note: {note}", err=True)
    if as_json:
        echo(json.dumps(_plain(found, config.algorithm.name), indent=1))
    else:
        _print(found, config.algorithm.name)
    files = {} if picture is None else {picture: png(bound_figure(found))}
    if table is not None:
        files[table] = _csv(found)
    write_files(files, err=as_json)


def _plain(found: "Straying", name: str) -> dict[str, Any]:
    """Return what is printed, of every global mean and with all digits; beyond numbers is null."""

    def number(value: float) -> float | None:
        return float(value) if math.isfinite(value) else None

    told, s = found.trace, found.trace.schedule
    constants = {
        "beta": found.beta,
        "rho": found.rho,
        "delta": told.delta.max(),
        "Delta": told.Delta.max(),
        "omega": found.omega,
        "theorem": found.theorem,
        "least_loss": found.least,
    }
    names = "apart", "bound", "printed", "gap", "gap_bound"
    steps = (series[found.ends] for series in (told.apart, found.bound, found.printed))
    rows = zip(*steps, found.gap, found.gap_bound, strict=True)
    means = [
        {"step": found.first + end + 1, **dict(zip(names, map(number, row), strict=True))}
        for end, row in zip(found.ends, rows, strict=True)
    ]
    given = {"algorithm": name, "tau1": s.tau1, "tau2": s.tau2}
    numbers = {key: number(value) for key, value in constants.items()}
    return {**given, **numbers, "notes": found.notes, "global_means": means}


def _print(found: "Straying", name: str) -> None:
    every = max(1, -(-len(found.ends) // MOST_ROWS))
    rows = []
    for at in [*range(0, len(found.ends) - 1, every), len(found.ends) - 1]:
        end = found.ends[at]
        values = found.trace.apart[end], found.bound[end], found.printed[end]
        gaps = found.gap[at], found.gap_bound[at]
        rows.append([f"{found.first + end + 1}", *(f"{v:.4g}" for v in (*values, *gaps))])
    s = found.trace.schedule
    title = f"{name}, tau1 = {s.tau1}, tau2 = {s.tau2}, beta {found.beta:.4g}"
    delta, Delta = found.trace.delta.max(), found.trace.Delta.max()
    echo(
        f"the paper's constants, the worst of all steps: beta {found.beta:.4g}, rho "
        f"{found.rho:.4g}, delta {delta:.4g}, Delta {Delta:.4g}, omega {found.omega:.4g}; "
        f"Theorem 1 as printed then says: a gap of at most {found.theorem:.4g}"
    )
    print_table(title, ("step", "apart", "bound", "printed", "gap", "gap bound"), rows, FOOT)


def _csv(found: "Straying") -> bytes:
    text = io.StringIO(newline="")
    out = csv.writer(text)
    told = found.trace
    names = ("eta", "delta", "Delta", "apart", "nodes", "means", "groups", "loss", "virtual_loss")
    out.writerow(["t", *names, "bound", "printed"])
    columns = [getattr(told, name) for name in names]
    for at, row in enumerate(zip(*columns, found.bound, found.printed, strict=True)):
        out.writerow([found.first + at + 1, *map(repr, map(float, row))])
    return text.getvalue().encode()
