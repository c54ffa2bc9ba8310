"""Take over runs of the paper's experiments into docs/results, and write what follows from them.

    python scripts/take_over.py runs                      of both scales
    python scripts/take_over.py runs full                 of one
    python scripts/take_over.py runs medium

Of runs/efficiency: the archive, the tables, the page and the pictures that reproduction.md shows.
Of all runs/*-medium together: the archive and the tables. Then verdict.md. An experiment may have
a part of its runs.
"""

import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from coterie.analysis.lines import label
from coterie.config.files import load_experiment, make_config
from coterie.config.shipped import experiment_path
from coterie.paper.efficiency import PRINTED
from coterie.paper.runs import OTHER_TAUS
from coterie.render.figures import draw_figures
from coterie.runs.record import COMPLETE, RecordedRun, ended, find_runs
from coterie.runs.sweep import place_jobs

SCRIPTS = Path(__file__).resolve().parent
RESULTS = SCRIPTS.parent / "docs" / "results"
MEDIUM = {
    "accuracy": "Accuracy by time and epochs",
    "learning-steps": "Learning steps",
    "speeds": "Links, processors, topologies",
    "distributions": "Data distributions",
    "diversities": "Class diversity",
    "group-counts": "Number of groups",
    "node-counts": "Number of nodes",
}
HEAD = """# All tables at medium scale

Printed by `coterie reproduce NAME --scale medium --no-run`; what to see in them: [the
summary](../reproduction-medium.md).
"""


def full(runs: Path) -> None:
    """Take over the efficiency table at full scale."""
    folder = runs / "efficiency"
    reproduce("efficiency", "full", folder)
    script("pack_runs.py", folder, RESULTS / "efficiency-runs.tar.xz")
    shutil.copyfile(folder / "speed-ups.png", RESULTS / "efficiency-speed-ups.png")
    shutil.copyfile(folder / "report.html", RESULTS / "efficiency.html")
    shown = [as_today(run) for run in find_runs([folder])[0] if label(run) not in OTHER_TAUS]
    for kind, model in PRINTED:
        cell = {"partition.kind": kind, "model.name": model}
        some = [run for run in shown if cell.items() <= run.settings.items()]
        name = f"efficiency-{kind.lower()}-{model}.png"
        if some and name in (RESULTS / "reproduction.md").read_text():
            drawn = draw_figures(some, suffix="png", width="page")
            (RESULTS / name).write_bytes(drawn["accuracy-by-time.png"])
    script("verdict.py", folder / "reproduction.md")


def medium(runs: Path) -> None:
    """Take over what there is of the experiments at medium scale."""
    parts = [HEAD]
    folders: list[Path] = []
    for name, title in MEDIUM.items():
        folder = runs / f"{name}-medium"
        jobs = place_jobs(load_experiment(experiment_path(name), scale="medium"), folder)
        there = sum(ended(job.folder) == COMPLETE for job in jobs)
        told = f"`coterie reproduce {name} --scale medium`: {there} of {len(jobs)} runs"
        parts.append(f"## {title}\n\n{told}\n")
        if there:
            reproduce(name, "medium", folder)
            parts.append((folder / "reproduction.md").read_text().strip() + "\n")
            folders.append(folder)
    (RESULTS / "tables" / "reproduction-medium.md").write_text("\n".join(parts))
    script("pack_runs.py", *folders, RESULTS / "medium-runs.tar.xz")
    script("verdict.py")


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
    """Take over the scales that are wanted."""
    for each in (full, medium):
        if each.__name__ in (wanted or ("full", "medium")):
            each(runs)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
