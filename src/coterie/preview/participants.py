"""Means of which some nodes are part: seconds and flows on average over draws of who is there."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from coterie.core.arrays import Ints
from coterie.grouping import Grouping
from coterie.network import Network, Phase
from coterie.simulation.fleet import Fleet
from coterie.simulation.participation import Participation, Present

MOST_DRAWS = 20  # other 20 change seconds by up to 8% (standard deviation); other 5 by up to 17%
NODES_DRAWN, FEWEST_DRAWS = 5_000, 2  # in all; a draw of some takes nearly as long as a mean of all
Key = tuple[Network, tuple[bytes, ...]]


@dataclass(frozen=True, eq=False)
class Participants:
    """Who takes part in rounds of a fleet with models of nbytes, drawn as a run draws them.

    A deadline is not heeded: who is late depends on the steps between means, and every schedule
    that is compared has its own.
    """

    participation: Participation
    seed: int
    fleet: Fleet
    nbytes: int
    timed: dict[Key, float] = field(default_factory=dict)  # what has been timed before

    @property
    def draws(self) -> int:
        """Rounds that are drawn: fewer where many nodes are in each."""
        asked = max(1, round(self.participation.fraction * self.fleet.n))
        return max(FEWEST_DRAWS, min(MOST_DRAWS, NODES_DRAWN // asked))

    def present(self, among: Ints) -> list[Present]:
        """Draw who is there, of groups `among` [n]; a round is one local step."""
        each = np.full(self.fleet.n, self.fleet.step_s)
        step_s = each if self.fleet.node_step_s is None else self.fleet.node_step_s
        heeded = replace(self.participation, deadline_s=0.0)
        return [heeded.at(t, among, step_s, self.seed) for t in range(1, self.draws + 1)]

    @property
    def together(self) -> Grouping:
        """All nodes, as FedAvg averages them."""
        return self.fleet.together(self.nbytes)

    @cached_property
    def step_s(self) -> float:
        """Seconds of a local step: of the slowest node that is waited for, of a part of all."""
        return float(np.mean([each.compute_s for each in self.present(self.together.z)]))

    def seconds(self, network: Network, grouping: Grouping, among: Ints) -> float:
        """Seconds of a mean of a grouping, of nodes that are drawn of groups `among` [n]."""
        return float(np.mean([self._timed(network, grouping, p) for p in self.present(among)]))

    def _timed(self, network: Network, grouping: Grouping, there: Present) -> float:
        """Time one draw; where groups do not matter to who is there, global means are all alike."""
        arrays = (grouping.z, grouping.servers, there.asked, there.counted)
        key = network, tuple(array.tobytes() for array in arrays)
        if key not in self.timed:
            z, servers, asked, counted = arrays
            self.timed[key] = network.part(z, servers, self.nbytes, asked, counted).seconds
        return self.timed[key]

    def phases(
        self, network: Network, grouping: Grouping, among: Ints
    ) -> Iterator[tuple[Phase, ...]]:
        """List the phases of every draw: up from those who count, then down to those asked."""
        z, servers = grouping.z, grouping.servers
        for there in self.present(among):
            yield network.patterns(z, servers, self.nbytes, there.counted)[0]
            yield network.patterns(z, servers, self.nbytes, there.asked)[1]
