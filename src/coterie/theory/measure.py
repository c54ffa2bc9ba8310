"""How far the groups of a config really stray from learning in one place, and how far they may."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from coterie.config.factories import divide, for_task, load_dataset, local_steps, make_task_of
from coterie.config.prepare import new_model, prepare
from coterie.config.settings import Config
from coterie.core.arrays import Floats
from coterie.core.errors import ConfigError
from coterie.core.types import Progress
from coterie.engine.module import Nodes
from coterie.engine.update import NOTHING
from coterie.simulation.loop import rounds
from coterie.theory.bounds import Constants, distances, loss_gap, printed_distances, printed_gap
from coterie.theory.estimate import curvature, omega
from coterie.theory.oracle import ModuleOracle, bend_of, linear_smoothness
from coterie.theory.virtual import Trace, trace

DOWNHILL = 60  # steps of L-BFGS towards a lowest loss


@dataclass(frozen=True, eq=False)
class Straying:
    """A run beside its virtual models [T], what bounds them, and what to know about the bounds."""

    trace: Trace
    first: int  # step that the run starts from: the groups are known
    beta: float
    rho: float  # largest ||grad F(w)|| of all steps
    omega: float
    theorem: float  # Theorem 1 as printed, with these and the largest delta and Delta
    bound: Floats  # of ||w - v_[l]||, as proved in docs/explanation/theory.md
    printed: Floats  # as the paper prints it
    ends: list[int]  # last step of every global interval, counted from 0
    least: float  # the lowest loss that was found
    gap: Floats  # F(w) - least at the ends
    gap_bound: Floats  # of it
    notes: list[str]


def stray(config: Config, progress: Progress = lambda what, done, of: None) -> Straying:
    """Run a config with full batches in double precision, with its virtual models beside it."""
    if config.algorithm.open:
        raise ConfigError(
            f"the bound is of a given schedule; give algorithm.{config.algorithm.open[0]} a number"
        )
    progress("data", 0, 0)
    config = _plain(config)
    dataset = for_task(config, load_dataset(config))
    task = make_task_of(config, dataset)
    ready = prepare(config, dataset)
    known = next(state for state in rounds(ready.problem) if state.groups)
    assert known.groups is not None  # as it was chosen
    divided = divide(config, dataset)
    order = divided.split.train[np.concatenate(divided.partition.indices)]
    nodes = Nodes(divided.dataset.x[order], divided.dataset.y[order], divided.partition.sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = new_model(config, dataset)
    oracle = ModuleOracle(model, nodes, task)
    start = known.models.w[0].double().numpy()[: len(oracle.start)]
    schedule = config.algorithm.made.schedule(*config.algorithm.usual[1:])
    rates = local_steps(config)
    eta = np.array([rates.lr_at(t) for t in range(known.t + 1, config.train.steps + 1)])
    whole = schedule.tau1 * schedule.tau2
    eta = eta[: len(eta) // whole * whole]
    if not len(eta):
        raise ConfigError(f"train.steps must leave a global round of {whole} steps")
    found = trace(
        oracle,
        known.groups.grouping.z,
        start,
        schedule,
        eta,
        lambda t, of: progress("steps", t, of),
    )
    bend = bend_of(model, task, dataset.width)
    convex = bend is not None
    beta = (
        _curvature(oracle, start, config.seed) if bend is None else linear_smoothness(nodes, bend)
    )
    best, least = _lowest(oracle, found.models[-1], progress)
    steps, ends = found.steps(beta), list(range(whole - 1, len(eta), whole))
    bound = distances(steps, schedule, convex=convex)
    gaps = [
        loss_gap(eta[end + 1 - whole : end + 1], float(np.linalg.norm(w - best)), *more)
        for end, w, *more in zip(ends, found.models, found.slope[ends], bound[ends], strict=False)
    ]
    w, rho = omega(found.models[:-1], best), float(found.slope.max())
    largest = float(found.delta.max()), float(found.Delta.max())
    worst = [Constants(float(rate), beta, *largest) for rate in (eta.min(), eta.max())]
    return Straying(
        found,
        known.t,
        beta,
        rho,
        w,
        max(printed_gap(c, schedule, w, rho) for c in worst),
        bound,
        printed_distances(steps, schedule),
        ends,
        least,
        found.loss[ends] - least,
        np.array(gaps),
        _notes(config, eta, beta, convex=convex),
    )


def _plain(config: Config) -> Config:
    """Return a config without what the theory does not know of."""
    own = config.optimizer
    if own.momentum or own.fedprox or own.scaffold or own.server != "mean" or own.weight_decay:
        raise ConfigError("the bounds are about plain gradient descent; leave [optimizer] as it is")
    made = config.algorithm.made
    if made.update != NOTHING or made.policy is not None or config.algorithm.tau2 == "never":
        raise ConfigError(
            "the bounds are about plain gradient descent with global means; take 'fedavg' in place "
            f"of {config.algorithm.name}, and a number for tau2"
        )
    if made.pooled:
        raise ConfigError(f"{config.algorithm.name} has no nodes that could stray")
    return replace(config, train=replace(config.train, batch_size="full"))


def _notes(config: Config, eta: Floats, beta: float, *, convex: bool) -> list[str]:
    notes = []
    if not convex:
        notes.append(
            f"{_not_convex(config)}, and beta is an estimate at the start: the bounds promise "
            "nothing here"
        )
    if eta[0] > 1 / beta:
        notes.append(
            f"eta is {eta[0]:.3g} and 1/beta {1 / beta:.3g}: the bounds are proved for eta <= "
            "1/beta; lower train.lr"
        )
    return notes


def _not_convex(config: Config) -> str:
    """Say what is not convex, or may be so: of one's own model or loss nobody knows."""
    own = [name for name in (config.model.name, config.task.name) if ":" in name]
    if own:
        return f"{' with '.join(own)} is not known to be convex"
    return f"{config.model.name}{' with adapters' * bool(config.model.adapters)} is not convex"


def _curvature(oracle: ModuleOracle, start: Floats, seed: int) -> float:
    return float(curvature(oracle, start, np.random.default_rng(seed), 10).max())


def _lowest(oracle: ModuleOracle, start: Floats, progress: Progress) -> tuple[Floats, float]:
    """Go downhill on the whole loss from where a run has ended."""
    from scipy.optimize import minimize

    one = np.zeros(len(oracle.p), dtype=np.int64)

    def whole(w: Floats) -> tuple[float, Floats]:
        losses, grads = oracle.at(w[None], one)
        return float(oracle.p @ losses), oracle.p @ grads

    taken = iter(range(1, DOWNHILL + 1))
    found = minimize(
        whole,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": DOWNHILL},
        callback=lambda _: progress("lowest loss", next(taken, DOWNHILL), DOWNHILL),
    )
    return np.asarray(found.x), float(found.fun)
