"""Every node's full-data gradient, and what a planner or a row needs of it."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import Floats, Ints
from coterie.divergences.sketch import Sketch
from coterie.engine.contract import Gradients, Measured
from coterie.engine.device import for_sums, to_host
from coterie.engine.kernels import Kernel
from coterie.engine.module import Shards, centred_gram, cosines
from coterie.engine.threads import Team

JOB_BYTES = 16 << 20  # of gradients that a job returns
KEPT_BYTES = 512 << 20  # of gradients that are kept rather than computed twice


@dataclass(frozen=True, eq=False)
class Centres:
    """Losses [m] of the m nodes here, their part [K, d] of the groups' mean gradients, and these.

    The gradients are kept, job by job, where they take little memory.
    """

    losses: Tensor
    sums: Tensor
    kept: list[tuple[Ints, Tensor]]


class Gauge:
    """Takes gradients by a kernel; d numbers are trained, the last `d_last` in the last layer."""

    def __init__(self, kernel: Kernel, shards: Shards, team: Team, d: int, d_last: int) -> None:
        """Take how gradients are computed, of what, and by whom."""
        self._kernel, self._shards, self._team = kernel, shards, team
        self._d, self._d_last = d, d_last

    def gradients(self, w: Tensor, sketch: Sketch | None = None) -> Gradients:
        """Compute every node's full-data loss and gradient at w, as the planner may see them."""
        losses, rows = self.rows(w, sketch)
        if sketch:
            return Gradients(losses, sketches=rows.numpy())
        last = rows[:, -self._d_last :]
        return Gradients(losses, centred_gram(rows, self._shards.p), cosines(last))

    def rows(self, w: Tensor, sketch: Sketch | None = None) -> tuple[Floats, Tensor]:
        """Losses [m] of the m nodes here, and their gradients [m, d] or sketches [m, r]."""
        m, row = len(self._shards.here), self._shards.row
        each = []
        rows = (
            torch.empty(m, sketch.size, dtype=torch.float64) if sketch else w.new_empty(m, self._d)
        )
        for nodes, some, grads in self._team.do(lambda nodes: self._grads(w, nodes), self._few()):
            each.append(some)
            found = torch.from_numpy(sketch.apply(grads.cpu().numpy())) if sketch else grads
            rows[row[nodes]] = found
        return np.concatenate(to_host(each)), rows

    def measure(self, w: Tensor, z: Ints) -> Measured:
        """Compute every node's full-data loss at w, and how the groups z diverge there."""
        found, p = self.centres(w, z), self._shards.p
        by_job = self._far(w, z, found.sums.to(w), found)
        far, mass = [norms for _, norms in by_job], _masses(p, z, found.sums)
        losses, apart, *far_off = to_host([found.losses, _apart(mass, found.sums), *far])
        delta = math.fsum(
            float(p[few] @ off) for (few, _), off in zip(by_job, far_off, strict=True)
        )
        return Measured(losses, delta, float(mass @ apart))

    def centres(self, w: Tensor, z: Ints) -> Centres:
        """Add up the gradients of the nodes here: their part of the groups' mean gradients."""
        p, K = self._shards.p, int(z.max()) + 1
        keep = w.element_size() * len(self._shards.here) * self._d <= KEPT_BYTES
        losses, kept = [], []
        mass = np.bincount(z, weights=p, minlength=K)
        sums = torch.zeros(K, self._d, dtype=torch.float64, device=for_sums(w.device))
        for nodes, some, grads in self._team.do(lambda nodes: self._grads(w, nodes), self._few()):
            losses.append(some)
            groups, at_group = np.unique(z[nodes], return_inverse=True)
            weights = torch.zeros(len(groups), len(nodes), dtype=w.dtype)
            weights[at_group, np.arange(len(nodes))] = torch.from_numpy(
                p[nodes] / mass[z[nodes]]
            ).to(w.dtype)
            sums[groups] += (weights.to(grads) @ grads).to(sums)
            kept += [(nodes, grads)] if keep else []
        return Centres(torch.cat(losses), sums, kept)

    def distances(self, w: Tensor, z: Ints, near: Tensor, found: Centres | None) -> list[float]:
        """Weighted distances of gradients here from their groups' means near [K, d], by job."""
        by_job, p = self._far(w, z, near, found), self._shards.p
        far = to_host([norms for _, norms in by_job])
        return [float(p[few] @ off) for (few, _), off in zip(by_job, far, strict=True)]

    def _far(
        self, w: Tensor, z: Ints, near: Tensor, found: Centres | None
    ) -> list[tuple[Ints, Tensor]]:
        """Nodes of every job, and how far their gradients are from their groups' means.

        Gradients that would take much memory were not kept and are computed again.
        """
        again = (found.kept if found else None) or self._team.do(
            lambda nodes: self._grads(w, nodes)[::2], self._few()
        )
        return [(nodes, (grads - near[z[nodes]]).norm(dim=1)) for nodes, grads in again]

    def _grads(self, w: Tensor, nodes: Ints) -> tuple[Ints, Tensor, Tensor]:
        out = w.new_empty(len(nodes), self._d)
        return nodes, self._kernel.gradients(w, nodes, out), out

    def _few(self) -> list[Ints]:
        """Cut the nodes here into jobs whose gradients fit into memory."""
        here = self._shards.here
        each = self._shards.dtype.itemsize * self._d
        size = max(1, min(JOB_BYTES // each, -(-len(here) // 8)))
        return [here[at : at + size] for at in range(0, len(here), size)]


def between(p: Floats, z: Ints, centres: Tensor) -> float:
    """Delta: how far the groups' mean gradients [K, d] are from the mean of all, in the mean."""
    mass = _masses(p, z, centres)
    return float(mass @ _apart(mass, centres).cpu().numpy())


def _masses(p: Floats, z: Ints, centres: Tensor) -> Floats:
    """Shares of the data [K] that groups have, of which there are centres."""
    return np.bincount(z, weights=p, minlength=len(centres)).astype(np.float64)


def _apart(mass: Floats, centres: Tensor) -> Tensor:
    found: Tensor = (centres - torch.from_numpy(mass).to(centres) @ centres).norm(dim=1)
    return found
