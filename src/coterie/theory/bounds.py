"""How far group learning can stray from learning in one place: what the paper prints, what holds.

Notation is the paper's: eta the learning rate, beta the smoothness, delta and Delta the divergences
of nodes from their group and of groups from the whole, tau1 and tau2 the schedule.
docs/explanation/theory.md has the proofs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import Floats
from coterie.simulation.schedule import Schedule


@dataclass(frozen=True)
class Constants:
    """What both bounds are made of."""

    eta: float
    beta: float
    delta: float
    Delta: float

    def growth(self, steps: int) -> float:
        """How much of a divergence of one is made of it in some steps: ((1 + eta beta)^s - 1)/beta.

        >>> Constants(0.5, 1.0, 0.0, 0.0).growth(2)
        1.25
        """
        return float(np.expm1(steps * np.log1p(self.eta * self.beta)) / self.beta)


def printed_distance(c: Constants, schedule: Schedule) -> float:
    """Bound ||w - v_[l]|| as Lemma w_vq prints it; it does not hold for tau1 > 1 and tau2 > 1."""
    whole = schedule.tau1 * schedule.tau2
    return c.delta * c.growth(schedule.tau1) + c.Delta * c.growth(whole)


def printed_gap(c: Constants, schedule: Schedule, omega: float, rho: float) -> float:
    """Bound F(w(T)) - F(w*) as Theorem 1 prints it, whose second part is rho times the lemma's.

    >>> round(printed_gap(Constants(0.5, 1.0, 0.0, 2.0), Schedule(1, 2), 0.1, 3.0), 6)
    12.5
    """
    whole = schedule.tau1 * schedule.tau2
    return 1 / (2 * whole * c.eta * omega) + rho * printed_distance(c, schedule)


def smooth_distance(c: Constants, schedule: Schedule) -> float:
    """Bound ||w - v_[l]|| at the end of a global interval, of losses that are smooth.

    What the nodes of a group have strayed in one group interval is kept by their mean and grows
    with the group in all that follow: delta's part is multiplied by the sum of (1 + eta beta)^(r
    tau1), r < tau2, where the paper has it once. It is nothing for tau1 = 1: one step from one
    model is a step of the group itself.

    >>> smooth_distance(Constants(0.5, 1.0, 3.0, 0.0), Schedule(1, 5))
    0.0
    """
    tau1, tau2 = schedule.tau1, schedule.tau2
    strayed = max(0.0, c.delta * (c.growth(tau1) - tau1 * c.eta))
    return c.Delta * c.growth(tau1 * tau2) + strayed * c.growth(tau1 * tau2) / c.growth(tau1)


def distance(c: Constants, schedule: Schedule) -> float:
    """Bound ||w - v_[l]|| at the end of a global interval, of convex losses with eta <= 2/beta.

    A step then brings no two models further apart, so that nothing grows but by what is added.

    >>> distance(Constants(0.5, 1.0, 3.0, 2.0), Schedule(1, 5))
    5.0
    """
    tau1, tau2, eta = schedule.tau1, schedule.tau2, c.eta
    strayed = eta * c.delta * min(tau1, eta * c.beta * tau1 * (tau1 - 1) / 2)
    return eta * c.Delta * tau1 * tau2 + tau2 * strayed


def simple_distance(c: Constants, schedule: Schedule) -> float:
    """The same without beta, which nobody may know: nodes stray by their divergence and no more.

    >>> simple_distance(Constants(0.5, 0.0, 3.0, 2.0), Schedule(1, 5))
    5.0
    """
    tau1, tau2 = schedule.tau1, schedule.tau2
    return c.eta * tau1 * tau2 * (c.Delta + c.delta * (tau1 > 1))


@dataclass(frozen=True, eq=False)
class Steps:
    """What both bounds are made of, step by step [T]: what holds at the model before the step."""

    eta: Floats
    beta: float
    delta: Floats
    Delta: Floats

    @classmethod
    def constant(cls, c: Constants, steps: int) -> "Steps":
        """Return the same for so many steps."""
        eta, delta, Delta = (np.full(steps, x) for x in (c.eta, c.delta, c.Delta))
        return cls(eta, c.beta, delta, Delta)


def printed_distances(s: Steps, schedule: Schedule) -> Floats:
    """Bound ||w(t) - v_[l](t)|| as Lemma wi-vq prints it, before the mean of step t = 1 .. T."""
    near = far = 0.0
    found = np.empty(len(s.eta))
    for at, (eta, delta, Delta) in enumerate(zip(s.eta, s.delta, s.Delta, strict=True)):
        near, far = (
            (near * (1 + eta * s.beta) + eta * delta),
            (far * (1 + eta * s.beta) + eta * Delta),
        )
        found[at] = near + far
        near = 0.0 if (at + 1) % schedule.tau1 == 0 else near
        far = 0.0 if (at + 1) % (schedule.tau1 * schedule.tau2) == 0 else far
    return found


def distances(s: Steps, schedule: Schedule, *, convex: bool = True) -> Floats:
    """Bound ||w(t) - v_[l](t)|| before the mean of step t = 1 .. T.

    Three sums over nodes or groups, weighted by data: `nodes` bounds ||w_i - v^k||, `means`
    ||w^k - v^k||, `groups` ||v^k - v||. At a group's mean v^k becomes w^k, which is as far from v
    as the two last together. Convex: a step with eta <= 2/beta brings no two models further apart.
    """
    nodes = means = groups = 0.0
    found = np.empty(len(s.eta))
    for at, (eta, delta, Delta) in enumerate(zip(s.eta, s.delta, s.Delta, strict=True)):
        grows = 0.0 if convex else eta * s.beta
        means += eta * s.beta * nodes
        nodes += grows * nodes + eta * delta
        means = min(means, nodes)  # a mean is no further than its parts are on average
        groups += grows * groups + eta * Delta
        found[at] = means + groups
        if (at + 1) % schedule.tau1 == 0:
            groups += means
            nodes = means = 0.0
        if (at + 1) % (schedule.tau1 * schedule.tau2) == 0:
            groups = 0.0
    return found


def loss_gap(rates: Sequence[float] | Floats, far: float, rho: float, apart: float) -> float:
    """Bound F(w) - F(w*) at the end of a global interval whose steps had these learning rates.

    far: ||w - w*|| at its start; rho: ||grad F(w)|| at its end, or a Lipschitz constant; apart: a
    bound of ||w - v_[l]||. Theorem 1 with 1/omega the largest far^2 of all intervals.
    """
    return far**2 / (2 * float(np.sum(rates))) + rho * apart
