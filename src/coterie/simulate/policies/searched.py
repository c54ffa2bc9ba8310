"""The paper's policy: search for groups on the nodes' gradients at the first global mean.

Also, where that is wanted, again when some time has passed or the groups have drifted apart.
"""

from dataclasses import dataclass, field, replace

from coterie.core.arrays import Ints
from coterie.engine.contract import Models
from coterie.grouping import Evidence
from coterie.grouping.objective import Objective
from coterie.simulate.planning import evidence_for, evidence_upload, plan
from coterie.simulate.policies.given import begun
from coterie.simulate.problem import Problem
from coterie.simulate.rows import gradients_at, row_after
from coterie.simulate.schedule import Schedule
from coterie.simulate.state import Plan, Planned, State, Turn


@dataclass(frozen=True)
class Regroup:
    """When to plan again: every so many global means, or when Delta has grown by this part.

    To know Delta, nodes upload at every global mean what the planner sees; that is charged.
    """

    every: int = 0
    drift: float = 0.0

    def looks(self, rounds: int) -> bool:
        """Whether nodes show their data again, so many global means after the last plan."""
        return self.drift > 0 or 0 < self.every <= rounds

    def now(self, rounds: int, planned: Planned, shown: Evidence, z: Ints) -> bool:
        """Whether to plan again, going by what nodes have shown and nothing else."""
        if 0 < self.every <= rounds:
            return True
        Delta = Objective(shown).divergence(z)
        return self.drift > 0 and Delta > (1 + self.drift) * planned.Delta


@dataclass(frozen=True)
class Searched:
    """Algorithm 1: tau1 = tau2 = 1 until the first global mean, where groups are planned."""

    regroup: Regroup = field(default_factory=Regroup)
    searches: bool = True

    def begin(self, problem: Problem, models: Models) -> State:
        """Let everybody average after every step."""
        return begun(problem, models, Plan(Schedule(1, 1)))

    def after(self, problem: Problem, s: State, turn: Turn) -> State:
        """Plan if it is the first global mean, or if it is time to plan again."""
        if not self._looks(problem, s):
            return s
        shown = evidence_for(problem, gradients_at(problem, s.models, s.t), s.t if s.groups else 0)
        s = replace(s, clock=s.clock.after("grouping", 0.0, evidence_upload(problem)))
        if self._plans(problem, s, shown):
            groups = plan(problem, shown, s.t if s.groups else 0)
            planned = Planned(s.t, Objective(shown).divergence(groups.grouping.z))
            s = replace(s, plan=Plan(problem.schedule, groups, planned))
        return replace(s, row=row_after(problem, s, turn, due=True))

    def _looks(self, problem: Problem, s: State) -> bool:
        """Whether nodes show their data at this global mean."""
        if s.groups is None:
            return True
        return s.t < problem.steps and self.regroup.looks(_rounds_since(problem, s))

    def _plans(self, problem: Problem, s: State, shown: Evidence) -> bool:
        if s.groups is None or not isinstance(s.plan.memory, Planned):
            return True
        ago = _rounds_since(problem, s)
        return self.regroup.now(ago, s.plan.memory, shown, s.groups.grouping.z)


def _rounds_since(problem: Problem, s: State) -> int:
    """Global means since the last plan; the first plan is made inside a round, which counts."""
    planned = s.plan.memory.t if isinstance(s.plan.memory, Planned) else 0
    return -(-(s.t - planned) // (problem.schedule.tau1 * problem.schedule.tau2))
