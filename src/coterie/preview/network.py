"""What a mean does to the network: its delays, the links it fills, the flows that come last."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from time import process_time

import numpy as np

from coterie.config.factories import load_dataset, make_fleet
from coterie.config.files import flat
from coterie.config.prepare import parts_of, prepare
from coterie.config.settings import AlgorithmConfig, Config, NetworkConfig
from coterie.core.arrays import Floats, Ints
from coterie.core.errors import ConfigError
from coterie.core.types import Progress
from coterie.data import Dataset
from coterie.grouping import Grouping
from coterie.grouping.baselines import by_edge
from coterie.network import Network, Timed, Transfer, make_clock
from coterie.network.aggregation import REFERENCE_BYTES
from coterie.network.routes import route
from coterie.network.tcp import PROFILES, Tcp
from coterie.network.values import Flows
from coterie.preview.data import groups_of, title_of
from coterie.preview.from_labels import OwnFleet, read_fleet, serving_note
from coterie.topology import Topology

EDGES = "edges"  # the groups of a network that is shown without an experiment


@dataclass(frozen=True)
class Busy:
    """One direction of a link: payload bytes over it, and the share of the phase they take."""

    link: str
    way: str
    nbytes: int
    bytes_per_s: float
    busy_s: float
    share: float


@dataclass(frozen=True)
class Late:
    """A flow, when its last byte arrived, and that over the median of its phase."""

    flow: str
    way: str
    seconds: float
    over_median: float
    hops: int


@dataclass(frozen=True)
class Compared:
    """One pattern by both clocks: seconds, mean error of the flows' arrivals, what each took."""

    pattern: str
    flow_s: float
    ns3_s: float
    error: float  # of the flow clock's seconds
    arrival_error: float  # mean over the flows, of its absolute value
    drops: int
    flow_cpu_s: float
    ns3_cpu_s: float


@dataclass(frozen=True, eq=False)
class Mean:
    """A group or global mean: models up to the servers, then their mean back down.

    The reference procedure times the way up only, and counts it twice: `down` is `up` there.
    """

    label: str
    network: Network
    tcp: Tcp
    grouping: Grouping
    up: tuple[Timed, ...]
    down: tuple[Timed, ...]
    compared: tuple[Compared, ...] = ()

    @property
    def transfers(self) -> tuple[Transfer, Transfer]:
        """What the ways up and down take."""
        return self.network.total(self.up), self.network.total(self.down)

    @property
    def phases(self) -> list[tuple[str, Timed]]:
        """Every phase that was timed, with its name."""
        ways = [("up", self.up), ("down", self.down)][: 1 if self.down is self.up else 2]
        return [
            (name if len(phases) == 1 else f"{name} {number}", phase)
            for name, phases in ways
            for number, phase in enumerate(phases, 1)
        ]

    @property
    def load(self) -> Ints:
        """Payload bytes over every link, both directions [n + L]."""
        return self.network.load(self.up + self.down)

    @property
    def group_s(self) -> Floats | None:
        """Seconds up and down of every group [K, 2]; None where phases wait for each other."""
        if max(len(self.up), len(self.down)) > 1:
            return None
        seconds = np.zeros((len(self.grouping.servers), 2))
        for way, phases in enumerate((self.up, self.down)):
            for phase in phases:
                sent_by_nodes = phases is self.up
                nodes = phase.flows.src if sent_by_nodes else phase.flows.dst
                np.maximum.at(seconds[:, way], self.grouping.z[nodes], phase.arrived_s)
        return seconds

    def busiest(self, top: int) -> list[Busy]:
        """List the directions of links that a phase keeps busy for longest, headers included."""
        topology, found = self.network.topology, []
        for way, phase in self.phases:
            flows, payload = phase.flows, self.network.carried(phase.flows)
            wire = flows.nbytes + self.tcp.header * -(-flows.nbytes // self.tcp.segment)
            carried = np.bincount(flows.links, wire[flows.flow_of], len(payload))
            busy_s = carried / topology.bytes_per_s
            for at in _largest(busy_s, top):
                line = topology.link_name(at), way, int(payload[at])
                seconds = float(busy_s[at])
                speed = float(topology.bytes_per_s[at])
                found.append(Busy(*line, speed, seconds, seconds / phase.seconds))
        return sorted(found, key=lambda busy: -busy.busy_s)[:top]

    def slowest(self, top: int) -> list[Late]:
        """List the flows that took longest, each counted from the start of its phase."""
        name, found = self.network.topology.name, []
        for way, phase in self.phases:
            flows, took_s = phase.flows, phase.arrived_s
            middle = float(np.median(took_s)) if len(took_s) else 0.0
            for f in _largest(took_s, top):
                ends = f"{name(int(flows.src[f]))} -> {name(int(flows.dst[f]))}"
                seconds = float(took_s[f])
                found.append(Late(ends, way, seconds, seconds / middle, int(flows.n_hops[f])))
        return sorted(found, key=lambda late: -late.seconds)[:top]


@dataclass(frozen=True, eq=False)
class Member:
    """One algorithm in a network: seconds of a local step, its groups' mean and the global one.

    There is no group mean where tau2 is 1, as with FedAvg.
    """

    label: str
    step_s: float
    group: Mean | None
    everyone: Mean

    @property
    def grouping(self) -> Grouping:
        """Who is averaged with whom most often."""
        return (self.group or self.everyone).grouping


@dataclass(frozen=True, eq=False)
class NetworkView:
    """A network, and what the algorithms of an experiment do to it, or the means of its edges.

    Without an experiment there is no model's name, the edges have names, and notes say what to know
    of the two files.
    """

    title: str
    config: NetworkConfig
    topology: Topology
    model: str
    nbytes: int
    members: tuple[Member, ...]
    edge_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def means(self) -> list[Mean]:
        """The group mean of every algorithm, and the global means, which algorithms share."""
        groups = [member.group for member in self.members if member.group]
        return [*groups, *dict.fromkeys(member.everyone for member in self.members)]

    @property
    def compared(self) -> list[Compared]:
        """Every pattern that was held against ns-3."""
        return [compared for mean in self.means for compared in mean.compared]


def views(configs: Sequence[Config], *, against: bool, progress: Progress) -> Iterator[NetworkView]:
    """View every distinct network of an experiment, with its first seed, by every algorithm.

    With `against`, every pattern is timed by the flow clock and by ns-3.
    """
    if against:
        _prepare_ns3(progress)
    seen: dict[object, list[Config]] = {}
    for config in configs:
        if not config.algorithm.made.pooled:
            seen.setdefault(_setting(config), []).append(config)
    if not seen:
        raise ConfigError("centralized has one node and no network; set another algorithm.name")
    told = _told_apart([members[0] for members in seen.values()])
    loaded: dict[object, Dataset] = {}
    for members, words in zip(seen.values(), told, strict=True):
        first = members[0]
        if first.data not in loaded:
            loaded = {first.data: load_dataset(first, progress)}
        yield _view(members, words, loaded[first.data], against=against, progress=progress)


def _prepare_ns3(progress: Progress) -> None:
    from coterie.network.ns3 import driver_path

    progress("preparing ns-3", 0, 0)
    driver_path()


def view_of_files(
    nodes: Path,
    network: Path,
    model_bytes: int,
    overrides: Sequence[str] = (),
    *,
    against: bool,
    progress: Progress,
) -> NetworkView:
    """View a network of one's own by the mean of every edge and the global one; nothing trains."""
    if against:
        _prepare_ns3(progress)
    progress("reading files", 0, 0)
    own = read_fleet(nodes, network, overrides, heeded=("seed", "network."), counted=False)
    config, edges = own.config, own.edges
    counts = np.ones((len(own.told.names), 1), dtype=np.int64)
    places = edges.of, own.told.names, edges.names
    algorithm = parts_of(config).algorithm
    fleet = make_fleet(config, algorithm, counts, *places, topology=own.topology)
    shown = fleet.evidence(len(edges.names), 1, model_bytes, 0.0)
    groups = {f"{EDGES} group": by_edge(shown, np.random.default_rng(0))} if edges.known else {}
    whole = "global, combined" if fleet.network.combine else "global"
    plan = _Plan(fleet.network, 0.0, model_bytes, groups | {whole: fleet.together(model_bytes)})
    means = _means({name: (name, plan) for name in plan.wanted}, config.network, against, progress)
    return NetworkView(
        f"{nodes.name} on {network.name}",
        config.network,
        own.topology,
        "",
        model_bytes,
        (_member(EDGES, plan, means),),
        edges.names if edges.known else (),
        tuple(_notes(own, nodes, network)),
    )


def _notes(own: OwnFleet, nodes: Path, network: Path) -> Iterator[str]:
    """Say what the files leave open, or what may not be meant so."""
    top, n = own.topology, own.topology.n_devices
    may_not = 0 if top.may_serve is None else int((~top.may_serve).sum())
    if note := serving_note(own, network):
        yield note
        if may_not:
            yield f"{may_not:,} of {n:,} devices may not serve"
    elif top.may_serve is not None:
        yield "places serve, so no device does, whatever may_serve says of it"
    if top.place_capacity is not None and (room := int(top.place_capacity.sum())) < n:
        yield f"the places have room for {room:,} of {n:,} devices"
    if not own.edges.known:
        yield (
            f"{nodes.name} has no column edge or site, and every node is on a switch of its own: "
            "only the global mean is shown"
        )
    pairs = top.n_switches * (top.n_switches - 1) // 2
    of_pairs = bool(own.told.sites) and own.config.network.topology == "matrix"
    if of_pairs and len(top.links) < pairs:
        yield f"{pairs - len(top.links):,} of {pairs:,} pairs of sites have no link of their own"


def _setting(config: Config) -> object:
    """All that decides delays, but for algorithm and seed."""
    c, t = config, config.train
    work = t.batch_size, t.step_unit, t.sampling
    return c.data, c.partition, c.model, c.network, c.compute, work


def _told_apart(configs: list[Config]) -> list[str]:
    """Name the settings that tell networks apart, where the title does not."""
    tables = [flat(config) for config in configs]
    own = [key for key in tables[0] if key.startswith(("model.", "network.", "compute.", "train."))]
    keys = [key for key in own if len({str(table[key]) for table in tables}) > 1]
    names = [key.removesuffix(".name").rpartition(".")[2] for key in keys]
    pairs = list(zip(names, keys, strict=True))
    return ["".join(f", {name} {table[key]}" for name, key in pairs) for table in tables]


def _view(
    configs: list[Config], words: str, dataset: Dataset, *, against: bool, progress: Progress
) -> NetworkView:
    first = configs[0]
    plans: dict[str, _Plan] = {}
    for label, config in _one_each([c for c in configs if c.seed == first.seed]).items():
        progress(f"grouping by {label}", 0, 0)
        plans[label] = _plan(label, config, dataset)
    todo = {name: (name, plan) for plan in plans.values() for name in plan.wanted}
    means = _means(todo, first.network, against, progress)
    members = [_member(label, plan, means) for label, plan in plans.items()]
    *_, last = plans.values()
    net, nbytes = last.network.topology, last.nbytes
    title = f"{first.network.topology}, {title_of(first)}{words}"
    return NetworkView(title, first.network, net, first.model.name, nbytes, tuple(members))


def _means(
    todo: "dict[str, tuple[str, _Plan]]", config: NetworkConfig, against: bool, progress: Progress
) -> dict[str, Mean]:
    """Time every mean that is wanted, by the config's clock, and with `against` by both."""
    clocks = list(dict.fromkeys([config.clock, *(("flow", "ns3") if against else ())]))
    what, done = f"timing by {' and '.join(clocks)}", count()

    def begins() -> None:
        progress(what, next(done), 2 * len(todo))

    return {name: _mean(*each, config, clocks, begins) for name, each in todo.items()}


def _member(label: str, plan: "_Plan", means: dict[str, Mean]) -> Member:
    *groups, everyone = (means[name] for name in plan.wanted)
    return Member(label, plan.step_s, groups[0] if groups else None, everyone)


def _one_each(configs: list[Config]) -> dict[str, Config]:
    """First config of every algorithm and of every setting of its groups, by label."""
    forms: dict[AlgorithmConfig, Config] = {}
    for config in configs:
        forms.setdefault(_form(config.algorithm), config)
    labels = {}
    for form, config in forms.items():
        others = [vars(other) for other in forms if other.name == form.name]
        keys = [k for k in vars(form) if len({other[k] for other in others}) > 1]
        labels[", ".join([form.name, *(f"{k} {vars(form)[k]}" for k in keys)])] = config
    return labels


def _form(c: AlgorithmConfig) -> AlgorithmConfig:
    """Leave out the settings that change no aggregation."""
    algorithm = c.made
    tau2 = min(algorithm.schedule(*c.usual[1:]).tau2, 2)
    if not algorithm.searched:
        return AlgorithmConfig(c.name, tau2=tau2)
    if c.grouping in ("paper", "reference", "fl-sim", "random"):
        return replace(c, tau1=1, tau2=tau2, charge_grouping=True)
    return replace(c, tau1=1, charge_grouping=True)  # how often groups average counts in the search


@dataclass(frozen=True, eq=False)
class _Plan:
    network: Network
    step_s: float
    nbytes: int
    wanted: dict[str, Grouping]  # by the label of their mean; the last is everyone


def _plan(label: str, config: Config, dataset: Dataset) -> _Plan:
    """Find an algorithm's groups; they are planned by the flow clock, whichever times the run."""
    fast = replace(config, network=replace(config.network, clock="flow"))
    problem = prepare(fast, dataset).problem
    groups = {f"{label} group": groups_of(problem)} if problem.schedule.tau2 > 1 else {}
    whole = "global, combined" if problem.fleet.network.combine else "global"
    wanted = groups | {whole: problem.everyone.grouping}
    return _Plan(problem.fleet.network, problem.fleet.step_s, problem.model_bytes, wanted)


def _mean(
    label: str,
    plan: _Plan,
    config: NetworkConfig,
    clocks: list[str],
    begins: Callable[[], None],
) -> Mean:
    net, nbytes, grouping = plan.network, plan.nbytes, plan.wanted[label]
    sent = min(nbytes, REFERENCE_BYTES) if net.reference else nbytes
    scale = nbytes / max(sent, 1)
    patterns = net.patterns(grouping.z, grouping.servers, sent)
    ways, compared = [], []
    for way, phases in zip(("up", "down"), patterns[: 1 if net.reference else 2], strict=False):
        begins()
        routed = [route(net.topology, phase, net.routing, net.seed) for phase in phases]
        flows = [phase for phase in routed if len(phase)]
        said = {clock: _clocked(clock, net.topology, flows, config) for clock in clocks}
        if len(clocks) > 1:
            compared.append(_compared(f"{label} {way}", said["flow"], said["ns3"], scale))
        ways.append(
            tuple(
                Timed(
                    replace(f, nbytes=np.rint(scale * f.nbytes).astype(np.int64)),
                    scale * net.arrived(f, s).arrived_s,
                )
                for f, s in zip(flows, said[config.clock].arrived_s, strict=True)
            )
        )
    return Mean(label, net, PROFILES[config.tcp], grouping, ways[0], ways[-1], tuple(compared))


@dataclass(frozen=True, eq=False)
class _Said:
    arrived_s: list[Floats]  # of every phase
    drops: int
    cpu_s: float

    @property
    def seconds(self) -> float:
        return float(sum(phase.max(initial=0.0) for phase in self.arrived_s))


def _clocked(name: str, topology: Topology, flows: list[Flows], config: NetworkConfig) -> _Said:
    if name == "flow":
        clock, start = make_clock("flow", config.tcp, config.time_limit_s), process_time()
        arrived = [clock(topology, phase) for phase in flows]
        return _Said(arrived, 0, process_time() - start)
    from coterie.network.ns3 import measure

    limit = config.time_limit_s
    said = [measure(topology, f, profile=config.tcp, time_limit_s=limit) for f in flows]
    finish_s = [each.finish_s for each in said]
    return _Said(finish_s, sum(e.drops for e in said), sum(e.cpu_s for e in said))


def _compared(pattern: str, flow: _Said, ns3: _Said, scale: float) -> Compared:
    pairs = zip(flow.arrived_s, ns3.arrived_s, strict=True)
    off = np.concatenate([np.zeros(0), *(abs(ours / theirs - 1) for ours, theirs in pairs)])
    return Compared(
        pattern,
        scale * flow.seconds,
        scale * ns3.seconds,
        flow.seconds / ns3.seconds - 1 if ns3.seconds else 0.0,
        float(off.mean()) if len(off) else 0.0,
        ns3.drops,
        flow.cpu_s,
        ns3.cpu_s,
    )


def _largest(values: Floats, top: int) -> list[int]:
    """Where the largest values are that are above 0."""
    order = np.argsort(-values, kind="stable")[:top]
    return [int(at) for at in order if values[at] > 0]
