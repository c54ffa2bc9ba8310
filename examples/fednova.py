"""FedNova as your own algorithm: one function, which rewrites what a node sends.

Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization,
NeurIPS 2020.
Run it:  cd examples && coterie run quickstart --set algorithm.name=fednova:fednova
"""

from torch import Tensor

import coterie


def fednova() -> coterie.Algorithm:
    """Divide updates by the number of local steps, so that more steps do not weigh more."""

    def send(w: Tensor, at: coterie.At) -> Tensor:
        """w_given + (w_i - w_given) tau_eff / tau_i: the way as if all took as many steps."""
        return at.given + (w - at.given) * (at.mean_steps / at.steps)

    # One number travels with a model: how many steps the node took.
    update = coterie.Update(send=send, extra=lambda d, scope: 1, momentum=False)
    return coterie.Algorithm("FedNova of one's own", update)
