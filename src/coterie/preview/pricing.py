"""Groupings that are found, each priced once: by methods, and by searches with several weights."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from coterie.core.errors import GroupingError
from coterie.core.streams import Stream, generator
from coterie.core.threads import one_thread
from coterie.core.types import Progress
from coterie.grouping import Evidence, Grouping, check_grouping
from coterie.grouping.limits import broken
from coterie.grouping.objective import Objective, price
from coterie.grouping.planner import Effort, best_by_the_clock, canon, search
from coterie.simulation.fleet import Fleet
from coterie.simulation.search import Search

WEIGHTINGS = ((1.0, 0.0), *((1.0, 4.0**power) for power in range(-2, 4)), (0.0, 1.0))


@dataclass(frozen=True, eq=False)
class Point:
    """A grouping, who found it, what it costs, and how long finding it took.

    The name is a method's, or the weights alpha_iid:alpha_comm of a search. `breaks` is empty, or
    says which limit of the experiment the grouping does not keep to.
    """

    name: str
    grouping: Grouping
    Delta: float
    group_s: float
    cost: float
    ms: float
    by_method: bool
    breaks: str = ""
    on_front: bool = False

    @property
    def sizes(self) -> list[int]:
        """Nodes in every group."""
        return self.grouping.sizes

    def beats(self, other: "Point") -> bool:
        """Whether this one is nowhere worse, and somewhere better."""
        ours, theirs = (self.Delta, self.group_s), (other.Delta, other.group_s)
        return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def label(alpha_iid: float, alpha_comm: float) -> str:
    """Write weights as a ratio whose smaller part is 1.

    >>> label(1, 0.25), label(0.5, 2), label(3, 0), label(0, 1)
    ('4:1', '1:4', '1:0', '0:1')
    """
    if not (alpha_iid and alpha_comm):
        return f"{int(alpha_iid > 0)}:{int(alpha_comm > 0)}"
    small = min(alpha_iid, alpha_comm)
    return f"{alpha_iid / small:.3g}:{alpha_comm / small:.3g}"


class Found:
    """Points so far, each grouping once, and what every search is given."""

    def __init__(
        self,
        fleet: Fleet,
        seed: int,
        evidence: Evidence,
        objective: Objective,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing found; `clock` says how long finding takes."""
        self._fleet, self._seed = fleet, seed
        self._evidence, self._objective = evidence, objective
        self._clock = clock
        self._found: set[bytes] = set()
        self._answers: dict[tuple[tuple[float, float], Effort], list[Grouping]] = {}
        self.points: list[Point] = []
        self.left_out: list[str] = []
        self.stopped = False  # by Ctrl-C

    def add_method(self, ask: Search) -> None:
        """Group by one method, on what it would see in a run."""
        e = self._shown(ask)
        start = self._clock()
        try:
            said = check_grouping(self._said(ask, e), len(e.p), e.places)
        except GroupingError as error:
            self.left_out.append(f"{ask.method}: {error}")
            return
        ms = 1e3 * (self._clock() - start)
        self._found.add(_key(said))
        self._add(ask.method, said, ms, by_method=True)

    def _said(self, ask: Search, e: Evidence) -> Grouping:
        """Ask a method; the planner keeps its best at Ctrl-C where it has a budget."""
        if ask.method != "coterie":
            with one_thread():
                return ask.planner()(e, self._rng())
        weights = ask.alpha_iid, ask.alpha_comm
        same = e is self._evidence
        objective = self._objective.weighing(*weights) if same else Objective(e, *weights)
        found = self._searched(e, objective, ask.effort)
        if same:
            self._answers[weights, ask.effort] = found
        return found[0]

    def _searched(self, e: Evidence, objective: Objective, effort: Effort) -> list[Grouping]:
        """Search, and return the answer and what else was good."""
        kept = replace(effort, keep=effort.budget_s is not None)
        with one_thread():
            state = search(e, objective, kept, self._rng(), self._clock)
            self.stopped = state.ended == "interrupted"
            return [best_by_the_clock(state), *(f.grouping for f in state.found)]

    def add_searches(self, own: tuple[float, float], effort: Effort, progress: Progress) -> None:
        """Search with the experiment's own weights, then with the others, unless stopped."""
        weightings = {label(*own): own}
        for pair in WEIGHTINGS:
            weightings.setdefault(label(*pair), pair)
        for done, (name, pair) in enumerate(weightings.items()):
            progress(f"searching with weights {name}", done, len(weightings))
            objective = self._objective.weighing(*pair)
            if not (objective.iid or objective.comm):
                continue
            start = self._clock()
            try:
                found = self._answers.get((pair, effort))
                found = found or self._searched(self._evidence, objective, effort)
            except KeyboardInterrupt:
                if effort.budget_s is None or not done:
                    raise
                self.stopped = True
                return
            ms = 1e3 * (self._clock() - start)
            for nth, grouping in enumerate(found, 1):
                if (key := _key(grouping)) not in self._found:
                    self._found.add(key)
                    named = name if nth == 1 else f"{name} #{nth}"
                    self._add(named, grouping, ms, by_method=False)
            if self.stopped:
                return

    def _shown(self, ask: Search) -> Evidence:
        """Return what a method sees: the network, and of the data no more than it needs."""
        bare = replace(self._evidence, gram=None, sketch=None, last_layer=None, label_counts=None)
        labels = replace(bare, label_counts=self._fleet.class_counts)
        return {"nothing": bare, "labels": labels, "gradients": self._evidence}[ask.needs]

    def _rng(self) -> np.random.Generator:
        return generator(self._seed, Stream.PLAN)

    def _add(self, name: str, grouping: Grouping, ms: float, *, by_method: bool) -> None:
        priced = price(self._objective, grouping)
        breaks = broken(self._evidence, grouping)
        costs = priced.Delta, priced.group_s, float(priced.cost)
        self.points.append(Point(name, grouping, *costs, ms, by_method, breaks))


def _key(grouping: Grouping) -> bytes:
    """The same for the same groups with the same servers, however they are numbered."""
    _, first = np.unique(grouping.z, return_index=True)
    return canon(grouping.z) + grouping.servers[np.argsort(first)].tobytes()


def with_front(points: list[Point]) -> list[Point]:
    """Mark the points that keep to the limits and that no other such point beats."""
    fit = [p for p in points if not p.breaks]
    return [
        replace(p, on_front=not p.breaks and not any(other.beats(p) for other in fit))
        for p in points
    ]
