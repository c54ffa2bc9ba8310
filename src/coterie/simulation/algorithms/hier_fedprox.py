"""FedProx on both levels: pulled to the group's last mean, and to the last global one.

Li et al., MLSys 2020, with a second pull for groups that go their own way between global means.
"""

from coterie.engine.update import At, Kept, Pull, Update
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.algorithms.options import at_least


def hier_fedprox(mu_group: float = 0.01, mu_global: float = 0.01) -> Algorithm:
    """FedProx on both levels: pulls to the group's mean and to the last global one."""
    at_least("mu_group", mu_group, 0)
    at_least("mu_global", mu_global, 0)
    total = mu_group + mu_global

    def pull(at: At) -> Pull:
        """mu_group (w - w_given) + mu_global (w - w_global), which is one pull between them."""
        part = mu_global / total if total else 0.0
        return Pull(towards=at.given.lerp(at.server["w"], part), strength=total)

    update = Update(
        begin=lambda n, w: Kept(server={"w": w.clone()}),
        pull=pull,
        server=lambda w, mean: (w, {"w": w.clone()}),
    )
    return Algorithm("FedProx on both levels: to the group's and to the global mean", update)
