"""Small problems that the tests share."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.engine.contract import LocalSteps
from coterie.engine.module import Nodes
from coterie.engine.sequential import Sequential
from coterie.grouping import Evidence, Grouping, Planner, with_servers
from coterie.models import make_model
from coterie.models.size import n_bytes
from coterie.network import Network
from coterie.simulation.fleet import Fleet
from coterie.simulation.loop import rounds
from coterie.simulation.policies.given import Given
from coterie.simulation.policies.searched import Searched
from coterie.simulation.problem import Problem
from coterie.simulation.schedule import Schedule
from coterie.topology import fat_tree

Ints = NDArray[np.int64]
Arrays = tuple[NDArray[np.uint8], Ints]
SHAPE = (1, 4, 4)
CLASSES = 3


def some_nodes(n: int = 8, seed: int = 0) -> list[Arrays]:
    """Nodes of unequal size, each mostly of one class."""
    rng = np.random.default_rng(seed)
    nodes = []
    for i in range(n):
        size = int(rng.integers(4, 9))
        y = np.where(rng.random(size) < 0.8, i % CLASSES, rng.integers(CLASSES, size=size))
        x = rng.integers(0, 256, (size, *SHAPE)) // 4 + 60 * y[:, None, None, None]
        nodes.append((x.astype(np.uint8), y.astype(np.int64)))
    return nodes


def make_engine(
    nodes: Sequence[Arrays],
    batch_size: int | None = None,
    lr: float = 0.5,
    model: str = "sr",
    decay: float = 0.99,
) -> Sequential:
    """Build the oracle on nodes; the held-out part is all of their data."""
    torch.manual_seed(7)
    together = (np.concatenate([x for x, _ in nodes]), np.concatenate([y for _, y in nodes]))
    steps = LocalSteps(lr, decay, batch_size, "epoch", 3)
    module = make_model(model, SHAPE, CLASSES)
    return Sequential(module, Nodes.of(nodes), {"val": together, "test": together}, steps)


def make_problem(
    nodes: Sequence[Arrays],
    planner: Planner,
    tau1: int,
    tau2: int,
    steps: int = 12,
    *,
    edge_of: Ints | None = None,
    searched: bool = False,
    num_groups: int = 2,
    engine: Sequential | None = None,
) -> Problem:
    """Build a problem on a fat tree with two edges unless told otherwise."""
    sizes = np.array([len(y) for _, y in nodes])
    edges = np.arange(len(nodes)) * 2 // len(nodes) if edge_of is None else edge_of
    network = Network(fat_tree(edges), edges)
    counts = np.array([np.bincount(y, minlength=CLASSES) for _, y in nodes])
    return Problem(
        fleet=Fleet(sizes / sizes.sum(), edges, network, counts, step_s=0.25),
        engine=engine or make_engine(nodes),
        planner=planner,
        schedule=Schedule(tau1, tau2),
        steps=steps,
        num_groups=num_groups,
        model_bytes=n_bytes(make_model("sr", SHAPE, CLASSES)),
        epochs_per_step=1.0,
        seed=0,
        policy=Searched() if searched else Given(),
    )


def fixed(z: Sequence[int]) -> Planner:
    """Return a planner that always answers z."""

    def plan(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        return with_servers(np.array(z, dtype=np.int64), evidence)

    return plan


def final_model(problem: Problem) -> NDArray[np.float32]:
    """Run a problem and return its last global model."""
    last = list(rounds(problem))[-1]
    result: NDArray[np.float32] = last.models.w[0].numpy()
    return result


def random_evidence(n: int, num_groups: int, seed: int, edges: int = 2) -> Evidence:
    """Nodes with random gradients under a fat tree."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.5, 1.5, n)
    p /= p.sum()
    g = rng.normal(size=(n, 5))
    g -= p @ g
    edge_of = np.sort(np.arange(n) % edges)
    tree = fat_tree(edge_of)
    return Evidence(num_groups, p, edge_of, tree, g @ g.T)
