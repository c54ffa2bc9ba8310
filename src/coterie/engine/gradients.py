"""Every node's full-data gradient, and what a planner or a row needs of it."""

import math
import threading
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import Floats, Ints
from coterie.divergences.sketch import Sketch
from coterie.engine.contract import Gradients, Measured
from coterie.engine.device import for_sums, set_apart, to_host
from coterie.engine.kernels import Kernel, dense
from coterie.engine.kernels.centred import Centred, by_group
from coterie.engine.kernels.dense import Dense
from coterie.engine.module import Shards, centred_gram, cosines
from coterie.engine.threads import Team

JOB_BYTES = 16 << 20  # of gradients that a job returns
KEPT_BYTES = 512 << 20  # of gradients that are kept rather than computed twice
JOB_EXAMPLES = 8192  # that pass a model in one job where gradients are not kept
CACHED_BYTES = 1 << 20  # of gradients that are compared with their group's at once


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
        many = len(shards) >= dense.MANY
        deep = kernel if many and isinstance(kernel, Dense) and kernel.deep else None
        self._centred = Centred(deep, shards) if deep else None
        self._own = threading.local()  # of each thread: where gradients go that are not kept

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
        few = self._few()
        taken = self._team.do(lambda nodes: self._grads(w, nodes, lasting=True), few)
        for nodes, (some, grads) in zip(few, taken, strict=True):
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
        mass: Floats = np.bincount(z, weights=p, minlength=K).astype(np.float64)
        sums = torch.zeros(K, self._d, dtype=torch.float64, device=for_sums(w.device))
        if not keep and self._centred is not None:
            return self._sums(self._centred, w, z, mass, sums)

        def add_up(nodes: Ints) -> tuple[Tensor, Ints, Tensor, list[tuple[Ints, Tensor]]]:
            some, grads = self._grads(w, nodes, lasting=keep)
            groups, at_group = np.unique(z[nodes], return_inverse=True)
            weights = torch.zeros(len(groups), len(nodes), dtype=w.dtype)
            weights[at_group, np.arange(len(nodes))] = torch.from_numpy(
                p[nodes] / mass[z[nodes]]
            ).to(w.dtype)
            return some, groups, weights.to(grads) @ grads, [(nodes, grads)] if keep else []

        for some, groups, part, rows in self._team.do(add_up, self._few()):
            losses.append(some)
            for k, mean in zip(groups, part, strict=True):
                sums[k] += mean.to(sums.device)
            kept += rows
        return Centres(torch.cat(losses), sums, kept)

    def _sums(self, centred: Centred, w: Tensor, z: Ints, mass: Floats, sums: Tensor) -> Centres:
        """Add up gradients of which none is made."""
        p, row = self._shards.p, self._shards.row
        losses = sums.new_zeros(len(self._shards.here))

        def add_up(nodes: Ints) -> tuple[Tensor, Tensor]:
            return centred.sum(w, nodes, p[nodes] / mass[z[nodes]])

        jobs = by_group(self._shards.here, z, self._shards.sizes, JOB_EXAMPLES)
        for nodes, (some, part) in zip(jobs, self._team.do(add_up, jobs), strict=True):
            losses[row[nodes]] = some
            sums[z[nodes[0]]] += part.to(sums)
        return Centres(losses, sums, [])

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

        def far(job: tuple[Ints, Tensor | None]) -> tuple[Ints, Tensor]:
            nodes, grads = job
            if grads is None and self._centred is not None:
                return nodes, self._centred.distances(w, nodes, near, z[nodes])
            if grads is None:
                grads = self._grads(w, nodes, lasting=False)[1]
            size = max(1, CACHED_BYTES // (grads.element_size() * self._d))
            group = torch.from_numpy(z[nodes]).to(near.device)
            off = [
                (some - near.index_select(0, of)).norm(dim=1)
                for some, of in zip(torch.split(grads, size), torch.split(group, size), strict=True)
            ]
            return nodes, set_apart(torch.cat(off))

        jobs: list[tuple[Ints, Tensor | None]] = [*found.kept] if found else []
        jobs = jobs or [(nodes, None) for nodes in self._few()]
        return list(self._team.do(far, jobs))

    def _grads(self, w: Tensor, nodes: Ints, *, lasting: bool) -> tuple[Tensor, Tensor]:
        """Losses [c] and gradients [c, d]; unless lasting, these are good until the next ones."""
        place = None if lasting else getattr(self._own, "place", None)
        if place is None or len(place) < len(nodes):
            place = w.new_empty(len(nodes), self._d)
        if not lasting:
            self._own.place = place
        out = place[: len(nodes)]
        return set_apart(self._kernel.gradients(w, nodes, out)), out

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
