"""Who should train with whom: every way to group the nodes, priced, and the best trade-offs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from coterie.algorithms import ALGORITHMS, METHODS, Search
from coterie.build import load_dataset, make_search
from coterie.costs import Ints
from coterie.data.dataset import Progress
from coterie.errors import GroupingError
from coterie.grouping import Evidence, Grouping, check_grouping
from coterie.grouping.limits import broken, check_keeper
from coterie.grouping.objective import Objective, price
from coterie.grouping.planner import Effort, best_by_the_clock, canon, search
from coterie.partition.measure import emd, pooled
from coterie.prepare import Prepared, prepare
from coterie.problem import PLAN_STREAM
from coterie.run import first_evidence
from coterie.sections import AlgorithmConfig, Config
from coterie.survey import title_of

BOTH = "fedavg-ic"
WEIGHED = {"fedavg-c": (0.0, 1.0), "fedavg-i": (1.0, 0.0)}  # the others weigh both costs
WEIGHTINGS = ((1.0, 0.0), *((1.0, 4.0**power) for power in range(-2, 4)), (0.0, 1.0))
SEEN = {"gradients": "gradients", "sketch": "sketches of the gradients", "labels": "label shares"}


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


@dataclass(frozen=True, eq=False)
class Group:
    """A group: its server, nodes of each edge [edges], and its class counts' distance from all."""

    server: int
    nodes: Ints
    edges: Ints
    examples: int
    classes: int
    distance: float


@dataclass(frozen=True, eq=False)
class View:
    """What is known before training: points in the order they were found, and the one to take.

    `chosen` costs least of all that make num_groups groups and keep to the limits. `answer` is what
    a run of the experiment would use, if that is among the points; `own` says what it runs by.
    """

    title: str
    points: tuple[Point, ...]
    chosen: Point
    answer: Point | None
    left_out: tuple[str, ...]  # methods that cannot group these nodes, and why
    stopped: bool  # by Ctrl-C, before every weighting had its time
    algorithm: AlgorithmConfig
    own: AlgorithmConfig  # of the experiment; it may not search, which `algorithm` does
    weights: tuple[float, float]  # of Delta, and of seconds
    global_s: float
    prepared: Prepared

    @property
    def front(self) -> list[Point]:
        """Points that no other beats, by Delta; of equals the first."""
        first = {(p.Delta, p.group_s): p for p in reversed(self.points) if p.on_front}
        return [first[key] for key in sorted(first)]

    @property
    def methods(self) -> list[Point]:
        """Points of methods, the least cost first."""
        return sorted((p for p in self.points if p.by_method), key=lambda p: p.cost)

    @property
    def cheaper(self) -> Point | None:
        """The point of least cost, if that has another number of groups and so was not chosen."""
        least = min((p for p in self.points if not p.breaks), key=_order)
        return least if least.cost < self.chosen.cost else None

    @property
    def num_groups(self) -> int:
        """Groups that the experiment asks for: K."""
        return self.algorithm.usual[0]

    @property
    def seen(self) -> str:
        """What Delta is worked out from."""
        return SEEN[self.algorithm.evidence]

    def cycle_s(self, point: Point) -> float:
        """Seconds of transfers in a cycle: tau2 - 1 means of the groups and a global one."""
        return point.group_s * (self.algorithm.usual[2] - 1) + self.global_s

    def node_name(self, vertex: int) -> str:
        """Name a node by its file's name or its number, and a place that serves by its own."""
        names, n = self.prepared.node_names, len(self.chosen.grouping.z)
        if vertex >= n:
            return self.prepared.problem.network.topology.name(vertex)
        return names[vertex] if names else str(vertex)

    @property
    def groups(self) -> list[Group]:
        """The chosen groups."""
        z, servers = self.chosen.grouping.z, self.chosen.grouping.servers
        edge_of = self.prepared.problem.edge_of
        counts = pooled(self.prepared.class_counts, z)
        members = [np.flatnonzero(z == k) for k in range(len(servers))]
        return [
            Group(
                int(servers[k]),
                nodes,
                np.bincount(edge_of[nodes], minlength=int(edge_of.max()) + 1),
                int(counts[k].sum()),
                int((counts[k] > 0).sum()),
                float(distance),
            )
            for k, (nodes, distance) in enumerate(zip(members, emd(counts), strict=True))
        ]


def plans(
    configs: Sequence[Config],
    *,
    methods: Sequence[str] = (),
    budget_s: float | None = None,
    progress: Progress = lambda what, done, of: None,
) -> View:
    """Group the nodes of an experiment by every method, and search along the trade-off.

    Of a sweep that is the first run that weighs both costs, or else the first that searches, or
    else the first, searched. The planner looks for budget_s at every weighting, or as long as the
    experiment says; Ctrl-C ends a search with a budget and keeps what it has.
    """
    config, own = _planned(configs)
    c = config.algorithm
    weights = _weights(c)
    names = list(methods or dict.fromkeys([*METHODS, c.grouping]))
    ask = replace(make_search(config), alpha_iid=weights[0], alpha_comm=weights[1])
    asked = [replace(ask, method=name) for name in names]
    for each in asked:
        each.planner()  # an unknown name is an error before anything takes its time
    dataset = load_dataset(config, progress)
    progress("one training step", 0, 0)
    # Seen with both costs in mind: by fedavg-c alone, every Delta would be 0.
    both = replace(c, name=BOTH, grouping="coterie", alpha_iid=1.0)
    prepared = prepare(replace(config, algorithm=both), dataset)
    if ALGORITHMS[own.name].searched:
        check_keeper(prepared.problem.view.limits, own.grouping)  # a run refuses that too
    evidence = first_evidence(prepared.problem)
    objective = Objective(evidence, *weights)
    if not (objective.iid or objective.comm):
        raise GroupingError(
            f"every grouping costs the same with weights {label(*weights)}, {c.num_groups} groups "
            f"and tau2 = {c.tau2}; raise one of them"
        )
    table = _Table(prepared, evidence, objective)
    for done, each in enumerate(asked):
        progress(f"grouping by {each.method}", done, len(asked))
        table.add_method(each)
        if table.stopped:
            break
    effort = ask.effort if budget_s is None else Effort(budget_s=budget_s)
    if not table.stopped:
        table.add_searches(weights, effort, progress)
    points = _with_front(table.points)
    fit = [p for p in points if not p.breaks and len(p.sizes) == c.num_groups]
    if not fit:
        raise GroupingError("no grouping was found that keeps to the limits; loosen one of them")
    return View(
        f"{config.network.topology}, {title_of(config)}: {len(evidence.p):,} nodes by {c.name}",
        tuple(points),
        min(fit, key=_order),
        next((p for p in points if p.by_method and p.name == _used(own)), None),
        tuple(table.left_out),
        table.stopped,
        c,
        own,
        weights,
        _global_s(evidence, prepared),
        prepared,
    )


def label(alpha_iid: float, alpha_comm: float) -> str:
    """Write weights as a ratio whose smaller part is 1.

    >>> label(1, 0.25), label(0.5, 2), label(3, 0), label(0, 1)
    ('4:1', '1:4', '1:0', '0:1')
    """
    if not (alpha_iid and alpha_comm):
        return f"{int(alpha_iid > 0)}:{int(alpha_comm > 0)}"
    small = min(alpha_iid, alpha_comm)
    return f"{alpha_iid / small:.3g}:{alpha_comm / small:.3g}"


def _planned(configs: Sequence[Config]) -> tuple[Config, AlgorithmConfig]:
    """Choose a run, made to search, and return what it is by as the experiment has it."""
    both = (c for c in configs if c.algorithm.name == BOTH)
    searched = (c for c in configs if ALGORITHMS[c.algorithm.name].searched)
    for config in chain(both, searched):
        return config, config.algorithm
    own = configs[0].algorithm
    return replace(configs[0], algorithm=replace(own, name=BOTH)), own


def _used(own: AlgorithmConfig) -> str:
    """Name the method by which a run groups; none where it makes no groups."""
    if ALGORITHMS[own.name].searched:
        return own.grouping
    return "edge" if own.name == "hierfavg" else ""


def _weights(c: AlgorithmConfig) -> tuple[float, float]:
    iid, comm = WEIGHED.get(c.name, (1.0, 1.0))
    return iid * c.alpha_iid, comm * c.alpha_comm


def _order(point: Point) -> tuple[float, float, float]:
    return point.cost, point.Delta, point.group_s


class _Table:
    """Points so far, each grouping once, and what every search is given."""

    def __init__(self, prepared: Prepared, evidence: Evidence, objective: Objective) -> None:
        self._prepared, self._evidence, self._objective = prepared, evidence, objective
        self._found: set[bytes] = set()
        self.points: list[Point] = []
        self.left_out: list[str] = []
        self.stopped = False  # by Ctrl-C

    def add_method(self, ask: Search) -> None:
        """Group by one method, on what it would see in a run."""
        e = self._shown(ask)
        start = time.monotonic()
        try:
            said = check_grouping(self._said(ask, e), len(e.p), e.places)
        except GroupingError as error:
            self.left_out.append(f"{ask.method}: {error}")
            return
        ms = 1e3 * (time.monotonic() - start)
        self._found.add(_key(said))
        self._add(ask.method, said, ms, by_method=True)

    def _said(self, ask: Search, e: Evidence) -> Grouping:
        """Ask a method; the planner keeps its best at Ctrl-C where it has a budget."""
        if ask.method != "coterie":
            return ask.planner()(e, self._rng())
        return self._searched(e, Objective(e, ask.alpha_iid, ask.alpha_comm), ask.effort)[0]

    def _searched(self, e: Evidence, objective: Objective, effort: Effort) -> list[Grouping]:
        """Search, and return the answer and what else was good."""
        state = search(e, objective, replace(effort, keep=effort.budget_s is not None), self._rng())
        self.stopped = state.ended == "interrupted"
        return [best_by_the_clock(state), *(f.grouping for f in state.found)]

    def add_searches(self, own: tuple[float, float], effort: Effort, progress: Progress) -> None:
        """Search with the experiment's own weights, then with the others, unless stopped."""
        weightings = {label(*own): own}
        for pair in WEIGHTINGS:
            weightings.setdefault(label(*pair), pair)
        for done, (name, pair) in enumerate(weightings.items()):
            progress(f"searching with weights {name}", done, len(weightings))
            objective = Objective(self._evidence, *pair)
            if not (objective.iid or objective.comm):
                continue
            start = time.monotonic()
            try:
                found = self._searched(self._evidence, objective, effort)
            except KeyboardInterrupt:
                if effort.budget_s is None or not done:
                    raise
                self.stopped = True
                return
            ms = 1e3 * (time.monotonic() - start)
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
        labels = replace(bare, label_counts=self._prepared.class_counts)
        return {"nothing": bare, "labels": labels, "gradients": self._evidence}[ask.needs]

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng([self._prepared.problem.seed, 0, PLAN_STREAM])

    def _add(self, name: str, grouping: Grouping, ms: float, *, by_method: bool) -> None:
        priced = price(self._objective, grouping)
        breaks = broken(self._evidence, grouping)
        costs = priced.Delta, priced.group_s, float(priced.cost)
        self.points.append(Point(name, grouping, *costs, ms, by_method, breaks))


def _key(grouping: Grouping) -> bytes:
    """The same for the same groups with the same servers, however they are numbered."""
    _, first = np.unique(grouping.z, return_index=True)
    return canon(grouping.z) + grouping.servers[np.argsort(first)].tobytes()


def _global_s(evidence: Evidence, prepared: Prepared) -> float:
    """Seconds of a global mean by the clock that times the groups here."""
    if evidence.delays is not None:
        return evidence.delays.global_s
    return prepared.problem.everyone.transfer.seconds


def _with_front(points: list[Point]) -> list[Point]:
    """Mark the points that keep to the limits and that no other such point beats."""
    fit = [p for p in points if not p.breaks]
    return [
        replace(p, on_front=not p.breaks and not any(other.beats(p) for other in fit))
        for p in points
    ]
