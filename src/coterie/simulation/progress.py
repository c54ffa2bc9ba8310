"""How far steps bring a run: what each is worth, and how the loss falls with that.

Progress is measured in summed learning rates: a step of everyone together at rate eta is worth eta.
Without a mean in between, nodes (or groups) stray from each other by their divergence times what
they have gained since; a step from there counts exp(-(gained / reach)^2) of its rate. Groups that
diverge less than nodes reach farther. Reach and loss curve are fitted to what a run has shown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby

import numpy as np

from coterie.core.arrays import Floats

FLOOR, FLOOR_SD = 0.12, 0.12  # of the first loss, where nothing tells how low it can go
REACH, REACH_SD = 0.7, 1.5  # of the first rate, and in its logarithm, where nothing tells
NOISE = 0.01  # of a loss: what the curve is trusted with over a whole run
EARLY_NOISE = 0.004  # and over its first rounds
EARLY = 4  # losses
QUICKER = 1.25  # times that a later step gains what the first did, for a slow start
LEAST = 1e-12  # loss that is told from nothing
NOTHING = 1e-99  # of a divergence
GROUPED = 1.5  # power of the divergence that the reach of groups falls with
REACHES = np.geomspace(0.05, 200.0, 40)  # of the first rate
SCALES = np.geomspace(0.05, 200.0, 30)  # of the progress so far
FLOORS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.7)  # of the first loss
PLAUSIBLE = 4.0  # misfit beyond the best fit's, for two standard deviations
MOST = 64  # losses that a curve is fitted to


def worth(parts: Sequence[Floats | float] | Floats, reach: Floats | float) -> Floats:
    """Return the progress of steps one after another, of so much each where nothing has strayed.

    >>> worth([0.1, 0.1, 0.1], np.inf).round(4).item(), worth([0.1, 0.1], 0.0667).round(4).item()
    (0.3, 0.1106)
    """
    gained = np.zeros(np.broadcast(parts[0], reach).shape)
    for part in parts:
        gained = gained + part * np.exp(-np.square(gained / reach))
    return gained


def farther(ratio: float) -> float:
    """Return how many times farther groups reach than nodes, by the ratio of their divergences.

    >>> farther(1.0), farther(0.25), farther(0.0)
    (1.0, 8.0, inf)
    """
    return float(ratio**-GROUPED) if ratio > NOTHING else math.inf


@dataclass(frozen=True)
class Round:
    """Steps start+1 .. start + tau1 * tau2 up to a global mean; groups of so much less divergence.

    `ratio` is the divergence of groups over that of nodes.
    """

    start: int
    tau1: int
    tau2: int
    ratio: float = 0.0

    @property
    def stop(self) -> int:
        """Step of its global mean."""
        return self.start + self.tau1 * self.tau2

    def worth(self, rates: Floats, reach: Floats | float) -> Floats:
        """Return the round's progress at rates [T]; a node's reach may be an array."""
        steps = rates[self.start : self.stop].reshape(self.tau2, self.tau1)
        gained = [worth(part, reach) for part in steps]
        if self.tau2 == 1:
            return gained[0]
        return worth(gained, np.asarray(reach) * farther(self.ratio))


@dataclass(frozen=True)
class Curve:
    """The loss by progress: floor + height / (1 + progress / scale).

    >>> curve = Curve(0.3, 2.0, 1.8)
    >>> curve.loss(0.0), round(curve.loss(curve.progress(1.0)), 6), curve.progress(0.3)
    (2.3, 1.0, inf)
    """

    floor: float
    height: float
    scale: float

    def loss(self, progress: float) -> float:
        """Return the loss after so much progress."""
        return self.floor + self.height / (1 + progress / self.scale)

    def progress(self, loss: float) -> float:
        """Return the progress that a loss takes, infinite if it is never reached."""
        if loss <= self.floor:
            return math.inf
        return max(self.scale * (self.height / (loss - self.floor) - 1), 0.0)


@dataclass(frozen=True)
class Fit:
    """What explains a run's losses so far, and by how much it misses them (1: as they scatter)."""

    reach: float
    curve: Curve
    misfit: float


@dataclass(frozen=True, eq=False)
class History:
    """Rounds one after another from step 0, the loss before the first and after each."""

    rates: Floats
    rounds: tuple[Round, ...]
    losses: tuple[float, ...]

    def progress(self, reach: Floats | float) -> Floats:
        """Return the progress before the first round and after each, [rounds + 1, ...]."""
        gained = [np.zeros((1, *np.shape(reach)))]
        for (tau1, tau2, ratio), some in groupby(self.rounds, lambda r: (r.tau1, r.tau2, r.ratio)):
            alike = list(some)
            steps = self.rates[alike[0].start : alike[-1].stop].reshape(-1, tau2, tau1)
            shape = (-1, *(1,) * np.ndim(reach))
            local = [worth([x.reshape(shape) for x in steps[:, r].T], reach) for r in range(tau2)]
            gained.append(local[0] if tau2 == 1 else worth(local, reach * farther(ratio)))
        return np.cumsum(np.concatenate(gained), axis=0)

    @cached_property
    def fits(self) -> list[Fit]:
        """Fits that explain the losses, the best first, one for every floor that is plausible."""
        found = [fit for part in FLOORS if (fit := self._fit(part)) is not None]
        if not found:  # the loss has not fallen
            return [Fit(REACH * self.rates[0], Curve(0.0, float(self._shown[-1]), 1e9), math.inf)]
        best = min(found, key=_misfit)
        best = self._refined(best, None)
        scatter = max(best.misfit / max(len(self._at) - 2, 1), 1.0)
        close = [f for f in found if f.misfit - best.misfit < PLAUSIBLE * scatter]
        return [best, *close]

    def _fit(self, part: float) -> Fit | None:
        """Return the best fit whose floor is so much of the first loss, if any falls at all."""
        losses, reaches = self._shown, REACHES * self.rates[0]
        u = self.progress(reaches)[self._at]  # [n, reaches]
        h = 1 / (1 + u[..., None] / (SCALES * u[-1, :, None]))  # [n, reaches, scales]
        weight = 1 / self._noise[:, None, None]
        y = losses[:, None, None] - part * losses[0]
        height = (weight**2 * y * h).sum(axis=0) / (weight**2 * h**2).sum(axis=0)
        off = ((weight * (y - height * h)) ** 2).sum(axis=0)
        off = np.where(height > 0, off + np.square(self._surprise(reaches))[:, None], np.inf)
        i, j = np.unravel_index(np.argmin(off), off.shape)
        if not np.isfinite(off[i, j]):
            return None
        curve = Curve(part * losses[0], float(height[i, j]), float(SCALES[j] * u[-1, i]))
        return self._refined(Fit(float(reaches[i]), curve, float(off[i, j])), part)

    def _surprise(self, reach: Floats | float) -> Floats:
        parts: Floats = np.log(np.asarray(reach) / (REACH * self.rates[0])) / REACH_SD
        return parts

    @property
    def _at(self) -> list[int]:
        """Which losses are fitted to: the first few, and some of the others."""
        n = len(self.losses)
        found = {*range(min(EARLY, n)), *np.linspace(0, n - 1, min(n, MOST)).astype(int)}
        return sorted(found - {0}) if self.starts_slowly else sorted(found)

    @property
    def starts_slowly(self) -> bool:
        """Whether a later round of one step gains more than the first, as no curve here can.

        So deep models start from random weights: their first loss is not on the curve.
        """
        single = [
            (self.losses[at] - self.losses[at + 1]) / self.rates[each.start]
            for at, each in enumerate(self.rounds[: EARLY - 1])
            if each.tau1 * each.tau2 == 1
        ]
        return len(single) > 1 and QUICKER * single[0] < single[-1]

    @property
    def _noise(self) -> Floats:
        parts = np.where(np.array(self._at) < EARLY, EARLY_NOISE, NOISE)
        noise: Floats = parts * self._shown
        return noise

    @property
    def _shown(self) -> Floats:
        """The losses that are fitted to, none of them nothing."""
        return np.maximum(self.losses, LEAST)[self._at]

    def _refined(self, fit: Fit, part: float | None) -> Fit:
        """Return the best fit, from a good one; with its floor where `part` is None."""
        from scipy.optimize import least_squares

        losses, noise, at = self._shown, self._noise, self._at

        @lru_cache(maxsize=2)  # a slope is sought along each of x: most steps leave the reach
        def progress(reach: float) -> Floats:
            return self.progress(reach)[at]

        def off(x: Floats) -> Floats:
            reach, scale, height = np.exp(x[:3])
            floor = x[3] if part is None else part
            told = floor * losses[0] + height / (1 + progress(reach) / scale)
            prior = (floor - FLOOR) / FLOOR_SD, float(self._surprise(reach))
            return np.append((told - losses) / noise, prior)

        c = fit.curve
        logs = np.log([fit.reach, c.scale, c.height])
        start, low, high = logs, logs - 1, logs + 1
        if part is None:
            start = np.append(logs, c.floor / losses[0])
            low, high = np.append(low, 0.0), np.append(high, 0.95)
        x = least_squares(off, np.clip(start, low + 1e-9, high - 1e-9), bounds=(low, high)).x
        reach, scale, height = (float(v) for v in np.exp(x[:3]))
        floor = float(x[3]) if part is None else part
        curve = Curve(float(floor * losses[0]), height, scale)
        return Fit(reach, curve, float(np.square(off(x)).sum()))


def _misfit(fit: Fit) -> float:
    return fit.misfit
