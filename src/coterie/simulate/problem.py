"""What a run is made of, and how its nodes are grouped and averaged."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.core.streams import Stream, generator
from coterie.engine.contract import Engine, Gradients
from coterie.engine.server import Server
from coterie.grouping import Delays, Evidence, Grouping, Planner, check_grouping
from coterie.grouping.baselines import single
from coterie.grouping.limits import broken
from coterie.network import Network, Transfer
from coterie.simulate.forecast import Tuning
from coterie.simulate.participation import Attendance
from coterie.simulate.policies.view import Regroup, View
from coterie.simulate.schedule import Schedule


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
    searched: bool = False  # plan at the first global mean, on the gradients there
    plans_with: Network | None = None  # a quicker clock to plan by, where the network's is slow
    view: View = field(default_factory=View)  # what the planner sees, and what that costs
    regroup: Regroup = field(default_factory=Regroup)
    attendance: Attendance = field(default_factory=Attendance)
    server: Server = field(default_factory=Server)
    node_step_s: Floats | None = None  # [n], of a local step, where they matter one by one
    extra_bytes: int = 0  # that travel with a model in a global mean
    eval_every: int = 1  # measure every so many global means
    tuning: Tuning | None = None  # how groups and schedule are chosen, where they are open
    planners: tuple[Planner, ...] = ()  # others to try then

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


def plan(
    problem: Problem, evidence: Evidence, t: int = 0, planner: Planner | None = None
) -> Averaging:
    """Ask the planner; its random choices depend on the seed, and later also on when it is."""
    rng = generator(problem.seed, Stream.PLAN, *([t] if t else []))
    grouping = check_grouping(
        (planner or problem.planner)(evidence, rng), len(problem.p), evidence.places
    )
    beyond = broken(evidence, grouping) if problem.searched else ""
    if beyond:
        raise GroupingError(f"the planner's groups do not keep to {beyond}")
    return averaging(problem, grouping)


def evidence(problem: Problem, found: Gradients | None, t: int) -> Evidence:
    """Return what a planner may see: the network, its limits, and what nodes show of their data."""
    whole, quick = problem.everyone, problem.plans_with
    if quick is not None:
        whole = averaging(replace(problem, network=quick), whole.grouping)
    delays = Delays(
        quick or problem.network,
        problem.model_bytes,
        problem.schedule.tau2,
        whole.transfer.seconds,
    )
    num_groups = min(problem.num_groups, len(problem.p))
    topology = problem.network.topology
    bare = Evidence(num_groups, problem.p, problem.edge_of, topology, delays=delays)
    return problem.view.of(bare, found, problem.seed, t)
