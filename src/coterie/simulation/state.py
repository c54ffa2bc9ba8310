"""The values that the loop passes on: whose turn it was, the plan, where a run is, and its row."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from coterie.core.arrays import Ints
from coterie.engine.contract import Models
from coterie.network import Transfer
from coterie.simulation.clock import Clock
from coterie.simulation.fleet import Averaging
from coterie.simulation.forecast import Tuned
from coterie.simulation.row import Row
from coterie.simulation.schedule import Event, Schedule

G = TypeVar("G")


@dataclass(frozen=True)
class Planned:
    """When groups were planned, and their Delta then, by what nodes had shown."""

    t: int
    Delta: float


@dataclass(frozen=True, eq=False)
class Plan(Generic[G]):
    """Who trains with whom, when what is averaged, and what its policy remembers.

    A simulated run has its groups by numbers, with what a mean of them takes. A run on Flower has
    them by names: its nodes come and go, and take the time that they take.
    """

    schedule: Schedule
    groups: G | None = None  # None until planned
    memory: Planned | Tuned | None = None


@dataclass(frozen=True, eq=False)
class State:
    """Where a run is after step t: enough to go on from, and the row it just earned."""

    t: int
    models: Models
    plan: Plan[Averaging]
    clock: Clock
    row: Row

    @property
    def groups(self) -> Averaging | None:
        """The groups, None until they are planned."""
        return self.plan.groups

    @property
    def tuned(self) -> Tuned | None:
        """What a run that chooses its schedule has seen and chosen; None for others."""
        return self.plan.memory if isinstance(self.plan.memory, Tuned) else None


@dataclass(frozen=True, eq=False)
class Turn:
    """Local steps start+1 .. stop, the mean after them, who is in it, and what both take."""

    start: int
    stop: int
    scope: Event
    who: Averaging
    counted: Ints | None  # nodes whose models are averaged; None for everybody
    compute_s: float
    transfer: Transfer

    @property
    def anybody(self) -> bool:
        """Whether any model is averaged at all."""
        return self.counted is None or len(self.counted) > 0
