"""The nodes of a deployment and the network between them: what can be planned without training."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.grouping import Delays, Evidence, Grouping
from coterie.grouping.baselines import single
from coterie.grouping.evidence import Routes
from coterie.network import Network, Transfer


@dataclass(frozen=True, eq=False)
class Fleet:
    """n nodes with shares p [n] of the data, under edges edge_of [n] of a network."""

    p: Floats
    edge_of: Ints
    network: Network
    class_counts: Ints  # [n, classes], examples of every class on every node
    names: tuple[str, ...] = ()
    edge_names: tuple[str, ...] = ()
    step_s: float = 0.0  # simulated seconds of one local step: of the slowest node
    node_step_s: Floats | None = None  # [n], where they matter one by one
    node_turn_s: Floats | None = None  # [n], of what a node does once before its steps
    plans_with: Network | None = None  # a quicker clock to plan by, where the network's is slow

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.p)

    @property
    def planning(self) -> Network:
        """The network as searches and plans reckon with it."""
        return self.plans_with or self.network

    @cached_property
    def routes(self) -> Routes:
        """Routes of the network."""
        return Routes(self.network.topology)

    @cached_property
    def _together(self) -> dict[int, Grouping]:
        return {}

    @cached_property
    def _last(self) -> "list[Averaging]":
        return []

    def together(self, nbytes: int) -> Grouping:
        """All nodes in one group, with the global server where a mean of nbytes is quickest."""
        if nbytes not in self._together:
            delays = Delays(self.planning, nbytes, 1, 0.0, self.routes)
            bare = Evidence(1, self.p, self.edge_of, self.network.topology, delays=delays)
            self._together[nbytes] = single(bare, np.random.default_rng(0))
        return self._together[nbytes]

    def averaging(self, grouping: Grouping, nbytes: int) -> "Averaging":
        """Return a grouping and what its mean of models of so many bytes costs.

        The last one is known: FedAvg's only group, for one, is everybody, who have been priced.
        """
        z, servers = grouping.z, grouping.servers
        for known in self._last:
            same = known.nbytes == nbytes and np.array_equal(known.grouping.servers, servers)
            if same and np.array_equal(known.grouping.z, z):
                return replace(known, grouping=grouping)
        self._last[:] = [averaging(self.network, grouping, nbytes)]
        return self._last[0]

    def evidence(self, num_groups: int, tau2: int, model_bytes: int, global_s: float) -> Evidence:
        """Return what the network shows a planner, and nothing of the data.

        A global mean takes global_s, or what the quicker clock says.
        """
        quick = self.plans_with
        if quick is not None:
            global_s = averaging(quick, self.together(model_bytes), model_bytes).transfer.seconds
        delays = Delays(quick or self.network, model_bytes, tau2, global_s, self.routes)
        num_groups = min(num_groups, self.n)
        return Evidence(num_groups, self.p, self.edge_of, self.network.topology, delays=delays)


@dataclass(frozen=True, eq=False)
class Averaging:
    """Who is averaged with whom, and the transfer that takes: models up, their mean down."""

    grouping: Grouping
    transfer: Transfer
    nbytes: int  # of a model, and of what travels with it
    down_bytes: int | None = None  # of what comes back, where that is something else


def averaging(network: Network, grouping: Grouping, nbytes: int) -> Averaging:
    """Return a grouping and what its mean costs on a network."""
    return Averaging(grouping, network.aggregation(grouping.z, grouping.servers, nbytes), nbytes)
