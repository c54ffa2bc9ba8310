"""Processes that are kept: started again whenever they end, with the app that was on them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coterie.core.errors import short
from coterie.core.types import Say
from coterie.flower import FlowerError
from coterie.flower.control import App, apps, end_app, register
from coterie.flower.deploy import Deployment, check_place, held
from coterie.flower.edge import RESULT
from coterie.flower.hosts import COORDINATOR
from coterie.flower.processes import (
    CLIENT_APP,
    HELPER,
    SERVER_APP,
    STOP_S,
    below,
    end_left,
    end_older,
    flwr,
    listens,
    log_of,
    start,
    stop,
)

FIRST_S, MOST_S = 1.0, 10.0  # pauses before a process is started again: doubled from the first
LONG_S = 60.0  # a process that has run that long begins with the first pause again
LOOK_S, HELPER_S = 5.0, 2.0  # between looks at an app, and at a helper
TAIL = 4096  # of the bytes of a log, the last that are looked at
# how a SuperNode says that it sends an answer or starts an app, ...
OPEN = ("Sending: ", "Start `flwr-clientapp`")
# ... and that it has sent it, goes on without, or is asked anew
CLOSED = ("Sent successfully", "Ignoring reply", "Failed to send", "Receiving: ")
RUN = "[RUN "  # whose messages the next lines are of
UNSENT_S = 90.0  # how long an app may be gone whose answer is not sent; Flower waits 60 s for one
ENDS_S = 60.0  # how long an app may take to end that has left its result
BEGIN_S = 20.0  # how long an app may be taken to run without that a process of it was ever seen


def pause_s(ends: int) -> float:
    """Return how long to wait before a process is started that ended so many times in a row.

    >>> [pause_s(k) for k in (1, 2, 3, 4, 5, 6)]
    [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    """
    return min(MOST_S, FIRST_S * 2.0 ** min(ends - 1, 10))


class Kept:
    """A process that is started again whenever it ends, or whenever its helper is gone.

    Flower's SuperLinks and SuperNodes start apps by a helper; without it they live on, and no app
    is ever started again.
    """

    def __init__(self, d: Deployment, name: str, command: list[str], say: Say) -> None:
        """Start the process."""
        self.name, self.restarts, self.ends = name, 0, 0
        self._d, self._command, self._say = d, command, say
        self._helped, self._end_at, self._helper_at = False, 0.0, 0.0
        self._half = ("", 0.0)  # an answer that is being sent without an app, and since when
        self._again_at: float | None = None
        self.process, self.since = self._start(), time.monotonic()

    def _start(self) -> subprocess.Popen[bytes]:
        end_left(self._d, self._command)
        log = log_of(self._d, self.name)
        self._log_from = log.stat().st_size if log.exists() else 0
        return start(self._d, self.name, self._command)

    def clear(self) -> None:
        """Kill what the process left."""
        end_left(self._d, self._command)

    @property
    def lives(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def look(self) -> bool:
        """Do what is due; return whether the process was started again."""
        now = time.monotonic()
        if self.lives:
            if now >= self._helper_at:
                self._look_at_helper(now)
                self._look_at_answer(now)
                self._helper_at = now + HELPER_S
            return False
        if self._again_at is None:
            self.ends = 1 if now - self.since > LONG_S else self.ends + 1
            self._again_at = now + pause_s(self.ends)
            stop([self.process])  # whatever it left of its group
            how = f"ended with {self.process.returncode}; see {log_of(self._d, self.name)}"
            self._say(f"{self.name} {how}; it is started again in {pause_s(self.ends):g} s")
        if now < self._again_at:
            return False
        self._again_at, self._helped, self._end_at, self._half = None, False, 0.0, ("", 0.0)
        self.process, self.since = self._start(), now
        self.restarts += 1
        return True

    def _look_at_helper(self, now: float) -> None:
        for program in (SERVER_APP, CLIENT_APP):
            if older := end_older(self.process.pid, program):
                self._say(f"{self.name}: {older} {program} ended that took too long to begin")
        there = below(self.process.pid, HELPER)
        if there is None:
            return
        self._helped = self._helped or bool(there)
        if not self._helped or there:
            return
        self._end(f"lost its {HELPER}", now)

    def _look_at_answer(self, now: float) -> None:
        """End a SuperNode that has an answer to send, and does not, its app gone.

        An app that is killed while it hands its answer over leaves half of it, and Flower waits for
        the other half without end. And a SuperNode sends one answer each time it is asked: if one
        to an app that was begun anew is left, it sends that one, and is an answer late ever after.
        """
        left = "" if below(self.process.pid, CLIENT_APP) != [] else unanswered(self._log())
        if left != self._half[0]:
            self._half = left, now
        if not left:
            return
        half = OPEN[0] in left.rpartition("\n")[2]
        if now - self._half[1] > (self._d.timeout_s if half else UNSENT_S):
            part = "of which its app left a part" if half else "that it does not send"
            self._end(f"has an answer {part}", now)

    def _log(self) -> str:
        """Read the last of what the process has printed since it was started."""
        try:
            with log_of(self._d, self.name).open("rb") as file:
                file.seek(max(self._log_from, file.seek(0, os.SEEK_END) - TAIL))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def _end(self, why: str, now: float) -> None:
        """End the process, kindly first."""
        if not self._end_at:
            self._say(f"{self.name} {why}; it is ended, to be started again")
            self._end_at = now + STOP_S
            os.killpg(self.process.pid, signal.SIGTERM)
        elif now > self._end_at:
            os.killpg(self.process.pid, signal.SIGKILL)


def unanswered(log: str) -> str:
    """Return the lines of a SuperNode's log by which it has an answer to send, or "".

    One to a run that has ended is dropped, and the message of the run that took its place waits.

    >>> unanswered("Start `flwr-clientapp` process\\nSending: a (ID: 1)\\nSent successfully")
    ''
    >>> unanswered("Receiving: b\\nSending: train message (ID: 2)\\n")
    'Receiving: b\\nSending: train message (ID: 2)'
    >>> unanswered("Sent successfully\\nStart `flwr-clientapp` process").partition("\\n")[2]
    'Start `flwr-clientapp` process'
    >>> begun = "[RUN 2]\\nReceived successfully\\nStart `flwr-clientapp` process"
    >>> bool(unanswered(f"{begun}\\n[RUN 1]\\nSending: a\\nRun ID 1: Ignoring reply message a"))
    True
    >>> bool(unanswered(f"{begun}\\n[RUN 2]\\nSending: a\\nRun ID 2: Ignoring reply message a"))
    False
    """
    lines: list[str] = []
    run = taken = ""  # of the lines at hand, and of the message that was taken last
    for line in log.splitlines():
        if RUN in line:
            run = line
        elif "Received successfully" in line:
            taken = run
        elif any(word in line for word in OPEN + CLOSED):
            lines.append(line)
    if not lines:
        return ""
    other = "Ignoring reply" in lines[-1] and run != taken != ""
    return "\n".join(lines) if other or any(word in lines[-1] for word in OPEN) else ""


class Place:
    """A place: its SuperLink, the keys that are known there, and its app.

    An app that was begun, and whose process was killed, is begun again on the SuperLink; one that
    is complete, that somebody stopped, or that left a result is not.
    """

    def __init__(self, d: Deployment, place: str, say: Say) -> None:
        """Start the SuperLink."""
        self.link = Kept(d, place, d.superlink(place), say)
        self.place, self.app_starts = place, 0
        self.ready = False
        self._d, self._say = d, say
        self._fresh, self._keys = True, 0
        self._look_at = self._alone_since = 0.0
        self._seen = 0  # the last app that a process was seen of
        self._problem = ""

    def look(self) -> None:
        """Do what is due."""
        if self.link.look():
            self.ready, self._fresh = False, True
        if not self.link.lives:
            return
        now = time.monotonic()
        if now < self._look_at:
            return
        try:
            if not self.ready and not self._listens():
                self._look_at = now + 0.3
                return
            self._register()
            self.ready = True
            self._tend(now)
            self._problem = ""
        except FlowerError as error:  # a SuperLink that was killed just now, perhaps
            if str(error) != self._problem:
                self._problem = str(error)
                self._say(f"{self.place}: {error}")
        self._look_at = time.monotonic() + (LOOK_S if self.ready else 1.0)

    @property
    def app_lives(self) -> bool:
        """Whether a process of its app runs, as far as that is to be seen."""
        return self.link.lives and below(self.link.process.pid, SERVER_APP) != []

    def _listens(self) -> bool:
        d = self._d
        return listens(d.host(self.place), d.port + d.places.index(self.place))

    def _register(self) -> None:
        """Register the keys that are here, once, and again when the folder has changed."""
        if not self._d.secure:
            return
        folder = self._d.folder / "keys"
        changed = max(path.stat().st_mtime_ns for path in [folder, *folder.glob("*.pub")])
        if self.ready and changed == self._keys:
            return
        done = register(self._d, self.place)
        self._keys = changed
        if done.new or done.missing:
            more = f", {len(done.missing)} not here yet" if done.missing else ""
            self._say(f"{self.place}: {done.new} keys registered, {done.known} known before{more}")

    def _tend(self, now: float) -> None:
        """Begin the app again if its process is gone before its time."""
        living = below(self.link.process.pid, SERVER_APP)  # before how it ended, if it did
        begun = apps(self._d, self.place)
        fresh, self._fresh = self._fresh, False
        if not begun:
            return
        if living:
            self._seen, self._alone_since = begun[0].number, now
        known = fresh or self._seen == begun[0].number
        waited_s = BEGIN_S if known else now - (self._alone_since or now)
        self._alone_since = self._alone_since or now
        done = self.place == COORDINATOR and (self._d.folder / RESULT).exists()
        if due(begun[0], living, waited_s, done=done):
            self._say(f"the app of {self.place} was {begun[0].status}; it is begun again")
            begin(self._d, self.place)
            self.app_starts += 1
            self._alone_since = 0.0
            for app in begun:
                if app.unfinished:
                    with suppress(FlowerError):  # it may have ended meanwhile
                        end_app(self._d, self.place, app.number)


def due(app: App, living: list[int] | None, waited_s: float, *, done: bool) -> bool:
    """Whether an app is to be begun again that was begun last.

    `living` are its processes, None where they are not to be seen; `waited_s` is how long none has
    come.

    >>> [due(App(1, s), [], BEGIN_S, done=False) for s in ("running", "finished:failed")]
    [True, True]
    >>> [due(App(1, s), [], 99, done=False) for s in ("finished:completed", "finished:stopped")]
    [False, False]
    >>> due(App(1, "running"), [7], 99, done=False), due(App(1, "running"), None, 99, done=False)
    (False, False)
    """
    if done or living:
        return False
    if app.unfinished:
        return living is not None and waited_s >= BEGIN_S
    return app.status == "finished:failed"


def begin(d: Deployment, place: str) -> None:
    """Start the app of a place."""
    flwr(d, d.run(place))


def _runs(d: Deployment, place: str) -> bool:
    """Whether the SuperLink of a place takes its app for running."""
    return any(app.unfinished for app in apps(d, place)[:1])


def begin_all(d: Deployment, say: Say) -> None:
    """Start the app of every place that has none running: of the edges, then of the coordinator.

    A coordinator that has left its result is about to end, and is waited for.
    """
    until = time.monotonic() + ENDS_S
    while (d.folder / RESULT).exists() and _runs(d, COORDINATOR) and time.monotonic() < until:
        time.sleep(0.3)
    running = {place for place in d.places if _runs(d, place)}
    if COORDINATOR not in running:
        (d.folder / RESULT).unlink(missing_ok=True)
    for place in [*d.places[1:], COORDINATOR]:
        if place in running:
            say(f"the app of {place} runs already")
            continue
        begin(d, place)
        say(f"the app of {place} is begun")


def keep(d: Deployment, name: str, say: Say, until: Callable[[], bool] = lambda: False) -> None:
    """Keep a process of a deployment, by its name, until told to stop.

    An edge is its SuperLink with its app, and the SuperNode by which the coordinator reaches it.
    """
    i = None if name in d.places else _node(d, name)
    if i is None:  # a node needs nothing but its keys, wherever they are
        check_place(d.folder)
    (d.folder / "logs").mkdir(parents=True, exist_ok=True)
    kept: list[Kept | Place] = []
    with held(d, [name]), ending(kept):
        if i is None:
            kept.append(Place(d, name, say))
            if name != COORDINATOR:
                kept.append(Kept(d, f"bridge-{name}", d.bridges()[name], say))
        else:
            kept.append(Kept(d, name, d.node(i), say))
        say(f"{name} started; its words are in {log_of(d, name)}")
        while not until():
            for each in kept:
                each.look()
            time.sleep(0.3)


@contextmanager
def ending(kept: list[Kept | Place]) -> Iterator[None]:
    """End processes, whatever happens."""
    try:
        yield
    finally:
        end_all([each.link if isinstance(each, Place) else each for each in kept])


def end_all(kept: list[Kept]) -> None:
    """End processes at once, and what they leave."""
    stop([each.process for each in kept])
    for each in kept:
        each.clear()


def _node(d: Deployment, name: str) -> int:
    """Return which node of the plan has a process of that name."""
    for i in range(len(d.plan.nodes)):
        if d.key(i) == name:
            return i
    raise FlowerError(
        f"{d.folder} has no process {short(name)}; it has {', '.join(d.places)} and the nodes of "
        f"{Path(d.folder, 'nodes.csv')}, such as {d.key(0)}"
    )
