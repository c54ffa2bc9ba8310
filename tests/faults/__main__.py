"""Try faults on every kind of command, and say what came of each: `make faults`.

    python tests/faults                          all of them, as often as the summary says
    python tests/faults --only "kill -9" -n 10   one of them, ten times
    python tests/faults -o faults.txt            the summary also goes to a file, fault by fault

Ctrl-C ends the fault that is tried, and the next begins.

Disks are filled and mounted read-only in a mount namespace of its own (`unshare`), so that nobody
else sees them; where there is none, those faults are left out, loudly. Other faults of the disk
come from a shim before libc, which needs a C compiler. The exit code is 1 if a promise is broken.
"""

import argparse
import os
import platform
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from faults.control import compiler  # noqa: E402
from faults.inflict import FAULTS, Fault, Tally  # noqa: E402
from faults.rig import NAMESPACE, a_rig, namespace  # noqa: E402


def main() -> None:
    """Take the words, go where mounts are private, and try."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--only", action="append", help="a fault by name; several times: several")
    options.add_argument("-n", type=int, help="how often each [as in the table]")
    options.add_argument("--seed", type=int, default=0, help="of the random moments [0]")
    options.add_argument("-o", "--out", type=Path, help="a file for the summary")
    told = options.parse_args()
    if compiler() is None:
        sys.exit("*** NOT TESTED: no C compiler, which the shim needs ***")
    if NAMESPACE not in os.environ and (before := namespace()):
        os.environ[NAMESPACE] = "1"
        os.execvp(before[0], [*before, sys.executable, *sys.argv])
    known = {fault.name: fault for fault in FAULTS}
    if wrong := set(told.only or ()) - set(known):
        sys.exit(f"unknown fault {wrong.pop()!r}; choose of {', '.join(known)}")
    chosen = [fault for fault in FAULTS if not told.only or fault.name in told.only]
    sys.exit(_try(chosen, told.n, told.seed, told.out))


def _try(faults: list[Fault], n: int | None, seed: int, out: Path | None) -> int:
    """Try faults, print what came of each, and return 1 if a promise was broken."""
    began, found = time.monotonic(), []
    with a_rig(seed) as rig:
        for fault in faults:
            if fault.mounts and not rig.mounts:
                print(f"*** NOT TESTED: {fault.name}: no mount namespace here ***", flush=True)
                continue
            start = time.monotonic()
            tally = fault.inflict(rig, n or fault.times)
            found.append((fault, tally))
            print(
                f"{fault.name}: {tally.cases} cases, {time.monotonic() - start:.0f} s", flush=True
            )
            for line in tally.bad:
                print(f"  BROKEN {line}", flush=True)
    text = summary(found, time.monotonic() - began)
    print(text)
    return any(tally.bad for _, tally in found)


def summary(found: list[tuple[Fault, Tally]], seconds: float) -> str:
    """Return the table of what came of each fault."""
    head = ("fault", "made by", "commands", "kinds", "struck", "broken promises")
    rows = [
        (f.name, f.how, str(t.cases), str(len(t.kinds)), str(t.struck), str(len(t.bad)))
        for f, t in found
    ]
    every = [tally for _, tally in found]
    counts = [(t.cases, t.struck, len(t.bad)) for t in every]
    cases, struck, bad = (str(sum(values)) for values in zip(*counts, strict=True))
    rows.append(("all", "", cases, "", struck, bad))
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
    foot = f"Python {platform.python_version()}, {platform.system()}, {seconds / 60:.0f} minutes"
    return "\n".join([*lines, "", foot, ""])


if __name__ == "__main__":
    main()
