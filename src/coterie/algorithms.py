"""The algorithms as a table: (planner, schedule)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from coterie.errors import ConfigError, GroupingError, unknown
from coterie.grouping import Planner
from coterie.grouping.baselines import at_random, by_edge, single
from coterie.grouping.medoids import node_grouping
from coterie.imports import import_by_path
from coterie.schedule import Schedule

GROUPINGS: dict[str, str] = {
    "paper": "k-medoids over divergence and hops, as printed in the paper",
    "reference": "the same search as the authors' simulator computes it",
    "random": "equal groups dealt at random",
}


@dataclass(frozen=True)
class Search:
    """How groups are searched for: the method, and the weights of its two costs."""

    method: str = "reference"
    alpha_iid: float = 1.0
    alpha_comm: float = 1.0

    @property
    def uses_gradients(self) -> bool:
        """Whether nodes have to upload their gradients for it."""
        return self.method != "random" and self.alpha_iid > 0

    def planner(self) -> Planner:
        """Return the planner that this search names."""
        if self.method in ("paper", "reference"):
            kind = cast(Literal["paper", "reference"], self.method)
            return node_grouping(kind, self.alpha_iid, self.alpha_comm)
        if self.method == "random":
            return at_random
        if ":" in self.method:
            return cast(Planner, import_by_path(self.method, GroupingError))
        own = "(your own: 'my_pkg.groups:plan')"
        raise GroupingError(f"{unknown('grouping', self.method, GROUPINGS)} {own}")


@dataclass(frozen=True)
class Algorithm:
    """One row of the table.

    `searched` algorithms start with tau1 = tau2 = 1 and no groups, and plan at the first global
    mean (Algorithm 1, lines 13-15). `pooled` ones train on one node that holds everything.
    """

    about: str
    planner: Callable[[Search], Planner]
    schedule: Callable[[int, int], Schedule] = Schedule
    searched: bool = False
    iid: bool = False
    pooled: bool = False


def _flat(tau1: int, tau2: int) -> Schedule:
    """FedAvg's: tau = tau1 * tau2 local steps before each global mean."""
    return Schedule(tau1 * tau2, 1)


def _every_step(tau1: int, tau2: int) -> Schedule:
    return Schedule(1, 1)


def _search(about: str, *, iid: bool, comm: bool) -> Algorithm:
    def planner(s: Search) -> Planner:
        return Search(s.method, s.alpha_iid * iid, s.alpha_comm * comm).planner()

    return Algorithm(about, planner, searched=True, iid=iid)


ALGORITHMS: dict[str, Algorithm] = {
    "fedavg": Algorithm(
        "no groups: a global mean every tau1*tau2 steps", lambda _: single, schedule=_flat
    ),
    "hierfavg": Algorithm("groups are the network edges", lambda _: by_edge),
    "fedavg-c": _search("groups by least hop distance", iid=False, comm=True),
    "fedavg-i": _search("groups by least divergence Delta", iid=True, comm=False),
    "fedavg-ic": _search("groups by both costs: the paper's algorithm", iid=True, comm=True),
    "centralized": Algorithm(
        "all data on one node: no network", lambda _: single, schedule=_every_step, pooled=True
    ),
}


def find_algorithm(name: str) -> Algorithm:
    """Look an algorithm up by name.

    >>> find_algorithm("fedavg-ic").searched
    True
    """
    if name not in ALGORITHMS:
        raise ConfigError(unknown("algorithm", name, ALGORITHMS))
    return ALGORITHMS[name]
