"""A process beside a run that sends its rows to a tracker, and cannot slow the run or fail it.

The rows come from the run's folder; through a pipe come only the folders of runs that have begun,
and back come only lines to say. Whatever happens to the process, the run goes on.
"""

import multiprocessing
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from coterie.core.errors import RecordError
from coterie.core.spawning import leave_ctrl_c_to_parent, start_deaf
from coterie.core.types import Say
from coterie.trackers.follow import Follower
from coterie.trackers.targets import Target, TrackingError, remember

POLL_S = 0.5
PATIENCE_S = 30.0  # without a word, when the runs are over
QUIET_S = 2.0  # of sending the rest before that is said


@contextmanager
def beside(
    targets: Sequence[Target],
    whole: Path,
    folders: dict[str, Path],
    say: Say,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[str], None]]:
    """Track runs while they are under way; yields what to call with the label of one with rows.

    `whole` is the folder of all, where the targets are remembered for when the runs go on. `clock`
    says how long a tracker has kept everybody waiting.
    """
    trackers: list[Beside] = []
    seen: set[str] = set()

    def begun(label: str) -> None:
        if label in seen:
            return
        if not seen and targets:
            _remember(whole, targets, say)
        seen.add(label)
        for tracker in trackers:
            tracker.begun(folders[label])

    try:
        trackers += [Beside(target, whole, say, clock=clock) for target in targets]
        yield begun
    finally:
        for tracker in trackers:
            tracker.over()
        for tracker in trackers:
            tracker.close()


class Beside:
    """Our side of the process: tells it what has begun, says what it says, gives up on it."""

    def __init__(
        self,
        target: Target,
        whole: Path,
        say: Say,
        patience_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the process; give up after PATIENCE_S without a word, or so much."""
        self._target, self._whole, self._say, self._clock = target, whole, say, clock
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_follow, args=(theirs, target), daemon=True)
        start_deaf(self._process)
        theirs.close()
        self._heard = clock()
        self._failed = self._ended = self._begun = self._gone = False
        self._lock = threading.Lock()
        self._ear = threading.Thread(target=self._listen, daemon=True)
        self._ear.start()

    def begun(self, folder: Path) -> None:
        """Tell of a run that has written a row."""
        self._begun = True
        self._send(folder.absolute())
        self._tell_if_lost()

    def over(self) -> None:
        """Tell that no more will come."""
        self._send(None)

    def close(self) -> None:
        """Wait for the rest to be sent; give up after a time without a word, or with Ctrl-C."""
        self._heard = begin = self._clock()
        told = False
        try:
            while self._ear.is_alive():
                self._ear.join(0.1)
                now = self._clock()
                if now - self._heard > self._patience_s:
                    self._give_up(f"no answer for {self._patience_s:.0f} s, gave up")
                    break
                if not told and now - begin > QUIET_S:
                    told = True
                    self._say(f"{self._target.kind}: sending the rest")
        except KeyboardInterrupt:
            self._give_up("stopped before all was sent")
        finally:
            if self._process.is_alive() and self._ended:
                self._process.join(self._patience_s)
            self._process.kill()
            self._process.join()
            self._ear.join(1.0)
            self._pipe.close()

    def _send(self, what: Path | None) -> None:
        with suppress(OSError):
            self._pipe.send(what)

    def _listen(self) -> None:
        """Say what the process says, until it ends."""
        while True:
            try:
                what, line = self._pipe.recv()
            except (EOFError, OSError):
                break
            self._heard = self._clock()
            if what == "failed":
                self._fail(line)
            elif what == "end":
                self._ended = True
                break
        self._gone = True
        self._tell_if_lost()

    def _tell_if_lost(self) -> None:
        """Say that the process has ended, once there is a run with something to send."""
        if self._begun and self._gone and not self._ended:
            self._give_up(f"{self._target.kind}'s process ended")

    def _give_up(self, why: str) -> None:
        self._fail(f"{self._target.kind}: {why}")

    def _fail(self, line: str) -> None:
        """Say what went wrong, the first time also how to send the rest."""
        with self._lock:
            first, self._failed = not self._failed, True
        if first:
            words = ("coterie", "track", str(self._whole), "--to", str(self._target))
            way = " ".join(map(shlex.quote, words))
            self._say(f"{line}; send the rest with: {way}")


def _remember(whole: Path, targets: Sequence[Target], say: Say) -> None:
    try:
        remember(whole, targets)
    except OSError as error:
        say(f"{whole}: where it is tracked is not remembered ({error.strerror})")


def _follow(pipe: Connection, target: Target) -> None:
    """Follow the runs that come through the pipe until it says that all are over, or ends."""
    _keep_to_ourselves()
    coming: list[Path] = []
    news, over = threading.Event(), threading.Event()

    def listen() -> None:
        while True:
            try:
                folder = pipe.recv()
            except (EOFError, OSError):
                folder = None
            if folder is None:
                over.set()
                news.set()
                return
            coming.append(folder)
            news.set()

    threading.Thread(target=listen, daemon=True).start()
    followers: list[Follower] = []

    def tell(what: str, line: str = "") -> None:
        with suppress(OSError):
            pipe.send((what, line))

    while True:
        last = over.is_set()  # before looking, so that what came before it is looked at
        news.clear()
        while coming:
            followers.append(Follower(coming.pop(0), target))
        followers = [each for each in followers if _look(each, tell)]
        if last and not coming:
            break
        news.wait(0 if over.is_set() else POLL_S)
    for each in followers:
        each.leave()
        tell("at")
    tell("end")


def _look(follower: Follower, tell: Callable[..., None]) -> bool:
    """Send what is new of a run; return whether it is to be looked at again."""
    try:
        follower.look()
    except (TrackingError, RecordError) as error:
        tell("failed", str(error))
        follower.leave()
        return False
    tell("at")
    return not follower.done


def _keep_to_ourselves() -> None:
    """Leave Ctrl-C, the terminal and the cores to the parent: its pipe says when to stop."""
    leave_ctrl_c_to_parent()
    if hasattr(os, "setsid"):
        with suppress(OSError):
            os.setsid()
            os.nice(10)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
