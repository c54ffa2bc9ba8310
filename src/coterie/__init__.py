"""Coterie: decide which devices should train together, and see what that does before deploying.

The names below are the public interface; each is loaded when it is first used, so that importing
the package does not import torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.comparison import compare
    from coterie.config import load_experiment, make_config
    from coterie.costs import divergence
    from coterie.data import Dataset
    from coterie.errors import CoterieError
    from coterie.experiment import execute, simulate
    from coterie.grouping import Evidence, Grouping, with_servers
    from coterie.record import RecordedRun, read_run
    from coterie.run import Row, State
    from coterie.sections import Config

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
    "Config": "sections",
    "CoterieError": "errors",
    "Dataset": "data",
    "Evidence": "grouping",
    "Grouping": "grouping",
    "RecordedRun": "record",
    "Row": "run",
    "State": "run",
    "compare": "comparison",
    "divergence": "costs",
    "execute": "experiment",
    "load_experiment": "config",
    "make_config": "config",
    "read_run": "record",
    "simulate": "experiment",
    "with_servers": "grouping",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    return getattr(importlib.import_module(f"coterie.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
