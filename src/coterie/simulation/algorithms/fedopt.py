"""Optimisers on the server: the way from the last global model to the mean is its gradient.

Reddi et al., Adaptive Federated Optimization, ICLR 2021 (FedAdam, FedYogi); Hsu et al. 2019
(FedAvgM).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.engine.update import Arrays, Kept, Mean, Update
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.algorithms.options import above, within

if TYPE_CHECKING:
    from torch import Tensor


def server_momentum(lr: float = 1.0, momentum: float = 0.9) -> Update:
    """m <- momentum m + way; w <- w_last + lr m."""

    def server(w: Tensor, mean: Mean) -> tuple[Tensor, Arrays]:
        m = momentum * mean.server["m"] + (w - mean.given)
        return mean.given + lr * m, {"m": m}

    return Update(lambda n, w: Kept(server={"m": w.new_zeros(len(w))}), server=server)


def server_adam(
    lr: float, beta1: float, beta2: float, epsilon: float, *, yogi: bool = False
) -> Update:
    """w <- w_last + lr m / (sqrt(v) + epsilon): m is the mean of ways, v that of their squares.

    v begins with epsilon^2, the least that the paper's Algorithm 2 allows.
    """

    def begin(n: int, w: Tensor) -> Kept:
        return Kept(server={"m": w.new_zeros(len(w)), "v": w.new_full((len(w),), epsilon**2)})

    def server(w: Tensor, mean: Mean) -> tuple[Tensor, Arrays]:
        way, v = w - mean.given, mean.server["v"]
        m = beta1 * mean.server["m"] + (1 - beta1) * way
        square = way.square()
        if yogi:
            v = v - (1 - beta2) * square * (v - square).sign()
        else:
            v = beta2 * v + (1 - beta2) * square
        return mean.given + lr * (m / (v.sqrt() + epsilon)), {"m": m, "v": v}

    return Update(begin, server=server)


def fedavgm(lr: float = 1.0, momentum: float = 0.9) -> Algorithm:
    """FedAvgM: the server goes on with momentum."""
    above("lr", lr, 0)
    within("momentum", momentum)
    return Algorithm("FedAvgM: momentum on the server", server_momentum(lr, momentum))


def fedadam(
    lr: float = 0.03, beta1: float = 0.9, beta2: float = 0.99, epsilon: float = 1e-3
) -> Algorithm:
    """FedAdam: the server steps by Adam."""
    _check(lr, beta1, beta2, epsilon)
    return Algorithm("FedAdam: Adam on the server", server_adam(lr, beta1, beta2, epsilon))


def fedyogi(
    lr: float = 0.03, beta1: float = 0.9, beta2: float = 0.99, epsilon: float = 1e-3
) -> Algorithm:
    """FedYogi: the server steps by Yogi."""
    _check(lr, beta1, beta2, epsilon)
    update = server_adam(lr, beta1, beta2, epsilon, yogi=True)
    return Algorithm("FedYogi: Yogi on the server", update)


def _check(lr: float, beta1: float, beta2: float, epsilon: float) -> None:
    above("lr", lr, 0)
    above("epsilon", epsilon, 0)
    within("beta1", beta1)
    within("beta2", beta2)
