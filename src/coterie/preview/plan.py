"""Who should train with whom: every way to group the nodes, priced, and the best trade-offs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.config.factories import load_dataset, make_search
from coterie.config.objects import NOTHING_OWN, Objects
from coterie.config.prepare import prepare
from coterie.config.settings import AlgorithmConfig, Config
from coterie.core.arrays import Ints
from coterie.core.errors import ConfigError, GroupingError
from coterie.core.types import Progress
from coterie.grouping import Evidence, Grouping, Limits
from coterie.grouping.limits import check_keeper
from coterie.grouping.objective import Objective
from coterie.grouping.planner import Effort
from coterie.network import Network
from coterie.partition.measure import emd, pooled
from coterie.preview.against_fedavg import Means, Rivals, Times, assumed_reach
from coterie.preview.data import title_of
from coterie.preview.participants import Participants
from coterie.preview.pricing import Found, Point, label, with_front
from coterie.simulation.fleet import Fleet
from coterie.simulation.forecast import TAU1
from coterie.simulation.loop import first_evidence
from coterie.simulation.participation import Participation
from coterie.simulation.search import METHODS, Search

BOTH, FEDAVG = "fedavg-ic", "fedavg"
EVERYBODY = Participation()
MANY = 10_000  # nodes, from where methods are only asked that are quick then
QUICK = ("coterie", "random", "edge")
WEIGHED = {"fedavg-c": (0.0, 1.0), "fedavg-i": (1.0, 0.0)}  # the others weigh both costs
SEEN = {"gradients": "gradients", "sketch": "sketches of the gradients", "labels": "label shares"}


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
class PlanView:
    """What is known before training: points in the order they were found, and the one to take.

    `chosen` costs least of all that make num_groups groups and keep to the limits; or, where `auto`
    was asked for, it is soonest at the same loss. `answer` is what
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
    globals_s: dict[str, float]  # seconds of a global mean, by the point's name
    steps: int  # of the experiment
    model_bytes: int
    fleet: Fleet
    rivals: Rivals  # FedAvg
    node_delta: float  # divergence of nodes that are alone
    by: Literal["cost", "time"] = "cost"  # what the chosen one has least of
    online: NDArray[np.bool_] | None = None  # whether nodes are there [n, quarters of an hour]
    participants: Participants | None = None  # where not all nodes are part of every mean
    by_choice: bool = False  # number of groups and schedule were chosen, where they could be open
    notes: tuple[str, ...] = ()  # what the files leave open

    @property
    def network(self) -> Network:
        """The network as plans reckon with it."""
        return self.fleet.planning

    @property
    def everyone(self) -> Grouping:
        """All nodes as one group."""
        return self.fleet.together(self.model_bytes)

    def mean_s(self, network: Network, grouping: Grouping) -> float:
        """Seconds of a mean on a network; on average, where only some nodes take part."""
        if self.participants is not None:
            return self.participants.seconds(network, grouping, self.chosen.grouping.z)
        return network.aggregation(grouping.z, grouping.servers, self.model_bytes).seconds

    @property
    def global_s(self) -> float:
        """Seconds of a global mean with the chosen groups."""
        return self.globals_s[self.chosen.name]

    @property
    def step_s(self) -> float:
        """Seconds of a local step, of the slowest node that takes part."""
        return self.rivals.step_s

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
        other = len(least.sizes) != len(self.chosen.sizes)
        return least if other and least.cost < self.chosen.cost else None

    @property
    def num_groups(self) -> int:
        """Groups that the experiment asks for: K."""
        return self.algorithm.usual[0]

    @property
    def seen(self) -> str:
        """What Delta is worked out from."""
        return SEEN[self.algorithm.evidence]

    @property
    def timed(self) -> bool:
        """Whether it is known how long a local step takes; if not, it counts 0 s."""
        return self.fleet.step_s > 0

    def cycle_s(self, point: Point) -> float:
        """Seconds of transfers in a cycle: tau2 - 1 means of the groups and a global one."""
        return point.group_s * (self.algorithm.usual[2] - 1) + self.globals_s[point.name]

    def means(self, point: Point) -> Means:
        """What is averaged how often by a point, with the experiment's schedule."""
        return self.means_with(point, self.algorithm.usual[1:])

    def means_with(self, point: Point, schedule: tuple[int, int]) -> Means:
        """What is averaged how often by a point, with a schedule tau1, tau2."""
        ratio = min(point.Delta / self.node_delta, 1.0) if self.node_delta else 0.0
        return Means(self.globals_s[point.name], point.group_s, ratio, *schedule)

    def times(self, point: Point) -> Times:
        """How many times as fast as FedAvg, with its best schedule, a point is to the same loss."""
        return self.rivals.times(self.means(point))

    @property
    def fedavg(self) -> list[tuple[str, float, float]]:
        """FedAvg's rows: its name, seconds of a global mean, and what that costs."""
        comm = self.weights[1]
        return [
            (name, mean_s, comm * mean_s / (self.rivals.global_s[FEDAVG] or 1.0))
            for name, mean_s in self.rivals.global_s.items()
        ]

    def node_name(self, vertex: int) -> str:
        """Name a node by its file's name or its number, and a place that serves by its own."""
        names, n = self.fleet.names, self.fleet.n
        if vertex >= n:
            return self.fleet.network.topology.name(vertex)
        return names[vertex] if names else str(vertex)

    @property
    def global_server(self) -> str:
        """Name where models of all nodes meet: where a global mean is quickest."""
        name = self.node_name(int(self.everyone.servers[0]))
        return f"node {name}" if name.isdigit() else name

    @property
    def groups(self) -> list[Group]:
        """The chosen groups."""
        z, servers = self.chosen.grouping.z, self.chosen.grouping.servers
        edge_of = self.fleet.edge_of
        counts = pooled(self.fleet.class_counts, z)
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


@dataclass(frozen=True)
class Question:
    """What is asked: a run that searches, what the experiment has it run by, and every method."""

    config: Config
    own: AlgorithmConfig
    weights: tuple[float, float]
    asked: tuple[Search, ...]
    left: tuple[str, ...] = ()  # methods that are not asked, and why

    @property
    def seen(self) -> Config:
        """The experiment with both costs in mind: by fedavg-c alone, every Delta would be 0."""
        both = replace(self.config.algorithm, name=BOTH, grouping="coterie", alpha_iid=1.0)
        return replace(self.config, algorithm=both)

    def check(self, limits: Limits) -> None:
        """Refuse limits that a run would refuse too."""
        if self.own.made.searched:
            check_keeper(limits, self.own.grouping)


def question(configs: Sequence[Config], methods: Sequence[str] = ()) -> Question:
    """Ask about the run of an experiment that `plans` speaks of; an unknown method is an error."""
    config, own = planned(configs)
    c = config.algorithm
    if c.open:
        raise ConfigError(
            f"algorithm.{c.open[0]} is 'auto': --explain says what a run would choose, or give it "
            "a number"
        )
    if c.tau2 == "never":
        raise ConfigError(
            "algorithm.tau2 is 'never': a plan compares times to a loss that all share, so give it "
            "a number"
        )
    weights = _weights(c)
    names, left = _methods(methods, c.grouping, config.partition.num_nodes)
    ask = replace(make_search(config), alpha_iid=weights[0], alpha_comm=weights[1])
    asked = tuple(replace(ask, method=name) for name in names)
    for each in asked:
        each.planner()  # an unknown name is an error before anything takes its time
    return Question(config, own, weights, asked, left)


def _methods(
    asked: Sequence[str], own: str, n: int | Literal["auto"]
) -> tuple[list[str], tuple[str, ...]]:
    """List the methods to ask, and say which others there are: of many nodes only the quick ones.

    >>> _methods(["edge"], "coterie", 10**6), _methods([], "cov", 10**6)[0]
    ((['edge'], ()), ['coterie', 'random', 'edge', 'cov'])
    """
    if asked:
        return list(asked), ()
    usual = [name for name, method in METHODS.items() if method.asked]
    if n == "auto" or n <= MANY:
        return list(dict.fromkeys([*usual, own])), ()
    names = list(dict.fromkeys([*QUICK, own]))
    slow = ", ".join(name for name in usual if name not in names)
    return names, (f"{slow}: minutes or more with {n:,} nodes; --methods asks them",)


def plans(
    configs: Sequence[Config],
    *,
    methods: Sequence[str] = (),
    budget_s: float | None = None,
    progress: Progress = lambda what, done, of: None,
    clock: Callable[[], float] = time.monotonic,
    own: Objects = NOTHING_OWN,
) -> PlanView:
    """Group the nodes of an experiment by every method, and search along the trade-off.

    Of a sweep that is the first run that weighs both costs, or else the first that searches, or
    else the first, searched. The planner looks for budget_s at every weighting, or as long as the
    experiment says, by `clock`; Ctrl-C ends a search with a budget and keeps what it has.
    """
    q = question(configs, methods)
    dataset = own.dataset or load_dataset(q.config, progress)
    progress("one training step", 0, 0)
    problem = prepare(q.seen, dataset, own=own).problem
    q.check(problem.view.limits)
    title = f"{q.config.network.topology}, {title_of(q.config)}"
    evidence, told = first_evidence(problem), problem.participation
    return answer(q, title, problem.fleet, evidence, budget_s, progress, clock, told)


def answer(
    q: Question,
    title: str,
    fleet: Fleet,
    evidence: Evidence,
    budget_s: float | None = None,
    progress: Progress = lambda what, done, of: None,
    clock: Callable[[], float] = time.monotonic,
    participation: Participation = EVERYBODY,
) -> PlanView:
    """Group a fleet by every method on the evidence, and search along the trade-off.

    Searches weigh means of all nodes. Where only some take part, all that was found is then priced
    by draws of them, and so is FedAvg.
    """
    assert evidence.delays is not None  # made by a fleet
    c, own, weights = q.config.algorithm, q.own, q.weights
    objective = Objective(evidence, *weights)
    if not (objective.iid or objective.comm):
        raise GroupingError(
            f"every grouping costs the same with weights {label(*weights)}, {c.num_groups} groups "
            f"and tau2 = {c.tau2}; raise one of them"
        )
    found = Found(fleet, q.config.seed, evidence, objective, clock)
    for done, each in enumerate(q.asked):
        progress(f"grouping by {each.method}", done, len(q.asked))
        found.add_method(each)
        if found.stopped:
            break
    effort = make_search(q.config).effort if budget_s is None else Effort(budget_s=budget_s)
    if not found.stopped:
        found.add_searches(weights, effort, progress)
    nbytes, global_s = evidence.delays.nbytes, evidence.delays.global_s
    points, globals_s = found.points, {p.name: global_s for p in found.points}
    participants = None
    if not participation.full:
        progress("drawing who takes part", 0, 0)
        participants = Participants(participation, q.config.seed, fleet, nbytes)
        points, globals_s = _drawn(points, objective, participants)
    points = with_front(points)
    node_delta = objective.divergence(np.arange(fleet.n))
    fit = [p for p in points if not p.breaks and len(p.sizes) == c.num_groups]
    if not fit:
        raise GroupingError("no grouping was found that keeps to the limits; loosen one of them")
    return PlanView(
        f"{title}: {len(evidence.p):,} nodes by {c.name}",
        tuple(points),
        min(fit, key=_order),
        next((p for p in points if p.by_method and p.name == _used(own)), None),
        (*q.left, *found.left_out),
        found.stopped,
        c,
        own,
        weights,
        globals_s,
        q.config.train.steps,
        nbytes,
        fleet,
        rivals_of(fleet, nbytes, global_s, c.usual[1], participants),
        node_delta,
        participants=participants,
    )


def _drawn(
    points: Sequence[Point], objective: Objective, participants: Participants
) -> tuple[list[Point], dict[str, float]]:
    """Price points by draws of who takes part; return them, and seconds of their global means.

    The unit of seconds stays a global mean of FedAvg, with as many.
    """
    delays, together = objective.evidence.delays, participants.together
    assert delays is not None  # made by a fleet
    network, tau2 = delays.network, delays.tau2
    unit_s = participants.seconds(network, together, together.z) or 1.0
    found, globals_s = [], {}
    for p in points:
        group_s = participants.seconds(network, p.grouping, p.grouping.z)
        globals_s[p.name] = participants.seconds(network, together, p.grouping.z)
        cycle_s = (tau2 - 1) * group_s + globals_s[p.name]
        cost = objective.iid * p.Delta + objective.alpha_comm * cycle_s / (tau2 * unit_s)
        found.append(replace(p, group_s=group_s, cost=float(cost)))
    return found, globals_s


def rivals_of(
    fleet: Fleet, nbytes: int, global_s: float, tau1: int, participants: Participants | None = None
) -> Rivals:
    """Time FedAvg as the network is, and with models combined under edges, or not, on their way.

    It averages as often as is best; where local steps are not timed, every tau1 of them.
    """
    network, together = fleet.planning, fleet.together(nbytes)
    step_s = fleet.step_s

    def seconds(other: Network) -> float:
        if participants is not None:
            return participants.seconds(other, together, together.z)
        return other.aggregation(together.z, together.servers, nbytes).seconds

    found = {FEDAVG: global_s}
    if participants is not None:
        found, step_s = {FEDAVG: seconds(network)}, participants.step_s
    if not network.reference and 1 < len(np.unique(fleet.edge_of)) < fleet.n:
        other = replace(network, combine=not network.combine)
        found[f"{FEDAVG}, {'combined' if other.combine else 'not combined'}"] = seconds(other)
    counts = fleet.class_counts
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    apart = np.linalg.norm(shares - fleet.p @ shares, axis=1)
    often = TAU1 if fleet.step_s else (tau1,)
    return Rivals(found, step_s, assumed_reach(float(fleet.p @ apart)), often)


def planned(configs: Sequence[Config]) -> tuple[Config, AlgorithmConfig]:
    """Choose a run, made to search, and return what it is by as the experiment has it."""
    both = (c for c in configs if c.algorithm.name == BOTH)
    searched = (c for c in configs if c.algorithm.made.searched)
    for config in chain(both, searched):
        return config, config.algorithm
    own = configs[0].algorithm
    plain = replace(own, name=BOTH, options=AlgorithmConfig().options, groups="auto")
    return replace(configs[0], algorithm=plain), own


def _used(own: AlgorithmConfig) -> str:
    """Name the method by which a run groups; none where it makes no groups."""
    if own.made.searched:
        return own.grouping
    return "edge" if own.made.groups == "edge" else ""


def _weights(c: AlgorithmConfig) -> tuple[float, float]:
    iid, comm = WEIGHED.get(c.name, (1.0, 1.0))
    return iid * c.alpha_iid, comm * c.alpha_comm


def _order(point: Point) -> tuple[float, float, float]:
    return point.cost, point.Delta, point.group_s
