"""Nodes' gradients by a written-out chain, added up or compared with a centre, and never kept.

The gradients of many nodes do not fit into memory. Their sum is that of a few large products, as
examples may be weighted before they pass back. How far a node's is from its group's mean is found a
few nodes at a time, in a place that stays in cache. It pays for chains of several layers; that of
one layer is made quicker than the two passes that this takes.
"""

import threading

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import Floats, Ints
from coterie.engine.device import for_sums
from coterie.engine.kernels import dense
from coterie.engine.kernels.batching import runs
from coterie.engine.kernels.dense import Dense, Layer, summed
from coterie.engine.module import Shards, chunk

CACHED_BYTES = 1 << 20  # of a layer's gradients that are compared at once


class Centred:
    """Takes gradients at the model w by a chain."""

    def __init__(self, chain: Dense, shards: Shards) -> None:
        """Take the chain and the nodes' data."""
        self._chain, self._shards = chain, shards
        self._own = threading.local()  # of each thread: where gradients go

    def sum(self, w: Tensor, nodes: Ints, weights: Floats) -> tuple[Tensor, Tensor]:
        """Losses [c] of nodes, and the sum [d] of their gradients times weights."""
        ws, total = self._chain.opened(w), w.new_zeros(self._chain.d)
        losses = torch.zeros(len(nodes), dtype=torch.float64, device=for_sums(w.device))
        for some in self._runs(nodes):
            if self._alone(nodes[some]):
                place = self._place(w, 1, self._chain.d)
                losses[some] = self._chain.gradients(w, nodes[some], place)
                total += float(weights[some.start]) * place[0]
                continue
            losses[some], layers = self._chain.passed(ws, nodes[some], weights[some])
            for layer, dy, into in layers:
                end = layer.at + layer.rows * layer.columns
                total[layer.at : end].view(layer.rows, layer.columns).addmm_(dy.T, into)
                if layer.bias:
                    total[end : layer.end] += dy.sum(dim=0)
        return losses, total

    def distances(self, w: Tensor, nodes: Ints, near: Tensor, group: Ints) -> Tensor:
        """How far the gradients of nodes are from near[group], of near [K, d]: [c]."""
        ws, found = self._chain.opened(w), w.new_zeros(len(nodes), dtype=torch.float64)
        for some in self._runs(nodes):
            few, of = nodes[some], group[some]
            if self._alone(few):
                place = self._place(w, 1, self._chain.d)
                self._chain.gradients(w, few, place)
                found[some] = (place - near[of]).norm(dim=1).to(found)
                continue
            for layer, dy, into in self._chain.passed(ws, few)[1]:
                found[some] += self._squares(layer, dy, into, self._shards.sizes[few], near, of)
            found[some] = found[some].sqrt()
        return found

    def _squares(
        self, layer: Layer, dy: Tensor, into: Tensor, sizes: Ints, near: Tensor, group: Ints
    ) -> Tensor:
        """Squared distances [c] in the numbers of one layer."""
        end, c = layer.at + layer.rows * layer.columns, len(sizes)
        found = near.new_empty(c, dtype=torch.float64)
        pairs = zip(torch.split(dy, sizes.tolist()), torch.split(into, sizes.tolist()), strict=True)
        centres = near[:, layer.at : end].view(-1, layer.rows, layer.columns)
        size = max(1, CACHED_BYTES // (near.element_size() * (end - layer.at)))
        for at in range(0, c, size):
            few = min(size, c - at)
            place = self._place(near, few, end - layer.at)
            each = place.view(few, layer.rows, layer.columns)
            for number, k in enumerate(group[at : at + few].tolist()):
                dys, xs = next(pairs)
                torch.addmm(centres[k], dys.T, xs, beta=-1.0, out=each[number])
            found[at : at + few] = place.norm(dim=1).to(found).square_()
        if layer.bias:
            of = torch.from_numpy(group).to(near.device)
            bias = summed(dy, sizes).to(near)
            found += (bias - near[:, end : layer.end][of]).norm(dim=1).to(found).square_()
        return found

    def _runs(self, nodes: Ints) -> list[slice]:
        return list(runs(self._shards.sizes[nodes], chunk(self._shards.x, dense.PASS_VALUES)))

    def _alone(self, nodes: Ints) -> bool:
        """Whether a node has more examples than pass at once."""
        return len(nodes) == 1 and self._shards.sizes[nodes[0]] > chunk(
            self._shards.x, dense.PASS_VALUES
        )

    def _place(self, like: Tensor, rows: int, columns: int) -> Tensor:
        """Return memory [rows, columns], good until the thread asks again."""
        place = getattr(self._own, "place", None)
        if place is None or len(place) < rows * columns:
            place = self._own.place = like.new_empty(rows * columns)
        found: Tensor = place[: rows * columns].view(rows, columns)
        return found


def by_group(nodes: Ints, z: Ints, sizes: Ints, most: int) -> list[Ints]:
    """Cut nodes into jobs of one group each, of at most so many examples.

    >>> z, sizes = np.array([1, 0, 1, 1]), np.array([3, 2, 3, 5])
    >>> [job.tolist() for job in by_group(np.arange(4), z, sizes, 6)]
    [[1], [0, 2], [3]]
    """
    found = []
    for k in np.unique(z[nodes]):
        own = nodes[z[nodes] == k]
        found += [own[some] for some in runs(sizes[own], most)]
    return found
