"""When groups and schedule are decided: given, searched and regrouped, or chosen by a pilot."""

from typing import Protocol

from coterie.engine.contract import Models
from coterie.simulation.problem import Problem
from coterie.simulation.state import State, Turn


class Policy(Protocol):
    """Decides who trains with whom and when what is averaged; what it remembers is in the plan."""

    @property
    def searches(self) -> bool:
        """Whether groups are searched for, and so have to keep to limits."""

    def begin(self, problem: Problem, models: Models) -> State:
        """Return the state before the first step, in which everybody has the same model."""

    def after(self, problem: Problem, s: State, turn: Turn) -> State:
        """Look at a mean; return the state with another plan if there is to be one.

        Whatever the nodes upload for that is charged to the clock. A policy that measures the mean
        returns the row; otherwise the state has that of the mean before.
        """
