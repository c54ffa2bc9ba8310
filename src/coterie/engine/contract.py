"""How local steps run: the contract that every engine keeps, and the values that cross it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.seeding import generators
from coterie.divergences.sketch import Sketch

if TYPE_CHECKING:
    from torch import Tensor

StepUnit = Literal["epoch", "batch"]
Sampling = Literal["epoch", "reference"]
HeldPart = Literal["val", "test"]
Figures = dict[str, float | None]  # a metric's number by its name; None where it is not defined


@dataclass(frozen=True, eq=False)
class Models:
    """The models in use: w [m, d], and for each node the row that is its model [n].

    After a global mean m = 1 and after a group mean m = K: equal models are kept once. `memory` is
    what an optimiser keeps from one aggregation to the next, by name.
    """

    w: "Tensor"
    of_node: Ints
    memory: "Mapping[str, Tensor]" = field(default_factory=dict)


@dataclass(frozen=True)
class LocalSteps:
    """How a node takes a step: `batch_size` None is full batch; the rate decays every step.

    An epoch cuts a permutation into ceil(n/batch) batches, of which the last may be shorter. By
    `sampling` "reference" each of them is a choice of its own from all n, as long as the others.
    """

    lr: float
    lr_decay: float
    batch_size: int | None
    unit: StepUnit
    seed: int
    sampling: Sampling = "epoch"

    def lr_at(self, t: int) -> float:
        """Learning rate of step t = 1, 2, ...

        >>> LocalSteps(0.5, 0.5, None, "epoch", 0).lr_at(2)
        0.25
        """
        return self.lr * self.lr_decay ** (t - 1)

    def order(self, t: int, i: int, n_examples: int) -> Ints | None:
        """Order in which node i takes its examples in step t; None if it takes all at once.

        It depends on (seed, t, i) alone, so neither order nor engine nor a resumed run can change
        it. The first `taken` of it are cut into batches.
        """
        return next(self.orders(t, np.array([i]), np.array([n_examples])))

    def orders(self, t: int, nodes: Ints, sizes: Ints) -> Iterator[Ints | None]:
        """Yield the order of each of several nodes, which have so many examples."""
        size = self.batch_size
        shuffled = nodes[:0] if size is None else nodes[sizes > size]
        drawing = generators((self.seed, t), shuffled)
        for n in sizes.tolist():
            if size is None or size >= n:
                yield None
                continue
            rng = next(drawing)
            if self.anew:
                batches = range(-(-n // size))
                yield np.concatenate([rng.choice(n, size, replace=False) for _ in batches])
            else:
                yield rng.permutation(n)

    @property
    def anew(self) -> bool:
        """Whether a step has several batches that are drawn one by one."""
        return self.unit == "epoch" and self.sampling == "reference"

    def batches(self, t: int, i: int, n_examples: int) -> Sequence[Ints | None]:
        """Examples of node i in each mini-batch of step t; None is a batch of everything.

        An epoch is a random permutation cut into ceil(n/batch) pieces, or as many random choices; a
        batch is one random choice without replacement.
        """
        order, size = self.order(t, i, n_examples), self.batch_size
        if order is None or size is None:
            return [None]
        if self.unit == "batch":
            return [order[:size]]
        return [order[k : k + size] for k in range(0, len(order), size)]

    def taken(self, n_examples: int) -> int:
        """Examples that a node of n works through in one step.

        >>> [LocalSteps(0.1, 1, 4, "epoch", 0, how).taken(9) for how in ("epoch", "reference")]
        [9, 12]
        """
        return int(self.examples_per_step(np.array([n_examples]))[0])

    def examples_per_step(self, sizes: Ints) -> Ints:
        """Examples each node works through in one step."""
        size = self.batch_size
        if size is None or (self.unit == "epoch" and not self.anew):
            return sizes
        if self.unit == "batch":
            return np.minimum(sizes, size)
        whole: Ints = np.where(sizes > size, -(-sizes // size) * size, sizes)
        return whole


@dataclass(frozen=True, eq=False)
class Gradients:
    """Full-data losses F_i(w) [n], and what the planner sees of the gradients there.

    Either a sketch [n, r] of every gradient; or the Gram matrix [n, n] of the centred gradients,
    and the cosines [n, n] between those of the last layer.
    """

    losses: Floats
    gram: Floats | None = None
    last_layer: Floats | None = None
    sketches: Floats | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """Full-data losses F_i(w) [n], and the divergences delta and Delta of the groups there."""

    losses: Floats
    delta: float
    Delta: float


@dataclass(frozen=True)
class Score:
    """Mean loss and accuracy on one part of the data; right answers and examples of every class.

    A task may have no accuracy, other metrics, and no classes.
    """

    loss: float
    accuracy: float | None
    class_right: Ints | None = field(default=None, compare=False, repr=False)  # [classes]
    class_count: Ints | None = field(default=None, compare=False, repr=False)
    units: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)  # right ones, all
    metrics: Figures | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class NodeScores:
    """Each node's own model on held-out examples: mean loss, right answers and examples, all [n].

    Where nodes hold examples out of their own, right answers and examples of every class are summed
    over the nodes, [classes]. Where these are pooled, right answers are of each distinct model,
    [models, classes]. A node without any example has the loss nan.

    What is right is counted in tokens or labels where examples have several, and there are
    `examples` then; a task may have no accuracy. Metrics are each node's own [n], None where they
    are not defined, and those of all examples.
    """

    loss: Floats
    right: Ints
    count: Ints
    class_right: Ints | None = None
    class_count: Ints | None = None
    examples: Ints | None = None
    has_accuracy: bool = True
    metrics: Mapping[str, list[float | None]] | None = None
    overall: Figures | None = None


class Engine(Protocol):
    """What Algorithm 1 asks of an engine; state is passed in and out, never kept."""

    def choice(self) -> dict[str, str]:
        """Return how this engine executes, where that may change a last digit, and why so."""

    def choose(self, choice: dict[str, str]) -> None:
        """Execute as another engine did, so that a resumed run gives the same digits."""

    def initial(self) -> Models:
        """Give every node the same random model w(0)."""

    def advance(
        self, models: Models, start: int, stop: int, z: Ints, present: Ints | None = None
    ) -> Models:
        """Take local steps start+1 .. stop on every node, then average by z, weighted by data.

        With `present`, only those nodes step and count; a group without any keeps its model.
        """

    def gradients(self, w: "Tensor", sketch: Sketch | None = None) -> Gradients:
        """Compute every node's full-data loss and gradient at w, as the planner may see them."""

    def measure(self, w: "Tensor", z: Ints) -> Measured:
        """Compute every node's full-data loss at w, and how the groups z diverge there."""

    def losses(self, ws: "Tensor") -> Floats:
        """Compute every node's full-data loss [n, m] at each of m models [m, d]; no gradients."""

    def own_losses(self, models: Models) -> Floats:
        """Compute every node's full-data loss [n] at its own model; no gradients."""

    def evaluate(self, w: "Tensor", part: HeldPart) -> Score:
        """Score the model w on held-out examples."""

    def has_own(self, part: HeldPart) -> bool:
        """Whether nodes hold out examples of their own in a part; else it is pooled."""

    def score_nodes(self, models: Models, part: HeldPart) -> NodeScores:
        """Score each node's own model on what the node holds out, or all where that is pooled."""

    def export(self, w: "Tensor") -> "dict[str, Tensor]":
        """Return the model w as named tensors."""
