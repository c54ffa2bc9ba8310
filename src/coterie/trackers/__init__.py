"""Runs in other programs' dashboards: TensorBoard, MLflow, Weights & Biases, or your own.

What is sent is read from the run's folder, so that a run can be sent while it is under way, later,
or again, and nothing is sent twice.
"""

from coterie.trackers.follow import Follower
from coterie.trackers.process import Beside, beside
from coterie.trackers.targets import Target, TrackingError, parse_target, remembered, usable

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
