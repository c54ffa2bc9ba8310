"""Group learning beside its virtual models: how far they really are apart."""

from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.types import Tick
from coterie.simulation.schedule import Schedule
from coterie.theory.bounds import Steps
from coterie.theory.oracle import Oracle


@dataclass(frozen=True, eq=False)
class Trace:
    """What was measured at steps t = 1 .. T, before the mean of the step, weighted by data.

    `delta` is at the virtual group models and `Delta` at the virtual global model, before the step.
    """

    eta: Floats
    schedule: Schedule
    models: Floats  # w at the start and after every global interval [L + 1, d]
    delta: Floats
    Delta: Floats
    apart: Floats  # ||w - v_[l]||
    nodes: Floats  # sum_i p_i ||w_i - v^k_[r]||
    means: Floats  # sum_k p^k ||w^k - v^k_[r]||
    groups: Floats  # sum_k p^k ||v^k_[r] - v_[l]||
    loss: Floats  # F(w)
    virtual_loss: Floats  # F(v_[l])
    slope: Floats  # ||grad F(w)||

    def steps(self, beta: float) -> Steps:
        """Return what bounds are made of, as measured step by step."""
        return Steps(self.eta, beta, self.delta, self.Delta)

    def worst(self, beta: float) -> Steps:
        """Return what bounds are made of, the largest of every global interval throughout it."""
        whole = self.schedule.tau1 * self.schedule.tau2
        starts = np.arange(0, len(self.eta), whole)
        times = np.diff([*starts, len(self.eta)])
        delta, Delta = (
            np.repeat(np.maximum.reduceat(x, starts), times) for x in (self.delta, self.Delta)
        )
        return Steps(self.eta, beta, delta, Delta)


def trace(
    oracle: Oracle,
    z: Ints,
    start: Floats,
    schedule: Schedule,
    eta: Floats,
    progress: Tick = lambda done, of: None,
) -> Trace:
    """Run group learning with full batches from one model, and the virtual models with it."""
    p, n, K = oracle.p, len(oracle.p), int(z.max()) + 1
    share = np.zeros((K, n))
    share[z, np.arange(n)] = p / np.bincount(z, weights=p)[z]
    mass = np.bincount(z, weights=p)
    alone, one = np.arange(n), np.zeros(n, dtype=np.int64)
    local = np.repeat(start[None], n, axis=0)
    group, v = np.repeat(start[None], K, axis=0), start.copy()
    rows: list[tuple[float, ...]] = []
    models = [start.copy()]
    for t, rate in enumerate(eta, 1):
        at_local, at_group = oracle.at(local, alone)[1], oracle.at(group, z)[1]
        at_v = oracle.at(v[None], one)[1]
        group_slope = share @ at_group
        delta = float(p @ _norms(at_group - group_slope[z]))
        Delta = float(mass @ _norms(share @ at_v - p @ at_v))
        local -= rate * at_local
        group -= rate * group_slope
        v -= rate * (p @ at_v)
        means = share @ local
        w = p @ local
        losses, slopes = oracle.at(np.stack([w]), one)
        rows.append(
            (
                delta,
                Delta,
                float(np.linalg.norm(w - v)),
                float(p @ _norms(local - group[z])),
                float(mass @ _norms(means - group)),
                float(mass @ _norms(group - v)),
                float(p @ losses),
                float(p @ oracle.at(v[None], one)[0]),
                float(np.linalg.norm(p @ slopes)),
            )
        )
        if t % schedule.tau1 == 0:
            group, local = means.copy(), means[z]
        if t % (schedule.tau1 * schedule.tau2) == 0:
            group[:], local[:], v = w, w, w.copy()
            models.append(w.copy())
        progress(t, len(eta))
    return Trace(np.asarray(eta), schedule, np.stack(models), *np.array(rows).T)


def _norms(rows: Floats) -> Floats:
    found: Floats = np.linalg.norm(rows, axis=1)
    return found
