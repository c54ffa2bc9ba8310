"""Readers tried in processes of their own, so that whatever they do is seen: even their death."""

import mmap
import os
import random
import resource
import signal
import struct
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.core.boundary import in_a_line
from coterie.core.errors import CoterieError
from fuzz.mutate import mutated

MOST_S = 10.0  # of the processor, for one input
MOST_WALL_S = 120.0  # on a machine that does other things as well
MOST_BYTES = 2 << 30  # beyond what the process has when it starts
FINE = ("read", "refused", "caught")


@dataclass(frozen=True)
class Reader:
    """Something that reads files: good ones by their names, and what reads them from a folder.

    Of them the `changed` ones are mutated, or all. `wrap` makes a file of what was changed, such as
    an archive with the right sum.
    """

    files: dict[str, bytes]
    read: Callable[[Path], object]
    changed: tuple[str, ...] = ()
    wrap: Callable[[str, bytes], bytes] = lambda name, content: content
    mutate: Callable[[bytes, random.Random], bytes] = mutated

    def case(self, label: str, number: int) -> tuple[str, bytes]:
        """Return the file that is changed in a case, and how."""
        rng = random.Random(f"{label} {number}")
        name = rng.choice(self.changed or tuple(self.files))
        return name, self.wrap(name, self.mutate(self.files[name], rng))


@dataclass(frozen=True)
class Finding:
    """A case that ended as none should: the reader, the number, the file, how."""

    label: str
    number: int
    name: str
    kind: str
    says: str


@dataclass
class Tally:
    """How many cases ended how, what was found, and the longest of them in CPU seconds."""

    ends: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    longest_s: float = 0.0


class Slow(BaseException):
    """A case that has used up its time."""


def lay_out(reader: Reader, folder: Path) -> None:
    """Write the good files."""
    for name, content in reader.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(reader.wrap(name, content))


def attempt(reader: Reader, folder: Path, name: str, content: bytes) -> tuple[str, str]:
    """Read the files with one of them changed, and say how that ended."""
    (folder / name).write_bytes(content)
    try:
        reader.read(folder)
    except CoterieError as error:
        if _memory(error):
            return "memory", in_a_line(error)
        if "\n" in str(error).strip() or len(str(error)) > 2000:
            return "long", str(error)[:300]
        return ("caught", _where(error)) if error.unforeseen else ("refused", "")
    except Slow:
        return "slow", f"over {MOST_S:g} s"
    except MemoryError as error:
        return "memory", _where(error)
    except BaseException as error:
        return "foreign", _where(error)
    finally:
        (folder / name).write_bytes(reader.wrap(name, reader.files[name]))
    return "read", ""


def run(label: str, reader: Reader, first: int, count: int, folder: Path) -> Tally:
    """Try so many cases, in a child; where it dies, another goes on after the case it died of."""
    tally, at = Tally(), first
    while at < first + count:
        board = mmap.mmap(-1, 16)
        news_in, news_out = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(news_in)
            _child(label, reader, range(at, first + count), folder, board, news_out)
        os.close(news_out)
        status, told = _wait(pid, news_in, board)
        _count(tally, label, told)
        reached, _ = struct.unpack("qd", board[:16])
        board.close()
        if status == 0:
            break
        name, _ = reader.case(label, reached)
        died = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"{status}"
        tally.ends["signal"] += 1
        tally.findings.append(Finding(label, reached, name, "signal", died))
        at = reached + 1
    return tally


def _child(
    label: str, reader: Reader, numbers: range, folder: Path, board: mmap.mmap, news: int
) -> None:
    """Try cases, writing the number of each on the board before, and how it ended into the pipe."""
    os.environ.pop("COTERIE_DEBUG", None)
    with open(news, "w", 1, encoding="utf-8", errors="backslashreplace") as out:
        try:
            lay_out(reader, folder)
            warnings.simplefilter("error")  # a user would see them
            with limited():
                for number in numbers:
                    board[:16] = struct.pack("qd", number, time.time())
                    name, content = reader.case(label, number)
                    began = time.process_time()
                    signal.setitimer(signal.ITIMER_PROF, MOST_S)
                    kind, says = attempt(reader, folder, name, content)
                    signal.setitimer(signal.ITIMER_PROF, 0)
                    spent = time.process_time() - began
                    line = " ".join(says.split())
                    out.write(f"{number}\t{name}\t{kind}\t{spent:.3f}\t{line}\n")
        except BaseException:
            traceback.print_exc()
            out.flush()
            os._exit(3)
    os._exit(0)


@contextmanager
def limited() -> Iterator[None]:
    """Have no more memory than the process has, and the most that a case may take."""

    def too_slow(*_: object) -> None:
        raise Slow

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before = signal.signal(signal.SIGPROF, too_slow)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _wait(pid: int, news: int, board: mmap.mmap) -> tuple[int, str]:
    """Take what a child says until it ends; end it where a case takes too long by the clock."""
    import select

    said = []
    while True:
        ready, _, _ = select.select([news], [], [], 5.0)
        if ready:
            piece = os.read(news, 1 << 16)
            if not piece:
                break
            said.append(piece)
        _, since = struct.unpack("qd", board[:16])
        if since and time.time() - since > MOST_WALL_S:
            os.kill(pid, signal.SIGKILL)
    os.close(news)
    return os.waitpid(pid, 0)[1], b"".join(said).decode()


def _count(tally: Tally, label: str, told: str) -> None:
    for line in told.splitlines():
        number, name, kind, spent, says = line.split("\t", 4)
        tally.ends[kind] += 1
        tally.longest_s = max(tally.longest_s, float(spent))
        if kind not in FINE:
            tally.findings.append(Finding(label, int(number), name, kind, says))
        elif kind == "caught":
            tally.ends[f"caught: {says}"] += 1


def _memory(error: BaseException | None) -> bool:
    """Whether an error was made of a lack of memory."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__
    return False


def _where(error: BaseException) -> str:
    """Name an exception, or what is behind it, and the last place in coterie it came from."""
    cause: BaseException = error.__cause__ or error
    frames: list[Any] = list(traceback.extract_tb(cause.__traceback__))
    ours = [f for f in frames if "coterie" in f.filename and "boundary" not in f.filename]
    at = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{at} {in_a_line(cause)[:120]}"
