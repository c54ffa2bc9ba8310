"""How long one aggregation takes on a network, and what it moves over which links."""

from dataclasses import dataclass, field

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.network.collectives import collectors, gather, one_per_edge, scatter
from coterie.network.flows import flow_seconds
from coterie.network.routes import Routing, route
from coterie.network.tcp import Tcp
from coterie.network.values import Clocks, Flows, Phase
from coterie.topology import Topology

REFERENCE_BYTES = 10_240


@dataclass(frozen=True)
class Transfer:
    """Seconds of a pattern of flows, and the bytes its links carried by tier.

    >>> Transfer(1.0, {"access": 10}) + Transfer(0.5, {"access": 5, "core": 5})
    Transfer(seconds=1.5, bytes_by_tier={'access': 15, 'core': 5})
    """

    seconds: float
    bytes_by_tier: dict[str, int]

    def __add__(self, other: "Transfer") -> "Transfer":
        """One pattern after the other."""
        mine, theirs = self.bytes_by_tier, other.bytes_by_tier
        both = {t: mine.get(t, 0) + theirs.get(t, 0) for t in {**mine, **theirs}}
        return Transfer(self.seconds + other.seconds, both)


@dataclass(frozen=True, eq=False)
class Timed:
    """One phase: its flows on their links, and when each has arrived [F]."""

    flows: Flows
    arrived_s: Floats

    @property
    def seconds(self) -> float:
        """Seconds until the last byte of the last flow."""
        return float(self.arrived_s.max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Network:
    """A topology, how flows are routed over it, and the clock that times them.

    `combine` averages models under their network edge `edge_of` on their way. `reference` is the
    authors' procedure: 10,240 bytes up, until the last packet of their connections, scaled to the
    model's size, and doubled for the way back. When they combined, one node of an edge sent, and
    what it got from the others was free.
    """

    topology: Topology
    edge_of: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    routing: Routing = "ecmp"
    seed: int = 0
    clock: Clocks = flow_seconds
    combine: bool = False
    reference: bool = False

    def aggregation(
        self, z: Ints, servers: Ints, nbytes: int, down_bytes: int | None = None
    ) -> Transfer:
        """Time one aggregation: every node sends to its group's server, then gets the mean back.

        As many bytes come back as were sent, unless it is said how many.
        """
        back_bytes = nbytes if down_bytes is None else down_bytes
        if self.reference:
            return self.upload(z, servers, nbytes) + self.upload(z, servers, back_bytes)
        up = self.patterns(z, servers, nbytes)[0]
        back = self.patterns(z, servers, back_bytes)[1]
        return self.total(self.timed(up)) + self.total(self.timed(back))

    def part(
        self,
        z: Ints,
        servers: Ints,
        nbytes: int,
        asked: Ints,
        counted: Ints,
        down_bytes: int | None = None,
    ) -> Transfer:
        """Time an aggregation of some: models go down to nodes asked, up from those counted."""
        back_bytes = nbytes if down_bytes is None else down_bytes
        up = self.upload(z, servers, nbytes, counted)
        if self.reference:
            return up + self.upload(z, servers, back_bytes, asked)
        return up + self.total(self.timed(self.patterns(z, servers, back_bytes, asked)[1]))

    def upload(self, z: Ints, servers: Ints, nbytes: int, nodes: Ints | None = None) -> Transfer:
        """Time nbytes from every node, or some, to its group's server, all at once."""
        sent = REFERENCE_BYTES if self.reference else nbytes
        phases = self.timed(self.patterns(z, servers, sent, nodes)[0])
        return self._scaled(phases, nbytes / sent if self.reference else 1.0)

    def patterns(
        self, z: Ints, servers: Ints, nbytes: int, nodes: Ints | None = None
    ) -> tuple[tuple[Phase, ...], tuple[Phase, ...]]:
        """List the phases up to the servers, and those back down; of some nodes, or all."""
        if self.combine and self.reference:
            z_of = z if nodes is None else z[nodes]
            nodes = one_per_edge(self.topology, self.edge_of, z_of, servers, nodes)
        z, via = z if nodes is None else z[nodes], None
        if self.combine and not self.reference:
            via = collectors(self.topology, self.edge_of, z, servers, nodes)
        there = gather(z, servers, nbytes, via, nodes)
        return there, scatter(there)

    def timed(self, phases: tuple[Phase, ...]) -> tuple[Timed, ...]:
        """Route and time phases, each of which starts when the one before has ended."""
        routed = [self.routed(phase) for phase in phases]
        return tuple(self.arrived(flows, self.clock(self.topology, flows)) for flows in routed)

    def arrived(self, flows: Flows, seconds: Floats) -> Timed:
        """Return when flows count as arrived that a clock says take so long [F].

        By the reference procedure that is when TCP has closed, a round trip later.
        """
        return Timed(flows, seconds + self._closing_s(flows) if self.reference else seconds)

    def _closing_s(self, flows: Flows) -> Floats:
        """Round trip of two packets without payload over each flow's path [F]."""
        at = flows.links
        both_ways = 1 / self.topology.bytes_per_s[at] + 1 / self.topology.bytes_per_s[at ^ 1]
        each = 2 * self.topology.latency_s[at // 2] + Tcp.header * both_ways
        found = np.bincount(flows.flow_of, weights=each, minlength=len(flows))
        return found.astype(np.float64)

    def routed(self, phase: Phase) -> Flows:
        """Give every transfer of a phase its path."""
        return route(self.topology, phase, self.routing, self.seed)

    def total(self, phases: tuple[Timed, ...]) -> Transfer:
        """Sum up phases."""
        return self._scaled(phases, 1.0)

    def _scaled(self, phases: tuple[Timed, ...], factor: float) -> Transfer:
        tiers, tier_of = self.topology.numbered_tiers
        by_tier = np.zeros(len(tiers), dtype=np.int64)
        for phase in phases:  # not by `load`: some nodes of a million use few of the links
            flows = phase.flows
            np.add.at(by_tier, tier_of[flows.links // 2], flows.nbytes[flows.flow_of])
        moved = {
            t: round(nbytes * factor) for t, nbytes in zip(tiers, by_tier.tolist(), strict=True)
        }
        return Transfer(factor * sum(phase.seconds for phase in phases), moved)

    def load(self, phases: tuple[Timed, ...]) -> Ints:
        """Payload bytes over every link, both directions [n + L]."""
        carried = sum((self.carried(phase.flows) for phase in phases), start=self._nothing())
        return carried[::2] + carried[1::2]

    def carried(self, flows: Flows) -> Ints:
        """Payload bytes over every direction of every link."""
        carried = self._nothing()
        np.add.at(carried, flows.links, flows.nbytes[flows.flow_of])
        return carried

    @property
    def note(self) -> str:
        """What to know of the network edges: that they cut across its switches, if they do."""
        top, edge_of = self.topology, self.edge_of
        if not len(edge_of):
            return ""
        pairs = np.unique(np.stack([top.switch_of, edge_of], axis=1), axis=0)
        edges, switches = np.bincount(pairs[:, 0]), np.bincount(pairs[:, 1])
        across = pairs[(edges[pairs[:, 0]] > 1) & (switches[pairs[:, 1]] > 1)]
        if not len(across):
            return ""
        edge = int(across[0, 1])
        on = [top.name(top.n_devices + int(s)) for s in pairs[pairs[:, 1] == edge, 0][:3]]
        return (
            f"note: edge {edge} of the partition is on {', '.join(on)}, which have other edges "
            "too; list devices edge by edge, or edges mean nothing here"
        )

    def _nothing(self) -> Ints:
        return np.zeros(len(self.topology.bytes_per_s), dtype=np.int64)
