"""What an algorithm is made of: who trains with whom, what is added to SGD, which models exist."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from coterie.engine.update import NOTHING, Update
from coterie.grouping import Planner
from coterie.grouping.baselines import by_edge, single
from coterie.simulation.schedule import NEVER, Schedule
from coterie.simulation.search import Needs, Search

if TYPE_CHECKING:
    from coterie.simulation.policies import Policy

Groups = Literal["none", "edge", "search"]


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as a value; a part that is left out is FedAvg's.

    Its groups can be none, the network edges, or searched for: at the first global mean, with
    tau1 = tau2 = 1 until then (Algorithm 1, lines 13-15), by the divergence of their data (`iid`),
    by the network (`comm`), or by both. A `policy` of its own decides about groups instead, given
    their number K; there are then as many models as `models` says, and every node makes so many
    `passes` over its data before each turn. `pooled` is training on one node that holds everything.
    """

    about: str
    update: Update = NOTHING
    groups: Groups = "none"
    iid: bool = True
    comm: bool = True
    policy: "Callable[[int], Policy] | None" = None
    models: Callable[[int], int] = lambda K: 1
    passes: Callable[[int], int] = lambda K: 0
    pooled: bool = False
    searched: bool = field(init=False)  # whether groups are searched for
    personal: bool = field(init=False)  # whether nodes have models of their own

    def __post_init__(self) -> None:
        """Say what follows from the parts."""
        own = self.update.personal is not None or self.update.beside is not None
        object.__setattr__(self, "searched", self.groups == "search" and self.policy is None)
        object.__setattr__(self, "personal", own)

    def planner(self, search: Search) -> Planner:
        """Return who makes the groups, where a search is set up like that."""
        if self.searched:
            return search.weighted(iid=self.iid, comm=self.comm).planner()
        return by_edge if self.groups == "edge" else single

    def needs(self, search: Search) -> Needs:
        """Return what nodes have to show of their data for that."""
        if not self.searched:
            return "nothing"
        return search.weighted(iid=self.iid, comm=self.comm).needs

    def schedule(self, tau1: int, tau2: int) -> Schedule:
        """Return when what is averaged; without groups, a global mean every tau1 * tau2 steps."""
        if self.pooled:
            return Schedule(1, 1)
        if self.policy is not None:
            return Schedule(tau1 if tau2 == NEVER else tau1 * tau2, NEVER)
        return Schedule(tau1, tau2) if self.groups != "none" else Schedule(tau1 * tau2, 1)
