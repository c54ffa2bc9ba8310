"""The faults: each is tried on kinds of command so many times, and says what it broke."""

import errno
import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from faults.control import GROUP, Happens
from faults.kinds import OUT, Kind
from faults.promises import ending, said_badly
from faults.rig import Case, Rig
from faults.zygote import DELETED, Ended

YEARS_S = 20 * 365 * 86_400
LOOK_S = 0.005
PATIENCE_S = 120.0
MOST_KILLS = 3  # of one run
Inflict = Callable[[Rig, int, "Tally"], None]


@dataclass
class Tally:
    """What came of a fault: how often it was tried and struck, and the promises it broke."""

    cases: int = 0
    struck: int = 0
    bad: list[str] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)

    def add(self, case: Case, struck: int) -> None:
        """Count a case that is over."""
        self.cases += 1
        self.struck += struck
        self.bad += case.bad
        self.kinds.add(case.kind.name)


def _turns(rig: Rig, n: int, chosen: Callable[[Kind], bool] = lambda kind: True) -> Iterator[Kind]:
    """Yield kinds in turn; those that start processes, which take long, every fourth round."""
    light = [kind for kind in rig.kinds if chosen(kind) and not kind.workers]
    heavy = [kind for kind in rig.kinds if chosen(kind) and kind.workers]
    order = [*light, *heavy, *light, *light, *light] if light else heavy
    rig.rng.shuffle(order)
    return islice(cycle(order), n)


def kills(rig: Rig, n: int, tally: Tally) -> None:
    """SIGKILL at a random moment or at a random call, up to three times in a row."""
    while tally.struck < n:
        for kind in _turns(rig, n - tally.struck):
            case, struck, ended = rig.case(kind), 0, None
            for _ in range(min(rig.rng.randint(1, MOST_KILLS), n - tally.struck)):
                ended = _killed(rig, case)
                struck += ended.code == -signal.SIGKILL
                if ended.code == 0:
                    break
            case.settle(ended)
            tally.add(case, struck)
            if tally.struck >= n:
                break


def _moment(rig: Rig, seconds: float) -> float:
    """Draw a moment of a command, rather an early one: most of the rest is Python's own end."""
    return seconds * float(rig.rng.random() ** 3)


def _killed(rig: Rig, case: Case) -> Ended:
    known = rig.undisturbed(case.kind)
    words = case.kind.again(case.place)
    if rig.rng.random() < 0.5:
        who = rig.rng.choice([1, GROUP]) if case.kind.workers else 1
        at = rig.rng.randint(1, known.counted.calls)
        rig.strike(case, Happens(at_call=at, kill=who))
        case.unable = True  # also where a worker is killed, and its parent tells of it
        return case.end(case.start(*words), 0, 2, -signal.SIGKILL)
    rig.control.set(case.place)
    started = case.start(*words)
    time.sleep(_moment(rig, known.seconds))
    with suppress(ProcessLookupError):
        os.killpg(started[0], signal.SIGKILL)
    return case.end(started, 0, 2, -signal.SIGKILL)


def full_disk(rig: Rig, n: int, tally: Tally) -> None:
    """A tmpfs with a random number of free pages; every fifth time of free inodes."""
    for number, kind in enumerate(_turns(rig, n)):
        case, known = rig.case(kind), rig.undisturbed(kind)
        few = number % 5 == 4
        most = known.inodes + 2 if few else known.pages + 20
        room = rig.rng.randint(0, max(1, most))
        with rig.limited(**{"inodes" if few else "pages": room}):
            ended = case.end(case.start(), 0, 2)
        case.settle(ended)
        tally.add(case, ended.code != 0)


def full_after(rig: Rig, n: int, tally: Tally) -> None:
    """No room after a random number of bytes; the last write is cut short."""
    for kind in _turns(rig, n):
        case, known = rig.case(kind), rig.undisturbed(kind)
        at = rig.rng.randint(1, max(1, known.counted.bytes))
        rig.strike(case, Happens(at_byte=at, error=errno.ENOSPC, lasting=True))
        ended = case.end(case.start(), 0, 2)
        tally.add(*_settled(rig, case, ended))


def _settled(rig: Rig, case: Case, ended: Ended) -> tuple[Case, bool]:
    struck = rig.control.counted.happened
    case.settle(ended)
    return case, bool(struck)


def failing(error: int, *, lasting: bool, reads: bool = False) -> Inflict:
    """Return a fault: a random call on files fails, that one or all from it on."""

    def fault(rig: Rig, n: int, tally: Tally) -> None:
        for kind in _turns(rig, n):
            case, known = rig.case(kind), rig.undisturbed(kind)
            most = known.counted.calls
            if reads and kind.trains:  # reading is what going on does
                rig.strike(case, Happens(at_call=rig.rng.randint(1, most), kill=1))
                case.end(case.start(), 0, 2, -signal.SIGKILL)
                most //= 2
            at = rig.rng.randint(1, max(1, most))
            rig.strike(case, Happens(at_call=at, error=error, lasting=lasting, reads=reads))
            case.unable |= lasting or error == errno.EROFS
            ended = case.end(case.start(*case.kind.again(case.place)), 0, 2)
            tally.add(*_settled(rig, case, ended))

    return fault


def signalled(number: signal.Signals) -> Inflict:
    """Return a fault: a signal to the process group at a random moment."""

    def fault(rig: Rig, n: int, tally: Tally) -> None:
        for kind in _turns(rig, n):
            case, known = rig.case(kind), rig.undisturbed(kind)
            first = ending(case.place)
            started = case.start()
            time.sleep(_moment(rig, known.seconds))
            with suppress(ProcessLookupError):
                os.killpg(started[0], number)
            ended = case.end(started, 0, 130, -number)
            # Before Python listens, and after it has done everything, a signal is the system's.
            if ended.code == -number and ending(case.place) not in (first, known.ending):
                case.bad.append(f"{kind.name}: it has begun, and died of {number.name}")
            case.settle(ended)
            tally.add(case, ended.code != 0)

    return fault


def paused(rig: Rig, n: int, tally: Tally) -> None:
    """SIGSTOP; another process that wants to go on is refused; SIGCONT."""
    for kind in _turns(rig, n, lambda kind: kind.trains and kind.words[0] == "run"):
        case = rig.case(kind)
        started = case.start()
        begun = _wait(partial(_has_rows, case.place / OUT), started[0])
        os.killpg(started[0], signal.SIGSTOP)
        over = _ended(started[0])
        if begun and not over:
            case.unable = True  # who is paused may be writing
            other = case.end(case.start("run", "--resume", OUT), 2, 0)
            case.unable = False
            if other.code == 2 and "another process is running it" not in other.err:
                case.bad.append(f"{kind.name}: refused otherwise: {other.err}")
        os.killpg(started[0], signal.SIGCONT)
        ended = case.end(started, 0)
        case.settle(ended)
        tally.add(case, begun and not over)


def two_writers(rig: Rig, n: int, tally: Tally) -> None:
    """The same command twice at once, in one folder."""
    for kind in _turns(rig, n):
        case, known = rig.case(kind), rig.undisturbed(kind)
        first = case.start()
        time.sleep(rig.rng.choice([0.0, 0.0, rig.rng.uniform(0, known.seconds)]))
        second = case.start(*case.kind.again(case.place))
        one, two = (rig.zygote.end(started) for started in (first, second))
        for ended in (one, two):
            case.bad += [f"{kind.name}: {line}" for line in said_badly(ended, (0, 2))]
        if 0 not in (one.code, two.code):
            case.bad.append(f"{kind.name}: neither came to its end: {one.err} {two.err}")
        case.settle(one if one.code == 0 else two)
        tally.add(case, 2 in (one.code, two.code))


def clock_jumps(rig: Rig, n: int, tally: Tally) -> None:
    """The wall clock is 20 years behind, right, and 20 years ahead, in turn, at every look."""
    for kind in _turns(rig, n):
        case, known = rig.case(kind), rig.undisturbed(kind)
        rig.strike(
            case,
            Happens(at_call=rig.rng.randint(1, known.counted.calls), kill=1, jump_s=YEARS_S),
        )
        case.end(case.start(), 0, 2, -signal.SIGKILL)
        rig.strike(case, Happens(jump_s=YEARS_S))
        ended = case.end(case.start(*kind.again(case.place)), 0)
        case.settle(ended)
        tally.add(case, 1)


def moved_between(rig: Rig, n: int, tally: Tally) -> None:
    """All is moved to another folder after a kill, and goes on there."""
    for kind in _turns(rig, n, lambda kind: kind.trains):
        case, known = rig.case(kind), rig.undisturbed(kind)
        at = rig.rng.randint(1, known.counted.calls)
        rig.strike(case, Happens(at_call=at, kill=1))
        case.end(case.start(), 0, 2, -signal.SIGKILL)
        new = case.place.parent / "new name"
        case.place.rename(new)
        case.place = new
        case.settle()
        tally.add(case, 1)


def moved_during(rig: Rig, n: int, tally: Tally) -> None:
    """The folder of a run is renamed under it, and goes on under its new name afterwards."""
    for kind in _turns(rig, n, lambda kind: kind.trains):
        case = rig.case(kind)
        started = case.start()
        begun = _wait(partial(_has_rows, case.place / OUT), started[0])
        aside, struck = case.place / "aside", False
        if begun:
            with suppress(FileNotFoundError):
                (case.place / OUT).rename(aside)
                struck = True
        ended = rig.zygote.end(started)
        case.bad += [f"{kind.name}: {line}" for line in said_badly(ended, (0, 2))]
        if struck:
            if (case.place / OUT).exists():  # what it could not know of and made anew
                shutil.rmtree(case.place / OUT)
            aside.rename(case.place / OUT)
        case.settle(None)
        tally.add(case, struck)


def read_only(rig: Rig, n: int, tally: Tally) -> None:
    """The disk is mounted read-only when a command begins, or goes on after a kill."""
    for kind in _turns(rig, n):
        case, known = rig.case(kind), rig.undisturbed(kind)
        if kind.trains and rig.rng.random() < 0.7:
            at = rig.rng.randint(1, known.counted.calls)
            rig.strike(case, Happens(at_call=at, kill=1))
            case.end(case.start(), 0, 2, -signal.SIGKILL)
            rig.control.set()
        with rig.read_only():
            ended = case.end(case.start(*kind.again(case.place)), 0, 2)
        case.settle(ended)
        tally.add(case, ended.code != 0)


def covered(rig: Rig, n: int, tally: Tally) -> None:
    """The folder of a run becomes read-only under it: a read-only mount over its path."""
    for kind in _turns(rig, n, lambda kind: kind.trains):
        case = rig.case(kind)
        started = case.start()
        begun = _wait((case.place / OUT).exists, started[0])
        if not begun:
            continue
        with rig.covered(case.place / OUT):
            ended = rig.zygote.end(started)
        case.bad += [f"{kind.name}: {line}" for line in said_badly(ended, (0, 2))]
        case.settle(ended)
        tally.add(case, ended.code != 0)


def deleted_folder(rig: Rig, n: int, tally: Tally) -> None:
    """The current folder is gone when a command begins."""
    for kind in _turns(rig, n):
        case = rig.case(kind)
        gone = case.place.parent / "gone"
        case.place.rename(gone)
        started = _in_deleted(rig, case)
        ended = rig.zygote.end(started)
        case.bad += [f"{kind.name}: {line}" for line in said_badly(ended, (2,))]
        gone.rename(case.place)
        case.settle()
        tally.add(case, 1)


def _in_deleted(rig: Rig, case: Case) -> tuple[int, Path]:
    """Start a command in a folder that is deleted before it looks."""
    case.place.mkdir()
    return rig.zygote.start([*case.kind.words], case.place, {DELETED: "1"})


def no_cache(rig: Rig, n: int, tally: Tally) -> None:
    """The cache folder cannot be written: it is below a file."""
    for kind in _turns(rig, n, lambda kind: kind.words[0] != "reproduce"):
        case = rig.case(kind)
        (case.place.parent / "file").write_bytes(b"")
        bad = {"COTERIE_DATA": str(case.place.parent / "file" / "cache")}
        started = rig.zygote.start([*kind.words], case.place, bad)
        ended = case.end(started, 2 if kind.imports else 0)
        case.settle(ended)
        tally.add(case, 1)


def watched(rig: Rig, n: int, tally: Tally) -> None:
    """`coterie watch` beside a run that is killed and goes on: it serves, and disturbs nothing."""
    for kind in _turns(rig, n, lambda kind: kind.trains and not kind.workers):
        case, known = rig.case(kind), rig.undisturbed(kind)
        (case.place / OUT).mkdir()
        watch = case.start("watch", OUT)
        if not _wait(partial(_serves, watch[1]), watch[0]):
            case.bad.append(f"{kind.name}: watch did not begin: {rig.zygote.end(watch).err}")
            continue
        said = Path(f"{watch[1]}.out").read_text()
        address = next(word for word in said.split() if word.startswith("http"))
        at = rig.rng.randint(1, known.counted.calls)
        rig.strike(case, Happens(at_call=at, kill=1))
        case.end(case.start(), 0, 2, -signal.SIGKILL)
        for _ in range(2):
            if urllib.request.urlopen(address, timeout=PATIENCE_S).status != 200:
                case.bad.append(f"{kind.name}: watch does not serve")
            case.settle()
        os.kill(watch[0], signal.SIGINT)
        case.end(watch, 0)
        tally.add(case, 1)


def _has_rows(folder: Path) -> bool:
    """Whether a run has begun to write below a folder."""
    return any(folder.rglob("rows.jsonl"))


def _serves(said: Path) -> bool:
    """Whether a watch has said where."""
    return "http" in Path(f"{said}.out").read_text()


def _wait(condition: Callable[[], object], pid: int) -> bool:
    """Wait for a condition; False if the process ended, or nothing came of it."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if _ended(pid) or time.monotonic() > until:
            return bool(condition())
        time.sleep(LOOK_S)
    return True


def _ended(pid: int) -> bool:
    """Whether a process has ended, and only waits to be asked how."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return True


@dataclass(frozen=True)
class Fault:
    """A fault by name: how it is made, how often by `make faults`, and whether it needs mounts."""

    name: str
    how: str
    inflict: Inflict
    times: int
    mounts: bool = False


FAULTS = [
    Fault("kill -9", "SIGKILL, at a moment or a call", kills, 100),
    Fault("disk full", "tmpfs of few pages or inodes", full_disk, 50, mounts=True),
    Fault("disk full within a write", "ENOSPC after some bytes", full_after, 20),
    Fault("I/O error, once", "EIO at one call", failing(errno.EIO, lasting=False), 24),
    Fault(
        "I/O error, from then on", "EIO at all later calls", failing(errno.EIO, lasting=True), 16
    ),
    Fault(
        "I/O error in reading", "EIO, reads too", failing(errno.EIO, lasting=False, reads=True), 12
    ),
    Fault(
        "read-only on the way", "EROFS at all later calls", failing(errno.EROFS, lasting=True), 12
    ),
    Fault("read-only when it begins", "tmpfs remounted", read_only, 10, mounts=True),
    Fault("read-only over a run", "bind mount over its folder", covered, 8, mounts=True),
    Fault("SIGTERM", "to the process group", signalled(signal.SIGTERM), 14),
    Fault("SIGINT", "to the process group", signalled(signal.SIGINT), 14),
    Fault("SIGHUP", "to the process group", signalled(signal.SIGHUP), 14),
    Fault("SIGSTOP, SIGCONT", "another resumes meanwhile", paused, 6),
    Fault("two writers", "the same command twice", two_writers, 12),
    Fault("clock jumps", "by 20 years, back and forth", clock_jumps, 12),
    Fault("moved after a kill", "the folder has a new name", moved_between, 8),
    Fault("moved during a run", "renamed under it", moved_during, 8),
    Fault("current folder deleted", "before the command begins", deleted_folder, 8),
    Fault("no cache folder", "it cannot be made", no_cache, 8),
    Fault("watched meanwhile", "coterie watch, and a kill -9", watched, 6),
]
BY_FAULT: dict[str, Fault] = {fault.name: fault for fault in FAULTS}
