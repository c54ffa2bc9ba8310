"""An edge of the two-level deployment: its group's means, order by order, inside the edge."""

import logging
from collections.abc import Callable
from dataclasses import replace

from coterie.flower.crew import Arrays, Crew
from coterie.flower.groups import Planning
from coterie.flower.means import Dropped
from coterie.flower.roll import Roster, roll_call
from coterie.flower.rounds import Terms, group_round
from coterie.flower.spool import Filled, Order, Spool
from coterie.planfile import Plan
from coterie.schedule import Schedule

log = logging.getLogger("coterie.flower")


def edge_name(group: int) -> str:
    """Return the id that an edge has towards the coordinator."""
    return f"edge-{group}"


def terms_of(plan: Plan, timeout_s: float, min_per_group: int = 1) -> Terms:
    """Return how the rounds of a plan go."""
    schedule = Schedule(plan.tau1, plan.tau2)
    planning = Planning(len(plan.servers), plan.tau2)
    return Terms(schedule, plan.steps, planning, plan, min_per_group, 3, timeout_s)


def serve(
    crew: Crew,
    plan: Plan,
    group: int,
    spool: Spool,
    terms: Terms,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Fill orders until the last: the group's nodes train, and only their mean leaves the edge."""
    roster = Roster()
    while (order := spool.wait(stop)) is not None:
        roster = roll_call(crew, roster, "none", terms.timeout_s, terms.config)
        filled = fill(crew, plan, group, roster, terms, order)
        spool.fill(order, filled)
        if order.last and not filled.about.get("error"):
            return


def fill(crew: Crew, plan: Plan, group: int, roster: Roster, terms: Terms, order: Order) -> Filled:
    """Run the group's means of one order; a mean that too few took part in keeps the model."""
    names = [node.node for node in plan.members(group)]
    model: Arrays = order.arrays
    weight, t = 0.0, order.start
    dropped: list[Dropped] = []
    metrics: dict[str, float] = {}
    while t < order.stop:
        t_next = min(t - t % plan.tau1 + plan.tau1, order.stop)
        done = group_round(crew, terms, roster, [(names, model)], t, t_next, first=group)
        model, t = done.models[0], t_next
        weight, metrics = done.weights[0] or weight, done.metrics or metrics
        dropped += done.dropped
    faults = {
        kind: sum(d.fault == kind for d in dropped) for kind in ("late", "failed", "rejected")
    }
    if not weight:
        first = dropped[0] if dropped else None
        why = f"; {first.node!r} is {first.fault}: {first.reason}" if first else ""
        return Filled({}, {"error": f"group {group}: too few nodes answered in any mean{why}"})
    log.info("group %d: steps %d to %d done, %s", group, order.start + 1, order.stop, faults)
    return Filled(model, {"num_examples": weight, "metrics": metrics, **faults})


def coordinator_terms(plan: Plan, num_rounds: int, timeout_s: float) -> Terms:
    """Return how the coordinator's rounds go: every edge is a node, every mean a global one."""
    cycle = plan.tau1 * plan.tau2
    steps = num_rounds * cycle if num_rounds else plan.steps
    terms = terms_of(plan, timeout_s)
    config = {"steps": steps, "timeout": timeout_s}
    return replace(terms, schedule=Schedule(cycle, 1), steps=steps, config=config)
