"""Everything a run is made of."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from coterie.core.errors import ConfigError
from coterie.engine.contract import Engine, Models
from coterie.engine.update import NOTHING, Scope, Update
from coterie.grouping import Planner
from coterie.simulation.clock import LONGEST_S
from coterie.simulation.fleet import Averaging, Fleet
from coterie.simulation.measures import Measures
from coterie.simulation.participation import Participation
from coterie.simulation.schedule import Schedule
from coterie.simulation.view import View

if TYPE_CHECKING:
    from torch import Tensor

    from coterie.simulation.policies import Policy


@dataclass(frozen=True, eq=False)
class Problem:
    """A fleet, an engine that trains on it, and what Algorithm 1 is to do with them."""

    fleet: Fleet
    engine: Engine
    planner: Planner
    schedule: Schedule
    steps: int  # T
    num_groups: int  # K
    model_bytes: int
    epochs_per_step: float
    seed: int
    policy: "Policy"  # when groups and schedule are decided
    view: View = field(default_factory=View)  # what the planner sees, and what that costs
    participation: Participation = field(default_factory=Participation)
    update: Update = NOTHING  # what is added to SGD and a mean
    d: int = 0  # trained numbers of a model
    starts: "Tensor | None" = None  # first models [K, D] of an algorithm that has several
    eval_every: int = 1  # evaluate every so many global means
    measures: Measures = field(default_factory=Measures)  # what is measured then

    @cached_property
    def everyone(self) -> Averaging:
        """The global aggregation: all nodes, with the global server where that is quickest.

        A run whose clock would never end is refused here, before its first step.
        """
        nbytes = self.bytes_of("global")
        whole = self.fleet.averaging(self.fleet.together(nbytes), nbytes)
        if not self.steps * (self.fleet.step_s + whole.transfer.seconds) < LONGEST_S:
            raise ConfigError(
                f"simulated times are beyond {LONGEST_S:g} s; raise network.link_mbytes_per_s or "
                "compute.gflops"
            )
        return whole

    @cached_property
    def first_models(self) -> Models:
        """One random model everywhere."""
        return self.engine.initial()

    def bytes_of(self, scope: Scope) -> int:
        """Count the bytes that a node sends, and gets, in a mean: a model and what goes with it."""
        return self.model_bytes + 4 * self.update.extra(self.d, scope)
