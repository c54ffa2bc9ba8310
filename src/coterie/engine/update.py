"""What an algorithm adds to SGD and a mean: a rule on nodes, and a step on the server."""

from dataclasses import dataclass, field

from coterie.core.arrays import Floats
from coterie.engine.contract import Models
from coterie.engine.local_rule import COMMON, OWN, PLAIN, LocalRule, remembered, remembering
from coterie.engine.server import Server


@dataclass(frozen=True)
class Update:
    """What an algorithm adds: on nodes and on the server."""

    rule: LocalRule = PLAIN
    server: Server = field(default_factory=Server)

    def begin(self, models: Models) -> Models:
        """Remember what the server needs of the model that everybody starts from."""
        return self.server.begin(models)

    def after(self, models: Models, p: Floats) -> Models:
        """Return the models that follow a global mean of nodes with shares p [n]."""
        if self.rule.correction is not None:
            own, common = remembered(models, OWN), remembered(models, COMMON)
            gathered = self.rule.correction.gather(own, common, p)
            models = remembering(models, COMMON, gathered)
        return self.server.after(models)

    def extra_bytes(self, d: int) -> int:
        """Count the bytes that travel with a model of d trained numbers in a global mean."""
        correction = self.rule.correction
        return 0 if correction is None else 4 * correction.extra_numbers(d)
