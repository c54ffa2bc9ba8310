"""The paper's policy: search for groups on the nodes' gradients at the first global mean.

Also, where that is wanted, again when some time has passed or the groups have drifted apart.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from coterie.engine.contract import Models
from coterie.grouping import Evidence
from coterie.grouping.objective import Objective
from coterie.simulation.fleet import Averaging
from coterie.simulation.measuring import gradients_at, row_after
from coterie.simulation.planning import evidence_for, evidence_upload, plan
from coterie.simulation.policies.given import begun
from coterie.simulation.policies.regroup import Regroup
from coterie.simulation.problem import Problem
from coterie.simulation.schedule import Event, Schedule
from coterie.simulation.state import Plan, Planned, State, Turn

UNPLANNED: Plan[Any] = Plan(Schedule(1, 1))  # everybody averages after every step


@dataclass(frozen=True)
class Searched:
    """Algorithm 1: tau1 = tau2 = 1 until the first global mean, where groups are planned."""

    regroup: Regroup = field(default_factory=Regroup)
    searches: bool = True

    def begin(self, problem: Problem, models: Models) -> State:
        """Let everybody average after every step."""
        return begun(problem, models, UNPLANNED)

    def after(self, problem: Problem, s: State, turn: Turn) -> State:
        """Plan if it is the first global mean, or if it is time to plan again."""
        if turn.scope is not Event.GLOBAL or not self.looks(s.plan, s.t, problem.steps):
            return s
        shown = evidence_for(problem, gradients_at(problem, s.models, s.t), s.t if s.groups else 0)
        s = replace(s, clock=s.clock.after("grouping", 0.0, evidence_upload(problem)))
        if self.plans(s.plan, s.t, shown):  # line 13
            groups = plan(problem, shown, s.t if s.groups else 0)
            planned = Planned(s.t, Objective(shown).divergence(groups.grouping.z))
            s = replace(s, plan=Plan(problem.schedule, groups, planned))  # lines 14 and 15
        return replace(s, row=row_after(problem, s, turn, due=True))

    def looks(self, now: Plan[Any], t: int, steps: int) -> bool:
        """Whether nodes show their data at the global mean after step t of so many."""
        return now.groups is None or (t < steps and self.regroup.looks(_rounds_since(now, t)))

    def plans(self, now: Plan[Averaging], t: int, shown: Evidence) -> bool:
        """Whether groups are planned at this mean, going by what nodes have shown."""
        if now.groups is None or not isinstance(now.memory, Planned):
            return True
        return self.regroup.due(_rounds_since(now, t), now.memory, shown, now.groups.grouping.z)


def _rounds_since(now: Plan[Any], t: int) -> int:
    """Global means since the last plan; the first plan is made inside a round, which counts."""
    planned = now.memory.t if isinstance(now.memory, Planned) else 0
    return -(-(t - planned) // now.schedule.cycle)
