"""What every way of training nodes offers the vectorised engine."""

from typing import Protocol

from torch import Tensor

from coterie.core.arrays import Ints
from coterie.engine.contract import LocalSteps
from coterie.engine.local_rule import LocalRule
from coterie.engine.update import At


class Kernel(Protocol):
    """A way to train c nodes at once, and to take their gradients."""

    name: str
    one_by_one: bool  # whether every node is trained, and added up, alone

    def forget(self) -> None:
        """Give up memory in which numbers may be that are none."""

    def stack(self, batch: int) -> int:
        """Return how many nodes are trained together with batches of so many examples."""

    def train(
        self,
        w: Tensor,
        rows: Tensor,
        nodes: Ints,
        start: int,
        stop: int,
        steps: LocalSteps,
        rule: LocalRule,
        at: At | None,
    ) -> list[Tensor]:
        """Take steps start+1 .. stop from the models w[rows] of nodes, the largest first.

        `at` is where they are in their turn, if the rule's update adds anything. The models are
        returned in pieces [c, ...], which together are all numbers in their order.
        """

    def gradients(self, w: Tensor, nodes: Ints, out: Tensor) -> Tensor:
        """Full-data losses [c] at one model w [d]; the gradients go to out [c, d]."""

    def weighted(self, w: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """Gradient [d] of the weighted sum of some examples' losses at one model w."""
