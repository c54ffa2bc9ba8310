"""Every node's full-data gradient, and what a planner or a row needs of it."""

import math

import numpy as np
import torch
from torch import Tensor

from coterie.costs import Floats
from coterie.engine import Gradients, Ints, Measured
from coterie.engine.kernel import Kernel
from coterie.engine.module import Shards, centred_gram, cosines
from coterie.engine.team import Team
from coterie.sketch import Sketch

JOB_BYTES = 16 << 20  # of gradients that a job returns
KEPT_BYTES = 512 << 20  # of gradients that are kept rather than computed twice


class Gauge:
    """Takes gradients by a kernel; d numbers are trained, the last `d_last` in the last layer."""

    def __init__(self, kernel: Kernel, shards: Shards, team: Team, d: int, d_last: int) -> None:
        """Take how gradients are computed, of what, and by whom."""
        self._kernel, self._shards, self._team = kernel, shards, team
        self._d, self._d_last = d, d_last

    def gradients(self, w: Tensor, sketch: Sketch | None = None) -> Gradients:
        """Compute every node's full-data loss and gradient at w, as the planner may see them."""
        n = len(self._shards)
        losses = np.empty(n)
        columns, kind = (sketch.size, torch.float64) if sketch else (self._d, torch.float32)
        rows = torch.empty(n, columns, dtype=kind)
        for nodes, some, grads in self._team.do(lambda nodes: self._grads(w, nodes), self._few(n)):
            losses[nodes] = some
            rows[nodes] = torch.from_numpy(sketch.apply(grads.cpu().numpy())) if sketch else grads
        if sketch:
            return Gradients(losses, sketches=rows.numpy())
        last = rows[:, -self._d_last :]
        return Gradients(losses, centred_gram(rows, self._shards.p), cosines(last))

    def measure(self, w: Tensor, z: Ints) -> Measured:
        """Compute every node's full-data loss at w, and how the groups z diverge there.

        Gradients that would take much memory are computed twice: for the groups' means, and for
        the distances from these.
        """
        n, p, K = len(z), self._shards.p, int(z.max()) + 1
        keep = 4 * n * self._d <= KEPT_BYTES
        losses, kept = np.empty(n), []
        mass = np.bincount(z, weights=p, minlength=K)
        centres = torch.zeros(K, self._d, dtype=torch.float64)
        for nodes, some, grads in self._team.do(lambda nodes: self._grads(w, nodes), self._few(n)):
            losses[nodes] = some
            groups, at_group = np.unique(z[nodes], return_inverse=True)
            weights = torch.zeros(len(groups), len(nodes))
            weights[at_group, np.arange(len(nodes))] = torch.from_numpy(
                p[nodes] / mass[z[nodes]]
            ).float()
            centres[groups] += (weights.to(grads) @ grads).cpu().double()
            kept += [(nodes, grads)] if keep else []
        centre = torch.from_numpy(mass) @ centres
        near = centres.float().to(w.device)
        again = kept or self._team.do(lambda nodes: self._grads(w, nodes)[::2], self._few(n))
        delta = math.fsum(
            float(p[nodes] @ (grads - near[z[nodes]]).norm(dim=1).cpu().double().numpy())
            for nodes, grads in again
        )
        apart = (centres - centre).norm(dim=1).numpy()
        return Measured(losses, delta, float(mass @ apart))

    def _grads(self, w: Tensor, nodes: Ints) -> tuple[Ints, Floats, Tensor]:
        out = torch.empty(len(nodes), self._d, device=w.device)
        losses: Floats = self._kernel.gradients(w, nodes, out).numpy()
        return nodes, losses, out

    def _few(self, n: int) -> list[Ints]:
        """Cut all nodes into jobs whose gradients fit into memory."""
        size = max(1, min(JOB_BYTES // (4 * self._d), -(-n // 8)))
        return [np.arange(at, min(at + size, n)) for at in range(0, n, size)]
