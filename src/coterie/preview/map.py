"""Where groups pay, as far as it was measured, and where on that map a plan is.

`benchmarks/map/measure.py` measured it, and `benchmarks/map/tables.py` wrote map.csv. A spot is a
skew, a model's size, a number of nodes per edge, and a network; what tells spots apart are things
that a plan knows of any fleet: who serves, how much longer a mean of all takes than one of the
edges, and how unlike nodes and edges are by their labels.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from coterie.partition.measure import emd, pooled
from coterie.preview.advice import Advice
from coterie.preview.plan import PlanView

FILE = Path(__file__).with_name("map.csv")
NUMBERS = ("ratio", "wait", "nodes_emd", "edges_emd", "times", "low", "high")
FAR = 1.0  # distance from where a plan is off the map


@dataclass(frozen=True)
class Spot:
    """A place of the map, and how many times as fast as FedAvg the best groups are there.

    The interval covers 95% over seeds. 0 is never at the target, and infinity FedAvg never.
    """

    skew: str
    model: str
    per_edge: int
    network: str
    ratio: float
    wait: float  # seconds of a mean of all over those of a mean of the edges
    nodes_emd: float
    edges_emd: float
    groups: str  # the best that groups
    times: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether the difference is outside the noise."""
        return not self.low <= 1 <= self.high

    @property
    def best(self) -> str:
        """What is first here; neither, where it is not told."""
        if not self.told:
            return "either"
        return self.groups if self.times > 1 else "fedavg"


@dataclass(frozen=True)
class Here:
    """Where a plan is, and the spot that is nearest."""

    spot: Spot
    wait: float
    nodes_emd: float
    edges_emd: float
    distance: float

    @property
    def near(self) -> bool:
        """Whether the spot says anything of the plan."""
        return self.distance <= FAR


@cache
def spots() -> tuple[Spot, ...]:
    """Read the map."""
    if not FILE.exists():
        return ()
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(_spot(row) for row in csv.DictReader(file))


def _spot(row: dict[str, str]) -> Spot:
    number = {name: float(row[name]) for name in NUMBERS}
    return Spot(
        skew=row["skew"],
        model=row["model"],
        per_edge=int(row["per_edge"]),
        network=row["network"],
        groups=row["groups"],
        **number,
    )


def here(view: PlanView, among: Sequence[Spot] | None = None) -> Here | None:
    """Find a plan on the map; None where its edges are not known, or all there is.

    Distance is the natural logarithm of the ratio of waits, and the distance of label shares.
    """
    options = Advice(view).candidates(view.network)
    edges_s = [each.group_s for each in options if each.kind == "edges"]
    global_s = min(each.global_s for each in options)
    if not edges_s or not min(edges_s) or not global_s:
        return None
    fleet = view.fleet
    network = "edge-cloud" if fleet.network.topology.places else "fat-tree"
    wait = global_s / min(edges_s)
    nodes = float(emd(fleet.class_counts).mean())
    edges = float(emd(pooled(fleet.class_counts, fleet.edge_of)).mean())

    def distance(spot: Spot) -> float:
        labels = np.hypot(spot.nodes_emd - nodes, spot.edges_emd - edges)
        return float(np.hypot(math.log(spot.wait / wait), labels))

    known = [spot for spot in (spots() if among is None else among) if spot.network == network]
    if not known:
        return None
    nearest = min(known, key=distance)
    return Here(nearest, wait, nodes, edges, distance(nearest))
