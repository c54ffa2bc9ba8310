"""Coterie: decide which devices should train together, and see what that does before deploying.

The names below are the public interface; each is loaded when it is first used, so that importing
the package does not import torch.
"""

import importlib
from typing import TYPE_CHECKING

from coterie import _moved

if TYPE_CHECKING:
    from coterie.analysis.compare import compare
    from coterie.config.files import load_experiment, make_config
    from coterie.config.settings import Config
    from coterie.core.errors import CoterieError
    from coterie.data import Dataset
    from coterie.divergences.gram import divergence
    from coterie.engine.update import Arrays, At, Kept, Mean, Pull, Update
    from coterie.grouping import Evidence, Grouping, with_servers
    from coterie.runs.execute import execute, simulate
    from coterie.runs.record import RecordedRun, read_run
    from coterie.simulation.algorithm import Algorithm
    from coterie.simulation.row import Row
    from coterie.simulation.state import State

__all__ = [
    "Algorithm",
    "Arrays",
    "At",
    "Config",
    "CoterieError",
    "Dataset",
    "Evidence",
    "Grouping",
    "Kept",
    "Mean",
    "Pull",
    "RecordedRun",
    "Row",
    "State",
    "Update",
    "compare",
    "divergence",
    "execute",
    "load_experiment",
    "make_config",
    "read_run",
    "simulate",
    "with_servers",
]

_HOME = {
    "Algorithm": "simulation.algorithm",
    "Arrays": "engine.update",
    "At": "engine.update",
    "Config": "config.settings",
    "CoterieError": "core.errors",
    "Dataset": "data",
    "Evidence": "grouping",
    "Grouping": "grouping",
    "Kept": "engine.update",
    "Mean": "engine.update",
    "Pull": "engine.update",
    "RecordedRun": "runs.record",
    "Row": "simulation.row",
    "State": "simulation.state",
    "Update": "engine.update",
    "compare": "analysis.compare",
    "divergence": "divergences.gram",
    "execute": "runs.execute",
    "load_experiment": "config.files",
    "make_config": "config.files",
    "read_run": "runs.record",
    "simulate": "runs.execute",
    "with_servers": "grouping",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    return getattr(importlib.import_module(f"coterie.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__


_moved.install()
