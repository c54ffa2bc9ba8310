"""The first words of a plan: what to do, what that costs beside the rest, what would change it."""

from dataclasses import asdict
from typing import Any

from coterie.core.amounts import duration, size
from coterie.preview.advice import Advice, Change, Kind, Option
from coterie.render.page.html import Table
from coterie.simulation.search import METHODS

MOST_SERVERS = 3  # named
NAMES: dict[Kind, str] = {
    "fedavg": "FedAvg",
    "edges": "the network edges as groups",
    "groups": "searched groups",
}


def advice_tables(advice: Advice) -> list[Table]:
    """Write what to do, and what would change that."""
    return [_compared(advice), _changes(advice)]


def sentence(advice: Advice) -> str:
    """Say what to do in one sentence."""
    best, view = advice.best, advice.view
    what, when = best.what, schedule(best)
    if what.kind == "fedavg":
        return f"do not group: FedAvg, {when}"
    number = len(set(what.grouping.z.tolist()))
    servers = list(dict.fromkeys(view.node_name(int(at)) for at in what.grouping.servers))
    named = ", ".join(servers[:MOST_SERVERS])
    more = f" and {len(servers) - MOST_SERVERS} more" if len(servers) > MOST_SERVERS else ""
    edges = f"take the {number} network edges as groups"
    groups = edges if what.kind == "edges" else f"make {number} groups"
    return f"{groups}, served by {named}{more}; {when}"


def schedule(option: Option) -> str:
    """Say how often means are taken."""
    means = option.means
    return how_often(means.tau1, means.tau2, combined=option.what.combined)


def how_often(tau1: int, tau2: int, *, combined: bool) -> str:
    """Say how often means are taken.

    >>> how_often(5, 1, combined=False), how_often(1, 10, combined=True)
    ('a mean every 5 steps', 'a group mean every step, a global one every 10, models combined at \
edges')
    """
    steps = "every step" if tau1 == 1 else f"every {tau1} steps"
    how = ", models combined at edges" if combined else ""
    if tau2 == 1:
        return f"a mean {steps}{how}"
    return f"a group mean {steps}, a global one every {tau1 * tau2}{how}"


def settings(advice: Advice) -> str:
    """Write what to set for a run to be as advised, and to be at the target.

    A search without a name is left out, as are steps where those of the file will do.
    """
    what, means = advice.best.what, advice.best.means
    told: dict[str, object] = {"algorithm.tau1": means.tau1, "algorithm.tau2": means.tau2}
    told |= {"network.combine": "all" if what.combined else "none"}
    if what.kind == "groups":
        told |= {"algorithm.num_groups": len(what.grouping.servers)}
        if what.name in METHODS:
            told |= {"algorithm.grouping": what.name}
    else:
        told |= {"algorithm.name": "fedavg" if what.kind == "fedavg" else "hierfavg"}
    steps = advice.costs(advice.best).steps
    if steps != advice.steps:
        told |= {"train.steps": steps}
    return " ".join(f"--set {key}={value}" for key, value in told.items())


def _compared(advice: Advice) -> Table:
    best = advice.best.what.kind
    order: list[Kind] = [best, *(kind for kind in NAMES if kind != best)]
    rows = []
    for kind in (kind for kind in order if kind in advice.options):
        option, times = advice.options[kind], advice.times(kind)
        c, means = advice.costs(option), option.means
        local, together = str(means.tau1), str(means.tau1 * means.tau2)
        rows.append(
            (
                NAMES[kind] + (f", by {option.what.name}" if kind == "groups" else ""),
                f"{local}, {together}" if means.tau2 > 1 else local,
                "yes" if option.what.combined else "no",
                duration(c.round_s),
                f"{duration(c.target_s)} ({duration(c.low_s)} to {duration(c.high_s)})",
                size(c.day_bytes),
                size(c.target_bytes),
                "" if times is None else str(times),
            )
        )
    tier = advice.slow_tier
    head = (
        *("", "mean after\nsteps", "com-\nbined", "a round", "to the target"),
        *(f"{tier}\na day", "to the\ntarget", "times as long"),
    )
    foot = (
        f"target: the loss of {advice.steps:,} steps with a mean after each, estimated by label "
        "shares; means of groups, of all\n"
        f"{tier}: the slow tier, with rounds one after the other\n"
        f"as advised: {settings(advice)}"
    )
    return Table(f"In short: {sentence(advice)}", head, rows, foot, words=True)


def _changes(advice: Advice) -> Table:
    rows = [(change.what, _change(change)) for change in advice.changes]
    foot = "one thing at a time; groups stay as they are, schedules do not"
    return Table("What would change the answer", ("", ""), rows, foot, words=True)


def _change(change: Change) -> str:
    """Say by how much something must change for another answer.

    >>> _change(Change("skew", 0.5, "fedavg")), _change(Change("wan links' speed", 3.0, "edges"))
    ('0.5 times as much: FedAvg', '3 times as much: the network edges as groups')
    """
    if change.factor is None or change.kind is None:
        return "nothing that was tried does"
    return f"{change.factor:.3g} times as much: {NAMES[change.kind]}"


def plain_advice(advice: Advice) -> dict[str, Any]:
    """Return it as plain values."""
    return {
        "advice": sentence(advice),
        "settings": settings(advice),
        "kind": advice.best.what.kind,
        "slow_tier": advice.slow_tier,
        "target_steps": advice.steps,
        "options": {
            kind: {
                "groups": option.what.name,
                "combined": option.what.combined,
                "tau1": option.means.tau1,
                "tau2": option.means.tau2,
                **asdict(advice.costs(option)),
                "advised_is": None if (times := advice.times(kind)) is None else asdict(times),
            }
            for kind, option in advice.options.items()
        },
        "changes": [asdict(change) for change in advice.changes],
    }
