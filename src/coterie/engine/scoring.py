"""Scores of nodes on examples of their own, each by its model: forward passes and no gradients."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import Floats, Ints
from coterie.engine.contract import NodeScores, Score
from coterie.engine.device import Together, for_sums, on_host, set_apart, to_host
from coterie.engine.module import Answers, FlatModule, Piece, Shards
from coterie.engine.task import Task
from coterie.engine.threads import Team

if TYPE_CHECKING:
    from coterie.engine.kernels.single import Single

Some = tuple[Ints, Ints]  # examples that go through the module at once, and the node of each


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over the examples of every node: losses [n], right answers [n], and these by class.

    Right answers and examples of each class are summed over the nodes, [classes]. `answers` is what
    metrics keep of the examples [N, ..], in their order.
    """

    loss: Floats
    right: Ints
    class_right: Ints
    class_count: Ints
    answers: Piece = field(default_factory=list)

    def scores(self, sizes: Ints, y: Answers, task: Task) -> NodeScores:
        """Return the mean loss of nodes with so many of the examples y, and what is right."""
        losses, known = mean_losses(self.loss, sizes), task.right is not None
        found = NodeScores(losses, self.right, sizes, has_accuracy=known)
        if task.labelled:
            found = replace(found, class_right=self.class_right, class_count=self.class_count)
        else:
            units = np.concatenate([[0], np.cumsum(task.counted(y))])
            ends = np.concatenate([[0], np.cumsum(sizes)])
            found = replace(found, count=np.diff(units[ends]), examples=sizes)
        if not task.metrics:
            return found
        overall = task.measured(self.answers, y)
        return replace(found, overall=overall, metrics=_by_node(self.answers, y, sizes, task))


class Scorer:
    """Scores examples by copies of a module.

    `together` puts examples of several nodes with one model into one pass; else every node has its
    own, so that no digit depends on who else is here.
    """

    def __init__(self, lender: "Single", team: Team, *, together: bool) -> None:
        """Take who lends copies of the module, and who does the work."""
        self._lender, self._team, self._together = lender, team, together

    def tally(
        self, data: Shards, which: Ints, vector: Callable[[int], Tensor], *, keep: bool = False
    ) -> Tally:
        """Score every node with examples here by the model vector(which[i]).

        What metrics need of the examples is kept, or not.
        """
        n = len(data)
        loss, right = np.zeros(n), np.zeros(n, dtype=np.int64)
        by_class: list[Ints] = []
        kept = Together()

        def score(job: tuple[int, list[Some]]) -> list[tuple[Ints, Tensor]]:
            k, pieces = job
            with self._lender.module() as module:
                module.load(vector(k))
                module.model.eval()
                return [_scored(module, data, *piece, kept, keep=keep) for piece in pieces]

        jobs = list(self._jobs(data, which))
        found = [piece for pieces in self._team.do(score, jobs) for piece in pieces]
        for (nodes, _), sums in zip(found, to_host([s for _, s in found]), strict=True):
            c = len(nodes)
            loss[nodes] += sums[:c]
            right[nodes] += sums[c : 2 * c].astype(np.int64)
            by_class.append(sums[2 * c :].astype(np.int64).reshape(2, -1))
        answers = [on_host(rows) for rows in kept.arrays]
        return Tally(loss, right, *summed_classes(by_class), answers)

    def _jobs(self, data: Shards, which: Ints) -> Iterator[tuple[int, list[Some]]]:
        """Cut examples into pieces, and these into jobs, by neither threads nor models' number."""
        if not len(data.y):
            return
        with self._lender.module() as module:
            size = module.chunk(data.x)
        there = np.flatnonzero(data.sizes)
        for k in np.unique(which[there]):
            job: list[Some] = []
            examples = 0
            for piece in _pieces(data, there[which[there] == k], size, self._together):
                job.append(piece)
                examples += len(piece[0])
                if examples >= size:
                    yield int(k), job
                    job, examples = [], 0
            if job:
                yield int(k), job


def _pieces(data: Shards, nodes: Ints, size: int, together: bool) -> Iterator[Some]:
    """Yield the examples of nodes, at most so many at once, of several nodes or of one."""
    for some in [nodes] if together else nodes[:, None]:
        owner = np.repeat(some, data.sizes[some])
        ends = np.cumsum(data.sizes[some])
        within = np.arange(len(owner)) - np.repeat(ends - data.sizes[some], data.sizes[some])
        rows = data.starts[owner] + within
        for at in range(0, len(rows), size):
            yield rows[at : at + size], owner[at : at + size]


def _scored(
    module: FlatModule, data: Shards, rows: Ints, owner: Ints, kept: Together, *, keep: bool
) -> tuple[Ints, Tensor]:
    """Return the m nodes of some examples, which come by node, and sums [2 m + 2 classes].

    Losses and right answers of every node, and right answers and examples of every class. They are
    where the examples are, if that has doubles. What metrics keep of each example goes to `kept`.
    """
    index = torch.from_numpy(rows).to(data.x.device)
    y = data.y.index_select(0, index)
    each = module.each(data.x.index_select(0, index), y, keep=keep)
    nodes, at = np.unique(owner, return_inverse=True)
    sums = [sums_of(each.losses, at), sums_of(each.right, at), each.by_class.flatten()]
    kept.put(each.rows, [len(data.y)] * len(each.rows), [index] * len(each.rows))
    return nodes, set_apart(torch.cat(sums))


def joined(pieces: Sequence[Piece]) -> Piece:
    """Put what metrics keep of pieces of examples together."""
    return [np.concatenate(rows) for rows in zip(*pieces, strict=True)]


def _by_node(answers: Piece, y: Answers, sizes: Ints, task: Task) -> dict[str, list[float | None]]:
    """Return every metric of each node [n], None of one without examples."""
    found: dict[str, list[float | None]] = {metric.name: [] for metric in task.metrics}
    start = 0
    for size in sizes.tolist():
        at = slice(start, start + size)
        figures = task.measured([rows[at] for rows in answers], y[at]) if size else {}
        for name, values in found.items():
            values.append(figures.get(name))
        start += size
    return found


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
    each = list(found)
    first, losses = each[0], np.array([score.loss for score in each])
    counts = np.array([score.units for score in each])  # [models, 2]
    right, count = counts[which, 0], counts[which, 1]
    scores = NodeScores(losses[which], right, count, has_accuracy=first.accuracy is not None)
    if first.class_count is not None:
        by_class = np.array([score.class_right for score in each])
        scores = replace(scores, class_right=by_class, class_count=first.class_count)
    if first.metrics is None:
        return scores
    figures = [score.metrics or {} for score in each]
    names = {name: [figures[k].get(name) for k in which.tolist()] for name in first.metrics}
    return replace(scores, metrics=names)
