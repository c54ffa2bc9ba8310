"""What a run is made of, and how its nodes are grouped and averaged."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.engine.contract import Engine
from coterie.engine.update import Update
from coterie.grouping import Evidence, Grouping, Planner
from coterie.grouping.baselines import single
from coterie.network import Network, Transfer
from coterie.simulate.participation import Attendance
from coterie.simulate.schedule import Schedule
from coterie.simulate.view import View

if TYPE_CHECKING:
    from coterie.simulate.policies import Policy


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a run is made of; n nodes with shares p [n] under edges edge_of [n]."""

    engine: Engine
    network: Network
    p: Floats
    edge_of: Ints
    planner: Planner
    schedule: Schedule
    steps: int  # T
    num_groups: int  # K
    model_bytes: int
    step_s: float  # simulated seconds of one local step
    epochs_per_step: float
    seed: int
    policy: "Policy"  # when groups and schedule are decided
    plans_with: Network | None = None  # a quicker clock to plan by, where the network's is slow
    view: View = field(default_factory=View)  # what the planner sees, and what that costs
    attendance: Attendance = field(default_factory=Attendance)
    update: Update = field(default_factory=Update)  # what is added to SGD and a mean
    node_step_s: Floats | None = None  # [n], of a local step, where they matter one by one
    extra_bytes: int = 0  # that travel with a model in a global mean
    eval_every: int = 1  # measure every so many global means

    @cached_property
    def everyone(self) -> "Averaging":
        """The global aggregation: all nodes, with the global server in their middle."""
        bare = Evidence(1, self.p, self.edge_of, self.network.topology)
        grouping = single(bare, np.random.default_rng(0))
        return averaging(self, grouping, self.model_bytes + self.extra_bytes)


@dataclass(frozen=True, eq=False)
class Averaging:
    """Who is averaged with whom, and the transfer that takes: models up, their mean down."""

    grouping: Grouping
    transfer: Transfer
    nbytes: int  # of a model, and of what travels with it


def averaging(problem: Problem, grouping: Grouping, nbytes: int | None = None) -> Averaging:
    """Return a grouping and what its mean costs, of models or of as many bytes as told."""
    nbytes = problem.model_bytes if nbytes is None else nbytes
    transfer = problem.network.aggregation(grouping.z, grouping.servers, nbytes)
    return Averaging(grouping, transfer, nbytes)
