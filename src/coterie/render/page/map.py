"""The map of where groups pay: a field for every spot, and where a plan is among them."""

import math
from collections.abc import Sequence
from typing import Any

from coterie.preview.map import Here, Spot
from coterie.render.page.html import Table

SHOWN = 4  # nodes per edge of the spots that are drawn, but for a plan that is among others
WIDEST = 4.0  # times as fast, where the colours end
TITLES = {"edge-cloud": "edges and cloud serve", "fat-tree": "members serve (fat tree)"}
NAMES = {
    "hierfavg": "edges",
    "hierfavg+combined": "edges",
    "random": "random",
    "random+combined": "random",
    "coterie": "searched",
    "coterie+combined": "searched",
    "fedavg": "FedAvg",
    "either": "either",
}


def here_table(place: Here) -> Table:
    """Write where a plan is on the map, and what was first at the nearest spot."""
    spot = place.spot
    rows = [
        ("a mean of all takes", f"{place.wait:.3g} times", f"{spot.wait:.3g} times"),
        ("nodes' label shares differ by", f"{place.nodes_emd:.2f}", f"{spot.nodes_emd:.2f}"),
        ("edges' label shares differ by", f"{place.edges_emd:.2f}", f"{spot.edges_emd:.2f}"),
    ]
    if not place.near:
        title = "off the map: nothing like it was measured"
    else:
        title = f"On the map of measured fleets, the nearest: {spot.skew}, {_first(spot)}"
    foot = (
        "times: as long as a mean of the edges; label shares: distance from all nodes', 0 to 2\n"
        "docs/explanation/when-groups-pay.md says what was measured"
    )
    return Table(title, ("", "here", "nearest"), rows, foot)


def _first(spot: Spot) -> str:
    """Say who was first at a spot.

    >>> spot = Spot("alike", "31 kB", 4, "fat-tree", 1.0, 2.0, 0.0, 0.0, "coterie", 0.5, 0.4, 0.6)
    >>> _first(spot)
    'FedAvg first by 2.0x'
    """
    return _words(spot).replace("\n", " first by ") if spot.told else "either is as fast"


def map_figure(spots: Sequence[Spot], here: Here | None = None) -> Any:
    """Draw a panel for every network and size of a model: skew by how slow the slow tier is."""
    from matplotlib.figure import Figure

    per_edge = SHOWN if here is None else here.spot.per_edge
    drawn = [spot for spot in spots if spot.per_edge == per_edge]
    panels = list(dict.fromkeys((spot.model, spot.network) for spot in drawn))
    models = list(dict.fromkeys(model for model, _ in panels))
    networks = list(dict.fromkeys(network for _, network in panels))
    figure = Figure(figsize=(11, 1.2 + 2.6 * len(models)), layout="constrained")
    axes = figure.subplots(len(models), len(networks), squeeze=False, sharex=True, sharey=True)
    image = None
    for row, model in enumerate(models):
        for column, network in enumerate(networks):
            own = [s for s in drawn if (s.model, s.network) == (model, network)]
            image = _panel(axes[row][column], own, here)
            title = f"{TITLES.get(network, network)}, model of {model}"
            axes[row][column].set_title(title, fontsize=9, loc="left")
    for axis in axes[-1]:
        axis.set_xlabel("a node's own link is so many times as fast as the edges'", fontsize=8)
    if image is not None:
        _scale(figure, image, axes)
    return figure


def _panel(axis: Any, own: Sequence[Spot], here: Here | None) -> Any:
    import numpy as np

    skews = list(dict.fromkeys(spot.skew for spot in own))
    ratios = sorted({spot.ratio for spot in own})
    values = np.full((len(skews), len(ratios)), np.nan)
    end = math.log2(WIDEST)
    for spot in own:
        at = skews.index(spot.skew), ratios.index(spot.ratio)
        log = (
            math.log2(spot.times)
            if 0 < spot.times < math.inf
            else math.copysign(end, spot.times - 1)
        )
        values[at] = log if spot.told else 0.0
        dark = abs(values[at]) > 0.7 * end
        look = {"ha": "center", "va": "center", "fontsize": 7.5, "parse_math": False}
        axis.text(at[1], at[0], _words(spot), color="white" if dark else "black", **look)
        if here is not None and spot == here.spot:
            axis.plot(at[1], at[0], "o", markersize=46, markerfacecolor="none", color="#D55E00")
            axis.text(at[1], at[0] + 0.42, "you are here", ha="center", fontsize=7, color="#D55E00")
    axis.set_xticks(range(len(ratios)), [f"{ratio:g}" for ratio in ratios], fontsize=8)
    axis.set_yticks(range(len(skews)), skews, fontsize=8)
    return axis.imshow(values, cmap="PuOr_r", vmin=-end, vmax=end, aspect="auto")


def _words(spot: Spot) -> str:
    """Say who is first, and how many times as fast as the other side.

    >>> spot = Spot("alike", "31 kB", 4, "fat-tree", 1.0, 2.0, 0.0, 0.0, "coterie", 0.5, 0.4, 0.6)
    >>> _words(spot)
    'FedAvg\\n2.0x'
    """
    if not spot.told:
        return "either"
    times = spot.times if spot.times > 1 else 1 / spot.times if spot.times else math.inf
    much = f"{times:.1f}x" if math.isfinite(times) else "alone"
    return f"{NAMES.get(spot.best, spot.best)}\n{much}"


def _scale(figure: Any, image: Any, axes: Any) -> None:
    bar = figure.colorbar(image, ax=axes, pad=0.01, extend="both")
    ticks = [-2, -1, 0, 1, 2]
    bar.set_ticks(ticks, labels=["4x", "2x", "even", "2x", "4x"])
    bar.ax.tick_params(labelsize=7)
    bar.set_label("FedAvg is first          groups are first", fontsize=8)
