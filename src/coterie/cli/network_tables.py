"""What `coterie network` says: tables of delays, busy links and late flows, and all as JSON."""

from collections.abc import Sequence
from typing import Any, TypeVar

from coterie.analysis.format import number, sizes
from coterie.core.arrays import Floats
from coterie.preview.network import Mean, NetworkView
from coterie.render.page.html import Table

Item = TypeVar("Item")


def tables(view: NetworkView, top: int) -> list[Table]:
    """Write all figures about a network."""
    every = [_delays(view), _busiest(view, top), _slowest(view, top), _against(view)]
    return [table for table in every if table.rows]


def _facts(view: NetworkView) -> str:
    """Say what the network is made of and how it is timed."""
    net, c = view.topology, view.config
    speed, latency = _range(net.bytes_per_s / 1e6), _range(net.latency_s * 1e3)
    procedure = ", reference procedure" if c.procedure == "reference" else ""
    return (
        f"{net.n_devices:,} devices, {net.n_switches:,} switches, {len(net.ends):,} links of "
        f"{speed} MByte/s and {latency} ms; routing {c.routing}, clock {c.clock}, TCP {c.tcp}, "
        f"combine {c.combine}{procedure}; model {view.model}, {view.nbytes:,} bytes"
    )


def _range(values: Floats) -> str:
    low, high = (f"{value:.3g}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _delays(view: NetworkView) -> Table:
    """Give a line to a local step, the group mean and the global mean of every algorithm."""
    tiers = [f"{tier}\nMB" for tier in dict.fromkeys(view.topology.tier_of)]
    head = ("algorithm", "delay", "ms", "up\nms", "down\nms", *tiers, "group\nsizes")
    rows: list[tuple[str, ...]] = []
    for member in view.members:
        blank = [""] * (len(head) - 3)
        rows.append((member.label, "d_local", _ms(member.step_s), *blank))
        for name, mean in (("d_group", member.group), ("d_global", member.everyone)):
            if mean:
                up, down = mean.transfers
                both = up + down
                took = _ms(both.seconds), _ms(up.seconds), _ms(down.seconds)
                moved = map(_mb, both.bytes_by_tier.values())
                rows.append(("", name, *took, *moved, sizes(mean.grouping.sizes)))
    foot = (
        "up: models to the servers; down: their mean back; up 1, up 2: phases of a combined mean; "
        "MB: payload, both ways, all links"
    )
    if note := view.means[0].network.note:
        foot += f"\n{note}"
    return Table(_facts(view), head, rows, foot)


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
        "model": view.model,
        "model_bytes": view.nbytes,
        "algorithms": [
            {
                "algorithm": member.label,
                "d_local": member.step_s,
                "d_group": _plain_mean(member.group, top) if member.group else None,
                "d_global": _plain_mean(member.everyone, top),
            }
            for member in view.members
        ],
    }


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
