"""How a plan compares with FedAvg: seconds to the same loss, under stated assumptions.

Nothing is trained. As in forecasts by a pilot (simulation/progress.py), a step that a node takes
after others without a mean counts exp(-(gained / reach)^2) of a step, and groups reach farther than
nodes, by the ratio of their divergences. What the reach is, a pilot would show; here it is assumed
from how unlike the nodes' label shares are, with a range.
"""

import math
from dataclasses import dataclass

from coterie.simulation.forecast import TAU1
from coterie.simulation.progress import farther, worth

# Of runs on MNIST-F, steps of an epoch: docs/explanation/grouping.md says how they were fitted.
ALIKE, FALLS = 3.6, 2.2  # reach of nodes with the same labels, and how fast it falls with delta
DOUBT = 3.0  # the reach may be so many times as far, or as near


def assumed_reach(delta: float) -> float:
    """Return the steps that nodes are assumed to reach alone, by their labels' divergence delta.

    >>> round(assumed_reach(0.0), 2), round(assumed_reach(0.4), 2)
    (3.6, 1.49)
    """
    return ALIKE * math.exp(-FALLS * delta)


@dataclass(frozen=True)
class Means:
    """What is averaged how often: seconds of a group's mean, and groups' divergence over nodes'.

    Without groups, tau2 is 1 and only the global mean counts.
    """

    global_s: float
    group_s: float = 0.0
    ratio: float = 0.0
    tau1: int = 1
    tau2: int = 1

    def round_s(self, step_s: float) -> float:
        """Seconds of a global round."""
        steps_s = self.tau1 * self.tau2 * step_s
        return self.global_s + (self.tau2 - 1) * self.group_s + steps_s

    def gained(self, reach: float) -> float:
        """Steps that a global round counts, of tau1 * tau2.

        >>> round(Means(1.0, tau1=5).gained(1.0), 3), Means(1.0, 0.1, 0.0, 1, 5).gained(1.0)
        (1.693, 5.0)
        """
        local = worth([1.0] * self.tau1, reach)
        return float(worth([local] * self.tau2, reach * farther(self.ratio)))

    def speed(self, step_s: float, reach: float) -> float:
        """Steps that count, a second."""
        seconds = self.round_s(step_s)
        return self.gained(reach) / seconds if seconds else math.inf


@dataclass(frozen=True)
class Times:
    """How many times as fast as something else, and the range of that.

    >>> str(Times(2.04, 1.5, 2.61)), str(Times(0.5, 0.4, 0.5))
    ('2.0x (1.5x to 2.6x)', '0.50x (0.40x to 0.50x)')
    """

    times: float
    low: float
    high: float

    def __str__(self) -> str:
        """Write it as people say it."""
        return f"{_times(self.times)} ({_times(self.low)} to {_times(self.high)})"


def _times(value: float) -> str:
    if not math.isfinite(value):
        return "any number of times"
    return f"{value:.0f}x" if value >= 10 else f"{value:.1f}x" if value >= 1 else f"{value:.2f}x"


@dataclass(frozen=True)
class Rivals:
    """FedAvg with its best schedules: as the network is, and with models combined on their way.

    `global_s` has the seconds of a global mean of each, by name.
    """

    global_s: dict[str, float]
    step_s: float
    reach: float
    tau1: tuple[int, ...] = TAU1  # steps between FedAvg's means, one of them

    @property
    def reaches(self) -> tuple[float, float, float]:
        """The reach that is assumed, and the ends of its range."""
        return self.reach, self.reach / DOUBT, self.reach * DOUBT

    def best(self, reach: float | None = None) -> tuple[str, Means]:
        """Return the quickest FedAvg, and its schedule."""
        found = (
            (name, Means(global_s, tau1=tau1))
            for name, global_s in self.global_s.items()
            for tau1 in self.tau1
        )
        at = self.reach if reach is None else reach
        return max(found, key=lambda each: each[1].speed(self.step_s, at))

    def times(self, means: Means, over: Means | None = None) -> Times:
        """Return how many times as fast as the best FedAvg, or as others, some means are."""
        found = [self._times(means, over, reach) for reach in self.reaches]
        return Times(found[0], min(found), max(found))

    def _times(self, means: Means, over: Means | None, reach: float) -> float:
        other = over or self.best(reach)[1]
        theirs = other.speed(self.step_s, reach)
        ours = means.speed(self.step_s, reach)
        return 1.0 if ours == theirs else ours / theirs if theirs else math.inf
