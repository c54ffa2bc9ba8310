"""How groups are searched for: methods by name, the weights of their costs, and how long."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import numpy as np

from coterie.core.errors import CoterieError, GroupingError, OwnCodeError, unknown
from coterie.core.plugins import import_by_path, reason
from coterie.grouping import Evidence, Grouping, Planner
from coterie.grouping.baselines import at_random, by_edge
from coterie.grouping.fl_sim import fl_sim
from coterie.grouping.labels import astraea, cov, fedseq, label_ilp, similar
from coterie.grouping.medoids import node_grouping
from coterie.grouping.planner import ORDINARY, Effort, coterie
from coterie.grouping.shapefl import shapefl

Needs = Literal["nothing", "labels", "gradients"]


@dataclass(frozen=True)
class Search:
    """How groups are searched for: the method, the weights of its two costs, and how long."""

    method: str = "coterie"
    alpha_iid: float = 1.0
    alpha_comm: float = 1.0
    effort: Effort = ORDINARY
    own: Planner | None = field(default=None, compare=False)  # in place of what the name means

    @property
    def needs(self) -> Needs:
        """What nodes have to upload for it."""
        needs = METHODS[self.method].needs if self.method in METHODS else "gradients"
        unweighed = needs == "gradients" and not self.alpha_iid and self.method != "similar"
        return "nothing" if unweighed else needs

    def weighted(self, *, iid: bool, comm: bool) -> "Search":
        """Return the same search with one of its two costs, or with both."""
        return replace(self, alpha_iid=self.alpha_iid * iid, alpha_comm=self.alpha_comm * comm)

    def planner(self) -> Planner:
        """Return the planner that this search names."""
        if self.own is not None:
            return _own(self.method, self.own)
        if self.method in METHODS:
            return METHODS[self.method].make(self)
        if ":" in self.method:
            return _own(self.method, cast(Planner, import_by_path(self.method, GroupingError)))
        own = "(your own: 'my_pkg.groups:plan')"
        raise GroupingError(f"{unknown('grouping', self.method, GROUPINGS)} {own}")


def _own(name: str, plan: Planner) -> Planner:
    """Return a user's planner whose errors are told in one line."""

    def planned(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        try:
            found: object = plan(evidence, rng)
        except CoterieError:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            why = reason(error)
            raise OwnCodeError(f"{name!r}, called with (evidence, rng): {why}") from error
        if not isinstance(found, Grouping):
            kind = type(found).__name__
            raise OwnCodeError(f"a planner must return a coterie.Grouping, got {kind}")
        return found

    return planned


@dataclass(frozen=True)
class Method:
    """One way to search: what it is, what it needs to see, and the planner it makes.

    A plan asks it unless it is told which to ask, but for what differs little from another.
    """

    about: str
    needs: Needs
    make: Callable[[Search], Planner]
    asked: bool = True


def _medoids(kind: Literal["paper", "reference"]) -> Callable[[Search], Planner]:
    return lambda s: node_grouping(kind, s.alpha_iid, s.alpha_comm)


METHODS: dict[str, Method] = {
    "coterie": Method(
        "least divergence and transfer seconds, by local search",
        "gradients",
        lambda s: coterie(s.alpha_iid, s.alpha_comm, s.effort),
    ),
    "paper": Method(
        "k-medoids over divergence and hops, as printed in the paper",
        "gradients",
        _medoids("paper"),
    ),
    "reference": Method(
        "the same search over total costs, as the authors' simulator has them",
        "gradients",
        _medoids("reference"),
    ),
    "fl-sim": Method(
        "the authors' published program, rule by rule",
        "gradients",
        lambda s: fl_sim(s.alpha_iid, s.alpha_comm),
        asked=False,
    ),
    "random": Method("equal groups dealt at random", "nothing", lambda _: at_random),
    "edge": Method("the network edges, as many as there are", "nothing", lambda _: by_edge),
    "cov": Method("Group-FEL: least variation of label counts", "labels", lambda _: cov),
    "astraea": Method("Astraea: labels nearest to uniform", "labels", lambda _: astraea),
    "fedseq": Method("FedSeq: farthest label distributions", "labels", lambda _: fedseq),
    "label-ilp": Method(
        "exact balance of labels by integer programming", "labels", lambda _: label_ilp()
    ),
    "shapefl": Method(
        "ShapeFL: unlike last layers against hops",
        "gradients",
        lambda s: shapefl(s.alpha_iid, s.alpha_comm),
    ),
    "similar": Method("groups of alike nodes: a contrast", "gradients", lambda _: similar),
}
GROUPINGS: dict[str, str] = {name: method.about for name, method in METHODS.items()}
