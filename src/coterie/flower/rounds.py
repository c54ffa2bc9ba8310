"""Algorithm 1 over nodes that answer messages, and that may fail, be late or send rubbish."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from coterie.flower import FlowerError
from coterie.flower.algorithm import FEDAVG, Added, trained_of
from coterie.flower.groups import Groups, Planning, by_plan, find_groups
from coterie.flower.means import (
    MOST_EXAMPLES,
    Dropped,
    Fault,
    mean,
    mean_metrics,
    num_examples,
    sort_answers,
)
from coterie.flower.memory import Sent, begin, check_memory, follow
from coterie.flower.messages import (
    ALGORITHM,
    BATCHES,
    EVIDENCE,
    GROUP,
    KEEPS,
    LOCAL_STEPS,
    MEAN_STEPS,
    SERVER_ROUND,
    SKETCH_SEED,
    SKETCH_SIZE,
    START,
    STOP,
    TRAINED,
    Answer,
    Arrays,
    Crew,
    Request,
)
from coterie.flower.roster import Roster, in_order, roll_call
from coterie.flower.state import State
from coterie.preview.planfile import Plan as PlanFile
from coterie.simulation.policies.given import Given
from coterie.simulation.policies.searched import Searched
from coterie.simulation.schedule import Event, Schedule
from coterie.simulation.state import Plan

log = logging.getLogger("coterie.flower")


@dataclass(frozen=True, eq=False)
class Terms:
    """How a run goes: its schedule, how and when groups are found, how long nodes are waited for.

    They are searched for, or those of a plan file. A group of which fewer than `min_per_group`
    nodes answer keeps its model; after `patience` such means in a row the run ends.
    """

    schedule: Schedule
    steps: int
    planning: Planning | PlanFile
    min_per_group: int = 1
    patience: int = 3
    timeout_s: float = 600.0
    config: Mapping[str, Any] = field(default_factory=dict)
    policy: Given | Searched = field(default_factory=Searched)
    added: Added = FEDAVG


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of one mean: a model for each group asked, its weight, and the bookkeeping."""

    models: list[Arrays]
    weights: list[float]  # 0 where a group keeps the model it had
    dropped: list[Dropped]
    counted: Mapping[str, Answer]
    metrics: dict[str, float]


def rounds(crew: Crew, terms: Terms, state: State) -> Iterator[State]:
    """Run Algorithm 1 from a state, as `simulation.loop` does; yield the state after every mean."""
    roster, by = Roster(), terms.planning
    shown = by.evidence if isinstance(by, Planning) else "none"
    terms, there = _telling(terms, state.models[0]), dict[str, int]()
    if state.memory.names and not terms.added.plain:
        check_memory(terms.added, state.memory, state.models[0], len(state.groups or [0]))
    while state.t < terms.steps:
        stop, scope = state.plan.schedule.next_aggregation(state.t, terms.steps)
        again = scope is Event.GLOBAL
        roster = roll_call(crew, roster, shown, terms.timeout_s, terms.config, again=again)
        groups = state.groups or (tuple(roster.names),)
        if not (terms.added.plain or state.memory.names):
            state = replace(state, memory=begin(terms.added, state.models[0], roster.names))
        kept = Sent(terms.added, state.memory, there, scope is Event.GLOBAL)
        done = group_round(
            crew, terms, roster, _pairs(groups, state.models), state.t, stop, kept=kept
        )
        there = {name: roster.ids[name] for name in done.counted}
        state = _averaged(terms, state, done, stop, scope)
        state = _followed(terms, state, done, roster, scope)
        if scope is Event.GLOBAL and terms.policy.looks(state.plan, stop, terms.steps):
            found, left_out = _find(crew, terms, roster, state.models[0])
            done = replace(done, dropped=[*done.dropped, *left_out])
            weights = {name: num_examples([roster.answers[name]])[0] for name in roster.ids}
            plan = Plan(terms.schedule, found)
            state = replace(state, plan=plan, weights=weights, short=())
            if state.memory.names:  # a node that is in no group is asked no more
                members = [name for names in found.members for name in names]
                state = replace(state, memory=state.memory.only(in_order(members)))
        state = replace(state, rows=(*state.rows, _row(terms, scope, done, state)))
        yield state


def _telling(terms: Terms, model: Arrays) -> Terms:
    """Return terms whose messages say what nodes have to know of the algorithm, if anything."""
    added = terms.added
    if added.plain:
        return terms
    trained = trained_of(added, model)  # names that are none are refused before anybody trains
    if not added.update.local:
        return terms
    told: dict[str, Any] = {ALGORITHM: added.name, TRAINED: list(trained)}
    if keeps := [*begin(added, model, ["any"]).own("any")]:
        told[KEEPS] = keeps
    return replace(terms, config={**terms.config, **told})


def overall(state: State) -> Arrays:
    """Return the model that all have, or the groups' mean by the examples of their nodes."""
    if len(state.models) == 1:
        return state.models[0]
    each = [sum(state.weights[name] for name in names) for names in state.groups or ()]
    return mean(state.models, each)


def _pairs(
    groups: Sequence[Sequence[str]], models: Sequence[Arrays]
) -> list[tuple[Sequence[str], Arrays]]:
    """Give each group the model it has: its own, or the one that all have."""
    return [(names, models[k] if len(models) > 1 else models[0]) for k, names in enumerate(groups)]


def group_round(
    crew: Crew,
    terms: Terms,
    roster: Roster,
    groups: Sequence[tuple[Sequence[str], Arrays]],
    start: int,
    stop: int,
    first: int = 0,
    kept: Sent | None = None,
) -> Outcome:
    """Let every group's nodes take local steps start+1 .. stop from its model, and average them.

    `first` is the number of the first group.
    """
    kept, everyone = kept or Sent(), [name for names, _ in groups for name in names]
    asked: dict[int, Request] = {}
    named: dict[int, str] = {}
    sent: dict[str, Arrays] = {}
    gone: list[Dropped] = []
    for k, (names, model) in enumerate(groups, first):
        config = {**terms.config, GROUP: k, START: start, STOP: stop, LOCAL_STEPS: stop - start}
        config[SERVER_ROUND] = _round(terms, stop)
        if kept.added.update.send is not None:
            averaged = everyone if kept.together else names
            config[MEAN_STEPS] = (stop - start) * _mean_batches(terms, roster, averaged)
        request = Request(model, config, kept.known(names))
        for name in names:
            if name in roster.ids:
                asked[roster.ids[name]] = kept.request(name, roster.ids[name], request)
                sent[name] = model
                named[roster.ids[name]] = name
            else:
                gone.append(Dropped(name, "late", "not connected"))
    answers = crew.ask("train", asked, terms.timeout_s)
    heard = sort_answers(named, answers, sent, kept.expected)
    models, weights, counted = list[Arrays](), list[float](), dict[str, Answer]()
    for k, (names, model) in enumerate(groups, first):
        used = {name: heard.used[name] for name in names if name in heard.used}
        there = list(used.values())
        enough = len(there) >= min(terms.min_per_group, len(names))
        if enough and there:
            models.append(mean([a.arrays for a in there if a.arrays], num_examples(there)))
            weights.append(sum(num_examples(there)))
            counted |= used
        else:
            log.warning(
                f"group {k}: {len(there)} of {len(names)} nodes answered within "
                f"{terms.timeout_s:g} s, and {terms.min_per_group} are needed; it keeps its model"
            )
            models.append(model)
            weights.append(0.0)
    dropped = [*gone, *heard.dropped]
    for node in dropped:
        log.warning("step %d: node %r is %s: %s", stop, node.node, node.fault, node.reason)
    return Outcome(models, weights, dropped, counted, mean_metrics(list(counted.values())))


def _mean_batches(terms: Terms, roster: Roster, names: Sequence[str]) -> float:
    """Average the batches of a local step over connected nodes that say theirs, by data."""
    names = [name for name in names if name in roster.ids]
    answers = [roster.answers[name] for name in names]
    counts = [answer.metrics.get(BATCHES) for answer in answers]
    said = [
        (float(count), num_examples([answer])[0])
        for count, answer in zip(counts, answers, strict=True)
        if isinstance(count, int | float) and 0 < count <= MOST_EXAMPLES
    ]
    if names and not said:
        raise FlowerError(
            f"{terms.added.name} needs to know how many batches a local step has, and node "
            f"{names[0]!r} says {counts[0]!r}; pass batches to answer_query"
        )
    total = math.fsum(size for _, size in said)
    return math.fsum(count * size for count, size in said) / total if said else 1.0


def _averaged(terms: Terms, before: State, done: Outcome, stop: int, scope: Event) -> State:
    """Return the state after a mean: a model for each group, or one for all after a global one."""
    short = _short(terms, done, before.short)
    models, weighed = tuple(done.models), _weighed(done, before)
    if scope is Event.GLOBAL:
        models, weighed = (_global(done, weighed, before),), ()
    return replace(before, t=stop, models=models, short=short, weighed=weighed)


def _followed(terms: Terms, now: State, done: Outcome, roster: Roster, scope: Event) -> State:
    """Return the state with what nodes keep now, and after what groups and the server do."""
    if terms.added.plain or not done.counted:
        return now
    memory = now.memory
    if terms.added.update.renew is not None:
        memory = memory.renewed({name: a.kept for name, a in done.counted.items()})
    groups = now.groups or (memory.names,)
    weights = now.weights or {
        name: num_examples([roster.answers[name]])[0] for name in memory.names
    }
    models, memory = follow(
        terms.added,
        memory,
        now.models,
        groups,
        weights,
        list(done.counted),
        everyone=scope is Event.GLOBAL,
    )
    return replace(now, models=models, memory=memory)


def _weighed(done: Outcome, before: State) -> tuple[float, ...]:
    """Return the examples that counted in each group's last mean since the global one."""
    last = before.weighed or (0.0,) * len(done.weights)
    return tuple(now or was for now, was in zip(done.weights, last, strict=True))


def _global(done: Outcome, weighed: Sequence[float], before: State) -> Arrays:
    """Mean of the groups' models, by the examples that counted in them since the last one.

    A group that misses this mean alone is in it with the model that it has.
    """
    there = [(m, w) for m, w in zip(done.models, weighed, strict=True) if w]
    if not there:
        return before.models[0]
    return mean([m for m, _ in there], [w for _, w in there])


def _short(terms: Terms, done: Outcome, before: Sequence[int]) -> tuple[int, ...]:
    """Count the means in a row that each group missed; end a run that goes nowhere."""
    missed = before if len(before) == len(done.weights) else [0] * len(done.weights)
    now = tuple(0 if w else n + 1 for n, w in zip(missed, done.weights, strict=True))
    for k, n in enumerate(now):
        if n >= terms.patience:
            raise FlowerError(
                f"group {k}: fewer than {terms.min_per_group} nodes answered within "
                f"{terms.timeout_s:g} s, {n} times in a row; look at its nodes, raise the "
                "timeout, or plan without them"
            )
    return now


def _find(
    crew: Crew, terms: Terms, roster: Roster, model: Arrays
) -> tuple[Groups, Sequence[Dropped]]:
    """Group the nodes as the plan file says, or on what they show; name those left out."""
    planning, sketches, silent = terms.planning, dict[str, Answer](), list[Dropped]()
    if isinstance(planning, PlanFile):
        return by_plan(planning, roster), silent
    if planning.evidence == "sketch":
        config = {
            **terms.config,
            EVIDENCE: "sketch",
            SKETCH_SIZE: planning.sketch_size,
            SKETCH_SEED: planning.seed,
        }
        asked = {i: Request(model, config) for i in roster.ids.values()}
        named = {i: name for name, i in roster.ids.items()}
        heard = sort_answers(named, crew.ask("query", asked, terms.timeout_s), None)
        for node in heard.dropped:
            log.warning("node %r shows no sketch and is left out: %s", node.node, node.reason)
        silent, sketches = heard.dropped, dict(heard.used)
    nbytes = sum(array.nbytes for array in model.values())
    found, left_out = find_groups(planning, terms.schedule.tau2, roster, sketches, nbytes)
    return found, [*silent, *left_out]


def _round(terms: Terms, t: int) -> int:
    """Number of the global round that step t is in, from 1."""
    return -(-t // terms.schedule.cycle)


def _row(terms: Terms, scope: Event, done: Outcome, state: State) -> dict[str, Any]:
    faults = [node.fault for node in done.dropped]
    return {
        "t": state.t,
        "round": _round(terms, state.t),
        "event": str(scope),
        "counted": len(done.counted),
        **{fault: faults.count(fault) for fault in get_args(Fault)},
        "held": sum(not w for w in done.weights),  # groups that keep their model
        "dropped": [vars(node) for node in done.dropped],
        "groups": len(state.groups or [0]),
        **{f"train.{key}": value for key, value in done.metrics.items()},
    }
