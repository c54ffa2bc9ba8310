"""What a scenario's network is like: its tiers, and the links that hold a global mean up."""

from dataclasses import dataclass

import numpy as np

from coterie.config.factories import divide, load_dataset, make_fleet
from coterie.config.settings import Config
from coterie.core.arrays import Ints
from coterie.network import Network
from coterie.topology import Topology

SENT = 1_000_000  # bytes of the models that are looked at; the order of the tiers is that of any


@dataclass(frozen=True)
class Tier:
    """Links of a kind: how many, median bytes/s up and down, least up, and median seconds.

    Up is from a device, and from the first end of a link on.
    """

    name: str
    links: int
    up: float
    down: float
    least_up: float
    latency_s: float


@dataclass(frozen=True)
class Scenario:
    """A scenario, and the tier of which a link is busy for longest in a mean of all devices."""

    name: str
    about: str
    devices: int
    tiers: tuple[Tier, ...]
    slow: str
    slow_bytes_per_s: float

    @property
    def slow_tier(self) -> Tier:
        """The tier that is slow."""
        return next(tier for tier in self.tiers if tier.name == self.slow)


def about(text: str) -> str:
    """Return what an experiment file says of itself: its first line, a comment.

    >>> about("# Ships\\n#\\n[train]\\n"), about("[train]\\n")
    ('Ships', '')
    """
    first = text.partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def survey(name: str, text: str, config: Config) -> Scenario:
    """Look at the network of a scenario; nothing is trained."""
    divided = divide(config, load_dataset(config))
    part = divided.partition
    algorithm = config.algorithm.made
    fleet = make_fleet(config, algorithm, divided.class_counts, part.edge_of, part.names)
    network = fleet.network
    everyone = fleet.together(SENT)
    slow, speed = slow_link(network, everyone.z, everyone.servers)
    return Scenario(name, about(text), fleet.n, tiers(network.topology), slow, speed)


def tiers(topology: Topology) -> tuple[Tier, ...]:
    """List the tiers of a network, the devices' own links first.

    >>> from coterie.topology import Speed, edge_cloud
    >>> star = edge_cloud(np.array([0, 0, 1]), Speed(5e6, 0.01), Speed(1e8, 0.002))
    >>> [(tier.name, tier.links, tier.up, tier.latency_s) for tier in tiers(star)]
    [('access', 3, 5000000.0, 0.01), ('backhaul', 2, 100000000.0, 0.002)]
    """
    names, tier_of = topology.numbered_tiers
    both = topology.bytes_per_s.reshape(-1, 2)
    found = []
    for number, name in enumerate(names):
        own = tier_of == number
        if own.any():
            up, down = np.median(both[own], axis=0).tolist()
            least, latency = float(both[own, 0].min()), float(np.median(topology.latency_s[own]))
            found.append(Tier(name, int(own.sum()), up, down, least, latency))
    return tuple(found)


def slow_link(network: Network, z: Ints, servers: Ints) -> tuple[str, float]:
    """Return the tier and the bytes/s of the direction that a mean keeps busy for longest.

    >>> from coterie.topology import Speed, edge_cloud
    >>> edge_of = np.array([0, 0, 0, 1])
    >>> star = edge_cloud(edge_of, Speed(5e6), Speed(1e7))
    >>> cloud = np.array([star.n_devices + star.n_switches - 1])
    >>> slow_link(Network(star, edge_of), np.zeros(4, dtype=int), cloud)  # three models on one link
    ('backhaul', 10000000.0)
    """
    topology = network.topology
    speed = topology.bytes_per_s
    longest = np.zeros(len(speed))
    for way in network.patterns(z, servers, SENT):
        for phase in way:
            longest = np.maximum(longest, network.carried(network.routed(phase)) / speed)
    at = int(longest.argmax())
    names, tier_of = topology.numbered_tiers
    return names[tier_of[at // 2]], float(speed[at])
