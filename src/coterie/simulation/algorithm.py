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

    Searched groups are made at the first global mean, with tau1 = tau2 = 1 until then (Algorithm 1,
    lines 13-15).

    Attributes:

    - `about`: what it is, in a few words.
    - `update`: what it adds to SGD and to a mean.
    - `groups`: "none", "edge" (the network edges) or "search"; `algorithm.groups` can replace it.
    - `iid`: whether searched groups go by the divergence of their data.
    - `comm`: whether searched groups go by the network.
    - `policy`: a function of the number K of groups; what it returns decides about groups instead.
    - `models`: how many models there are, given K; IFCA has K.
    - `passes`: forward passes of a node over its data before each turn, given K.
    - `pooled`: whether one node holds all data.
    - `searched`: whether groups are searched for; follows from the others.
    - `personal`: whether nodes have models of their own; follows from the others.
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
    searched: bool = field(init=False)
    personal: bool = field(init=False)

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
