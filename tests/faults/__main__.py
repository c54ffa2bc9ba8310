"""Try faults on every kind of command, and say what came of each: `make faults`.

    python tests/faults                          all of them, as often as the summary says
    python tests/faults --only "kill -9" -n 10   one of them, ten times
    python tests/faults -o faults.txt            the summary also goes to a file

Ctrl-C ends it, and the summary is that of what was tried so far.

Disks are filled and mounted read-only in a mount namespace of its own (`unshare`), so that nobody
else sees them; where there is none, those faults are left out, loudly. Other faults of the disk
come from a shim before libc, which needs a C compiler. The exit code is 1 if a promise is broken.
"""

import argparse
import os
import platform
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from faults.control import compiler  # noqa: E402
from faults.inflict import BY_FAULT, FAULTS, Fault, Tally  # noqa: E402
from faults.kinds import BY_NAME, KINDS, Kind  # noqa: E402
from faults.rig import NAMESPACE, a_rig, namespace  # noqa: E402


def main() -> None:
    """Take the words, go where mounts are private, and try."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--only", action="append", help="a fault by name; several times: several")
    options.add_argument("--kind", action="append", help="a kind of command by name [all]")
    options.add_argument("-n", type=int, help="how often each [as in the table]")
    options.add_argument("--seed", type=int, default=0, help="of the random moments [0]")
    options.add_argument("-o", "--out", type=Path, help="a file for the summary")
    told = options.parse_args()
    if compiler() is None:
        sys.exit("*** NOT TESTED: no C compiler, which the shim needs ***")
    if NAMESPACE not in os.environ and (before := namespace()):
        os.environ[NAMESPACE] = "1"
        os.execvp(before[0], [*before, sys.executable, *sys.argv])
    if wrong := set(told.only or ()) - set(BY_FAULT):
        sys.exit(f"unknown fault {wrong.pop()!r}; choose of {', '.join(BY_FAULT)}")
    chosen = [fault for fault in FAULTS if not told.only or fault.name in told.only]
    kinds = [kind for kind in KINDS if not told.kind or kind.name in told.kind]
    if not kinds:
        sys.exit(f"unknown kind; choose of {', '.join(BY_NAME)}")
    sys.exit(_try(chosen, kinds, told.n, told.seed, told.out))


def _try(faults: list[Fault], kinds: list[Kind], n: int | None, seed: int, out: Path | None) -> int:
    """Try faults, print what came of each, and return 1 if a promise was broken."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    began = time.monotonic()
    found: list[tuple[Fault, Tally]] = []
    with suppress(KeyboardInterrupt), a_rig(seed, kinds) as rig:  # what was tried so far counts
        for fault in faults:
            if fault.mounts and not rig.mounts:
                print(f"*** NOT TESTED: {fault.name}: no mount namespace here ***", flush=True)
                continue
            start, tally = time.monotonic(), Tally()
            found.append((fault, tally))
            fault.inflict(rig, n or fault.times, tally)
            took = time.monotonic() - start
            print(f"{fault.name}: {tally.cases} cases, {took:.0f} s", flush=True)
    for _, tally in found:
        for line in tally.bad:
            print(f"BROKEN {line}")
    text = summary(found, time.monotonic() - began)
    print(text)
    if out:
        out.write_text(text, encoding="utf-8")
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
