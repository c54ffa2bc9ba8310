"""Pack the complete runs of a sweep, without their models, into an archive to keep or to send.

    python scripts/pack_runs.py runs/efficiency docs/results/efficiency-runs.tar.xz
    python scripts/pack_runs.py runs/speeds-medium runs/accuracy-medium medium-runs.tar.xz

The same runs give the same bytes. Unpacked into runs/, a sweep goes on from there.
"""

import io
import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from coterie.runs.record import COMPLETE, RUNS, ended

FILES = ("config.toml", "grouping.json", "meta.json", "rows.jsonl", "summary.json")


def pack(folders: Sequence[Path], archive: Path) -> int:
    """Write the archive; return how many runs are in it."""
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        return sum(_pack(folder, packed) for folder in folders)


def _pack(folder: Path, packed: tarfile.TarFile) -> int:
    told = json.loads((folder / RUNS).read_text())["runs"]
    kept = [run for run in told if ended(folder / run["folder"]) == COMPLETE]
    kept.sort(key=lambda run: str(run["folder"]))
    _add(packed, f"{folder.name}/{RUNS}", json.dumps({"runs": kept}).encode())
    for run in kept:
        for name in FILES:
            content = (folder / run["folder"] / name).read_bytes()
            _add(packed, f"{folder.name}/{run['folder']}/{name}", content)
    return len(kept)


def _add(packed: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    packed.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    *folders, archive = map(Path, sys.argv[1:])
    print(f"{pack(folders, archive)} runs")
