"""A plan as an operator asks for it: time, traffic, what it is worth, and what would change it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from coterie.core.arrays import Floats
from coterie.grouping import Grouping
from coterie.network import Phase
from coterie.network.tcp import PROFILES
from coterie.preview.against_fedavg import Means, Times
from coterie.preview.auto_plan import soonest
from coterie.preview.plan import PlanView

DAY_S = 86_400.0
WORTH_IT = 1.02  # times as fast, for groups to be worth their trouble
LEAST_BUSY = 0.5  # part of a mean for which a link is busy that decides it


@dataclass(frozen=True)
class Traffic:
    """Bytes over one link between switches, both ways: in a global round, and in a day of them."""

    link: str
    round_bytes: float
    day_bytes: float


@dataclass(frozen=True)
class Bottleneck:
    """The link that a mean waits for, and how much faster all is if it were twice as fast."""

    mean: str
    link: str
    busy: float  # part of the mean
    twice: float


@dataclass(frozen=True, eq=False)
class Operating:
    """What running the chosen plan means."""

    view: PlanView

    @cached_property
    def means(self) -> Means:
        """What is averaged how often."""
        return self.view.means(self.view.chosen)

    @property
    def round_s(self) -> float:
        """Seconds of a global round: its local steps, group means and global mean."""
        return self.means.round_s(self.view.step_s)

    @property
    def day_s(self) -> float:
        """Seconds of a day in which all nodes are online."""
        online = self.view.online
        return DAY_S if online is None else DAY_S * float(online.all(axis=0).mean())

    @property
    def rounds_a_day(self) -> float:
        """Global rounds in a day, one after the other while all nodes are online."""
        return self.day_s / self.round_s if self.round_s else 0.0

    @property
    def fedavg(self) -> tuple[str, Means]:
        """The best FedAvg, and its schedule."""
        return self.view.rivals.best()

    @cached_property
    def over_fedavg(self) -> Times:
        """How many times as fast as the best FedAvg to the same loss."""
        return self.view.rivals.times(self.means)

    @cached_property
    def over_edges(self) -> Times | None:
        """How many times as fast as groups that are the network edges, with the same schedule."""
        point = next((p for p in self.view.methods if p.name == "edge"), None)
        if point is None or len(np.unique(self.view.fleet.edge_of)) < 2:
            return None
        means = self.view.means(self.view.chosen)
        return self.view.rivals.times(means, self.view.means(point))

    @cached_property
    def soonest(self) -> tuple[str, Times] | None:
        """Another grouping that is sooner at the same loss than the chosen one, if any is."""
        point = soonest(self.view).chosen
        times = self.view.times(point)
        return (point.name, times) if times.times > WORTH_IT * self.over_fedavg.times else None

    @property
    def pays(self) -> bool:
        """Whether groups are worth it: faster than the best FedAvg."""
        return self.over_fedavg.times >= WORTH_IT

    @property
    def even(self) -> bool:
        """Whether groups are neither faster nor slower than the best FedAvg."""
        return not self.pays and self.over_fedavg.times * WORTH_IT >= 1

    @cached_property
    def other_way(self) -> Times | None:
        """The same with models combined under edges where they are not, or the other way round.

        None where that is no faster, or where edges mean nothing.
        """
        if len(self.view.rivals.global_s) < 2:
            return None
        other = replace(self.view.network, combine=not self.view.network.combine)
        means = replace(
            self.means,
            global_s=self.view.mean_s(other, self.view.everyone),
            group_s=self.view.mean_s(other, self.view.chosen.grouping),
        )
        found = self.view.rivals.times(means)
        return found if found.times > WORTH_IT * self.over_fedavg.times else None

    @property
    def combines(self) -> bool:
        """Whether models are combined under edges on their way."""
        return self.view.network.combine

    @cached_property
    def traffic(self) -> list[Traffic]:
        """Links between switches by what they carry, most first; rounds follow one another."""
        top, tau2 = self.view.network.topology, self.means.tau2
        n, carried = top.n_devices, self._carried(self.view.everyone)
        if tau2 > 1:
            carried = carried + (tau2 - 1) * self._carried(self.view.chosen.grouping)
        inner = carried[n:]
        rounds = self.rounds_a_day
        return [
            Traffic(_between(top.link_name(2 * int(n + at))), float(inner[at]), rounds * inner[at])
            for at in np.argsort(-inner, kind="stable")
            if inner[at] > 0
        ]

    @cached_property
    def bottlenecks(self) -> list[Bottleneck]:
        """The link that each kind of mean waits for, where one is busy for most of it."""
        found = []
        kinds = [("group mean", self.view.chosen.grouping)] if self.means.tau2 > 1 else []
        for name, grouping in [*kinds, ("global mean", self.view.everyone)]:
            busy_s, total_s = self._busy(grouping)
            at = int(busy_s.argmax())
            if not total_s or busy_s[at] < LEAST_BUSY * total_s:
                continue
            twice = self._twice(at)
            link = _between(self.view.network.topology.link_name(2 * at))
            found.append(Bottleneck(name, link, float(busy_s[at] / total_s), twice))
        return found

    def _carried(self, grouping: Grouping) -> Floats:
        """Payload bytes of a mean over every link, both ways [n + L]."""
        net = self.view.network
        carried = np.zeros(len(net.topology.latency_s))
        for phase in self._phases(grouping):
            both = net.carried(net.routed(phase)).astype(np.float64)
            carried += both[::2] + both[1::2]
        return carried / self._draws

    def _busy(self, grouping: Grouping) -> tuple[Floats, float]:
        """Seconds that each link is busy in a mean [n + L], and the seconds of that."""
        net, nbytes, tcp = self.view.network, self.view.model_bytes, PROFILES["lossless"]
        wire = 1 + tcp.header * -(-nbytes // tcp.segment) / nbytes
        busy = np.zeros(len(net.topology.latency_s))
        for phase in self._phases(grouping):
            each_way = wire * net.carried(net.routed(phase)) / net.topology.bytes_per_s
            busy += each_way.reshape(-1, 2).max(axis=1)  # both ways are busy at once
        return busy / self._draws, self.view.mean_s(net, grouping)

    @property
    def _draws(self) -> int:
        """Means of which the phases are listed: one, or one for every draw of who is there."""
        some = self.view.participants
        return 1 if some is None else some.draws

    def _phases(self, grouping: Grouping) -> Iterator[Phase]:
        """List what flows in a mean of all nodes, or in as many means as there are draws."""
        net, some = self.view.network, self.view.participants
        if some is None:
            found = iter(net.patterns(grouping.z, grouping.servers, self.view.model_bytes))
        else:
            found = some.phases(net, grouping, self.view.chosen.grouping.z)
        return chain.from_iterable(found)

    def _twice(self, link: int) -> float:
        """How many times as fast a round is, in transfers and steps, with a link twice as fast."""
        net, view = self.view.network, self.view
        speed = net.topology.bytes_per_s.copy()
        speed[2 * link : 2 * link + 2] *= 2
        faster = replace(net, topology=replace(net.topology, bytes_per_s=speed))
        means = replace(
            self.means,
            global_s=self.view.mean_s(faster, self.view.everyone),
            group_s=self.view.mean_s(faster, view.chosen.grouping),
        )
        return self.round_s / (means.round_s(view.step_s) or 1.0)


def _between(name: str) -> str:
    """Name a link by its two ends, whichever way.

    >>> _between("site -> core")
    'site - core'
    """
    return name.replace(" -> ", " - ")
