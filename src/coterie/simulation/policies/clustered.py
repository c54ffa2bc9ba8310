"""Several models, of which every node takes the one that fits its data best (IFCA)."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.core.arrays import Ints
from coterie.engine.contract import Models
from coterie.engine.memory import remembering
from coterie.grouping import Grouping
from coterie.simulation.fleet import Averaging
from coterie.simulation.measuring import row_after
from coterie.simulation.policies.given import begun
from coterie.simulation.problem import Problem
from coterie.simulation.state import Plan, State, Turn

if TYPE_CHECKING:
    from torch import Tensor

MODELS = "common.~models"  # all K models, those too that no node has taken


@dataclass(frozen=True)
class Clustered:
    """K models at the global server; groups are the nodes that have taken the same one."""

    num_models: int
    searches: bool = False

    def begin(self, problem: Problem, models: Models) -> State:
        """Let every node take one of K first models."""
        starts = models.w if problem.starts is None else problem.starts  # one model: everybody's
        chosen, groups = self._chosen(problem, models, starts.to(models.w))
        return begun(problem, chosen, Plan(problem.schedule, groups))

    def after(self, problem: Problem, s: State, turn: Turn) -> State:
        """Let every node choose again between the models as they are now."""
        if not turn.anybody:
            return s
        ws = s.models.memory[MODELS].clone()
        taken = np.unique(_taken(s.models))
        ws[taken] = s.models.w
        models, groups = self._chosen(problem, s.models, ws)
        s = replace(s, models=models, plan=Plan(s.plan.schedule, groups))
        return replace(s, row=row_after(problem, s, turn))

    def looks(self, now: Plan[Any], t: int, steps: int) -> bool:
        """Return that nodes show nothing but the model that they take."""
        return False

    def _chosen(self, problem: Problem, models: Models, ws: "Tensor") -> tuple[Models, Averaging]:
        """Return the models that nodes take, each once, and the groups of those who take one."""
        best = problem.engine.losses(ws).argmin(axis=1)  # [n, K] -> [n]
        taken, z = np.unique(best, return_inverse=True)
        kept = remembering(
            models, "", {MODELS: ws, TAKEN: ws.new_tensor(best, device="cpu").long()}
        )
        own = Models(ws[taken], z, kept.memory)
        return own, self._averaging(problem, z)

    def _averaging(self, problem: Problem, z: Ints) -> Averaging:
        """Price a mean: a model from every node to the global server, and all K models back."""
        up = problem.bytes_of("global")
        servers = np.repeat(problem.everyone.grouping.servers[:1], int(z.max()) + 1)
        down = self.num_models * up
        transfer = problem.fleet.network.aggregation(z, servers, up, down)
        return Averaging(Grouping(z, servers), transfer, up, down)


TAKEN = "common.~taken"  # which of the K models every node has taken; on the host


def _taken(models: Models) -> Ints:
    found: Ints = models.memory[TAKEN].numpy()
    return found
