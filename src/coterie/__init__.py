"""Coterie: decide which devices should train together, and see what that does before deploying.

The names below are the public interface; each is loaded when it is first used, so that importing
the package does not import torch.
"""

import importlib
from typing import TYPE_CHECKING

from coterie import _moved

if TYPE_CHECKING:
    from coterie.config.files import load_experiment, make_config
    from coterie.config.settings import Config
    from coterie.core.errors import CoterieError
    from coterie.data import Dataset
    from coterie.divergences.gram import divergence
    from coterie.engine.contract import Models
    from coterie.engine.task import TASKS, Task
    from coterie.engine.update import Arrays, At, Kept, Mean, Pull, Update
    from coterie.grouping import Evidence, Grouping, with_servers
    from coterie.notebook.compare import Comparison, compare
    from coterie.notebook.plan import FleetPlan, plan
    from coterie.notebook.run import Run, read_run, run
    from coterie.runs.execute import execute, simulate
    from coterie.runs.record import RecordedRun
    from coterie.simulation.algorithm import Algorithm
    from coterie.simulation.fleet import Averaging
    from coterie.simulation.policies import Policy
    from coterie.simulation.policies.given import begun
    from coterie.simulation.problem import Problem
    from coterie.simulation.row import Row
    from coterie.simulation.state import Plan, State, Turn

__all__ = [
    "TASKS",
    "Algorithm",
    "Arrays",
    "At",
    "Averaging",
    "Comparison",
    "Config",
    "CoterieError",
    "Dataset",
    "Evidence",
    "FleetPlan",
    "Grouping",
    "Kept",
    "Mean",
    "Models",
    "Plan",
    "Policy",
    "Problem",
    "Pull",
    "RecordedRun",
    "Row",
    "Run",
    "State",
    "Task",
    "Turn",
    "Update",
    "begun",
    "compare",
    "divergence",
    "execute",
    "load_experiment",
    "make_config",
    "plan",
    "read_run",
    "run",
    "simulate",
    "with_servers",
]

_HOME = {
    "Algorithm": "simulation.algorithm",
    "Arrays": "engine.update",
    "At": "engine.update",
    "Averaging": "simulation.fleet",
    "Comparison": "notebook.compare",
    "Config": "config.settings",
    "CoterieError": "core.errors",
    "Dataset": "data",
    "Evidence": "grouping",
    "FleetPlan": "notebook.plan",
    "Grouping": "grouping",
    "Kept": "engine.update",
    "Mean": "engine.update",
    "Models": "engine.contract",
    "Plan": "simulation.state",
    "Policy": "simulation.policies",
    "Problem": "simulation.problem",
    "Pull": "engine.update",
    "RecordedRun": "runs.record",
    "Row": "simulation.row",
    "Run": "notebook.run",
    "State": "simulation.state",
    "TASKS": "engine.task",
    "Task": "engine.task",
    "Turn": "simulation.state",
    "Update": "engine.update",
    "begun": "simulation.policies.given",
    "compare": "notebook.compare",
    "divergence": "divergences.gram",
    "execute": "runs.execute",
    "load_experiment": "config.files",
    "make_config": "config.files",
    "plan": "notebook.plan",
    "read_run": "notebook.run",
    "run": "notebook.run",
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
