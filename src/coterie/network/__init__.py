"""How long an aggregation takes, and what it moves over which links."""

from coterie.network.aggregation import Network, Timed, Transfer
from coterie.network.flows import flow_seconds
from coterie.network.routes import ROUTINGS, Routing
from coterie.network.tcp import PROFILES
from coterie.network.values import Clocks, Phase

__all__ = ["CLOCKS", "PROFILES", "ROUTINGS", "Network", "Phase", "Routing", "Timed", "Transfer"]
CLOCKS: dict[str, str] = {
    "flow": "fair shares of every link, TCP's handshake and windows: milliseconds",
    "ns3": "ns-3, packet by packet, in a program of its own: pip install 'coterie[ns3]'",
}


def make_clock(name: str, tcp: str, time_limit_s: float) -> Clocks:
    """Return the clock of that name with a profile of TCP."""
    if name == "ns3":
        from coterie.network.ns3 import measure

        return lambda topology, flows: (
            measure(topology, flows, profile=tcp, time_limit_s=time_limit_s).finish_s
        )
    return lambda topology, flows: flow_seconds(topology, flows, PROFILES[tcp])
