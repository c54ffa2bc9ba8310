"""IFCA as your own algorithm: K models, of which every node trains the one that fits it best.

Ghosh et al., An Efficient Framework for Clustered Federated Learning, NeurIPS 2020.
Run it:  cd examples && coterie run quickstart --set algorithm.name=ifca:ifca
"""

from dataclasses import dataclass, replace

import numpy as np

from coterie import Algorithm, Averaging, Grouping, Models, Plan, Problem, State, Turn, begun

ALL, TAKEN = "common.~all", "common.~taken"  # K models [K, d]; which of them somebody has [m]


@dataclass(frozen=True)
class Clustered:
    K: int
    searches: bool = False  # for groups that have to keep to limits

    def begin(self, problem: Problem, models: Models) -> State:
        assert problem.starts is not None  # K first models, as the algorithm has several
        return begun(problem, *self.choose(problem, replace(models, memory={ALL: problem.starts})))

    def after(self, problem: Problem, s: State, turn: Turn) -> State:
        ws = s.models.memory[ALL].index_copy(0, s.models.memory[TAKEN], s.models.w)
        models, plan = self.choose(problem, replace(s.models, memory={ALL: ws}))
        return replace(s, models=models, plan=plan)

    def choose(self, problem: Problem, models: Models) -> tuple[Models, Plan[Averaging]]:
        ws, fleet, up = models.memory[ALL], problem.fleet, problem.bytes_of("global")
        best = problem.engine.losses(ws).argmin(axis=1)  # [n, K] -> [n]
        taken, z = np.unique(best, return_inverse=True)  # who took the same one is a group
        servers = np.repeat(problem.everyone.grouping.servers, len(taken))  # all to the global one
        transfer = fleet.network.aggregation(z, servers, up, self.K * up)  # and get K models back
        plan = Plan(problem.schedule, Averaging(Grouping(z, servers), transfer, up, self.K * up))
        return Models(ws[taken], z, {ALL: ws, TAKEN: ws.new_tensor(taken).long()}), plan


ifca = Algorithm("IFCA of one's own", policy=Clustered, models=lambda K: K, passes=lambda K: K)
