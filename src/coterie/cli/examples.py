"""`coterie examples`: the examples that ship with coterie, copied to where they can be changed."""

from pathlib import Path

import click

from coterie.cli.commands import echo
from coterie.cli.options import OUT
from coterie.config.shipped import examples as shipped
from coterie.core.errors import CoterieError
from coterie.core.files import write_out

LEFT = ("__pycache__", ".")  # what begins so is a cache, or hidden


@click.command("examples")
@click.argument("folder", type=OUT, metavar="DIR")
def examples(folder: Path) -> None:
    """Copy the examples into DIR, a new folder, to be changed and run.

    \b
    coterie examples mine && cd mine
    python quickstart.py
    coterie run quickstart --set model.name=own_model:make --set train.lr=0.1
    coterie run quickstart --set algorithm.name=feddyn:feddyn
    coterie plan --nodes base_stations/phones.csv --network base_stations/stations.csv \\
        --model-bytes 5MB

    \b
      quickstart.py       a run from Python
      notebook.ipynb      model, data, grouping and algorithm of one's own, in a notebook
      own_model.py        a model, and likewise own_data.py, own_grouping.py
      feddyn.py           an algorithm, and likewise fednova.py, ifca.py
      base_stations       nodes and a network, for 'coterie plan' and 'coterie network'
      flower_app          an app for Flower

    Nothing is overwritten: DIR must be new, or empty.
    """
    source = shipped()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise CoterieError(f"{folder} is there already; name a new folder")
    files = [path for path in sorted(source.rglob("*")) if path.is_file() and _ours(path, source)]
    if not files:
        raise CoterieError(f"{source}: has no examples; reinstall coterie")
    for path in files:
        place = folder / path.relative_to(source)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_out(place, path.read_bytes())
        except OSError as error:
            raise CoterieError(f"{place}: cannot be written ({error.strerror})") from error
    echo(f"copied {len(files)} files to {folder}")


def _ours(path: Path, source: Path) -> bool:
    return not any(part.startswith(LEFT) for part in path.relative_to(source).parts)
