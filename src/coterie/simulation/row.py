"""What a row of a run holds."""

from dataclasses import dataclass


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
