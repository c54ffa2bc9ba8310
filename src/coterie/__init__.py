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
    from coterie.grouping import Evidence, Grouping, with_servers
    from coterie.runs.execute import execute, simulate
    from coterie.runs.record import RecordedRun, read_run
    from coterie.simulation.row import Row
    from coterie.simulation.state import State

__all__ = [
    "Config",
    "CoterieError",
    "Dataset",
    "Evidence",
    "Grouping",
    "RecordedRun",
    "Row",
    "State",
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
    "Config": "config.settings",
    "CoterieError": "core.errors",
    "Dataset": "data",
    "Evidence": "grouping",
    "Grouping": "grouping",
    "RecordedRun": "runs.record",
    "Row": "simulation.row",
    "State": "simulation.state",
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
