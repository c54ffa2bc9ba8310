"""What a node adds to plain SGD: momentum, weight decay, FedProx's pull, a correction.

Arrays that nodes keep from one turn to the next have a row per node, [n, d]; those that everybody
knows have none. All are in the models' memory, so that they are checkpointed, resumed and sent to
actors, whatever they mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from coterie.core.arrays import Floats
from coterie.engine.contract import Models

if TYPE_CHECKING:
    from torch import Tensor

Arrays = Mapping[str, "Tensor"]
OWN, COMMON = "own.", "common."  # how their names begin in the models' memory


class Correction(Protocol):
    """Something added to every gradient of a node, which is renewed when the node is done."""

    def begin(self, n: int, w: "Tensor") -> tuple[Arrays, Arrays]:
        """Return what n nodes keep and what all know before the first step; w [d] is trained."""

    def offset(self, own: Arrays, common: Arrays) -> "Tensor":
        """Return what is added to the gradients of c nodes [c, d] in all steps of a turn."""

    def renew(self, own: Arrays, offset: "Tensor", way: "Tensor", rates: float) -> Arrays:
        """Return what a node keeps after it went a way [d], w_given - w, by such summed rates."""

    def gather(self, own: Arrays, common: Arrays, p: Floats) -> Arrays:
        """Return what all know after a global mean of nodes with shares p [n]."""

    def extra_numbers(self, d: int) -> int:
        """Count the numbers that travel with a model in a global mean."""


@dataclass(frozen=True)
class LocalRule:
    """What is done with a gradient; nothing by default, which is the paper's SGD."""

    momentum: float = 0.0  # of the steps between two aggregations; it starts afresh after one
    weight_decay: float = 0.0
    prox: float = 0.0  # FedProx's mu: pull towards the model that the node was given
    correction: Correction | None = None

    @property
    def plain(self) -> bool:
        """Whether this is SGD and nothing else."""
        return self == LocalRule()


PLAIN = LocalRule()


def first_memory(rule: LocalRule, n: int, w: "Tensor") -> "dict[str, Tensor]":
    """Return what a rule keeps before the first step, as the models' memory has it."""
    if rule.correction is None:
        return {}
    own, common = rule.correction.begin(n, w)
    named = {f"{OWN}{key}": array for key, array in own.items()}
    return {**named, **{f"{COMMON}{key}": array for key, array in common.items()}}


def remembered(models: Models, kind: str) -> "dict[str, Tensor]":
    """Return the arrays of a kind in the models' memory by their own names."""
    return {k.removeprefix(kind): v for k, v in models.memory.items() if k.startswith(kind)}


def remembering(models: Models, kind: str, arrays: Arrays) -> Models:
    """Return models with other arrays of a kind in their memory."""
    named = {f"{kind}{key}": array for key, array in arrays.items()}
    return replace(models, memory={**models.memory, **named})
