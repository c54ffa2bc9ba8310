"""What is left of a run: the rounds that a schedule takes to a target, by what a fit says."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from coterie.core.arrays import Floats
from coterie.simulation.accuracy import Errors
from coterie.simulation.progress import Fit, farther, worth


@dataclass(frozen=True, eq=False)
class Rest:
    """What is left of a run after a step, by a fit: progress made, and to make."""

    rates: Floats
    start: int
    fit: Fit
    made: float
    target: float
    law: Errors | None = None
    parts: dict[int, list[float]] = field(default_factory=dict)  # of local steps, by tau1

    def rounds(self, tau1: int, tau2: int, ratio: float) -> tuple[float, float]:
        """Return how many rounds the target takes, and the progress with all steps that are left.

        The round that reaches it counts in part, and half a round more: it is seen at an end.
        """
        reach = self.fit.reach * farther(ratio)
        parts, made, rounds = self._local(tau1), self.made, 0.0
        for at in range(0, len(parts), tau2):
            gained = 0.0
            for part in parts[at : at + tau2]:
                gained += part * math.exp(-((gained / reach) ** 2))
            if made < self.target:
                rounds += 1.0 if made + gained < self.target else (self.target - made) / gained
            made += gained
        return rounds + 0.5 if rounds else 0.0, made

    def beyond(self, tau1: int, tau2: int, ratio: float) -> float:
        """Return how many rounds the target takes if steps go on after the last, if ever."""
        last = self.rates[-1] * (self.rates[-1] / self.rates[-2]) ** np.arange(
            1, 2 * len(self.rates)
        )
        rounds, made = replace(self, rates=np.append(self.rates, last), parts={}).rounds(
            tau1, tau2, ratio
        )
        return rounds if made >= self.target else math.inf

    def _local(self, tau1: int) -> list[float]:
        """Return the worth of every tau1 steps that are left, of the last ones too."""
        if tau1 not in self.parts:
            rates = self.rates[self.start :]
            padded = np.append(rates, np.zeros(-len(rates) % tau1)).reshape(-1, tau1)
            self.parts[tau1] = [float(gained) for gained in worth(padded.T, self.fit.reach)]
        return self.parts[tau1]
