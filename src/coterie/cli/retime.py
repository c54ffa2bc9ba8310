"""`coterie retime`: recorded runs by another clock."""

from pathlib import Path

import click

from coterie.cli.commands import echo, loading
from coterie.cli.options import out_option, runs_argument, set_option, target_option
from coterie.cli.tables import find_complete, print_blocks
from coterie.core.errors import CoterieError, RecordError


@click.command()
@runs_argument
@set_option("of [network] or [compute], such as compute.gflops=250")
@out_option("DIR", "Folder for the retimed runs [runs/retimed].")
@target_option
def retime(
    runs: tuple[Path, ...], overrides: tuple[str, ...], out: Path | None, target: float | None
) -> None:
    """Say what RUNS would have taken on another network or on other devices, without training.

    \b
      coterie retime runs/demo --set network.link_mbytes_per_s=10
      coterie retime runs/demo --set network.combine=all --set compute.gflops=250

    Links and processors move the clock and not the models, so settings of [network] and [compute]
    can be changed afterwards. Groups stay as they were planned. The runs with their new times go to
    a folder of their own, and can be compared and drawn like any others.
    """
    from coterie.runs.record import ROWS
    from coterie.runs.retime import retime as timed_again
    from coterie.runs.retime import write_all
    from coterie.runs.sweep import free_folder

    if not overrides:
        raise click.UsageError(
            "say what is to be different, such as --set network.link_mbytes_per_s=10"
        )
    if out and any(out.rglob(ROWS)):
        raise CoterieError(f"{out} already holds a run; choose another --out")
    found, made, left_out = find_complete(runs), [], []
    with loading("retime") as show:
        for done, run in enumerate(found):
            show("runs", done, len(found))
            try:
                made.append(timed_again(run, overrides))
            except RecordError as error:
                left_out.append(error)
    if not made:
        raise left_out[0]
    for line in left_out:
        echo(f"left out: {line}", err=True)
    folder = out or free_folder(Path("runs") / "retimed")
    names = _names([run.folder for run in made])
    write_all(dict(zip(names, made, strict=True)), folder)
    print_blocks(made, target)
    echo(f"\nrun folder: {folder}")


def _names(folders: list[Path]) -> list[str]:
    """Name runs after their folders, with as much of the path as tells them apart."""
    for depth in range(1, max(len(folder.parts) for folder in folders) + 1):
        names = ["-".join(folder.parts[-depth:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [f"{number:03}" for number in range(len(folders))]
