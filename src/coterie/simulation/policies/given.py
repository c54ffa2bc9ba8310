"""Groups that need nothing from the nodes: planned at the start and kept."""

from dataclasses import dataclass
from typing import Any

from coterie.engine.contract import Models
from coterie.simulation.clock import Clock
from coterie.simulation.fleet import Averaging
from coterie.simulation.measuring import first_row
from coterie.simulation.planning import evidence_for, plan
from coterie.simulation.problem import Problem
from coterie.simulation.state import Plan, State, Turn


@dataclass(frozen=True)
class Given:
    """The planner answers before the first step, on the network alone."""

    searches: bool = False

    def begin(self, problem: Problem, models: Models) -> State:
        """Plan at once."""
        groups = plan(problem, evidence_for(problem, None, 0))
        return begun(problem, models, Plan(problem.schedule, groups))

    def after(self, problem: Problem, s: State, turn: Turn) -> State:
        """Change nothing."""
        return s

    def looks(self, now: Plan[Any], t: int, steps: int) -> bool:
        """Return that nodes never have to show their data."""
        return False


def begun(problem: Problem, models: Models, plan: Plan[Averaging], *, loss: bool = False) -> State:
    """Return the state before the first step; a clock that would never end is refused here."""
    assert problem.everyone  # priced, and so checked, before anything is trained
    return State(0, models, plan, Clock(), first_row(problem, models, plan, loss=loss))
