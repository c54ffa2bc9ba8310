"""The oracle: one node after the other, one model in memory, nothing clever."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.arrays import Floats, Ints
from coterie.divergences.gram import divergence
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
from coterie.engine.device import for_sums, prepared, with_generators
from coterie.engine.kernels import reasons
from coterie.engine.kernels.single import local_steps
from coterie.engine.local_rule import PLAIN, LocalRule
from coterie.engine.memory import OWN, first_memory, remembering
from coterie.engine.module import (
    FlatModule,
    HeldOut,
    HeldSizes,
    Nodes,
    Piece,
    Shards,
    centred_gram,
    cosines,
    evaluate,
    held_by_node,
    last_layer,
    places_of,
)
from coterie.engine.own_models import distinct, one_by_one, own_models
from coterie.engine.scoring import Tally, joined, of_rows, summed_classes
from coterie.engine.task import CLASSIFICATION, Task
from coterie.engine.turns import Turns, mean_steps
from coterie.engine.update import At


class Sequential:
    """Trains every node in turn through one module whose tensors are views of one flat vector."""

    def __init__(
        self,
        model: nn.Module,
        nodes: Nodes,
        held_out: HeldOut,
        steps: LocalSteps,
        device: str = "cpu",
        rule: LocalRule = PLAIN,
        *,
        held_sizes: HeldSizes | None = None,
        task: Task = CLASSIFICATION,
    ) -> None:
        """Take the module, each node's examples, and the held-out parts.

        With held_sizes these are the nodes' own, ordered by node.
        """
        self._device = prepared(device)
        self.module = FlatModule(model.to(self._device), task=task)
        self._steps, self._rule = steps, rule
        self.shards = Shards(nodes, self._device, self.module.flat.dtype)
        self.held_out = {
            part: (torch.from_numpy(x).to(self._device), torch.from_numpy(y).to(self._device))
            for part, (x, y) in held_out.items()
        }
        self.targets = {part: y for part, (_, y) in held_out.items()}  # on the host
        self.held_by_node = {
            part: Shards(own, self._device, self.module.flat.dtype)
            for part, own in held_by_node(held_out, held_sizes).items()
        }
        self._w0 = self.module.flat.clone()
        self._places = None
        if rule.update.personal is not None:
            self._places = places_of(model, rule.update.personal(model)).to(self._device)

    def choice(self) -> dict[str, str]:
        """There is one way only; say why it is not the quickest."""
        return {"why": reasons.SEQUENTIAL}

    def choose(self, choice: dict[str, str]) -> None:
        """There is one way only."""

    def initial(self) -> Models:
        """Give every node the same random model w(0)."""
        n, d = len(self.shards), self.module.d_trained
        memory = first_memory(self._rule.update, n, self._w0, d, self._places)
        return Models(self._w0[None].clone(), np.zeros(n, dtype=np.int64), memory)

    def advance(
        self, models: Models, start: int, stop: int, z: Ints, present: Ints | None = None
    ) -> Models:
        """Take local steps start+1 .. stop on every node, then average by z, weighted by data."""
        sizes, module = self.shards.sizes, self.module
        there = np.zeros(len(sizes), dtype=bool)
        there[slice(None) if present is None else present] = True
        K = int(z.max()) + 1
        mass = np.bincount(z, weights=sizes * there, minlength=K)
        kept = np.bincount(z, weights=sizes, minlength=K)  # of a group of which nobody is there
        where = for_sums(self._device)
        sums = torch.zeros(K, len(module.flat), dtype=torch.float64, device=where)
        turns = self._turns(models, start, stop, z, np.flatnonzero(there))
        module.model.train()
        # Dropout draws from its own stream per step.
        with torch.random.fork_rng(devices=with_generators(self._device)):
            for i, k in enumerate(z):
                sent = models.w[models.of_node[i]]
                if there[i]:
                    sent = self._train(turns, i, start, stop)
                if there[i] or not mass[k]:
                    sums[k].add_(sent.to(sums), alpha=int(sizes[i]))
        weights = torch.from_numpy(np.where(mass > 0, mass, np.maximum(kept, 1)))
        means = sums / weights.to(sums)[:, None]
        return remembering(Models(means.to(models.w), z, models.memory), OWN, turns.own)

    def _turns(self, models: Models, start: int, stop: int, z: Ints, there: Ints) -> Turns:
        sizes, d = self.shards.sizes, self.module.d_trained
        others = mean_steps(self._steps, stop - start, sizes, z, there)
        return Turns(
            self._rule, models, self._steps, start, stop, sizes, self.shards.row, d, others, there
        )

    def _train(self, turns: Turns, i: int, start: int, stop: int) -> Tensor:
        """Take node i's steps in the module; return what it sends."""
        nodes = np.array([i])
        begun = turns.begin(nodes)
        done = self._stepped(begun.w[begun.rows[0]], i, start, stop, self._rule, begun.at)
        if begun.at is None:
            return done
        sent = turns.end(nodes, done[None], begun.at)[0]
        if self._rule.update.beside is not None:
            second = turns.begin_beside(nodes, begun.at)
            own = self._stepped(second.w[0], i, start, stop, turns.beside, second.at)
            turns.end_beside(nodes, own[None])
        return sent

    def _stepped(
        self, w: Tensor, i: int, start: int, stop: int, rule: LocalRule, at: At | None
    ) -> Tensor:
        self.module.load(w)
        local_steps(self.module, self.shards, i, start, stop, self._steps, rule, at)
        return self.module.flat.clone()

    def gradients(self, w: Tensor, sketch: Sketch | None = None) -> Gradients:
        """Compute every node's full-data loss and gradient at w.

        In evaluation mode, so that they are functions of w alone: no dropout, and batch norm with
        its running statistics if it keeps any, else with those of up to `chunk` examples.
        """
        losses, grads = self._all_gradients(w)
        if sketch is not None:
            return Gradients(losses, sketches=sketch.apply(grads.cpu().numpy()))
        last = grads[:, -last_layer(self.module.trained) :]
        return Gradients(losses, centred_gram(grads, self.shards.p), cosines(last))

    def measure(self, w: Tensor, z: Ints) -> Measured:
        """Compute every node's loss at w, and how the groups z diverge there."""
        losses, grads = self._all_gradients(w)
        found = divergence(centred_gram(grads, self.shards.p), self.shards.p, z)
        return Measured(losses, found.delta, found.Delta)

    def _all_gradients(self, w: Tensor) -> tuple[np.ndarray, Tensor]:
        n = len(self.shards)
        grads = w.new_empty(n, self.module.d_trained)  # [n, d]
        losses = np.empty(n)
        self.module.load(w)
        self.module.model.eval()
        for i in range(n):
            loss, grads[i] = self.module.full_gradient(*self.shards.of(i))
            losses[i] = float(loss)
        return losses, grads

    def losses(self, ws: Tensor) -> Floats:
        """Compute every node's full-data loss [n, m] at each of m models [m, d]; no gradients."""
        n = len(self.shards)
        each = [[self._score(self.shards, i, w)[0] for w in ws] for i in range(n)]
        return np.array(each) / self.shards.sizes[:, None]

    def own_losses(self, models: Models) -> Floats:
        """Compute every node's full-data loss [n] at its own model; no gradients."""
        nodes = np.arange(len(self.shards))
        found = [
            self._score(self.shards, int(i), own_models(models, nodes[i : i + 1])[0])[0]
            for i in nodes
        ]
        return np.array(found) / self.shards.sizes

    def evaluate(self, w: Tensor, part: HeldPart) -> Score:
        """Score the model w on held-out examples."""
        return evaluate(self.module, w, *self.held_out[part], self.targets[part])

    def has_own(self, part: HeldPart) -> bool:
        """Whether nodes hold out examples of their own in a part; else it is pooled."""
        return part in self.held_by_node

    def score_nodes(self, models: Models, part: HeldPart) -> NodeScores:
        """Score each node's own model on what the node holds out, or all where that is pooled."""
        own, first, which = self.held_by_node.get(part), *distinct(models)
        if own is None:
            return of_rows(which, (self.evaluate(w, part) for w in one_by_one(models, first)))
        loss, right = np.zeros(len(which)), np.zeros(len(which), dtype=np.int64)
        by_class: list[Ints] = []
        kept: list[Piece] = []
        for i in np.flatnonzero(own.sizes):
            loss[i], right[i], classes, rows = self._score(
                own, int(i), own_models(models, np.array([i]))[0], keep=True
            )
            by_class.append(classes)
            kept += rows
        answers = joined(kept)
        tally = Tally(loss, right, *summed_classes(by_class), answers)
        return tally.scores(own.sizes, self.targets[part], self.module.task)

    def _score(
        self, data: Shards, i: int, w: Tensor, *, keep: bool = False
    ) -> tuple[float, int, Ints, list[Piece]]:
        """Sum of the losses of w on node i's examples, right answers, these by class, and rows."""
        self.module.load(w)
        self.module.model.eval()
        x, y = data.of(i)
        size = self.module.chunk(x)
        pieces = zip(torch.split(x, size), torch.split(y, size), strict=True)
        found = [self.module.each(xs, ys, keep=keep) for xs, ys in pieces]
        loss = math.fsum(float(each.losses.cpu().double().numpy().sum()) for each in found)
        classes = np.sum([each.by_class.long().cpu().numpy() for each in found], axis=0)
        rows = [[some.cpu().numpy() for some in each.rows] for each in found]
        return loss, sum(int(each.right.sum()) for each in found), classes, rows

    def export(self, w: Tensor) -> dict[str, Tensor]:
        """Return the model w as named tensors."""
        self.module.load(w)
        return self.module.export()
