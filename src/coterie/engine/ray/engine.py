"""The engine over many processes: nodes are dealt to actors, which add up the models they train.

What travels in a mean is one model per group to the actors, and one per group from each of them:
never a node's.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import DivergenceError
from coterie.divergences.sketch import Sketch
from coterie.engine.contract import (
    Gradients,
    HeldPart,
    LocalSteps,
    Measured,
    Models,
    NodeScores,
    Score,
)
from coterie.engine.gradients import between
from coterie.engine.kernels import reasons
from coterie.engine.local_rule import PLAIN, LocalRule
from coterie.engine.means import divide
from coterie.engine.memory import COMMON, GROUP, OWN, remembered, remembering
from coterie.engine.module import (
    GRAM_COLUMNS,
    HeldOut,
    HeldSizes,
    Nodes,
    cosines,
    held_by_node,
    last_layer,
    mean_score,
    summed_gram,
)
from coterie.engine.own_models import distinct, one_by_one, own_models
from coterie.engine.ray.worker import Order, Own, Part, Shard, Sums, Work
from coterie.engine.scoring import Tally, joined, of_rows, summed_classes
from coterie.engine.task import CLASSIFICATION, Task, away
from coterie.engine.turns import mean_steps
from coterie.engine.vectorized import Vectorized


class Crew(Protocol):
    """Actors that each hold a part, and answer when asked; one that dies is replaced."""

    def ask(self, method: str, *shared: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of every actor; return the answers in the order of the parts.

        `shared` goes to all, and `each` has one more argument for every actor.
        """


class Hire(Protocol):
    """Where actors come from."""

    def pack(self, module: nn.Module) -> bytes:
        """Pickle a module."""

    def crew(self, kind: Callable[[Part], Shard], parts: Sequence[Part]) -> Crew:
        """Start an actor for every part."""


class Sharded:
    """Trains nodes on actors; the sums are taken where the data is."""

    def __init__(
        self,
        model: nn.Module,
        nodes: Nodes,
        held_out: HeldOut,
        steps: LocalSteps,
        hire: Hire,
        actors: int,
        device: str = "cpu",
        rule: LocalRule = PLAIN,
        threads: int = 1,
        *,
        held_sizes: HeldSizes | None = None,
        task: Task = CLASSIFICATION,
    ) -> None:
        """Take the module, each node's examples, what is held out, and how many actors to hire.

        With held_sizes the held-out parts are the nodes' own, ordered by node.
        """
        module = hire.pack(model)
        # It trains nothing.
        self._lead = Vectorized(model, nodes, held_out, steps, "cpu", rule, task=task)
        self._task = task
        kernel, habits = self._lead.choice()["kernel"], self._lead.habits
        self._lead.choose({"kernel": kernel, "why": reasons.ON_RAY})
        path = tuple(sys.path)
        self._work = Work(module, path, steps, rule, device, threads, habits, kernel, away(task))
        self._nodes, self._held_out, self._hire = nodes, held_out, hire
        self._held_by_node = held_by_node(held_out, held_sizes)
        self._p: Floats = nodes.sizes / nodes.sizes.sum()
        trained = [w for w in model.parameters() if w.requires_grad]
        self._d, self._d_last = sum(w.numel() for w in trained), last_layer(trained)
        self._dealt = deal(nodes.sizes, actors)
        self._crew: Crew | None = None
        self._moment = 0

    @property
    def dealt(self) -> list[Ints]:
        """Nodes of every actor."""
        return self._dealt

    @property
    def crew(self) -> Crew:
        """The actors; they start when the first question is asked."""
        if self._crew is None:
            self._crew = self._hire.crew(Shard, self._parts())
        return self._crew

    def choice(self) -> dict[str, str]:
        """Return how this engine executes: what a resumed run needs to give the same digits."""
        return {**self._lead.choice(), "actors": str(len(self._dealt))}

    def choose(self, choice: dict[str, str]) -> None:
        """Execute as another engine did: the same kernel, and nodes dealt to as many actors."""
        self._lead.choose(choice)
        self._work = replace(self._work, kernel=choice["kernel"])
        self._dealt = deal(self._nodes.sizes, int(choice["actors"]))
        self._crew = None

    def _parts(self) -> list[Part]:
        """Cut nodes by size, and what is held out into runs of whole pieces.

        What nodes hold out themselves goes with them, too: a common score is of the same pieces
        whoever has which nodes.
        """
        held_out: list[dict[HeldPart, Any]] = [{} for _ in self._dealt]
        for part, (x, y) in self._held_out.items():
            size = self._lead.piece(part)
            pieces = np.array_split(np.arange(0, len(y), size), len(self._dealt))
            for own, starts in zip(held_out, pieces, strict=True):
                at = slice(starts[0], starts[-1] + size) if len(starts) else slice(0, 0)
                own[part] = x[at], y[at]
        return [
            Part(
                self._work,
                self._nodes.part(here),
                own,
                {part: held.part(here) for part, held in self._held_by_node.items()},
            )
            for here, own in zip(self._dealt, held_out, strict=True)
        ]

    def initial(self) -> Models:
        """Give every node the same random model w(0)."""
        return self._lead.initial()

    def advance(
        self, models: Models, start: int, stop: int, z: Ints, present: Ints | None = None
    ) -> Models:
        """Take local steps start+1 .. stop on every node, then average by z, weighted by data."""
        there = np.arange(len(z)) if present is None else present
        own = remembered(models, OWN)
        common, group = (
            {key: array.numpy() for key, array in remembered(models, kind).items()}
            for kind in (COMMON, GROUP)
        )
        others = mean_steps(self._work.steps, stop - start, self._nodes.sizes, z, there)
        order = Order(
            models.w.numpy(), models.of_node, common, group, start, stop, z, there, others
        )
        each = [{key: array[here].numpy() for key, array in own.items()} for here in self._dealt]
        parts: list[Sums] = self.crew.ask("advance", order, each=each)
        sums = self._added(parts, int(z.max()) + 1, models.w.shape[1])
        means = divide(sums, self._nodes.sizes, models, z, there)
        if not torch.isfinite(means).all():
            rate = self._work.steps.lr
            raise DivergenceError(
                f"a mean is not finite after step {stop}; lower train.lr (now {rate:g})"
            )
        renewed = {key: array.clone() for key, array in own.items()}
        for here, part in zip(self._dealt, parts, strict=True):
            for key, array in part.own.items():
                renewed[key][here] = torch.tensor(array)
        return remembering(Models(means.to(models.w), z, models.memory), OWN, renewed)

    def _added(self, parts: Sequence[Sums], K: int, d: int) -> Tensor:
        """Add up the actors' sums [K, d], always in the same order."""
        total = np.zeros((K, d))
        for part in parts:
            for k, row in zip(part.groups, part.sums, strict=True):
                total[k] += row
        return torch.from_numpy(total)

    def gradients(self, w: Tensor, sketch: Sketch | None = None) -> Gradients:
        """Compute every node's full-data loss and gradient at w, as the planner may see them.

        Sketches are taken where the gradients are. Without, gradients come a few columns at a
        time, for products [n, n]: they are never here as a whole.
        """
        if sketch is not None:
            found = self.crew.ask("sketches", w.numpy(), sketch)
            return Gradients(self._by_node(0, found), sketches=self._by_node(1, found))
        losses, tail = np.empty(len(self._p)), w.new_empty(len(self._p), self._d_last)
        gram = summed_gram(self._columns(w, losses, tail), self._p)
        return Gradients(losses, gram, cosines(tail))

    def _columns(self, w: Tensor, losses: Floats, tail: Tensor) -> Iterator[Tensor]:
        """Yield all gradients [n, some columns]; losses, and the last columns, are kept."""
        self._moment += 1
        for at in range(0, self._d, GRAM_COLUMNS):
            stop = min(at + GRAM_COLUMNS, self._d)
            found = self.crew.ask("columns", w.numpy(), self._moment, at, stop)
            losses[:] = self._by_node(0, found)
            piece = torch.from_numpy(self._by_node(1, found))
            first = self._d - self._d_last
            if stop > first:
                begin = max(at, first)
                tail[:, begin - first : stop - first] = piece[:, begin - at :]
            yield piece

    def _by_node(self, at: int, found: Sequence[Any]) -> Any:
        """Put rows of the actors' nodes, the answers' field of that number, in nodes' order."""
        rows = np.concatenate([answer[at] for answer in found])
        ordered = np.empty_like(rows)
        ordered[np.concatenate(self._dealt)] = rows
        return ordered

    def measure(self, w: Tensor, z: Ints) -> Measured:
        """Compute every node's full-data loss at w, and how the groups z diverge there.

        Two questions: the groups' mean gradients, and how far the nodes' are from these.
        """
        self._moment += 1
        found = self.crew.ask("centres", w.numpy(), self._moment, z)
        centres = self._added([sums for _, sums in found], int(z.max()) + 1, self._d)
        near = centres.to(w).numpy()
        distances = self.crew.ask("distances", w.numpy(), self._moment, z, near)
        delta = sum(sum(some) for some in distances)
        return Measured(self._by_node(0, found), delta, between(self._p, z, centres))

    def losses(self, ws: Tensor) -> Floats:
        """Compute every node's full-data loss [n, m] at each of m models [m, d]; no gradients."""
        found: Floats = self._by_node(0, self.crew.ask("losses", ws.numpy()))
        return found

    def own_losses(self, models: Models) -> Floats:
        """Compute every node's full-data loss [n] at its own model; no gradients."""
        return self._tally(models, None).loss / self._nodes.sizes

    def has_own(self, part: HeldPart) -> bool:
        """Whether nodes hold out examples of their own in a part; else it is pooled."""
        return part in self._held_by_node

    def score_nodes(self, models: Models, part: HeldPart) -> NodeScores:
        """Score each node's own model on what the node holds out, or all where that is pooled."""
        own = self._held_by_node.get(part)
        if own is not None:
            return self._tally(models, part).scores(own.sizes, own.y, self._task)
        first, which = distinct(models)
        return of_rows(which, (self.evaluate(w, part) for w in one_by_one(models, first)))

    def _tally(self, models: Models, part: HeldPart | None) -> Tally:
        """Have nodes scored by their own models where they are.

        All models go to all actors, once, unless there are more than are averaged: then each actor
        gets those of its nodes.
        """
        first, which = distinct(models)
        if len(first) <= len(models.w):
            ws, each = own_models(models, first).numpy(), [Own(which) for _ in self._dealt]
        else:
            ws, each = None, [self._own(models, which, here) for here in self._dealt]
        found = self.crew.ask("tally", part, ws, each=each)
        loss, right = self._by_node(0, found), self._by_node(1, found)
        by_class = summed_classes([counts for _, _, counts, _ in found])
        answers = joined([kept for *_, kept in found if kept])
        if answers and part is not None:
            taken = np.concatenate([self._held_by_node[part].rows_of(here) for here in self._dealt])
            answers = [rows[np.argsort(taken, kind="stable")] for rows in answers]
        return Tally(loss, right, *by_class, answers)

    def _own(self, models: Models, which: Ints, here: Ints) -> Own:
        """Return the models of some nodes, each once."""
        _, first, among = np.unique(which[here], return_index=True, return_inverse=True)
        mine = np.zeros_like(which)
        mine[here] = among
        return Own(mine, own_models(models, here[first]).numpy())

    def evaluate(self, w: Tensor, part: HeldPart) -> Score:
        """Score the model w on held-out examples."""
        found = self.crew.ask("scores", w.numpy(), part)
        pieces = [piece for some in found for piece in some]
        return mean_score(pieces, self._held_out[part][1], self._task)

    def export(self, w: Tensor) -> dict[str, Tensor]:
        """Return the model w as named tensors."""
        return self._lead.export(w)


def deal(sizes: Ints, actors: int) -> list[Ints]:
    """Deal nodes, the largest first, to the actor that has the fewest examples; no actor for none.

    >>> [part.tolist() for part in deal(np.array([5, 1, 4, 2]), 2)]
    [[0, 1], [2, 3]]
    """
    actors = min(actors, len(sizes))
    load, owner = np.zeros(actors, dtype=np.int64), np.empty(len(sizes), dtype=np.int64)
    for i in np.lexsort((np.arange(len(sizes)), -sizes)):
        owner[i] = load.argmin()
        load[owner[i]] += max(1, sizes[i])
    return [np.flatnonzero(owner == a) for a in range(actors)]
