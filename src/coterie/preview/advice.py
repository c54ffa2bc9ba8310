"""What to do with a fleet: FedAvg, the network edges as groups, or groups that were searched.

Each has its best schedule, and models combined under edges on their way or not. What is quickest to
the same loss is advised, by the estimate of against_fedavg.py. Then one thing at a time is changed,
the speed of a tier of links, the nodes' skew, the time of a local step, until the advice would be
another. Groups stay as they are meanwhile.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from coterie.grouping import Grouping
from coterie.grouping.planner import canon
from coterie.network import Network
from coterie.preview.against_fedavg import ALIKE, FALLS, Means, Rivals, Times, assumed_reach
from coterie.preview.auto_plan import soonest
from coterie.preview.plan import FEDAVG, PlanView
from coterie.preview.pricing import Point
from coterie.preview.scenarios import slow_link
from coterie.simulation.forecast import TAU1, TAU2

Kind = Literal["fedavg", "edges", "groups"]
DAY_S = 86_400.0
WORTH_IT = 1.02  # times as fast as what is simpler
FACTORS = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)  # by which something is changed
SKEWS = (0.75, 0.5, 0.25, 0.0)  # parts of the nodes' divergence, and what that may grow by
MOST_UNLIKE = 0.95  # divergence of nodes of one class each, of many classes
ALL_ALIKE = 1e-6  # divergence below which there is no skew to change
MANY = 1_000  # nodes from which links are not changed: every change is priced by the clock


@dataclass(frozen=True, eq=False)
class Candidate:
    """Something to do, and what its means cost on a network."""

    kind: Kind
    name: str  # of the method that found the groups
    grouping: Grouping
    combined: bool
    global_s: float
    group_s: float = 0.0
    ratio: float = 0.0  # the groups' divergence over that of nodes

    def schedules(self, tau1: Sequence[int]) -> Iterator[Means]:
        """List what could be averaged how often."""
        for local in tau1:
            for tau2 in (1,) if self.kind == "fedavg" else TAU2[1:]:
                yield Means(self.global_s, self.group_s, self.ratio, local, tau2)


@dataclass(frozen=True, eq=False)
class Option:
    """Something to do, with its best schedule."""

    what: Candidate
    means: Means
    speed: float  # steps that count, a second


@dataclass(frozen=True)
class Costs:
    """What something costs: seconds, bytes on the slow tier, and steps."""

    round_s: float
    target_s: float
    low_s: float
    high_s: float
    round_bytes: float
    day_bytes: float
    target_bytes: float
    steps: int  # of whole rounds, until the target


@dataclass(frozen=True)
class Change:
    """What would change the advice: something times a factor; None where nothing tried would."""

    what: str
    factor: float | None
    kind: Kind | None = None


@dataclass(frozen=True, eq=False)
class Advice:
    """What to do, what it costs beside the others, and what would change it."""

    view: PlanView

    @cached_property
    def options(self) -> dict[Kind, Option]:
        """The best of each kind that there is."""
        return self._best_of_each(self.candidates(self.view.network), self.view.rivals)

    @cached_property
    def best(self) -> Option:
        """What is advised: the quickest; what is simpler, where more is not worth it."""
        return _pick(self.options)

    def times(self, kind: Kind) -> Times | None:
        """How many times as fast as the best of a kind the advised is, to the same loss."""
        if kind not in self.options or kind == self.best.what.kind:
            return None
        return self.view.rivals.times(self.best.means, self.options[kind].means)

    @property
    def steps(self) -> int:
        """Steps, with a mean after each, whose loss is the target."""
        return self.view.steps

    @cached_property
    def slow_tier(self) -> str:
        """The tier that a mean of all nodes keeps busy for longest."""
        everyone = self.view.everyone
        return slow_link(self.view.network, everyone.z, everyone.servers)[0]

    def costs(self, option: Option) -> Costs:
        """Count what an option costs."""
        view, means = self.view, option.means
        step_s, day_s = view.step_s, DAY_S
        if view.online is not None:
            day_s *= float(view.online.all(axis=0).mean())
        round_s = means.round_s(step_s)
        speeds = [means.speed(step_s, reach) for reach in view.rivals.reaches]
        target_s = [self.steps / speed if speed else math.inf for speed in speeds]
        network = replace(self.view.network, combine=option.what.combined)
        sent = self._sent(network, self.view.everyone)
        if means.tau2 > 1:
            sent += (means.tau2 - 1) * self._sent(network, option.what.grouping)
        rounds = day_s / round_s if round_s else 0.0
        needed = target_s[0] / round_s if round_s else 0.0
        low, high = min(target_s), max(target_s)
        steps = math.ceil(self.steps / means.gained(view.rivals.reach)) * means.tau1 * means.tau2
        seconds = round_s, target_s[0], low, high
        return Costs(*seconds, sent, rounds * sent, needed * sent, steps)

    @cached_property
    def changes(self) -> list[Change]:
        """For every tier of links, the skew and the steps: what would make the advice another."""
        view, rivals = self.view, self.view.rivals
        found = []
        if view.fleet.n <= MANY and view.participants is None:
            for number, tier in enumerate(self.view.network.topology.numbered_tiers[0]):
                if (self.view.network.topology.numbered_tiers[1] == number).any():
                    found.append(self._by_links(number, f"{tier} links' speed"))
        now = self.candidates(self.view.network)
        if view.timed:
            ways = [replace(rivals, step_s=f * rivals.step_s) for f in _factors()]
            found.append(self._by(now, "a local step's time", _factors(), ways))
        delta = max(0.0, -math.log(rivals.reach / ALIKE) / FALLS)
        if delta > ALL_ALIKE:
            parts = [*SKEWS, *(f for f in FACTORS if f * delta <= MOST_UNLIKE)]
            ways = [replace(rivals, reach=assumed_reach(part * delta)) for part in parts]
            found.append(self._by(now, "the nodes' skew", parts, ways))
        return found

    def candidates(self, network: Network) -> list[Candidate]:
        """Price all that could be done on a network, the simplest first."""
        view, everyone = self.view, self.view.everyone
        edge = next((p for p in view.methods if p.name == "edge" and not p.breaks), None)
        edges = len(np.unique(view.fleet.edge_of))
        both = [network]
        if len(view.rivals.global_s) > 1:
            both.append(replace(network, combine=not network.combine))
        points: list[tuple[Kind, Point]] = []
        if edge is not None and 1 < edges < view.fleet.n:
            points.append(("edges", edge))
        chosen = [view.chosen, soonest(view).chosen]
        same = [canon(p.grouping.z) for _, p in points]  # groups that are the edges
        others = [p for p in dict.fromkeys(chosen) if canon(p.grouping.z) not in same]
        points += [("groups", p) for p in others]
        found = []
        for net in both:
            global_s = self.view.mean_s(net, everyone)
            found.append(Candidate("fedavg", FEDAVG, everyone, net.combine, global_s))
            for kind, p in points:
                group_s, ratio = self.view.mean_s(net, p.grouping), view.means(p).ratio
                told = (p.name, p.grouping, net.combine, global_s, group_s, ratio)
                found.append(Candidate(kind, *told))
        return found

    def _sent(self, network: Network, grouping: Grouping) -> float:
        """Bytes of a mean on the slow tier; of all nodes, where only some take part."""
        nbytes = self.view.model_bytes
        moved = network.aggregation(grouping.z, grouping.servers, nbytes).bytes_by_tier
        some = self.view.participants
        share = 1.0 if some is None else some.participation.fraction
        return share * float(moved.get(self.slow_tier, 0))

    def _best_of_each(self, candidates: Sequence[Candidate], rivals: Rivals) -> dict[Kind, Option]:
        tau1 = TAU1 if self.view.timed else rivals.tau1
        best: dict[Kind, Option] = {}
        for each in candidates:
            for means in each.schedules(tau1):
                speed = means.speed(rivals.step_s, rivals.reach)
                if each.kind not in best or speed > best[each.kind].speed:
                    best[each.kind] = Option(each, means, speed)
        return best

    def _by_links(self, tier: int, what: str) -> Change:
        """Change the speed of a tier, a little first."""
        net, of = self.view.network, self.view.network.topology.numbered_tiers[1]
        for factor in _factors():
            speed = net.topology.bytes_per_s * np.where(np.repeat(of == tier, 2), factor, 1.0)
            other = replace(net, topology=replace(net.topology, bytes_per_s=speed))
            found = _pick(self._best_of_each(self.candidates(other), self.view.rivals))
            if found.what.kind != self.best.what.kind:
                return Change(what, factor, found.what.kind)
        return Change(what, None)

    def _by(
        self,
        now: Sequence[Candidate],
        what: str,
        factors: Sequence[float],
        ways: Sequence[Rivals],
    ) -> Change:
        """Change something that leaves the prices of means as they are."""
        for factor, rivals in zip(factors, ways, strict=True):
            found = _pick(self._best_of_each(now, rivals))
            if found.what.kind != self.best.what.kind:
                return Change(what, factor, found.what.kind)
        return Change(what, None)


def _pick(options: dict[Kind, Option]) -> Option:
    """Take the quickest; what is simpler, where more is not worth it."""
    best = options["fedavg"]
    for kind in ("edges", "groups"):
        if kind in options and options[kind].speed >= WORTH_IT * best.speed:
            best = options[kind]
    return best


def _factors() -> list[float]:
    """List factors, the nearest to 1 first, up and down by turns.

    >>> _factors()[:4]
    [1.5, 0.6666666666666666, 2.0, 0.5]
    """
    return [each for f in FACTORS for each in (f, 1 / f)]
