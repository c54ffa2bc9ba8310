"""Federated algorithms in plain NumPy, written from their papers and sharing no code with ours.

Nodes hold examples, step by SGD, and are averaged by data: in their groups after every tau1 steps,
and over all of them after every tau1 * tau2 and at the end. Only the order in which a node takes
its examples is asked of `LocalSteps`, which draws it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.engine.contract import LocalSteps

Net = Callable[[Floats, Floats, Ints], tuple[float, Floats]]  # (w, x, y): loss and gradient
Optimiser = Callable[[Floats], Floats]  # way to the mean: way to go


def softmax_regression(w: Floats, x: Floats, y: Ints) -> tuple[float, Floats]:
    """Loss and gradient of one linear layer: weights [C, F] and then biases [C]."""
    C = len(w) // (x.shape[1] + 1)
    loss, slope = _cross_entropy(x @ w[:-C].reshape(C, -1).T + w[-C:], y)
    return loss, np.concatenate([(slope.T @ x).reshape(-1), slope.sum(axis=0)])


def two_layers(hidden: int) -> Net:
    """Return a net with one hidden layer of tanh: weights and biases of each in turn."""

    def net(w: Floats, x: Floats, y: Ints) -> tuple[float, Floats]:
        body = hidden * (x.shape[1] + 1)
        C = (len(w) - body) // (hidden + 1)
        W, b = w[: body - hidden].reshape(hidden, -1), w[body - hidden : body]
        V, c = w[body:-C].reshape(C, hidden), w[-C:]
        h = np.tanh(x @ W.T + b)
        loss, slope = _cross_entropy(h @ V.T + c, y)
        back = slope @ V * (1 - h**2)
        parts = (back.T @ x, back.sum(axis=0), slope.T @ h, slope.sum(axis=0))
        return loss, np.concatenate([part.reshape(-1) for part in parts])

    return net


def _cross_entropy(scores: Floats, y: Ints) -> tuple[float, Floats]:
    """Mean loss, and its slope by the scores [N, C]."""
    scores = scores - scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    slope = np.exp(logs)
    slope[np.arange(len(y)), y] -= 1
    return -float(logs[np.arange(len(y)), y].mean()), slope / len(y)


@dataclass(frozen=True, eq=False)
class Federation:
    """Nodes with examples, in groups z [n], and when they are averaged."""

    xs: Sequence[Floats]
    ys: Sequence[Ints]
    z: Ints
    tau1: int
    tau2: int
    last: int  # step
    steps: LocalSteps
    w0: Floats
    net: Net = softmax_regression

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.ys)

    @property
    def p(self) -> Floats:
        """Shares of the data."""
        sizes = np.array([len(y) for y in self.ys])
        shares: Floats = sizes / sizes.sum()
        return shares

    def turns(self) -> Iterator[tuple[int, int, bool]]:
        """Steps start+1 .. stop, and whether all are averaged after them."""
        for start in range(0, self.last, self.tau1):
            stop = min(start + self.tau1, self.last)
            yield start, stop, stop % (self.tau1 * self.tau2) == 0 or stop == self.last

    def batches(self, i: int, start: int, stop: int) -> Iterator[tuple[float, Floats, Ints]]:
        """Rate, examples and labels of each batch of a node."""
        for t in range(start + 1, stop + 1):
            for rows in self.steps.batches(t, i, len(self.ys[i])):
                at = np.arange(len(self.ys[i])) if rows is None else rows
                yield self.steps.lr * self.steps.lr_decay ** (t - 1), self.xs[i][at], self.ys[i][at]

    def rates(self, i: int, start: int, stop: int) -> list[float]:
        """Rates of a node's batches."""
        return [lr for lr, _, _ in self.batches(i, start, stop)]

    def trained(
        self,
        i: int,
        w: Floats,
        start: int,
        stop: int,
        shift: Floats | float = 0.0,
        *pulls: tuple[float, Floats],
    ) -> Floats:
        """Take a node's steps from w, along g + shift + mu (w - anchor) of every pull."""
        for lr, x, y in self.batches(i, start, stop):
            g = self.net(w, x, y)[1] + shift
            for mu, anchor in pulls:
                g = g + mu * (w - anchor)
            w = w - lr * g
        return w

    def loss(self, i: int, w: Floats) -> float:
        """Mean loss of w on all of a node's examples."""
        return self.net(w, self.xs[i], self.ys[i])[0]

    def members(self, i: int, everyone: bool) -> Ints:
        """Nodes that are averaged with node i."""
        return np.arange(self.n) if everyone else np.flatnonzero(self.z == self.z[i])

    def averaged(self, ws: Sequence[Floats], everyone: bool) -> list[Floats]:
        """Average vectors of nodes, by data; every node gets its group's mean, or all's."""
        found = []
        for i in range(self.n):
            among = self.members(i, everyone)
            share = self.p[among] / self.p[among].sum()
            found.append(sum(part * ws[j] for part, j in zip(share, among, strict=True)))
        return found


def fedavg(f: Federation) -> Floats:
    """McMahan et al. 2017; in groups, Liu et al. 2020."""
    return fedprox(f, 0.0)


def fedprox(f: Federation, mu: float) -> Floats:
    """Li et al. 2020: the local objective has mu/2 |w - w_given|^2 added."""
    given = [f.w0] * f.n
    for start, stop, everyone in f.turns():
        done = [f.trained(i, given[i], start, stop, 0.0, (mu, given[i])) for i in range(f.n)]
        given = f.averaged(done, everyone)
    return given[0]


def hier_fedprox(f: Federation, mu_group: float, mu_global: float) -> Floats:
    """FedProx with a second term, mu_global/2 |w - w_global|^2, for the last global model."""
    given, last = [f.w0] * f.n, f.w0
    for start, stop, everyone in f.turns():
        done = [
            f.trained(i, given[i], start, stop, 0.0, (mu_group, given[i]), (mu_global, last))
            for i in range(f.n)
        ]
        given = f.averaged(done, everyone)
        last = given[0] if everyone else last
    return given[0]


def scaffold(f: Federation) -> Floats:
    """Karimireddy et al. 2020, Algorithm 1 with option II; c is the mean of c_i by data."""
    given, c, own = [f.w0] * f.n, np.zeros_like(f.w0), [np.zeros_like(f.w0)] * f.n
    for start, stop, everyone in f.turns():
        done, renewed = [], []
        for i in range(f.n):
            y = f.trained(i, given[i], start, stop, c - own[i])
            done.append(y)
            renewed.append(own[i] - c + (given[i] - y) / sum(f.rates(i, start, stop)))
        own, given = renewed, f.averaged(done, everyone)
        c = f.averaged(own, True)[0] if everyone else c
    return given[0]


def mtgc(f: Federation) -> Floats:
    """Fang et al. 2024: z_i corrects a node in its group, y_j a group among all.

    z_i += (x_i - xbar_j) / (H gamma) after every group mean, and y_j += (xbar_j - xbar) /
    (E H gamma) after a global one, where H gamma and E H gamma are the rates since the last such
    mean, the same on all nodes. z_i is kept over global means.
    """
    given, zero = [f.w0] * f.n, np.zeros_like(f.w0)
    z, y, total = [zero] * f.n, [zero] * f.n, 0.0
    for start, stop, everyone in f.turns():
        done = [f.trained(i, given[i], start, stop, z[i] + y[i]) for i in range(f.n)]
        rate = sum(f.rates(0, start, stop))
        group, total = f.averaged(done, False), total + rate
        z = [z[i] + (done[i] - group[i]) / rate for i in range(f.n)]
        given = f.averaged(done, everyone)
        if everyone:
            y = [y[i] + (group[i] - given[i]) / total for i in range(f.n)]
            total = 0.0
    return given[0]


def feddyn(f: Federation, alpha: float) -> Floats:
    """Acar et al. 2021: nodes and server keep their linear terms; nodes weigh by data."""
    given, last = [f.w0] * f.n, f.w0
    slopes, h = [np.zeros_like(f.w0)] * f.n, np.zeros_like(f.w0)
    for start, stop, everyone in f.turns():
        done = [
            f.trained(i, given[i], start, stop, -slopes[i], (alpha, given[i])) for i in range(f.n)
        ]
        slopes = [slopes[i] - alpha * (done[i] - given[i]) for i in range(f.n)]
        given = f.averaged(done, everyone)
        if everyone:
            h = h - alpha * (given[0] - last)
            last = given[0] - h / alpha
            given = [last] * f.n
    return given[0]


def fednova(f: Federation) -> Floats:
    """Wang et al. 2020: x - tau_eff eta sum_i p_i d_i, where d_i is a node's mean gradient."""
    given = [f.w0] * f.n
    for start, stop, everyone in f.turns():
        done = [f.trained(i, given[i], start, stop) for i in range(f.n)]
        tau = np.array([len(f.rates(i, start, stop)) for i in range(f.n)])
        sent = []
        for i in range(f.n):
            among = f.members(i, everyone)
            tau_eff = f.p[among] @ tau[among] / f.p[among].sum()
            sent.append(given[i] + tau_eff * (done[i] - given[i]) / tau[i])
        given = f.averaged(sent, everyone)
    return given[0]


def fedopt(f: Federation, optimiser: Optimiser) -> Floats:
    """Reddi et al. 2021, Algorithm 2: the server's optimiser goes along the way to the mean."""
    given, last = [f.w0] * f.n, f.w0
    for start, stop, everyone in f.turns():
        given = f.averaged([f.trained(i, given[i], start, stop) for i in range(f.n)], everyone)
        if everyone:
            last = last + optimiser(given[0] - last)
            given = [last] * f.n
    return given[0]


def momentum(lr: float, beta: float) -> Optimiser:
    """Hsu et al. 2019 (FedAvgM): v <- beta v + way."""
    kept: dict[str, Floats] = {"v": np.zeros(1)}

    def step(way: Floats) -> Floats:
        kept["v"] = beta * kept["v"] + way
        return lr * kept["v"]

    return step


def adaptive(lr: float, beta1: float, beta2: float, tau: float, yogi: bool) -> Optimiser:
    """Reddi et al. 2021: FedAdam and FedYogi, whose v begins with the least allowed, tau^2."""
    kept: dict[str, Floats] = {"m": np.zeros(1), "v": np.full(1, tau**2)}

    def step(way: Floats) -> Floats:
        m, v = kept["m"], kept["v"]
        m = beta1 * m + (1 - beta1) * way
        if yogi:
            v = v - (1 - beta2) * way**2 * np.sign(v - way**2)
        else:
            v = beta2 * v + (1 - beta2) * way**2
        kept.update(m=m, v=v)
        going: Floats = lr * m / (np.sqrt(v) + tau)
        return going

    return step


def fedper(f: Federation, base: int, mu: float = 0.0) -> list[Floats]:
    """Arivazhagan et al. 2019: the first `base` numbers are averaged; models of all nodes.

    FedProx's mu pulls a node to where it begins.
    """
    own = [f.w0] * f.n
    for start, stop, everyone in f.turns():
        done = [f.trained(i, own[i], start, stop, 0.0, (mu, own[i])) for i in range(f.n)]
        means = f.averaged(done, everyone)
        own = [np.concatenate([means[i][:base], done[i][base:]]) for i in range(f.n)]
    return own


def ditto(f: Federation, lam: float, mu: float = 0.0) -> tuple[Floats, list[Floats]]:
    """Li et al. 2021: FedAvg, and v_i of every node, which is pulled to what it was given by lam.

    v <- v - eta_v (g + lam (v - w)), where the rate eta_v = eta / (1 + eta lam) is always stable.
    FedProx's mu is of the shared model alone.
    """
    given, own = [f.w0] * f.n, [f.w0] * f.n
    for start, stop, everyone in f.turns():
        for i in range(f.n):
            for lr, x, y in f.batches(i, start, stop):
                slope = f.net(own[i], x, y)[1] + lam * (own[i] - given[i])
                own[i] = own[i] - lr / (1 + lr * lam) * slope
        done = [f.trained(i, given[i], start, stop, 0.0, (mu, given[i])) for i in range(f.n)]
        given = f.averaged(done, everyone)
    return given[0], own


def ifca(f: Federation, starts: Floats) -> tuple[list[Floats], list[int]]:
    """Ghosh et al. 2020, with model averaging: the models [K, d], and whom every node takes."""
    models = list(starts)
    for start, stop, _ in f.turns():
        taken = [_best(f, i, models) for i in range(f.n)]
        done = [f.trained(i, models[taken[i]], start, stop) for i in range(f.n)]
        for k in set(taken):
            among = [i for i in range(f.n) if taken[i] == k]
            share = f.p[among] / f.p[among].sum()
            models[k] = sum(part * done[i] for part, i in zip(share, among, strict=True))
    return models, [_best(f, i, models) for i in range(f.n)]


def _best(f: Federation, i: int, models: Sequence[Floats]) -> int:
    return int(np.argmin([f.loss(i, w) for w in models]))
