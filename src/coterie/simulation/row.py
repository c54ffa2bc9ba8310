"""What a row of a run holds."""

from dataclasses import dataclass, field, fields
from typing import Any

from coterie.engine.contract import NodeScores


@dataclass(frozen=True)
class Row:
    """What one aggregation did; the measured ones are None where nothing was measured."""

    t: int
    epoch: float
    seconds: float
    event: str
    train_loss: float | None
    test_loss: float | None
    test_accuracy: float | None
    Delta: float | None
    delta: float | None
    group_sizes: list[int]
    bytes_by_tier: dict[str, int]
    counted: int = 0  # nodes whose models were averaged
    node_mean: float | None = None  # of the nodes' accuracies
    node_sd: float | None = None
    node_worst: float | None = None  # mean of the worst tenth
    node_loss: float | None = None  # mean of the nodes' losses, of a task without an accuracy
    by_class: list[float | None] | None = None  # accuracy; None of a class that is not tested
    metrics: dict[str, float | None] | None = None  # of the task, by name; None: not defined
    # Not in rows.jsonl: by_class wherever the test part was scored, and scores node by node.
    tested: list[float | None] | None = field(default=None, compare=False, repr=False)
    scores: NodeScores | None = field(default=None, compare=False, repr=False)


UNTOLD = ("metrics", "tested", "scores", "node_loss")
METRICS = "metrics."


def told(row: Row) -> dict[str, Any]:
    """Return what a line of rows.jsonl says: all but `tested` and `scores`, and each metric.

    The nodes' loss is there where it was measured alone.
    """
    said = {f.name: getattr(row, f.name) for f in fields(row) if f.name not in UNTOLD}
    nodes = {} if row.node_loss is None else {"node_loss": row.node_loss}
    return {**said, **nodes, **told_metrics(row)}


def told_metrics(row: Row) -> dict[str, float | None]:
    """Return the metrics of a row as lines and summaries say them, `metrics.auc` and so on."""
    return {f"{METRICS}{name}": value for name, value in (row.metrics or {}).items()}
