"""Import paths of the version before, for one release: they work, and say where things are now."""

import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "algorithms": "simulation.algorithms",
    "aligned": "analysis.align",
    "attendance": "simulation.participation",
    "build": "config.factories",
    "bylabels": "preview.from_labels",
    "checkpoint": "runs.checkpoint",
    "clock": "simulation.clock",
    "cluster": "engine.ray.cluster",
    "comparison": "analysis.compare",
    "costs": "divergences.gram",
    "errors": "core.errors",
    "experiment": "runs.execute",
    "explained": "preview.schedule",
    "export": "analysis.export",
    "figures": "render.figures",
    "imports": "core.plugins",
    "looks": "analysis.palette",
    "netview": "preview.network",
    "parquet": "core.parquet",
    "planfile": "preview.planfile",
    "planning": "simulation.planning",
    "planview": "preview.plan",
    "prepare": "config.prepare",
    "pricing": "preview.pricing",
    "problem": "simulation.problem",
    "provenance": "runs.provenance",
    "readback": "runs.validate",
    "record": "runs.record",
    "report": "render.page",
    "reproduction": "paper",
    "retime": "runs.retime",
    "schedule": "simulation.schedule",
    "schema": "config.schema",
    "sections": "config.settings",
    "selection": "analysis.rank",
    "sketch": "divergences.sketch",
    "steering": "simulation.policies.pilot",
    "straying": "theory.measure",
    "survey": "preview.data",
    "sweep": "runs.sweep",
    "table": "analysis.format",
    "tracking": "trackers",
    "tuning": "simulation.forecast",
    "watch": "render.watch",
    "engine.batching": "engine.kernels.batching",
    "engine.calibrate": "engine.kernels.calibrate",
    "engine.crew": "engine.ray.actors",
    "report.curves": "render.page.curve_data",
    "engine.dense": "engine.kernels.dense",
    "engine.gauge": "engine.gradients",
    "engine.kernel": "engine.kernels",
    "engine.shard": "engine.ray.worker",
    "engine.sharded": "engine.ray.engine",
    "engine.single": "engine.kernels.single",
    "engine.stacked": "engine.kernels.stacked",
    "engine.team": "engine.threads",
    "flower.crew": "flower.messages",
    "flower.roll": "flower.roster",
    "grouping.few": "grouping.small_search",
    "grouping.seats": "grouping.servers",
    "grouping.ways": "grouping.path_costs",
    "network.flow": "network.flows",
    "network.pattern": "network.collectives",
    "network.sharing": "network.max_min",
    "topology.order": "topology.by_name",
}


class Finder(Loader):
    """Finds what has moved under its old name."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for old names alone."""
        return ModuleSpec(name, Finder(), is_package=True) if new_name(name) else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make an empty module."""

    def exec_module(self, module: ModuleType) -> None:
        """Put into it what the module has under its new name."""
        new = new_name(module.__name__)
        warned(module.__name__, new)
        there = vars(importlib.import_module(new))
        vars(module).update({k: v for k, v in there.items() if not k.startswith("__")})


def new_name(old: str) -> str:
    """Return where a module is now, "" if it has not moved.

    >>> new_name("coterie.build"), new_name("coterie.sweep.jobs"), new_name("coterie.cli")
    ('coterie.config.factories', 'coterie.runs.sweep.jobs', '')
    """
    parts = old.split(".")
    for end in range(len(parts), 1, -1):
        head = ".".join(parts[1:end])
        if parts[0] == "coterie" and head in MOVED:
            return ".".join(["coterie", MOVED[head], *parts[end:]])
    return ""


def warned(old: str, new: str) -> None:
    """Say where something is now."""
    said = f"{old} is now {new}; the old name goes with the next release"
    level, frame = 1, sys._getframe()
    while frame and frame.f_code.co_filename.startswith((__file__, "<frozen importlib")):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(said, FutureWarning, stacklevel=level)


def forward(package: str, names: Mapping[str, str], name: str) -> object:
    """Return what a package had under a name before, for its `__getattr__`."""
    if name not in names:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    warned(f"{package}.{name}", f"{names[name]}.{name}")
    return getattr(importlib.import_module(names[name]), name)


def install() -> None:
    """Let old names be found, after all others."""
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
