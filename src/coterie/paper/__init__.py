"""The paper's tables and figures: which experiment file each is, and how it is judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.paper import curves, relations, transfers
from coterie.paper.coverage import not_run
from coterie.paper.decomposition import (
    at_printed_seconds,
    decomposed,
    free_group_means,
    to_printed,
    within_reach,
)
from coterie.paper.efficiency import efficiency
from coterie.paper.runs import Runs
from coterie.paper.tables import Dots, Table, markdown, narrow
from coterie.runs.record import RecordedRun

__all__ = [
    "REPRODUCTIONS",
    "Dots",
    "Reproduction",
    "Table",
    "judge",
    "markdown",
    "narrow",
    "not_run",
]


def _efficiency(runs: Runs) -> list[Table]:
    more = (
        *(at_printed_seconds, to_printed, free_group_means, decomposed, within_reach),
        relations.of_printed_cells,
    )
    return [*efficiency(runs), *(table for make in more for table in make(runs))]


def _with(
    tables: Callable[[Runs], list[Table]], relation: Callable[[Runs], list[Table]]
) -> Callable[[Runs], list[Table]]:
    return lambda runs: [*tables(runs), *relation(runs)]


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of the paper: what it is, and what is made of its runs."""

    about: str
    tables: Callable[[Runs], list[Table]]


REPRODUCTIONS = {
    "efficiency": Reproduction("seconds to FedAvg's accuracy: the table", _efficiency),
    "accuracy": Reproduction(
        "accuracy by time and by epoch, four datasets",
        _with(curves.accuracies, relations.of_curves),
    ),
    "costs": Reproduction("what groups cost, in divergence and transfers", transfers.costs),
    "combined": Reproduction("the effect of combined aggregation", transfers.combined),
    "learning-steps": Reproduction(
        "5 and 25 steps between global means",
        _with(curves.learning_steps, relations.learning_steps),
    ),
    "speeds": Reproduction(
        "links, processors and topologies", _with(transfers.speeds, relations.topologies)
    ),
    "distributions": Reproduction("how unequal nodes are", curves.distributions),
    "diversities": Reproduction(
        "six kinds of skew, four datasets", _with(curves.diversities, relations.of_curves)
    ),
    "group-counts": Reproduction("2 to 30 groups", transfers.group_counts),
    "node-counts": Reproduction("100 to 300 nodes", transfers.node_counts),
}


def judge(name: str, runs: Sequence[RecordedRun]) -> list[Table]:
    """Set what the paper says beside what complete runs have measured."""
    whole = tuple(run for run in runs if run.summary["status"] == "complete")
    return REPRODUCTIONS[name].tables(Runs(whole)) if whole else []
