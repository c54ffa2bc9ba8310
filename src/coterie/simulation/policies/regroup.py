"""When groups are searched again: some time has passed, or they have drifted apart."""

from dataclasses import dataclass

from coterie.core.arrays import Ints
from coterie.grouping import Evidence
from coterie.grouping.objective import Objective
from coterie.simulation.state import Planned


@dataclass(frozen=True)
class Regroup:
    """When to plan again: every so many global means, or when Delta has grown by this part.

    To know Delta, nodes upload at every global mean what the planner sees; that is charged.
    """

    every: int = 0
    drift: float = 0.0

    def looks(self, rounds: int) -> bool:
        """Whether nodes show their data again, so many global means after the last plan."""
        return self.drift > 0 or 0 < self.every <= rounds

    def due(self, rounds: int, planned: Planned, shown: Evidence, z: Ints) -> bool:
        """Whether to plan again, going by what nodes have shown and nothing else."""
        if 0 < self.every <= rounds:
            return True
        Delta = Objective(shown).divergence(z)
        return self.drift > 0 and Delta > (1 + self.drift) * planned.Delta
