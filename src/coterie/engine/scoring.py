"""Scores of nodes on examples of their own, each by its model: forward passes and no gradients."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import Floats, Ints
from coterie.engine.contract import NodeScores, Score
from coterie.engine.device import for_sums, to_host
from coterie.engine.module import FlatModule, Shards, tally_classes
from coterie.engine.threads import Team

if TYPE_CHECKING:
    from coterie.engine.kernels.single import Single

Piece = tuple[Ints, Ints]  # examples that go through the module at once, and the node of each


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over the examples of every node: losses [n], right answers [n], and these by class.

    Right answers and examples of each class are summed over the nodes, [classes].
    """

    loss: Floats
    right: Ints
    class_right: Ints
    class_count: Ints

    def scores(self, counts: Ints) -> NodeScores:
        """Return the mean loss of nodes with so many examples, and what they have right."""
        return NodeScores(
            mean_losses(self.loss, counts), self.right, counts, self.class_right, self.class_count
        )


class Scorer:
    """Scores examples by copies of a module.

    `together` puts examples of several nodes with one model into one pass; else every node has its
    own, so that no digit depends on who else is here.
    """

    def __init__(self, lender: "Single", team: Team, *, together: bool) -> None:
        """Take who lends copies of the module, and who does the work."""
        self._lender, self._team, self._together = lender, team, together

    def tally(self, data: Shards, which: Ints, vector: Callable[[int], Tensor]) -> Tally:
        """Score every node with examples here by the model vector(which[i])."""
        n = len(data)
        loss, right = np.zeros(n), np.zeros(n, dtype=np.int64)
        by_class: list[Ints] = []

        def score(job: tuple[int, list[Piece]]) -> list[tuple[Ints, Tensor]]:
            k, pieces = job
            with self._lender.module() as module:
                module.load(vector(k))
                module.model.eval()
                return [_scored(module, data, *piece) for piece in pieces]

        jobs = list(self._jobs(data, which))
        found = [piece for pieces in self._team.do(score, jobs) for piece in pieces]
        for (nodes, _), sums in zip(found, to_host([sums for _, sums in found]), strict=True):
            c = len(nodes)
            loss[nodes] += sums[:c]
            right[nodes] += sums[c : 2 * c].astype(np.int64)
            by_class.append(sums[2 * c :].astype(np.int64).reshape(2, -1))
        return Tally(loss, right, *summed_classes(by_class))

    def _jobs(self, data: Shards, which: Ints) -> Iterator[tuple[int, list[Piece]]]:
        """Cut examples into pieces, and these into jobs, by neither threads nor models' number."""
        if not len(data.y):
            return
        with self._lender.module() as module:
            size = module.chunk(data.x)
        there = np.flatnonzero(data.sizes)
        for k in np.unique(which[there]):
            job: list[Piece] = []
            for piece in _pieces(data, there[which[there] == k], size, self._together):
                job.append(piece)
                if sum(len(rows) for rows, _ in job) >= size:
                    yield int(k), job
                    job = []
            if job:
                yield int(k), job


def _pieces(data: Shards, nodes: Ints, size: int, together: bool) -> Iterator[Piece]:
    """Yield the examples of nodes, at most so many at once, of several nodes or of one."""
    for some in [nodes] if together else nodes[:, None]:
        owner = np.repeat(some, data.sizes[some])
        ends = np.cumsum(data.sizes[some])
        within = np.arange(len(owner)) - np.repeat(ends - data.sizes[some], data.sizes[some])
        rows = data.starts[owner] + within
        for at in range(0, len(rows), size):
            yield rows[at : at + size], owner[at : at + size]


def _scored(module: FlatModule, data: Shards, rows: Ints, owner: Ints) -> tuple[Ints, Tensor]:
    """Return the m nodes of some examples, which come by node, and sums [2 m + 2 classes].

    Losses and right answers of every node, and right answers and examples of every class. They are
    where the examples are, if that has doubles.
    """
    index = torch.from_numpy(rows).to(data.x.device)
    y = data.y.index_select(0, index)
    losses, right, classes = module.each(data.x.index_select(0, index), y)
    nodes, at = np.unique(owner, return_inverse=True)
    by_class = tally_classes(right, y, classes).flatten()
    return nodes, torch.cat([sums_of(losses, at), sums_of(right, at), by_class])


def sums_of(values: Tensor, at: Ints) -> Tensor:
    """Add up values [N] that come by their number, at [N] = 0, 0, 1, ..: doubles [m].

    On a device every sum is made by one thread, so that it is the same every time.

    >>> sums_of(torch.tensor([0.5, 1.0, 4.0]), np.array([0, 0, 1])).tolist()
    [1.5, 4.0]
    """
    if for_sums(values.device).type == "cpu":
        return torch.from_numpy(np.bincount(at, weights=values.cpu().double().numpy()))
    lengths = torch.from_numpy(np.bincount(at)).to(values.device)
    return torch.segment_reduce(values.double(), "sum", lengths=lengths, unsafe=True)


def summed_classes(found: list[Ints]) -> tuple[Ints, Ints]:
    """Add up counts [2, classes] of right answers and examples; no classes where none are seen.

    Parts that saw nothing do not know how many classes there are.

    >>> summed_classes([np.array([[1, 0], [2, 0]]), np.array([[1, 1], [1, 3]])])[0].tolist()
    [2, 1]
    """
    found = [counts for counts in found if counts.size]
    right, count = np.sum(found, axis=0) if found else np.zeros((2, 0), dtype=np.int64)
    return right, count


def mean_losses(sums: Floats, counts: Ints) -> Floats:
    """Divide sums of losses by counts of examples; a node without any has no loss.

    >>> mean_losses(np.array([3.0, 0.0]), np.array([2, 0])).tolist()
    [1.5, nan]
    """
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def of_rows(which: Ints, found: Iterable[Score]) -> NodeScores:
    """Give each node the score of its model on a common part; classes are by model."""
    each = [(score.loss, score.class_right, score.class_count) for score in found]
    losses, right, counts = (np.array(column) for column in zip(*each, strict=True))
    count = np.full(len(which), counts[0].sum())
    return NodeScores(losses[which], right.sum(axis=1)[which], count, right, counts[0])
