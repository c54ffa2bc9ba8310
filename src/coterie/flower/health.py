"""How a deployment is: its rounds as they happen, and one line on who is there."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coterie.core.regular import read_mapping
from coterie.core.types import Say
from coterie.flower import FlowerError
from coterie.flower.control import apps, online
from coterie.flower.deploy import Deployment
from coterie.flower.edge import RESULT, coordinator_terms, said_scores
from coterie.flower.hosts import COORDINATOR
from coterie.flower.state import FILE, saved

STATE, POLL_S = "state", 0.5


@dataclass(frozen=True)
class Health:
    """Who is there, of how many."""

    links: tuple[int, int]
    nodes: tuple[int, int]
    bridges: tuple[int, int]
    apps: tuple[int, int]
    problems: tuple[str, ...] = ()

    @property
    def well(self) -> bool:
        """Whether all are there."""
        pairs = (self.links, self.nodes, self.bridges, self.apps)
        return all(there >= of for there, of in pairs) and not self.problems

    def __str__(self) -> str:
        """Put it into a line.

        >>> print(Health((3, 3), (5, 6), (2, 2), (3, 3), ("node-4 ended",)))
        3 of 3 SuperLinks, 5 of 6 nodes, 2 of 2 edges, 3 of 3 apps; node-4 ended
        """
        words = ("SuperLinks", "nodes", "edges", "apps")
        pairs = (self.links, self.nodes, self.bridges, self.apps)
        said = [f"{n} of {of} {word}" for (n, of), word in zip(pairs, words, strict=True)]
        return "; ".join([", ".join(said), *self.problems])


def rows_of(d: Deployment) -> list[dict[str, Any]]:
    """Return what the coordinator wrote about every round that is over; none on other machines."""
    return list(saved(d.folder / STATE).get("rows", []))


def rounds_of(d: Deployment) -> int:
    """Return how many rounds a deployment has to train."""
    terms = coordinator_terms(d.plan, d.rounds, d.timeout_s)
    return -(-terms.steps // terms.schedule.cycle)


class Rounds:
    """The rounds of a deployment, each told once."""

    def __init__(self, d: Deployment, told: int = 0) -> None:
        """Begin after so many that are known."""
        self._d, self.told, self._seen = d, told, (0, 0)
        self.since = time.monotonic()

    def new(self) -> Iterator[str]:
        """Say of every round that has ended since the last look what came of it."""
        if (at := _stamp(self._d.folder / STATE / FILE)) == self._seen:
            return
        self._seen, rows = at, rows_of(self._d)
        for row in rows[self.told :]:
            self.since = time.monotonic()
            yield f"round {row['round']} of {rounds_of(self._d)}: {said_row(row)}"
        self.told = max(self.told, len(rows))

    def said(self) -> str:
        """Say how many are over, and since when."""
        since_s, of = time.monotonic() - self.since, rounds_of(self._d)
        return f"{self.told} of {of} rounds over, {since_s:.0f} s into the next"


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def said_row(row: dict[str, Any]) -> str:
    """Put a row of the coordinator's into words.

    >>> said_row({"counted": 2, "train.nodes-counted": 12, "train.nodes-late": 1, "test.loss": 0.5})
    '2 edges, 12 answers of nodes, 1 late, loss 0.5000'
    """
    said = [f"{row['counted']} edges"]
    if "train.nodes-counted" in row:
        said.append(f"{row['train.nodes-counted']:g} answers of nodes")
    for fault in ("late", "failed", "rejected"):
        if row.get(f"train.nodes-{fault}"):
            said.append(f"{row[f'train.nodes-{fault}']:g} {fault}")
    return ", ".join([*said, *said_scores(row)])


def ask_health(d: Deployment) -> Health:
    """Ask every SuperLink who is there; one that does not answer is a problem, and named."""
    links = nodes = bridges = running = 0
    problems = []
    for place in d.places:
        try:
            there, begun = online(d, place), apps(d, place)
        except FlowerError as error:
            problems.append(str(error))
            continue
        links += 1
        if place == COORDINATOR:
            bridges = there
        else:
            nodes += there
        status = begun[0].status if begun else "not begun"
        fine = status in ("running", "starting", "pending", "finished:completed")
        running += fine
        if not fine:
            problems.append(f"the app of {place} is {status}")
    n = len(d.places)
    each = (links, n), (nodes, len(d.plan.nodes)), (bridges, n - 1), (running, n)
    return Health(*each, tuple(problems))


def complete(result: Mapping[str, Any]) -> bool:
    """Whether training ended well: then nobody needs to be there."""
    return result.get("status") == "complete"


def watch_health(d: Deployment, say: Say, *, watch: bool, every_s: float, as_json: bool) -> bool:
    """Say who is there and which rounds are over, once or until the training ends.

    Return whether all was well at the last look.
    """
    rounds = Rounds(d)
    while True:
        for line in rounds.new():
            if watch:
                say(line)
        result = read_mapping(d.folder / RESULT)
        health = ask_health(d)
        over = f"{rounds.told} of {rounds_of(d)} rounds over"
        if result:
            words = (str(result[key]) for key in ("status", "error") if result.get(key))
            over += f", {' '.join(': '.join(words).split())}"
        if as_json:
            found = {**asdict(health), "well": health.well, "rounds": rows_of(d), "result": result}
            say(json.dumps(found))
        elif complete(result):
            say(over)
        else:
            say(f"{health}; {over}")
        if result or not watch:
            return health.well or complete(result)
        until = time.monotonic() + every_s
        while time.monotonic() < until and not (d.folder / RESULT).exists():
            for line in rounds.new():
                say(line)
            time.sleep(POLL_S)
