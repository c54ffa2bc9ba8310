"""Where faults are tried: commands to start, a disk to fill, and how each kind ends undisturbed."""

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datafiles import write_mnist
from faults.control import Control, Counted, Happens, build
from faults.kinds import BY_NAME, KINDS, OUT, Kind
from faults.promises import broken, difference, ending, rows_in, snapshot
from faults.zygote import SOURCE, Ended, Zygote

TESTS = Path(__file__).parents[1]
ROOMY = "size=512m,nr_inodes=100000"
PAGE = 4096
NAMESPACE = "FAULTS_NAMESPACE"  # set where mounts are seen by nobody else


@dataclass(frozen=True)
class Undisturbed:
    """How a kind ends by itself: what it leaves, how long it takes, and what it does to files."""

    ending: dict[str, Any]
    rows: dict[str, list[str]]
    seconds: float
    counted: Counted
    pages: int  # of a disk, at its end
    inodes: int


@dataclass
class Case:
    """A kind of command in a folder of its own, before, during and after a fault."""

    rig: "Rig"
    kind: Kind
    place: Path
    before: dict[str, bytes] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)
    unable: bool = False  # a process was killed, or could remove nothing: temporary files stay

    def start(self, *words: str) -> tuple[int, Path]:
        """Start the command, or another."""
        return self.rig.start(self, words or self.kind.words)

    def end(self, started: tuple[int, Path], *codes: int) -> Ended:
        """Wait for its end, and note which promises are broken by then."""
        ended = self.rig.zygote.end(started)
        self.unable |= ended.code < 0
        self.bad += broken(self.kind, self.place, self.before, ended, codes, tidy=not self.unable)
        for name, rows in rows_in(self.place).items():
            if self.rig.undisturbed(self.kind).rows[name][: len(rows)] != rows:
                self.bad.append(f"{self.kind.name}: {name} has other rows")
        return ended

    def settle(self, ended: Ended | None = None) -> None:
        """Go on without the fault, unless the end was reached; it has to be the same one."""
        self.rig.control.set()
        if ended is None or ended.code != 0:
            started = self.start(*self.kind.again(self.place))
            last = self.end(started, 0)
            self.bad += [f"{self.kind.name}: again: {last.err[-300:]}"] * (last.code != 0)
        if self.kind.after:
            self.end(self.start(*self.kind.after), 0)
        differs = difference(ending(self.place), self.rig.undisturbed(self.kind).ending)
        if differs:
            self.bad.append(f"{self.kind.name}: in the end {differs}")


class Rig:
    """Starts commands with a shim before libc, in folders of a disk that can be filled."""

    def __init__(self, root: Path, seed: int = 0, kinds: Sequence[Kind] = KINDS) -> None:
        """Build the shim, mount a disk if that is possible, and load everything once."""
        self.root, self.rng, self.kinds = root, random.Random(seed), kinds
        self.disk = root / "disk"
        self.disk.mkdir()
        self.mounts = bool(os.environ.get(NAMESPACE))
        if self.mounts:
            _mount("-t", "tmpfs", "-o", ROOMY, "tmpfs", str(self.disk))
        self.cache = root / "cache"
        self.control = Control(root / "control")
        path = os.pathsep.join(map(str, (SOURCE, TESTS)))
        self._env = {
            **os.environ,
            "LD_PRELOAD": str(build(root)),
            "FAULTS_CONTROL": str(self.control.path),
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "COTERIE_DATA": str(self.cache),
            "MPLCONFIGDIR": str(root / "matplotlib"),
        }
        self.zygote = Zygote(self._env, root / "said")
        self._known: dict[str, Undisturbed] = {}
        self._number = 0
        self._done = root / "done"
        self._make_ready()

    def _make_ready(self) -> None:
        """Import a dataset, which a reproduction needs, and make a complete run."""
        given = write_mnist(self.root / "given", (5000, 500))
        self._must("data", "import", "mnist-f", str(given), "--trust")
        run = BY_NAME["run"]
        run.prepare(self.root / "first", self._done)
        self._must(*run.words, cwd=self.root / "first")
        (self.root / "first" / OUT).rename(self._done)

    def _must(self, *words: str, cwd: Path | None = None) -> None:
        ended = self.zygote.end(self.zygote.start([*words], cwd or self.root))
        assert ended.code == 0, ended.err

    def case(self, kind: Kind) -> Case:
        """Prepare a folder for a kind of command; the ones before go."""
        self.undisturbed(kind)
        return self._case(kind)

    def _case(self, kind: Kind) -> Case:
        self._number += 1
        for old in self.disk.iterdir():
            shutil.rmtree(old)
        place = self.disk / str(self._number) / "place"
        kind.prepare(place, self._done)
        return Case(self, kind, place, snapshot(place))

    def start(self, case: Case, words: tuple[str, ...]) -> tuple[int, Path]:
        """Start a command in the folder of a case."""
        cache = case.place / "cache" if case.kind.imports else self.cache
        return self.zygote.start([*words], case.place, {"COTERIE_DATA": str(cache)})

    def undisturbed(self, kind: Kind) -> Undisturbed:
        """Return how a kind ends by itself, found out the first time."""
        if kind.name not in self._known:
            case = self._case(kind)
            before = os.statvfs(self.disk)
            self.control.set(case.place)
            began = time.monotonic()
            ended = self.zygote.end(case.start())
            seconds = time.monotonic() - began
            after = os.statvfs(self.disk)
            assert ended.code == 0, f"{kind.name}: {ended.err}"
            self._known[kind.name] = Undisturbed(
                ending(case.place),
                rows_in(case.place),
                seconds,
                self.control.counted,
                (before.f_bfree - after.f_bfree) * before.f_bsize // PAGE,
                before.f_ffree - after.f_ffree,
            )
            self.control.set()
        return self._known[kind.name]

    def strike(self, case: Case, what: Happens) -> Counted:
        """Say what happens below a case's folder from now on; return what was counted before."""
        counted = self.control.counted
        self.control.set(case.place, what)
        return counted

    @contextmanager
    def limited(self, pages: int | None = None, inodes: int | None = None) -> Iterator[None]:
        """Leave so many pages or inodes free on the disk."""
        now = os.statvfs(self.disk)
        size = (now.f_blocks - now.f_bfree) * now.f_bsize // PAGE
        room = [f"size={(size + pages) * PAGE}"] if pages is not None else []
        used = now.f_files - now.f_ffree
        room += [f"nr_inodes={used + inodes}"] if inodes is not None else []
        _mount("-o", f"remount,{','.join(room)}", str(self.disk))
        try:
            yield
        finally:
            _mount("-o", f"remount,{ROOMY}", str(self.disk))

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Let the disk be read only."""
        _mount("-o", "remount,ro", str(self.disk))
        try:
            yield
        finally:
            _mount("-o", "remount,rw", str(self.disk))

    @contextmanager
    def covered(self, folder: Path) -> Iterator[None]:
        """Put a view of a folder over it that can only be read; who has a file open keeps it.

        The view is made aside: over the folder, somebody could write before it is read-only.
        """
        view = folder.parent.parent / "view"
        view.mkdir()
        _mount("--bind", str(folder), str(view))
        _mount("-o", "remount,bind,ro", str(view))
        _mount("--bind", str(view), str(folder))
        try:
            yield
        finally:
            for mounted in (folder, view):
                subprocess.run(["umount", str(mounted)], check=True)
            view.rmdir()

    def close(self) -> None:
        """End the process, and take the disk away."""
        self.zygote.close()
        if self.mounts:
            subprocess.run(["umount", "--lazy", str(self.disk)], check=True)


@contextmanager
def a_rig(seed: int = 0, kinds: Sequence[Kind] = KINDS) -> Iterator[Rig]:
    """Make a rig in a folder of its own, which goes with it."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        rig = Rig(Path(folder).resolve(), seed, kinds)
        try:
            yield rig
        finally:
            rig.close()


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def namespace() -> list[str]:
    """Return the command before another that gives it mounts of its own; empty if none can."""
    for words in (["unshare", "-m"], ["unshare", "-rm"]):
        if shutil.which("unshare") is None:
            break
        probe = [*words, "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /tmp"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return words
    return []
