"""How a node steps: SGD with momentum and weight decay, and what an algorithm adds to it."""

from dataclasses import dataclass

from coterie.engine.update import NOTHING, Update


@dataclass(frozen=True)
class LocalRule:
    """What is done with a gradient; nothing by default, which is the paper's SGD."""

    momentum: float = 0.0  # of the steps between two aggregations; it starts afresh after one
    weight_decay: float = 0.0
    update: Update = NOTHING

    @property
    def fused(self) -> bool:
        """Whether a step is the gradient and a pull, which can be added in one go."""
        return not (self.momentum or self.weight_decay or self.update.correct)


PLAIN = LocalRule()
