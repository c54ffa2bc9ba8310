"""Who should train with whom, as a value: all that `coterie plan` says."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coterie.config.files import dotted
from coterie.config.objects import Experiment, OwnDataset, configured
from coterie.core.arguments import NUMBER, PATH, SECONDS, TEXTS, Rule, check, renamed
from coterie.core.errors import ConfigError, short
from coterie.core.units import MOST_MODEL_BYTES, quantity
from coterie.notebook.frames import frame
from coterie.notebook.shown import html, seen, text
from coterie.preview.auto_plan import soonest
from coterie.preview.from_labels import plans_by_labels
from coterie.preview.plan import PlanView, plans
from coterie.preview.planfile.writing import check_suffix, contents, plan_of
from coterie.render.page.html import Table, write
from coterie.render.page.plan import plan_figure, plan_page
from coterie.render.page.plan_tables import as_csv, plain, tables

if TYPE_CHECKING:
    from coterie.config.objects import OwnModel
    from coterie.core.arrays import Ints


NOISE = Rule("a number from 1e-9 to 1e9", lambda v: NUMBER.holds(v) and 1e-9 <= v <= 1e9)


@dataclass(frozen=True, eq=False, repr=False)
class FleetPlan:
    """Who should train with whom, and what it costs: what `coterie plan` computes.

    `view` has all of it: every way to group that was tried, the front, and what was chosen.
    """

    view: PlanView

    @property
    def z(self) -> "Ints":
        """The group of every node [n]."""
        return self.view.chosen.grouping.z

    @property
    def servers(self) -> list[str]:
        """The name of every group's server."""
        return [self.view.node_name(int(v)) for v in self.view.chosen.grouping.servers]

    @property
    def tables(self) -> list[Table]:
        """The tables that the command prints."""
        return tables(self.view)

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values, as `coterie plan --json` prints it."""
        return plain(self.view)

    def columns(self) -> dict[str, list[Any]]:
        """Return the chosen groups as columns: node, group, server, in the order of the nodes."""
        z = self.z.tolist()
        return {
            "node": [self.view.node_name(i) for i in range(len(z))],
            "group": z,
            "server": [self.servers[k] for k in z],
        }

    def frame(self) -> Any:
        """Return the chosen groups as a DataFrame of pandas, else of polars."""
        return frame(self.columns())

    def plot(self) -> Any:
        """Draw every way to group that was tried, Delta against the time of a group mean."""
        return seen(partial(plan_figure, self.view), "groups")

    def save(self, file: str | Path) -> None:
        """Write the chosen groups as a CSV: node, group, server."""
        check(PATH, file=file)
        write(Path(file), as_csv(self.view))

    def export(self, file: str | Path) -> None:
        """Write the plan for other systems, .json or .csv: groups, servers, schedule, times."""
        check(PATH, file=file)
        with renamed({"--export": "file"}):
            check_suffix(Path(file))
        write(Path(file), contents(plan_of(self.view), Path(file).suffix))

    def __repr__(self) -> str:
        """Write the tables."""
        return text(self.tables)

    def _repr_html_(self) -> str:
        """Write the tables and draw the figure."""
        return html(plan_page(self.view, self.tables).sections)


def plan(
    experiment: Experiment = {},  # noqa: B006 - which nothing changes
    *,
    nodes: str | Path | None = None,
    network: str | Path | None = None,
    model_bytes: int | str | None = None,
    dataset: OwnDataset | str | None = None,
    model: "OwnModel | str | None" = None,
    methods: Sequence[str] = (),
    budget_s: float | None = None,
    by: Literal["cost", "time"] = "cost",
    keep_regions: bool = False,
    epsilon: float | None = None,
) -> FleetPlan:
    """Say who should train with whom: in an experiment, before it is trained, or in a fleet.

    An experiment is a config, settings as a mapping, a file, or the name of one that ships. A fleet
    is a file of `nodes` with their label counts, a file of their `network`, and `model_bytes`, such
    as "5MB"; settings are then a mapping of what `coterie plan --nodes` takes by --set.

    >>> settings = {"partition": {"kind": "iid", "num_nodes": 4}, "algorithm": {"num_groups": 2}}
    >>> plan(settings, methods=["edge"]).columns()["node"]
    ['0', '1', '2', '3']
    """
    if by not in ("cost", "time"):
        raise ConfigError(f"by must be 'cost' or 'time', got {by!r}")
    if isinstance(methods, str):
        methods = tuple(name.strip() for name in methods.split(","))
    check(TEXTS, methods=methods)
    check(SECONDS.or_none, budget_s=budget_s)
    check(NOISE.or_none, epsilon=epsilon)
    check(PATH.or_none, nodes=nodes, network=network)
    more: dict[str, Any] = {"methods": methods, "budget_s": budget_s}
    fleet = {"nodes": nodes, "network": network, "model_bytes": model_bytes}
    given = [what for what, value in fleet.items() if value is not None]
    if not given:
        if keep_regions or epsilon is not None:
            raise ConfigError(f"{'keep_regions' if keep_regions else 'epsilon'} needs nodes")
        config, own = configured(experiment, dataset=dataset, model=model)
        view = plans([config], own=own, **more)
    else:
        if nodes is None or network is None or model_bytes is None:
            lacks = " and ".join(what for what in fleet if what not in given)
            raise ConfigError(f"a fleet is nodes, network, model_bytes; {lacks} must be given too")
        if not isinstance(experiment, Mapping) or dataset is not None or model is not None:
            raise ConfigError(
                "a fleet goes with settings as a mapping alone, and with no dataset or model"
            )
        view = plans_by_labels(
            Path(nodes),
            Path(network),
            _bytes(model_bytes),
            [f"{key}={_as_set(key, v)}" for key, v in dotted(dict(experiment)).items()],
            keep_regions=keep_regions,
            epsilon=epsilon,
            **more,
        )
    return FleetPlan(soonest(view) if by == "time" else view)


def _as_set(key: str, value: object) -> str:
    """Write a setting as --set takes it.

    >>> _as_set("seed", 3), _as_set("algorithm.capacity_file", Path("room.csv"))
    ('3', '"room.csv"')
    """
    try:
        return json.dumps(str(value) if isinstance(value, Path) else value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key} must be a plain value, got {short(value)}") from error


def _bytes(size: int | str) -> int:
    """Read the size of a model.

    >>> _bytes("5MB"), _bytes(1476392)
    (5000000, 1476392)
    """
    try:
        number = quantity(str(size), "size")
    except ValueError as error:
        raise ConfigError(f"model_bytes {error}") from error
    if not (np.isfinite(number) and 0 < number <= MOST_MODEL_BYTES and number == round(number)):
        raise ConfigError(
            f"model_bytes must be whole bytes above 0 and at most {MOST_MODEL_BYTES:,}, "
            f"got {size!r}"
        )
    return round(number)
