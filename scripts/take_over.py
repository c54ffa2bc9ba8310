"""Take over runs of the paper's experiments into docs/results, and write what follows from them.

    python scripts/take_over.py runs                      of all experiments in the folder
    python scripts/take_over.py runs efficiency           of some

Of runs/efficiency: the archive, the tables, the page and the pictures that reproduction.md shows.
Then verdict.md. What is not in the folder stays as it is.
"""

import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from coterie.analysis.lines import label
from coterie.config.files import make_config
from coterie.paper.efficiency import PRINTED
from coterie.paper.runs import OTHER_TAUS
from coterie.render.figures import draw_figures
from coterie.runs.record import RecordedRun, find_runs

SCRIPTS = Path(__file__).resolve().parent
RESULTS = SCRIPTS.parent / "docs" / "results"


def efficiency(folder: Path) -> None:
    """Take over the efficiency table at full scale."""
    reproduce("efficiency", "full", folder)
    script("pack_runs.py", folder, RESULTS / "efficiency-runs.tar.xz")
    shutil.copyfile(folder / "speed-ups.png", RESULTS / "efficiency-speed-ups.png")
    shutil.copyfile(folder / "report.html", RESULTS / "efficiency.html")
    runs = [as_today(run) for run in find_runs([folder])[0] if label(run) not in OTHER_TAUS]
    for kind, model in PRINTED:
        cell = {"partition.kind": kind, "model.name": model}
        some = [run for run in runs if cell.items() <= run.settings.items()]
        name = f"efficiency-{kind.lower()}-{model}.png"
        if some and name in (RESULTS / "reproduction.md").read_text():
            drawn = draw_figures(some, suffix="png", width="page")
            (RESULTS / name).write_bytes(drawn["accuracy-by-time.png"])
    script("verdict.py", folder / "reproduction.md")


def as_today(run: RecordedRun) -> RecordedRun:
    """Give settings that there were none of when a run was made their defaults."""
    return replace(run, config=asdict(make_config(run.config)))


def reproduce(name: str, scale: str, folder: Path) -> None:
    """Print the tables of the complete runs of a folder into its reproduction.md."""
    words = ("reproduce", name, "--scale", scale, "--no-run", "--out", folder)
    subprocess.run(
        [sys.executable, "-m", "coterie", *map(str, words)], stdout=subprocess.DEVNULL, check=True
    )


def script(name: str, *words: object) -> None:
    """Run another script."""
    subprocess.run([sys.executable, str(SCRIPTS / name), *map(str, words)], check=True)


def main(runs: Path, *wanted: str) -> None:
    """Take over what there is of what is wanted."""
    if (runs / "efficiency").exists() and "efficiency" in (wanted or ("efficiency",)):
        efficiency(runs / "efficiency")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
