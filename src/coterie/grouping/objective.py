"""What the planner lowers: alpha_iid * Delta / C + alpha_comm * (seconds of a cycle) / C.

Delta is exact and cheap. Seconds are exact by the network's clock, for the few groupings worth the
milliseconds that takes; while searching, a rough figure stands for them: what a group's members add
up to at its server's link, and the round trips, or slow links, on the way of the farthest of them.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.grouping.evidence import Evidence
from coterie.grouping.rough_delays import Rough
from coterie.grouping.values import Grouping


@dataclass(eq=False)
class Common:
    """What is the same with any weights, worked out once."""

    evidence: Evidence
    timed: dict[tuple[bytes, bytes], float] = field(default_factory=dict)  # by groups and servers
    dealt: dict[tuple[str, bool], Ints] = field(default_factory=dict)  # groups to begin with

    @cached_property
    def rough(self) -> Rough:
        """Delays by a formula."""
        return Rough(self.evidence)


@dataclass(frozen=True, eq=False)
class Objective:
    """Both costs of a grouping, over their normalising constants, weighted."""

    evidence: Evidence
    alpha_iid: float = 1.0
    alpha_comm: float = 1.0
    given: Common | None = None

    @cached_property
    def common(self) -> Common:
        """What objectives of the same evidence share."""
        return self.given or Common(self.evidence)

    def weighing(self, alpha_iid: float, alpha_comm: float) -> "Objective":
        """Return the objective of the same evidence with other weights."""
        return Objective(self.evidence, alpha_iid, alpha_comm, self.common)

    @cached_property
    def pull(self) -> Floats:
        """Square of p_i |g_i| [n]: how far each node alone would draw its group."""
        e = self.evidence
        if e.gram is None and e.vectors is not None:
            square = (e.vectors**2).sum(axis=1)
        else:
            square = np.maximum(np.diag(e.inner), 0.0)
        pull: Floats = e.p**2 * square
        return pull

    @cached_property
    def iid(self) -> float:
        """Weight of Delta; its constant is what Delta is expected to be of groups at random."""
        n, K = len(self.evidence.p), self.evidence.num_groups
        if not self.alpha_iid or K == 1 or n == 1:
            return self.alpha_iid if K > 1 else 0.0
        m = n / K
        spread = m / n * (1 - m / n) * n / (n - 1) * float(self.pull.sum())
        return self.alpha_iid / (K * np.sqrt(spread) or 1.0)

    @cached_property
    def comm(self) -> float:
        """Weight of a second of group mean; the constant is a cycle of nothing but global means."""
        d = self.evidence.delays
        if d is None:
            return self.alpha_comm / max(1.0, float(self.rough.hops_s))
        return self.alpha_comm * (d.tau2 - 1) / (d.tau2 * d.global_s or 1.0)

    def cost(self, Delta: float, group_s: float) -> float:
        """Combine a Delta and the seconds of a group mean."""
        d = self.evidence.delays
        rest = 0.0 if d is None else self.alpha_comm / (d.tau2 or 1)
        return self.iid * Delta + self.comm * group_s + rest

    def divergence(self, z: Ints) -> float:
        """Sum over the groups of |sum p_i g_i|, which is Delta."""
        e = self.evidence
        K = int(z.max()) + 1
        if e.gram is None and e.vectors is not None:
            sums = np.zeros((K, e.vectors.shape[1]))
            np.add.at(sums, z, e.p[:, None] * e.vectors)
            return float(np.sqrt((sums**2).sum(axis=1)).sum())
        one = np.zeros((K, len(z)))
        one[z, np.arange(len(z))] = e.p
        return float(np.sqrt(np.maximum(((one @ e.inner) * one).sum(axis=1), 0.0)).sum())

    def group_s(self, grouping: Grouping) -> float:
        """Seconds of a mean of every group, by the network's clock; else by hops.

        Searches that start apart meet: every other grouping has been timed before.
        """
        d = self.evidence.delays
        if d is None:
            return self.rough.group_s(grouping.z, grouping.servers)
        key = grouping.z.tobytes(), grouping.servers.tobytes()
        timed = self.common.timed
        if key not in timed:
            timed[key] = d.group_s(grouping.z, grouping.servers)
        return timed[key]

    @property
    def rough(self) -> Rough:
        """Delays by a formula."""
        return self.common.rough


@dataclass(frozen=True, eq=False)
class Priced:
    """A grouping, and what it costs."""

    grouping: Grouping
    Delta: float
    group_s: float
    cost: float


def price(objective: Objective, grouping: Grouping) -> Priced:
    """Work out the true cost of a grouping."""
    Delta, group_s = objective.divergence(grouping.z), objective.group_s(grouping)
    return Priced(grouping, Delta, group_s, objective.cost(Delta, group_s))
