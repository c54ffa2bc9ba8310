"""Asking the planner: the evidence it gets, what uploading that takes, and its checked answer."""

from dataclasses import replace

from coterie.core.errors import GroupingError
from coterie.core.streams import Stream, generator
from coterie.engine.contract import Gradients
from coterie.grouping import Evidence, Grouping, Planner, check_grouping
from coterie.grouping.limits import broken
from coterie.network import Transfer
from coterie.simulation.fleet import Averaging
from coterie.simulation.problem import Problem


def plan(
    problem: Problem, evidence: Evidence, t: int = 0, planner: Planner | None = None
) -> Averaging:
    """Ask the planner for groups, and price them; given ones need not keep to limits."""
    by, limited = planner or problem.planner, problem.policy.searches
    found = asked(by, evidence, problem.seed, t, limited=limited)
    return problem.fleet.averaging(found, problem.bytes_of("group"))


def asked(
    planner: Planner, evidence: Evidence, seed: int, t: int = 0, *, limited: bool = True
) -> Grouping:
    """Return a planner's answer, checked; chance depends on the seed, and later also on when."""
    rng = generator(seed, Stream.PLAN, *([t] if t else []))
    grouping = check_grouping(planner(evidence, rng), len(evidence.p), evidence.places)
    beyond = broken(evidence, grouping) if limited else ""
    if beyond:
        raise GroupingError(f"the planner's groups do not keep to {beyond}")
    return grouping


def evidence_for(problem: Problem, found: Gradients | None, t: int) -> Evidence:
    """Return what a planner may see: the network, its limits, and what nodes show of their data."""
    bare = problem.fleet.evidence(
        problem.num_groups,
        problem.schedule.tau2,
        problem.model_bytes,
        problem.everyone.transfer.seconds,
    )
    return problem.view.of(bare, problem.fleet.class_counts, found, problem.seed, t)


def evidence_upload(problem: Problem) -> Transfer:
    """Time what all nodes upload for the planner; it compares nodes, so nothing is combined."""
    if not problem.view.charged_bytes:
        return Transfer(0.0, {})
    everyone = problem.everyone.grouping
    each = replace(problem.fleet.network, combine=False)
    return each.upload(everyone.z, everyone.servers, problem.view.charged_bytes)
