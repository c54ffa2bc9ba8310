"""Every reader of files, with good ones to begin with. A reader that is not here is not tried."""

import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from coterie.analysis.compare import compare
from coterie.config.files import load_experiment, make_config, parse_override
from coterie.config.prepare import prepare
from coterie.core.errors import ConfigError
from coterie.core.units import quantity
from coterie.flower.deploy import Deployment, read_deployment, stored
from coterie.flower.groups import Groups
from coterie.flower.hosts import read_hosts
from coterie.flower.messages import COUNTS
from coterie.flower.spool import Filled, Order, Spool
from coterie.flower.state import FILE, State, load_state, save_state
from coterie.models.weights import load_weights
from coterie.preview.from_labels import hours, read_fleet
from coterie.preview.planfile.reading import read_plan
from coterie.preview.planfile.writing import contents
from coterie.render.watch.reader import see
from coterie.runs.checkpoint import FORMAT, last_good, origin
from coterie.runs.execute import execute
from coterie.runs.node_scores import read_table
from coterie.runs.record import find_runs, read_run
from coterie.runs.retime import retime
from coterie.runs.sweep.resume import recorded_jobs
from coterie.simulation.schedule import Schedule
from coterie.simulation.state import Plan
from coterie.topology.file import read_topology
from coterie.topology.matrix import read_access, read_column, read_matrix
from coterie.topology.values import Speed
from fuzz.data_readers import data_readers
from fuzz.worker import Reader
from made_runs import made_run, write_run
from plans import EXAMPLE
from resuming import stopped_at, tiny

ROOT = Path(__file__).parents[2]
SPEED = Speed()
Make = Callable[[Path], Reader]
PHONES = b"""node,site,up_mbit_per_s,down_mbit_per_s,latency_ms,region,may_serve,step_s,online,a,b
a 1,north,20,80,18,DE,yes,0.1,22-6,400,20
a 2,north,15,60,20,DE,no,0.2,0-24,350,40
b 1,south,25,100,16,DE,yes,5ms,,10,300
b 2,south,10,40,25,NL,,1,8:30-17,0,60
"""
STATIONS = b"""a,b,mbit_per_s,latency_ms,tier,server,capacity
north,core,1000,4,backhaul,yes,4
south,core,1000,6,backhaul,yes,4
core,,,,,yes,
"""
LINKS = STATIONS + b"d 1,north,20,18,access,,\nd 2,north,20,18,access,,\nd 3,south,9,7,access,,\n"
WAN = b"""from,to,mbytes_per_s,latency_ms
north,south,10,20
south,north,8,22
north,core,100,5
core,south,90,6
"""
GRAPH = {
    "nodes": [
        *({"id": f"d{i}", "device": True} for i in range(4)),
        {"id": "s", "server": True, "capacity": 4},
    ],
    "links": [
        {"source": f"d{i}", "target": "s", "mbytes_per_s": 10, "latency_ms": 1} for i in range(4)
    ],
}
GRAPHML = b"""<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="k0" for="edge" attr.name="mbytes_per_s" attr.type="double"/>
<key id="k1" for="node" attr.name="device" attr.type="boolean"/>
<graph edgedefault="undirected">
<node id="a"><data key="k1">true</data></node><node id="b"><data key="k1">true</data></node>
<node id="s"/>
<edge source="a" target="s"><data key="k0">10</data></edge>
<edge source="b" target="s"><data key="k0">5</data></edge>
</graph></graphml>
"""


def _experiment(scratch: Path) -> Reader:
    files = {path.name: path.read_bytes() for path in (ROOT / "experiments").glob("*.toml")}
    read = partial(_each, load_experiment, "*.toml")
    return Reader(files, read)


def _each(read: Callable[[Path], object], pattern: str, folder: Path) -> None:
    """Read the file that was changed last, of those that match."""
    read(max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns))


def _text(read: Callable[[str], object], *seeds: str) -> Make:
    """Make a reader of what stands on a command line, or in a cell."""

    def from_file(folder: Path) -> object:
        return read((folder / "x").read_bytes().decode("utf-8", "surrogateescape"))

    def wrap(_: str, content: bytes) -> bytes:
        return content if len(content) < 100_000 else content[:100_000]

    joined = {f"{i}": seed.encode() for i, seed in enumerate(seeds)}

    def read_any(folder: Path) -> object:
        newest = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        shutil.copyfile(newest, folder.parent / "x")
        return from_file(folder.parent)

    return lambda scratch: Reader(joined, read_any, wrap=wrap)


def _setting(text: str) -> object:
    key, value = parse_override(text)
    return load_experiment(ROOT / "experiments" / "quickstart.toml", [f"{text}"]), key, value


def _amount(text: str) -> float:
    """Read an amount as an option does, which says in its own words what is no amount."""
    try:
        return quantity(text, "size")
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _one(name: str, content: bytes, read: Callable[[Path], object]) -> Make:
    return lambda scratch: Reader({name: content}, lambda folder: read(folder / name))


def _topology(name: str, content: bytes) -> Make:
    return _one(name, content, lambda path: read_topology(path, SPEED, SPEED))


def _fleet(network: bytes, nodes: bytes = PHONES) -> Make:
    def read(folder: Path) -> object:
        return read_fleet(folder / "nodes.csv", folder / "net.csv")

    return lambda scratch: Reader({"nodes.csv": nodes, "net.csv": network}, read)


def _matrix(scratch: Path) -> Reader:
    speed = b",a,b,c\na,,10,5\nb,10,,2.5\nc,5,2.5,\n"
    late = b",a,b,c\na,,0.01,0.02\nb,0.01,,0.1\nc,0.02,0.1,\n"

    def read(folder: Path) -> object:
        return read_matrix(folder / "speed.csv", folder / "late.csv", SPEED)

    return Reader({"speed.csv": speed, "late.csv": late}, read)


def _files(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder, as a reader wants them."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _run(read: Callable[[Path], object]) -> Make:
    """Make a reader of a run that is there, and was trained."""

    def make(scratch: Path) -> Reader:
        what = make_config(
            {
                "data": {"sample": 0.05},
                "partition": {"num_nodes": 10, "num_edges": 10},
                "algorithm": {"name": "fedavg-ic", "num_groups": 2, "tau2": 2},
                "train": {"steps": 4, "measure": ["accuracy", "loss", "Delta", "nodes"]},
            }
        )
        execute(what, scratch / "run")
        changed = ("config.toml", "meta.json", "rows.jsonl", "summary.json", "grouping.json")
        files = {
            name: content
            for name, content in _files(scratch / "run").items()
            if not name.endswith((".safetensors", ".lock"))
        }
        more = tuple(name for name in files if name.startswith("nodes"))
        return Reader(files, read, tuple(n for n in (*changed, *more) if n in files))

    return make


def _shown(folder: Path) -> None:
    """Do with a run what tables and pages do."""
    from coterie.render.page.pagedata import page_data

    runs, _ = find_runs([folder])
    if runs:
        compare(runs, None)
        page_data(runs)


def _sweep(scratch: Path) -> Reader:
    write_run(made_run(scratch / "s" / "one"))
    config = made_run(scratch / "x").config
    told = {"runs": [{"folder": "one", "config": dict(config)}]}
    files = _files(scratch / "s") | {"runs.json": json.dumps(told, indent=1).encode()}
    return Reader(files, recorded_jobs, ("runs.json", "one/config.toml"))


def _checkpoint(scratch: Path) -> Reader:
    what = tiny(steps=8)
    stopped_at(4, what, scratch / "run")
    belongs = origin(what, prepare(what))
    (newest, *others) = sorted((scratch / "run").glob("checkpoint-*"), reverse=True)
    files = {n: c for n, c in _files(scratch / "run").items() if n not in {o.name for o in others}}
    body = files[newest.name].partition(b"\n")[2]

    def wrap(name: str, content: bytes) -> bytes:
        if name != newest.name:
            return content
        return FORMAT + hashlib.sha256(content).hexdigest().encode() + b"\n" + content

    def read(folder: Path) -> object:
        return last_good(folder, belongs, lambda line: None)

    return Reader(files | {newest.name: body}, read, (newest.name, "rows.jsonl"), wrap)


def _flower_state(scratch: Path) -> Reader:
    """Make a reader of a state on Flower, without the sums by which a change would be noticed."""
    first, about = State(0, ({"w": np.zeros((2, 3), np.float32)},)), {"seed": 0}
    rows = ({"t": 2, "round": 1, "counted": 2, "event": "group", "train.loss": 0.5},)
    groups = Plan(Schedule(1, 2), Groups((("a",), ("b",)), ("a", "b")))
    models = (first.models[0], first.models[0])
    save_state(scratch, State(2, models, groups, {"a": 2.0, "b": 1.0}, rows), about)
    content = (scratch / FILE).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    told = json.loads(header["__metadata__"]["coterie"])
    del told["sums"]
    header["__metadata__"]["coterie"] = json.dumps(told)

    def wrap(name: str, changed: bytes) -> bytes:
        if name != "header":
            return changed
        return struct.pack("<Q", len(changed)) + changed + content[8 + length :]

    def read(folder: Path) -> object:
        newest = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        (folder.parent / "state").mkdir(exist_ok=True)
        shutil.copyfile(newest, folder.parent / "state" / FILE)
        return load_state(folder.parent / "state", about, first, Schedule(1, 2))

    return Reader({"header": json.dumps(header).encode(), "whole": content}, read, wrap=wrap)


def _flower_spool(scratch: Path) -> Reader:
    """Make a reader of what an edge has sent up."""
    order = Order({"w": np.zeros((2, 3), np.float32)}, 0, 3, last=False, settings="lr")
    spool = Spool(scratch)
    spool.put(order)
    told = {"num_examples": 5.0, "metrics": {"loss": 0.5}, **dict.fromkeys(COUNTS, 1)}
    spool.fill(order, Filled(order.arrays, told))
    return Reader(_files(scratch), lambda folder: Spool(folder).result(order, 0.0))


def _flower_deployment(scratch: Path) -> Reader:
    deployment = Deployment(EXAMPLE, scratch, scratch)
    files = {
        "plan.json": contents(EXAMPLE, ".json"),
        "deployment.json": json.dumps(stored(deployment)).encode(),
        "hosts.csv": b"place,host\ncoordinator,10.0.0.1\nedge-0,10.0.0.2\nedge-1,edge.example\n",
    }

    def read(folder: Path) -> object:
        return read_deployment(folder), read_hosts(folder / "hosts.csv", EXAMPLE)

    return Reader(files, read)


WEIGHTS = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}


def _weights(path: Path) -> object:
    model = torch.nn.Linear(3, 2)
    load_weights(path, model)
    return model.weight


READERS: dict[str, Make] = {
    "experiment file": _experiment,
    "--set": _text(
        _setting, "train.lr=0.1", 'algorithm.name="fedavg"', "seed=3", "partition.num_nodes=20"
    ),
    "quantity": _text(_amount, "5MB", "1.5 GB", "10"),
    "hours": _text(hours, "22-6", "8:30-17", "0-24, 3-4"),
    "network, CSV": _topology("net.csv", LINKS),
    "network, JSON": _topology("net.json", json.dumps(GRAPH).encode()),
    "network, GraphML": _topology("net.graphml", GRAPHML),
    "network, matrix": _matrix,
    "network, pairs": _one("wan.csv", WAN, lambda path: read_matrix(path, None, SPEED, sites=True)),
    "fleet on links": _fleet(STATIONS),
    "fleet on a WAN": _fleet(WAN),
    "access links": _one(
        "access.csv",
        b"node,up_mbit_per_s,down_mbit_per_s,latency_ms\na,1,2,3\nb,4,5,6\n",
        lambda path: read_access(path, ["a", "b"], 2),
    ),
    "node column": _one(
        "gflops.csv",
        b"node,gflops\na,1\nb,4\n",
        lambda path: read_column(path, ["a", "b"], 2, "gflops"),
    ),
    "plan, JSON": _one("plan.json", contents(EXAMPLE, ".json"), read_plan),
    "plan, CSV": _one("plan.csv", contents(EXAMPLE, ".csv"), read_plan),
    "run": _run(read_run),
    "run, shown": _run(_shown),
    "run, watched": _run(see),
    "run, retimed": _run(lambda folder: retime(read_run(folder), ["network.link_mbytes_per_s=10"])),
    "run, nodes": _run(read_table),
    "sweep": _sweep,
    "Flower, deployment": _flower_deployment,
    "Flower, state": _flower_state,
    "Flower, spool": _flower_spool,
    "checkpoint": _checkpoint,
    "weights": _one("model.safetensors", save(WEIGHTS), _weights),
}
for _name, _reader in data_readers():
    READERS[_name] = partial(lambda made, scratch: made, _reader)
