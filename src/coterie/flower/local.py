"""A deployment on this machine: all its processes on loopback, kept from start to end."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from coterie.core.regular import read_mapping
from coterie.core.types import Json, Say
from coterie.flower import FlowerError
from coterie.flower.deploy import LINKS, Deployment
from coterie.flower.edge import RESULT
from coterie.flower.health import Health, Rounds, rows_of
from coterie.flower.hosts import COORDINATOR
from coterie.flower.keep import Kept, Place, begin, end_all
from coterie.flower.processes import (
    POLL_S,
    STOP_S,
    app_log_of,
    check_free,
    log_of,
    wait_for_port,
)

HEALTH_S = 30.0  # between lines on who is there
TRIES = 3  # times that an app is begun without a round coming of it, or a SuperLink in vain


class Local:
    """All processes of a deployment on this machine."""

    def __init__(self, d: Deployment, say: Say) -> None:
        """Start the SuperLinks; the others come later."""
        self.d, self.say = d, say
        self.places: dict[str, Place] = {}
        self.nodes: dict[str, Kept] = {}

    @property
    def processes(self) -> dict[str, subprocess.Popen[bytes]]:
        """The processes by name, as they are now."""
        links = {name: place.link.process for name, place in self.places.items()}
        return links | {name: node.process for name, node in self.nodes.items()}

    def look(self) -> None:
        """Start again what ended; say if that is in vain."""
        for place in self.places.values():
            place.look()
            if place.link.ends >= TRIES:
                at = log_of(self.d, place.place)
                raise FlowerError(f"{place.place} ended {TRIES} times in a row; see {at}")
        for node in self.nodes.values():
            node.look()

    def health(self) -> Health:
        """Return who is there, as far as processes say."""
        nodes, bridges = self.d.nodes(), self.d.bridges()
        places, n = self.places.values(), len(self.places)
        again = {k.name: k.restarts for k in [*self.nodes.values(), *(p.link for p in places)]}
        said = [f"{name} {times}" for name, times in again.items() if times]
        return Health(
            (sum(place.link.lives for place in places), n),
            (sum(self.nodes[name].lives for name in nodes), len(nodes)),
            (sum(self.nodes[f"bridge-{name}"].lives for name in bridges), len(bridges)),
            (sum(place.app_lives for place in places), n),
            (f"started again: {', '.join(said)}",) if said else (),
        )


@contextmanager
def started(d: Deployment, say: Say = print) -> Iterator[Local]:
    """Start SuperLinks and SuperNodes, register keys; whatever happens, end them all.

    What SuperLinks remember of a run before is of the past: its apps and nodes are gone.
    """
    (d.folder / "logs").mkdir(parents=True, exist_ok=True)
    for place in d.places:
        for path in (d.folder / LINKS).glob(f"{place}.db*"):
            path.unlink()
    all_ = Local(d, say)
    try:
        for place in d.places:
            all_.places[place] = Place(d, place, say)
        for k, place in enumerate(d.places):
            link = all_.places[place].link
            wait_for_port(d.host(place), d.port + k, link.process, log_of(d, place))
        say(f"{len(d.places)} SuperLinks listen on {d.host(COORDINATOR)}")
        for each in all_.places.values():
            each.look()
        for name, command in d.nodes().items():
            all_.nodes[name] = Kept(d, name, command, say)
        for place, command in d.bridges().items():
            all_.nodes[f"bridge-{place}"] = Kept(d, f"bridge-{place}", command, say)
        say(f"{len(d.nodes())} SuperNodes started, and {len(d.bridges())} for the edges")
        yield all_
    finally:
        end_all([*(place.link for place in all_.places.values()), *all_.nodes.values()])


def run_locally(d: Deployment, say: Say = print) -> Json:
    """Start everything, train, stop everything; return what the coordinator wrote at the end.

    Rounds are told as they end, and every half minute who is there. What is killed meanwhile is
    started again.
    """
    if not d.local:
        raise FlowerError("only a deployment on loopback can be started from here")
    result = d.folder / RESULT
    for port in range(d.port, d.port + len(d.places)):
        check_free(port)
    for command in (*d.nodes().values(), *d.bridges().values()):  # those of before may be ending
        check_free(int(command[command.index("--port") + 1]), "--node-port", STOP_S)
    result.unlink(missing_ok=True)
    with started(d, say) as here:
        for place in [*d.places[1:], COORDINATOR]:
            begin(d, place)
        say(f"training; the coordinator's words are in {app_log_of(d, COORDINATOR)}")
        _watch(here, Rounds(d, len(rows_of(d))))
        found = read_mapping(result)
    if found.get("status") != "complete":
        raise FlowerError(str(found.get("error") or f"{result}: has no status; training failed"))
    return found


def _watch(here: Local, rounds: Rounds) -> None:
    """Keep the processes and tell the rounds until the coordinator leaves a result."""
    d, say, health_at = here.d, here.say, time.monotonic() + HEALTH_S
    before = dict.fromkeys(d.places, 0)
    while not (d.folder / RESULT).exists():
        here.look()
        for line in rounds.new():
            say(line)
            before = {name: place.app_starts for name, place in here.places.items()}
        for name, place in here.places.items():
            if place.app_starts - before[name] >= TRIES:
                raise FlowerError(
                    f"the app of {name} ended {TRIES} times without a round; see "
                    f"{app_log_of(d, name)}"
                )
        if time.monotonic() >= health_at:
            health_at = time.monotonic() + HEALTH_S
            say(f"{here.health()}; {rounds.said()}")
        time.sleep(POLL_S)
    for line in rounds.new():
        say(line)
