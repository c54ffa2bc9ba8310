"""Pictures of a network: who is averaged with whom, which links that fills, who comes last."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.analysis.format import number
from coterie.core.arrays import Floats, Ints
from coterie.grouping import Grouping
from coterie.preview.network import Mean, Member, NetworkView
from coterie.render.page.html import Page, Section, Table, plain_log_x
from coterie.topology import Topology

# Krzywinski's twelve colours, told apart with any colour vision; more groups take a colour scale.
PALETTE = (
    *("#008DF9", "#FF6E3A", "#009F81", "#A40122", "#FFC33B", "#8400CD"),
    *("#00FCCF", "#FF5AAF", "#9F0162", "#00C2F9", "#FFB2FD", "#E20134"),
)
MOST_NAMED = 30  # vertices
MOST_UNUSED = 20_000  # links drawn that carry nothing
MOST_SOLVED = 1500  # switches of a layout that compares all pairs


def network_page(views: Sequence[NetworkView], tables: Sequence[Sequence[Table]]) -> Page:
    """Show what the means of every experiment do to its network."""
    alt = "Groups and loads in the network, and the arrivals of flows"
    sections = [
        Section(of_view, partial(view_figure, view), alt, view.title)
        for view, of_view in zip(views, tables, strict=True)
    ]
    return Page("Coterie: the network", sections)


def view_figure(view: NetworkView) -> Any:
    """Draw for every algorithm the network with its groups and loads, and when flows arrive."""
    from matplotlib.figure import Figure

    rows = len(view.members)
    figure = Figure(figsize=(11, 4.4 * rows), layout="constrained")
    axes: Any = figure.subplots(rows, 2, squeeze=False, width_ratios=[2.2, 1])
    at = layout(view.config.topology, view.topology)
    for member, (left, right) in zip(view.members, axes, strict=True):
        _draw_network(left, view, member, at)
        _draw_arrivals(right, member)
    return figure


def map_of(view: NetworkView) -> Any:
    """Draw the network of the first algorithm alone, small, with its groups and loads."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    at = layout(view.config.topology, view.topology)
    _draw_network(figure.subplots(), view, view.members[0], at)
    return figure


def _draw_network(axis: Any, view: NetworkView, member: Member, at: Floats) -> None:
    net, grouping = view.topology, member.grouping
    n, K = net.n_devices, len(grouping.servers)
    load = (member.group or member.everyone).load
    _draw_links(axis, net, load, at)
    colours = _colours(K)
    size = float(np.clip(2500 / n, 3, 60))
    axis.scatter(*at[n:].T, s=0.5 * size, c="#444444", marker="s", linewidths=0, zorder=3)
    axis.scatter(*at[:n].T, s=size, c=colours[grouping.z], linewidths=0, zorder=4)
    star = {"marker": "*", "edgecolors": "black", "linewidths": 0.5, "zorder": 5}
    axis.scatter(*at[grouping.servers].T, s=np.clip(2000 / K, 15, 160), c=colours, **star)
    if net.n_vertices <= MOST_NAMED:
        _draw_names(axis, net, at)
    if K <= len(PALETTE):
        _draw_legend(axis, net, grouping, colours)
    what = f"{K} groups" if member.group else "all together"
    said = f"width is payload, at most {number(float(load.max()), 1e-6)} MB on a link"
    axis.set_title(f"{member.label}: {what}; {said}", fontsize=9, parse_math=False)
    axis.margins(0.05)
    axis.set_axis_off()
    if not view.config.topology.endswith("fat-tree"):
        axis.set_aspect("equal")


def _draw_links(axis: Any, net: Topology, load: Ints, at: Floats) -> None:
    """Draw links as wide as their load: the heaviest last, and thinner where many are heavy."""
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection

    part = load / max(int(load.max()), 1)
    unused, order = int((load == 0).sum()), np.argsort(load, kind="stable")
    if unused > MOST_UNUSED:
        order = order[unused:]
    widest = np.clip(60 / max((part > 0.4).sum(), 1), 0.5, 4.5)
    width = np.where(part > 0, 0.3 + widest * part, np.clip(400 / max(unused, 1), 0.1, 0.4))
    grey = colormaps["Greys"](np.where(part > 0, 0.4 + 0.45 * part, 0.15))
    lines: Any = at[net.ends[order]]  # [., 2, 2]
    drawn = LineCollection(lines, colors=grey[order], linewidths=width[order], zorder=2)
    axis.add_collection(drawn)


def _draw_names(axis: Any, net: Topology, at: Floats) -> None:
    """Write names: of a device on the far side of its switch, of a switch below it."""
    n = net.n_devices
    away = np.concatenate([at[:n] - at[n + net.switch_of], np.tile([0, -1.0], (net.n_switches, 1))])
    away /= np.maximum(np.hypot(*away.T), 1e-9)[:, None]
    for vertex, (x, y) in enumerate(away):
        across = "center" if abs(x) < 0.5 else "left" if x > 0 else "right"
        up = "center" if abs(y) < 0.5 else "bottom" if y > 0 else "top"
        offset = {"xytext": (7 * x, 7 * y), "textcoords": "offset points", "ha": across, "va": up}
        axis.annotate(net.name(vertex), at[vertex], **offset, fontsize=6, parse_math=False)


def _draw_legend(axis: Any, net: Topology, grouping: Grouping, colours: NDArray[Any]) -> None:
    from matplotlib.lines import Line2D

    stars = [Line2D([], [], linestyle="", marker="*", color=c, markersize=8) for c in colours]
    groups = zip(grouping.servers, grouping.sizes, strict=True)
    labels = [f"{net.name(int(server))}, {size}" for server, size in groups]
    small = {"fontsize": 7, "title_fontsize": 7, "frameon": False, "handletextpad": 0.1}
    where = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), **small}
    for text in axis.legend(stars, labels, title="server, nodes", **where).get_texts():
        text.set_parse_math(False)


def _colours(K: int) -> NDArray[Any]:
    from matplotlib import colormaps
    from matplotlib.colors import to_rgba_array

    if K <= len(PALETTE):
        return np.asarray(to_rgba_array(PALETTE[:K]))
    return np.asarray(colormaps["viridis"](np.linspace(0, 1, K)))


def _draw_arrivals(axis: Any, member: Member) -> None:
    """Draw the share of flows that have arrived by a time, from the start of their way."""
    means = ("group", member.group, "#0072B2"), ("global", member.everyone, "#D55E00")
    last = []
    for name, mean, colour in means:
        for way, dash in (("up", "-"), ("down", "--")):
            ms = _arrivals(mean, way) if mean else np.zeros(0)
            if len(ms):
                last.append(ms[-1])
                share = 100 * np.arange(len(ms) + 1) / len(ms)
                line = {"c": colour, "label": f"{name} {way}", "where": "post"}
                axis.step([ms[0], *ms], share, dash, **line)
    axis.set_title("Flows that have arrived" if last else "Nothing is sent", fontsize=9)
    axis.set_xlabel("ms since the models, or their means, were sent", fontsize=8)
    axis.set_ylabel("% of flows", fontsize=8)
    axis.tick_params(which="both", labelsize=7)
    axis.grid(alpha=0.25)
    if last and max(last) > 8 * min(last):
        plain_log_x(axis)
    elif last:
        axis.set_xlim(0, 1.04 * max(last))
    if last:
        axis.legend(fontsize=7, frameon=False, loc="best")
    else:
        axis.set_axis_off()


def _arrivals(mean: Mean, way: str) -> Floats:
    """Milliseconds from the start of a way, whose phases follow each other, sorted."""
    begin, found = 0.0, [np.zeros(0)]
    for phase in mean.up if way == "up" else mean.down:
        found.append(begin + phase.arrived_s)
        begin += phase.seconds
    return 1e3 * np.sort(np.concatenate(found))


def layout(kind: str, topology: Topology) -> Floats:
    """Find a place for every vertex [n + S, 2]."""
    if kind.endswith("fat-tree"):
        return _layers(topology)
    if kind in ("waxman", "file") and topology.n_switches <= MOST_SOLVED:
        return _spread(topology)
    return _ring(topology, in_order=kind != "jellyfish" or topology.n_switches > MOST_SOLVED)


def _layers(net: Topology) -> Floats:
    """Put core switches on top, then aggregation, edge switches, and devices below."""
    n, S, tiers = net.n_devices, net.n_switches, np.array(net.tiers)
    edge, aggregation = (np.unique(net.links[tiers == "pod", end]) for end in (0, 1))
    core = np.unique(net.links[tiers == "core", 1])
    devices = np.bincount(net.switch_of, minlength=S)[edge]
    room = np.maximum(devices, 1)
    pod = np.arange(len(edge)) // int(np.sqrt(len(core)))
    right = np.cumsum(room) + 1.5 * pod
    at = np.empty((n + S, 2))
    at[n + edge] = np.stack([right - room / 2, np.full(len(edge), 1.0)], axis=1)
    at[n + aggregation] = at[n + edge] + [0, 1]
    middle = (np.arange(len(core)) + 0.5) * right[-1] / len(core)
    at[n + core] = np.stack([middle, np.full(len(core), 3.0)], axis=1)
    order, nth = _ranks(net)
    slot = np.searchsorted(edge, net.switch_of)
    at[:n, 0] = right[slot] - room[slot] + nth + 0.5
    at[order, 1] = -0.12 * (np.arange(n) % -(-n // 150))  # rows, where one is too dense
    return at


def _ranks(net: Topology) -> tuple[Ints, Ints]:
    """Devices in the order of their switches, and the place of each among those of its switch."""
    order = np.argsort(net.switch_of, kind="stable")
    devices = np.bincount(net.switch_of, minlength=net.n_switches)
    nth = np.empty(net.n_devices, dtype=np.int64)
    nth[order] = np.arange(net.n_devices) - (np.cumsum(devices) - devices)[net.switch_of[order]]
    return order, nth


def _ring(net: Topology, *, in_order: bool) -> Floats:
    """Put devices on a circle, their switches on a smaller one, and other switches inside."""
    n, S = net.n_devices, net.n_switches
    devices = np.bincount(net.switch_of, minlength=S)
    outer, inner = np.flatnonzero(devices), np.flatnonzero(devices == 0)
    if not in_order and len(outer) > 2:  # neighbours in the graph close by on the circle
        near = np.linalg.eigh(_laplacian(_joined(net)))[1][:, 1:3][outer]
        outer = outer[np.argsort(np.arctan2(near[:, 1], near[:, 0]), kind="stable")]
    room = devices[outer] + 1.0
    turn = 2 * np.pi / room.sum()
    start = np.cumsum(room) - room
    at = np.zeros((n + S, 2))
    if len(outer) > 1:
        at[n + outer] = 0.7 * _around(turn * (start + devices[outer] / 2))
    if len(inner) > 1:
        at[n + inner] = 0.25 * _around(2 * np.pi * np.arange(len(inner)) / len(inner))
    first = np.zeros(S)
    first[outer] = start
    order, nth = _ranks(net)
    radius = np.empty(n)
    radius[order] = 1 + 0.06 * (np.arange(n) % -(-n // 250))
    at[:n] = radius[:, None] * _around(turn * (first[net.switch_of] + nth + 0.5))
    return at


def _spread(net: Topology) -> Floats:
    """Put switches as far apart as they are in links (least stress), and devices around each."""
    from scipy.sparse.csgraph import shortest_path
    from scipy.spatial.distance import cdist

    S = net.n_switches
    joined = _joined(net)
    at = _around(2 * np.pi * np.arange(S) / S)
    if S > 1:
        far = shortest_path(joined, unweighted=True)
        weight = 1 / (far + np.eye(S)) ** 2 - np.eye(S)
        solve = np.linalg.inv(_laplacian(weight) + 1 / S)
        at *= far.max() / 2
        for _ in range(60):  # SMACOF
            ratio = weight * far / np.maximum(cdist(at, at), 1e-9)
            at = solve @ (_laplacian(ratio) @ at)
    radius = 0.45 * float(np.median(np.sort(cdist(at, at), axis=1)[:, 1])) if S > 1 else 1.0
    away = at - joined @ at / np.maximum(joined.sum(axis=1), 1)[:, None]
    devices = np.bincount(net.switch_of, minlength=S)
    _, nth = _ranks(net)
    m, s = devices[net.switch_of], net.switch_of
    fan = (nth - (m - 1) / 2) * np.minimum(2 * np.pi / m, 0.6)
    angle = np.arctan2(away[s, 0], away[s, 1]) + fan
    return np.concatenate([at[s] + radius * _around(angle), at])


def _joined(net: Topology) -> Floats:
    """Which switches have a link [S, S], as 1.0."""
    joined = np.zeros((net.n_switches, net.n_switches))
    joined[net.links[:, 0], net.links[:, 1]] = joined[net.links[:, 1], net.links[:, 0]] = 1.0
    return joined


def _laplacian(weight: Floats) -> Floats:
    return np.diag(weight.sum(axis=1)) - weight


def _around(angle: Floats) -> Floats:
    """Points of the unit circle, from the top clockwise [., 2]."""
    return np.stack([np.sin(angle), np.cos(angle)], axis=1)
