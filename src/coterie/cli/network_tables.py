"""What `coterie network` says: tables of delays, busy links and late flows, and all as JSON."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from coterie.analysis.format import number, sizes
from coterie.core.arrays import Floats
from coterie.preview.network import Mean, NetworkView
from coterie.render.page.html import Table
from coterie.topology.values import UNLIMITED, Topology

Item = TypeVar("Item")


def tables(view: NetworkView, top: int) -> list[Table]:
    """Write all figures about a network."""
    every = [_delays(view), _by_edge(view), _servers(view, top)]
    every += [_busiest(view, top), _slowest(view, top), _against(view)]
    return [table for table in every if table.rows]


def _facts(view: NetworkView) -> str:
    """Say what the network is made of and how it is timed."""
    net, c = view.topology, view.config
    speed, latency = _range(net.bytes_per_s / 1e6), _range(net.latency_s * 1e3)
    model = f" {view.model}," if view.model else " of"
    procedure = ", reference procedure" if c.procedure == "reference" else ""
    return (
        f"{net.n_devices:,} devices, {net.n_switches:,} switches, {len(net.ends):,} links of "
        f"{speed} MByte/s and {latency} ms; routing {c.routing}, clock {c.clock}, TCP {c.tcp}, "
        f"combine {c.combine}{procedure}; model{model} {view.nbytes:,} bytes"
    )


def _range(values: Floats) -> str:
    low, high = (f"{value:.3g}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _delays(view: NetworkView) -> Table:
    """Give a line to a local step, the group mean and the global mean of every algorithm."""
    tiers = [f"{tier}\nMB" for tier in dict.fromkeys(view.topology.tier_of)]
    head = (
        "algorithm" if view.model else "groups",
        "delay",
        "ms",
        "up\nms",
        "down\nms",
        *tiers,
        "group\nsizes",
    )
    rows: list[tuple[str, ...]] = []
    for member in view.members:
        label = member.label if member.group else "all"
        blank = [""] * (len(head) - 3)
        if member.step_s:  # not known without an experiment
            rows.append((member.label, "d_local", _ms(member.step_s), *blank))
        for name, mean in (("d_group", member.group), ("d_global", member.everyone)):
            if mean:
                up, down = mean.transfers
                both = up + down
                took = _ms(both.seconds), _ms(up.seconds), _ms(down.seconds)
                moved = map(_mb, both.bytes_by_tier.values())
                first = "" if member.step_s or (mean is member.everyone and member.group) else label
                rows.append((first, name, *took, *moved, sizes(mean.grouping.sizes)))
    foot = (
        "up: models to the servers; down: their mean back; up 1, up 2: phases of a combined mean; "
        "MB: payload, both ways, all links"
    )
    if note := view.means[0].network.note:
        foot += f"\n{note}"
    foot += "".join(f"\nnote: {note}" for note in view.notes)
    return Table(_facts(view), head, rows, foot)


def _by_edge(view: NetworkView) -> Table:
    """Give a line to the mean of every edge of one's own files."""
    rows: list[tuple[str, ...]] = []
    mean = view.members[0].group
    seconds = mean.group_s if mean and view.edge_names else None
    if mean and seconds is not None:
        z, servers = mean.grouping.z, mean.grouping.servers
        for k, (up, down) in enumerate(seconds.tolist()):
            server, nodes = view.topology.name(int(servers[k])), int((z == k).sum())
            took = _ms(up + down), _ms(up), _ms(down)
            rows.append((view.edge_names[k], server, f"{nodes:,}", *took))
    head = ("edge", "server", "nodes", "ms", "up\nms", "down\nms")
    foot = "the mean of every edge, all at once; d_group is the last of them"
    return Table("Means by edge", head, rows, foot)


def _servers(view: NetworkView, top: int) -> Table:
    """List the places that serve, those with the most devices on them first."""
    net, n = view.topology, view.topology.n_devices
    on = np.bincount(net.switch_of, minlength=net.n_switches)
    capacity = np.full(len(net.places), UNLIMITED)
    if net.place_capacity is not None:
        capacity = net.place_capacity
    places = sorted(zip(net.places, capacity.tolist(), strict=True), key=lambda p: -on[p[0]])
    rows = [
        (net.name(n + s), f"{on[s]:,}", f"{most:,}" if most < UNLIMITED else "no limit")
        for s, most in ([] if view.model else places)[:top]
    ]
    more = f"; {len(places) - top:,} more serve" if len(places) > top else ""
    foot = f"on it: devices whose own link leads there; capacity: the most members{more}"
    return Table("Places that serve", ("place", "on it", "capacity"), rows, foot)


def _busiest(view: NetworkView, top: int) -> Table:
    rows = [
        (name, b.link, b.way, _mb(b.nbytes), _mb(b.bytes_per_s), f"{b.share:.0%}")
        for mean in view.means
        for name, b in _labelled(mean, mean.busiest(top))
    ]
    foot = "busy: share of its phase for which this direction of a link sends, headers included"
    return Table("Busiest links", ("of", "link", "way", "MB", "MByte/s", "busy"), rows, foot)


def _slowest(view: NetworkView, top: int) -> Table:
    rows = [
        (name, f.flow, f.way, _ms(f.seconds), f"{f.over_median:.2f}", f"{f.hops}")
        for mean in view.means
        for name, f in _labelled(mean, mean.slowest(top))
    ]
    foot = "ms: from the start of its phase to its last byte; x median: over the phase's median"
    return Table("Slowest flows", ("of", "flow", "way", "ms", "x median", "hops"), rows, foot)


def _labelled(mean: Mean, found: Sequence[Item]) -> list[tuple[str, Item]]:
    """Put the name of a mean before the first of what it has."""
    return [("" if at else mean.label, each) for at, each in enumerate(found)]


def _against(view: NetworkView) -> Table:
    head = ("pattern", "flow\nms", "ns-3\nms", "error\n%", "arrivals\n%", "drops")
    rows = [
        (
            each.pattern,
            _ms(each.flow_s),
            _ms(each.ns3_s),
            f"{100 * each.error:+.1f}",
            f"{100 * each.arrival_error:.1f}",
            f"{each.drops:,}",
            number(each.flow_cpu_s),
            number(each.ns3_cpu_s),
            f"{each.ns3_cpu_s / each.flow_cpu_s:,.0f}x" if each.flow_cpu_s else "-",
        )
        for each in view.compared
    ]
    title = f"The flow clock against ns-3, TCP {view.config.tcp}: the same flows on the same routes"
    foot = "error: flow / ns-3 - 1 of the last arrival; arrivals: mean of its size over all flows"
    return Table(title, (*head, "flow\nCPU s", "ns-3\nCPU s", "ratio"), rows, foot)


def _ms(seconds: float) -> str:
    return number(seconds, 1e3)


def _mb(nbytes: float) -> str:
    return number(nbytes, 1e-6)


def plain(view: NetworkView, top: int) -> dict[str, Any]:
    """Return everything about a network as plain values."""
    net = view.topology
    return {
        "title": view.title,
        "network": vars(view.config),
        "devices": net.n_devices,
        "switches": net.n_switches,
        "links": len(net.ends),
        "places": _plain_places(net),
        "may_serve": None if net.may_serve is None else net.may_serve.tolist(),
        "notes": list(view.notes),
        "model": view.model or None,
        "model_bytes": view.nbytes,
        "algorithms": [
            {
                "algorithm": member.label,
                "d_local": member.step_s or None,
                "d_group": _plain_mean(member.group, top) if member.group else None,
                "d_global": _plain_mean(member.everyone, top),
            }
            for member in view.members
        ],
    }


def _plain_places(net: Topology) -> list[dict[str, Any]]:
    """List the places that serve, and their capacity, None without a limit."""
    most = [UNLIMITED] * len(net.places) if net.place_capacity is None else net.place_capacity
    return [
        {"place": net.name(int(v)), "capacity": int(m) if m < UNLIMITED else None}
        for v, m in zip(net.place_vertices, most, strict=True)
    ]


def _plain_mean(mean: Mean, top: int) -> dict[str, Any]:
    net, grouping = mean.network.topology, mean.grouping
    up, down = mean.transfers
    both = up + down
    return {
        "seconds": both.seconds,
        "up_s": up.seconds,
        "down_s": down.seconds,
        "bytes_by_tier": both.bytes_by_tier,
        "group_sizes": grouping.sizes,
        "z": grouping.z.tolist(),
        "servers": [net.name(int(server)) for server in grouping.servers],
        "busiest": [vars(busy) for busy in mean.busiest(top)],
        "slowest": [vars(late) for late in mean.slowest(top)],
        "against_ns3": [vars(compared) for compared in mean.compared],
    }
