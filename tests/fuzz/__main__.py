"""Try to break every reader and every command. Run: make fuzz SECONDS=600

    python -m fuzz --seconds 600          as long as that, readers and command lines in turn
    python -m fuzz --inputs 1000000 --lines 2000 --out summary.txt
    python -m fuzz --only checkpoint --from 500000     other inputs than the last time

Inputs are numbered, and the same number is always the same input. What is found goes to
fuzz-findings/, a folder for each, with the file that did it. Exit 1 if there is anything.
"""

import argparse
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from fuzz import lines
from fuzz.readers import READERS
from fuzz.worker import FINE, Finding, Reader, Tally, run

CHUNK, LINES = 500, 20
FOUND = Path("fuzz-findings")
WORDS = {
    "read": "read",
    "refused": "refused",
    "caught": "at the edge",
    "foreign": "foreign",
    "signal": "signal",
    "slow": "slow",
    "memory": "memory",
    "long": "long",
}


def main() -> int:
    """Share the work among processes, add up what they found, and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after that [600]")
    parser.add_argument("--inputs", type=int, help="stop after so many inputs of readers")
    parser.add_argument("--lines", type=int, default=2000, help="command lines [2000]")
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first")
    parser.add_argument("--only", action="append", help="this reader, or 'lines'; repeatable")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="write the summary here, too")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    names = [name for name in READERS if not asked.only or name in asked.only]
    limit = -(-asked.inputs // max(len(names), 1)) if asked.inputs else None
    with_lines = not asked.only or "lines" in asked.only
    began = time.monotonic()
    end = began + (asked.seconds if limit is None else float("inf"))
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as top:
        work = [(name, "reader") for name in names] + [("lines", "lines")] * with_lines
        pids = []
        for lane in range(asked.jobs):
            pid = os.fork()
            if not pid:
                _lane(lane, asked, work, limit, end, Path(top) / f"{lane}")
            pids.append(pid)
        bad = [pid for pid in pids if os.waitpid(pid, 0)[1]]
        told = [json.loads(text) for path in Path(top).glob("*/said") for text in path.open()]
    text = summary(told, time.monotonic() - began)
    print(text, end="")
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    return 1 if bad or any(one["findings"] for one in told) else 0


def _lane(
    lane: int,
    asked: argparse.Namespace,
    work: list[tuple[str, str]],
    limit: int | None,
    end: float,
    top: Path,
) -> None:
    """Do every so many-th chunk of every reader, in turn, until there is no more time."""
    top.mkdir()
    os.environ["COTERIE_DATA"] = str(top / "cache")
    made: dict[str, Reader] = {}
    turn, left = lane, dict.fromkeys((name for name, _ in work), True)
    with (top / "said").open("w", encoding="utf-8") as said:
        while any(left.values()) and time.monotonic() < end:
            for name, kind in random.Random(turn).sample(work, len(work)):
                if not left[name] or time.monotonic() > end:
                    continue
                size = LINES if kind == "lines" else CHUNK
                most = asked.lines if kind == "lines" else limit
                count = size if most is None else min(size, most - turn * size)
                if count <= 0:
                    left[name] = False
                    continue
                first, folder = asked.first + turn * size, top / "work"
                folder.mkdir(exist_ok=True)
                if kind == "lines":
                    tally = lines.run(first, count, folder)
                else:
                    if name not in made:
                        (top / name.replace(" ", "-")).mkdir()
                        made[name] = READERS[name](top / name.replace(" ", "-"))
                    here = folder / f"of-{list(READERS).index(name)}"
                    here.mkdir(exist_ok=True)
                    tally = run(name, made[name], first, count, here)
                    for finding in tally.findings:
                        _keep(finding, made[name])
                said.write(json.dumps({"name": name, **_plain(tally)}) + "\n")
                said.flush()
                _show(name, tally)
            turn += asked.jobs
    os._exit(0)


def _plain(tally: Tally) -> dict[str, object]:
    return asdict(tally) | {"ends": dict(tally.ends)}


def _keep(finding: Finding, reader: Reader) -> None:
    """Write down a file that did what none should."""
    label = f"{finding.label}-{finding.number}".replace(" ", "-")
    (FOUND / label).mkdir(parents=True, exist_ok=True)
    name, content = reader.case(finding.label, finding.number)
    (FOUND / label / Path(name).name).write_bytes(content)
    (FOUND / label / "finding.json").write_text(json.dumps(asdict(finding)), encoding="utf-8")


def _show(name: str, tally: Tally) -> None:
    """Say on stderr what was found, as it is."""
    for finding in tally.findings:
        print(
            f"{name} {finding.number} {finding.name}: {finding.kind} {finding.says}",
            file=sys.stderr,
        )


def _memory_folder() -> str | None:
    """Return a folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def summary(told: list[dict[str, object]], seconds: float) -> str:
    """Write the table: a row for every reader, and one for command lines."""
    ends: dict[str, Counter[str]] = {}
    longest: dict[str, float] = {}
    for one in told:
        name = str(one["name"])
        counted: dict[str, int] = one["ends"]  # type: ignore[assignment]
        ends.setdefault(name, Counter()).update(counted)
        longest[name] = max(longest.get(name, 0.0), float(one["longest_s"]))  # type: ignore[arg-type]
    order = [name for name in (*READERS, "lines") if name in ends]
    kinds = [kind for kind in WORDS if kind in FINE or any(ends[n][kind] for n in order)]
    width = max(map(len, order), default=0)
    head = "".join(f"{WORDS[kind]:>12}" for kind in kinds)
    rows = [f"{'':{width}}{'inputs':>10}{head}{'longest, s':>12}"]
    total: Counter[str] = Counter()
    for name in order:
        only = Counter({kind: ends[name][kind] for kind in WORDS})
        total += only if name != "lines" else Counter()
        cells = "".join(f"{only[kind]:>12,}" for kind in kinds)
        rows.append(f"{name:{width}}{only.total():>10,}{cells}{longest[name]:>12.2f}")
    cells = "".join(f"{total[kind]:>12,}" for kind in kinds)
    rows.append(f"{'all readers':{width}}{total.total():>10,}{cells}")
    where = (
        f"coterie {version('coterie')}, Python {platform.python_version()}, {seconds / 60:.0f} min"
    )
    caught = Counter(
        {
            k.removeprefix("caught: "): v
            for n in order
            for k, v in ends[n].items()
            if "caught: " in k
        }
    )
    notes = [f"  {count:,}x {what[:150]}" for what, count in caught.most_common(20)]
    found = [f for one in told for f in one["findings"]]  # type: ignore[attr-defined]
    notes += [
        f"  FOUND {f['label']} {f['number']}: {f['kind']} {f['says'][:150]}" for f in found[:50]
    ]
    return "\n".join([where, "", *rows, "", *notes]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
