"""An edge of the two-level deployment: its group's means, order by order, inside the edge."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from coterie.core.errors import CoterieError
from coterie.flower.means import Dropped
from coterie.flower.messages import COUNTS, Arrays, Crew
from coterie.flower.roster import Roster, roll_call
from coterie.flower.rounds import Terms, group_round
from coterie.flower.spool import Filled, Order, Spool
from coterie.preview.planfile import Plan
from coterie.simulation.policies.given import Given
from coterie.simulation.schedule import Schedule

log = logging.getLogger("coterie.flower")
RESULT = "result.json"  # that the coordinator leaves in the folder of a deployment


def edge_name(group: int) -> str:
    """Return the id that an edge has towards the coordinator."""
    return f"edge-{group}"


def app_log(place: str) -> str:
    """Return the name of the file in which a place's app keeps what it says."""
    return f"{place}-app.log"


def terms_of(plan: Plan, timeout_s: float, min_per_group: int = 1) -> Terms:
    """Return how the rounds of a plan go."""
    schedule = Schedule(plan.tau1, plan.tau2)
    return Terms(schedule, plan.steps, plan, min_per_group, 3, timeout_s, policy=Given())


def serve(
    crew: Crew,
    plan: Plan,
    group: int,
    spool: Spool,
    terms: Terms,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Fill orders until the last: the group's nodes train, and only their mean leaves the edge.

    Whatever goes wrong with an order is its result, so that the coordinator knows and may go on.
    """
    roster = Roster()
    while (order := spool.wait(stop)) is not None:
        try:
            roster = roll_call(crew, roster, "none", terms.timeout_s, terms.config)
            filled = fill(crew, plan, group, roster, terms, order)
        except Exception as error:
            log.warning("group %d: %s", group, error, exc_info=not isinstance(error, CoterieError))
            filled = Filled({}, {"error": f"group {group}: {str(error) or type(error).__name__}"})
        spool.fill(order, filled)
        if order.last and not filled.about.get("error"):
            return


def fill(crew: Crew, plan: Plan, group: int, roster: Roster, terms: Terms, order: Order) -> Filled:
    """Run the group's means of one order; a mean that too few took part in keeps the model."""
    names = [node.node for node in plan.members(group)]
    model: Arrays = order.arrays
    weight, t, counted = 0.0, order.start, 0
    dropped: list[Dropped] = []
    metrics: dict[str, float] = {}
    while t < order.stop:
        stop, _ = terms.schedule.next_aggregation(t, order.stop)
        done = group_round(crew, terms, roster, [(names, model)], t, stop, first=group)
        model, t = done.models[0], stop
        weight, metrics = done.weights[0] or weight, done.metrics or metrics
        counted, dropped = counted + len(done.counted), dropped + done.dropped
    faults = {key: sum(f"nodes-{d.fault}" == key for d in dropped) for key in COUNTS}
    faults["nodes-counted"] = counted
    if not weight:
        first = dropped[0] if dropped else None
        why = f"; {first.node!r} is {first.fault}: {first.reason}" if first else ""
        return Filled({}, {"error": f"group {group}: too few nodes answered in any mean{why}"})
    log.info("group %d: steps %d to %d done, %s", group, order.start + 1, order.stop, faults)
    return Filled(model, {"num_examples": weight, "metrics": metrics, **faults})


def settings_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a run goes on with unchanged: the app's own, and its first model.

    >>> settings_of({"lr": 0.1, "coterie-rounds": 3, "coterie-initial": "app:initial"})
    {'coterie-initial': 'app:initial', 'lr': 0.1}
    """
    ours = "coterie-"
    return {k: run[k] for k in sorted(run) if not k.startswith(ours) or k == f"{ours}initial"}


def digest_of(run: Mapping[str, Any]) -> str:
    """Name these settings: the same for the same ones."""
    return hashlib.sha256(json.dumps(settings_of(run)).encode()).hexdigest()


def said_scores(row: Mapping[str, Any]) -> list[str]:
    """Put the scores of a row of the coordinator's into words.

    >>> said_scores({"t": 4, "test.accuracy": 0.5, "test.loss": None})
    ['accuracy 0.5000', 'loss not finite']
    """
    scores = {key.removeprefix("test."): row[key] for key in row if key.startswith("test.")}
    return [f"{k} {'not finite' if v is None else format(v, '.4f')}" for k, v in scores.items()]


def coordinator_terms(plan: Plan, num_rounds: int, timeout_s: float) -> Terms:
    """Return how the coordinator's rounds go: every edge is a group of one node, which is the edge.

    `timeout_s` is what an edge waits for a node: a roll call and tau2 means take it tau2 + 1 times
    that at most. Its bridge waits for half as long more, and the coordinator again.
    """
    terms = terms_of(plan, timeout_s * (plan.tau2 + 2))
    cycle = terms.schedule.cycle
    steps = num_rounds * cycle if num_rounds else plan.steps
    config = {"steps": steps, "wait": timeout_s * (plan.tau2 + 1.5)}
    return replace(terms, schedule=Schedule(cycle, 1), steps=steps, config=config)
