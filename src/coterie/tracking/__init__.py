"""Runs in other programs' dashboards: TensorBoard, MLflow, Weights & Biases, or your own.

What is sent is read from the run's folder, so that a run can be sent while it is under way, later,
or again, and nothing is sent twice.
"""

from coterie.tracking.beside import Beside, beside
from coterie.tracking.follow import Follower
from coterie.tracking.targets import (
    Target,
    TrackingError,
    parse_target,
    remembered,
    usable,
)

__all__ = [
    "Beside",
    "Follower",
    "Target",
    "TrackingError",
    "beside",
    "parse_target",
    "remembered",
    "usable",
]
