"""When what is averaged: t -> LOCAL, GROUP or GLOBAL (eq:w_GroupFL)."""

from dataclasses import dataclass
from enum import StrEnum

NEVER = 10**9  # as tau2: groups whose models are not averaged with each other


class Event(StrEnum):
    """What happens at the end of a step."""

    LOCAL = "local"
    GROUP = "group"
    GLOBAL = "global"


@dataclass(frozen=True)
class Schedule:
    """A group mean every tau1 steps, a global one in its place every tau1 * tau2.

    >>> [Schedule(2, 3).event(t).value for t in range(1, 7)]
    ['local', 'group', 'local', 'group', 'local', 'global']
    """

    tau1: int
    tau2: int
    start: int = 0  # the step that it counts from

    @property
    def cycle(self) -> int:
        """Local steps from one global mean to the next: a round."""
        return self.tau1 * self.tau2

    @property
    def round(self) -> int:
        """Local steps of a round: up to a global mean or, if there is none, to a group's."""
        return self.tau1 if self.tau2 == NEVER else self.cycle

    def event(self, t: int) -> Event:
        """Event at the end of step t = 1, 2, ..."""
        if (t - self.start) % self.cycle == 0:
            return Event.GLOBAL
        return Event.GROUP if (t - self.start) % self.tau1 == 0 else Event.LOCAL

    def next_aggregation(self, t: int, last: int) -> tuple[int, Event]:
        """Step and kind of the first aggregation after t; step `last` is a global one, if any is.

        >>> Schedule(2, 3).next_aggregation(2, last=9), Schedule(2, 3).next_aggregation(8, last=9)
        ((4, <Event.GROUP: 'group'>), (9, <Event.GLOBAL: 'global'>))
        """
        stop = min(t - (t - self.start) % self.tau1 + self.tau1, last)
        if stop < last:
            return stop, self.event(stop)
        return stop, Event.GROUP if self.tau2 == NEVER else Event.GLOBAL
