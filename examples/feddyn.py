"""FedDyn as your own algorithm: a function that returns a `coterie.Algorithm`, named by its path.

Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021.
Run it:  cd examples && coterie run quickstart --set algorithm.name=feddyn:feddyn
"""

from torch import Tensor

import coterie


def feddyn(alpha: float = 0.1) -> coterie.Algorithm:
    """Add a proximal term and a linear term of each node's own to the loss."""

    def begin(n: int, w: Tensor) -> coterie.Kept:
        """No linear terms yet: h_i [n, d] of the nodes, and h [d] of the server."""
        return coterie.Kept(node={"h": w.new_zeros(n, len(w))}, server={"h": w.new_zeros(len(w))})

    def correct(g: Tensor, w: Tensor, at: coterie.At) -> Tensor:
        """g - h_i + alpha (w - w_given), in every local step."""
        return g - at.node["h"] + alpha * (w - at.given)

    def renew(w: Tensor, at: coterie.At) -> coterie.Arrays:
        """h_i <- h_i - alpha (w_i - w_given), after a node's last step."""
        return {"h": at.node["h"] - alpha * (w - at.given)}

    def server(w: Tensor, mean: coterie.Mean) -> tuple[Tensor, coterie.Arrays]:
        """h <- h - alpha share (mean - w_last), where `share` took part; w <- mean - h / alpha."""
        h = mean.server["h"] - alpha * mean.share * (w - mean.given)
        return w - h / alpha, {"h": h}

    update = coterie.Update(begin, correct=correct, renew=renew, server=server, momentum=False)
    return coterie.Algorithm("FedDyn of one's own", update)
