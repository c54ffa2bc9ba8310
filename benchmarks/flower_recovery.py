"""Kill every process of a deployment on Flower once, and see how training goes on.

    python benchmarks/flower_recovery.py [--minutes 60] [--only WORD] [--skip N] [--out FILE]

Six nodes in two groups over loopback, with TLS and keys: three SuperLinks, their helpers and apps,
two bridges, six SuperNodes with theirs, each kept by `start.sh` as on a machine of its own. One
process is killed (SIGKILL) in the middle of every round, and the next ones are waited for. A keeper
that is killed is started again after 5 s, as systemd does.

Prints a table, and checks at the end that every round was counted once and every node once a mean.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dataclasses import replace

from coterie import Config, make_config
from coterie.config.prepare import prepare
from coterie.flower import FlowerError, control
from coterie.flower.control import keys_of, online, public_key
from coterie.flower.deploy import Deployment, write
from coterie.flower.health import rows_of
from coterie.flower.processes import CLIENT_APP, HELPER, SERVER_APP, below, environment
from coterie.grouping import Evidence, Grouping
from coterie.preview.planfile import Plan, PlannedNode, Predicted
from coterie.simulation.loop import rounds
from coterie.simulation.policies.given import Given
from fleets import LIGHT, cut
from ports import free_blocks

N, TAU2, MIDDLE_S, AGAIN_S, PATIENCE_S = 6, 2, 5.0, 5.0, 900.0
LINK, NODE = "flower-superlink", "flower-supernode"
KEEPER = "keeper"
FAULTS = ("late", "failed", "rejected")
EDGES = ("edge-0", "edge-1")


@dataclass(frozen=True)
class Victim:
    """A process to kill: who keeps it, and which program it is below that of its parent."""

    keeper: str
    program: str
    parent: str = ""

    @property
    def restarts(self) -> list[str]:
        """Name the SuperNodes that are started again with it."""
        whole = self.program in (KEEPER, NODE) or (self.program == HELPER and self.parent == NODE)
        return [self.keeper] if whole and self.keeper != "coordinator" else []

    def strike(self, here: "Deployed", pid: int) -> None:
        """Kill it; a keeper is started again, as its unit does."""
        os.kill(pid, signal.SIGKILL)
        if self.program == KEEPER:
            here.keepers[self.keeper].wait()
            time.sleep(AGAIN_S)
            here.start(self.keeper)

    @property
    def kind(self) -> str:
        """What it is called in the table."""
        if self.program == KEEPER:
            return f"keeper of {self.keeper} and all below"
        whose = "bridge of " if self.parent == NODE and self.keeper in EDGES else ""
        if self.program == NODE and self.keeper in EDGES:
            return f"bridge (SuperNode) of {self.keeper}"
        words = {
            LINK: "SuperLink",
            NODE: "SuperNode",
            HELPER: "helper (flower-superexec)",
            SERVER_APP: "app (ServerApp)",
            CLIENT_APP: "app (ClientApp)",
        }
        return f"{words[self.program]} of {whose}{self.keeper}"


def victims() -> list[Victim]:
    """Every process once: first one of each kind."""
    links, nodes = ["coordinator", *EDGES], [f"node-{i}" for i in range(N)]
    found = [
        Victim(k, p, "" if p == LINK else LINK) for p in (LINK, SERVER_APP, HELPER) for k in links
    ]
    found += [Victim(k, NODE) for k in EDGES]
    found += [Victim(nodes[0], p, "" if p == NODE else NODE) for p in (NODE, CLIENT_APP, HELPER)]
    found += [Victim("edge-0", p, NODE) for p in (CLIENT_APP, HELPER)]
    found += [Victim(k, KEEPER) for k in ("coordinator", "edge-0", "node-0")]
    found += [Victim(k, NODE) for k in nodes[1:]]
    found += [Victim("edge-1", p, NODE) for p in (CLIENT_APP, HELPER)]
    found += [Victim("edge-1", KEEPER)]
    for k in nodes[1:]:
        found += [Victim(k, CLIENT_APP, NODE), Victim(k, HELPER, NODE), Victim(k, KEEPER)]
    return found


@dataclass
class Deployed:
    """The deployment and its keepers."""

    d: Deployment
    keepers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a keeper, as a unit does."""
        with (self.d.folder / "logs" / f"keep-{name}.log").open("ab") as log:
            self.keepers[name] = subprocess.Popen(
                ["./start.sh", name],
                cwd=self.d.folder,
                env={**environment(self.d.folder), "PYTHONUNBUFFERED": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def find(self, victim: Victim) -> int | None:
        """Return the number of a process, None as long as there is none."""
        top = self.keepers[victim.keeper].pid
        if victim.program == KEEPER:
            return top
        tops = (below(top, victim.parent) or []) if victim.parent else [top]
        found = [pid for above in tops for pid in below(above, victim.program) or []]
        return found[0] if found else None

    def stop(self) -> None:
        """End every keeper, which ends what it keeps."""
        for process in self.keepers.values():
            process.terminate()
        for process in self.keepers.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Mishap:
    """What else happens to a deployment: what is done, and which SuperNodes begin again by it."""

    kind: str
    act: Callable[[Deployed], None]
    restarts: tuple[str, ...] = ()

    def strike(self, here: Deployed, pid: int) -> None:
        """Let it happen."""
        self.act(here)


def power_cut(here: Deployed) -> None:
    """Kill all keepers and all below at once, and start them again."""
    for process in here.keepers.values():
        tree = [process.pid, *(below(process.pid, "") or [])]
        for pid in tree:
            os.kill(pid, signal.SIGKILL)
    for process in here.keepers.values():
        process.wait()
    time.sleep(AGAIN_S)
    for name in list(here.keepers):
        here.start(name)


def forget(here: Deployed) -> None:
    """Stop an edge, remove what its SuperLink remembers, and start it again."""
    here.keepers["edge-0"].terminate()
    here.keepers["edge-0"].wait()
    for path in (here.d.folder / "links").glob("edge-0.db*"):
        path.unlink()
    here.start("edge-0")
    wait(lambda: links_online(here.d, "edge-0") == N // 2, "the nodes of edge-0")
    subprocess.run(["./run.sh"], cwd=here.d.folder, env=environment(here.d.folder), check=True)


def restart_node(here: Deployed) -> None:
    """Stop a node as systemctl restart does, and start it again."""
    here.keepers["node-1"].terminate()
    here.keepers["node-1"].wait()
    here.start("node-1")


def another_key(here: Deployed) -> None:
    """Stop a node, lose its key, make another, and start it again."""
    here.keepers["node-1"].terminate()
    here.keepers["node-1"].wait()
    for path in (here.d.folder / "keys").glob("node-1*"):
        path.unlink()
    words = ["coterie", "flower", "key", ".", "node-1"]
    subprocess.run(words, cwd=here.d.folder, env=environment(here.d.folder), check=True)
    here.start("node-1")


def failed(here: Deployed) -> None:
    """Have a state that cannot be written until the coordinator gives up; mend it, and go on."""
    folder = here.d.folder
    (folder / "state").rename(folder / "away")
    (folder / "state").write_text("no folder", encoding="utf-8")
    wait((folder / "result.json").exists, "the coordinator to give up")
    print((folder / "result.json").read_text(encoding="utf-8"), file=sys.stderr)
    (folder / "state").unlink()
    (folder / "away").rename(folder / "state")
    subprocess.run(["./run.sh"], cwd=folder, env=environment(folder), check=True)


def mishaps() -> list[Mishap]:
    """What else was tried."""
    everyone = (*EDGES, *(f"node-{i}" for i in range(N)))
    return [
        Mishap("node-1 stopped and started (systemctl restart)", restart_node, ("node-1",)),
        Mishap("all at once, as by a power cut", power_cut, everyone),
        Mishap("links/edge-0.db lost; run.sh", forget),
        Mishap("node-1's key lost, and another made", another_key, ("node-1",)),
        Mishap("state/ could not be written; mended; run.sh", failed),
    ]


@dataclass(frozen=True)
class Fate:
    """What came of a kill."""

    kind: str
    back_s: float  # until its like was there again
    round_s: float  # until the next round was over
    lost: str


def wait(condition: Any, what: str) -> Any:
    """Wait until something is so; say what if it is not."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE_S:g} s in vain: {what}")
        time.sleep(0.1)
    return found


def config_of(steps: int) -> Config:
    """Return the settings of the data and of the simulated run."""
    return make_config(
        {
            "data": {"sample": 0.2},
            "partition": {"kind": "dirichlet", "num_nodes": N, "num_edges": 2},
            "network": {"topology": "edge-cloud"},
            "algorithm": {"num_groups": 2, "tau2": TAU2, "evidence": "labels"},
            "train": {"steps": steps, "lr": 0.5},
        }
    )


def plan_of(config: Config, steps: int) -> Plan:
    """Nodes in turn in either group."""
    sizes = prepare(config).problem.fleet.class_counts.sum(axis=1)
    nodes = tuple(PlannedNode(str(i), i % 2, int(sizes[i]), 0.0) for i in range(N))
    return Plan(
        "six nodes", "given", 1, TAU2, steps, 31_400, 0.0, Predicted(0, 0, 0, 0), ("0", "1"), nodes
    )


def simulated(config: Config) -> Iterator[float]:
    """Accuracy after every global mean of a simulated run in the same groups."""
    from coterie.flower.network import network_of
    from coterie.flower.roster import Roster

    def planner(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        return Grouping(np.arange(N) % 2, np.arange(2))

    problem = prepare(config).problem
    star, _ = network_of(None, Roster({str(i): i for i in range(N)}))
    assert star.edge_of is not None
    fleet = replace(problem.fleet, network=star, edge_of=star.edge_of)
    for state in rounds(replace(problem, fleet=fleet, planner=planner, policy=Given())):
        if state.t and state.t % TAU2 == 0 and state.row.test_accuracy is not None:
            yield state.row.test_accuracy


def kill(here: Deployed, victim: Victim | Mishap) -> Fate:
    """Kill a process in the middle of a round; wait for its like, and for the round to end."""
    wait(lambda: all_online(here.d), "all SuperNodes online")
    before = activations(here.d)
    time.sleep(MIDDLE_S)
    pid = 0
    if isinstance(victim, Victim):
        pid = wait(lambda: here.find(victim), victim.kind)
    rows, begun = len(rows_of(here.d)), time.monotonic()
    victim.strike(here, pid)
    if isinstance(victim, Victim):
        wait(lambda: here.find(victim) not in (None, pid), f"{victim.kind}, again")
    for name in victim.restarts:
        wait(lambda name=name: activations(here.d).get(name) not in (None, before[name]), name)
    back_s = time.monotonic() - begun
    wait(lambda: len(rows_of(here.d)) > rows, f"a round after {victim.kind} was killed")
    round_s = time.monotonic() - begun
    return Fate(victim.kind, back_s, round_s, lost_in(rows_of(here.d)[rows]))


def lost_in(row: dict[str, Any]) -> str:
    """Say what did not count in a round."""
    gone = [f"the round of {node['node']}" for node in row["dropped"]]
    faults = sum(int(row.get(f"train.nodes-{f}", 0)) for f in FAULTS)
    if faults:
        gone.append(f"{faults} answer{'s' if faults > 1 else ''} of a node")
    return ", ".join(gone) or "nothing"


def check(rows: list[dict[str, Any]], scores: list[float]) -> list[str]:
    """Say in lines that nothing was counted twice; fail if anything was."""
    assert [row["round"] for row in rows] == list(range(1, len(rows) + 1)), "a round twice"
    assert [row["t"] for row in rows] == [TAU2 * (k + 1) for k in range(len(rows))]
    answers = 0
    for row in rows:
        counts = [
            int(row.get(f"train.nodes-{f}", 0)) for f in ("counted", "late", "failed", "rejected")
        ]
        edges = int(row["counted"])
        assert edges + len(row["dropped"]) == 2, row
        assert sum(counts) == edges * TAU2 * N // 2, row
        answers += counts[0]
    whole = [row["counted"] == 2 and lost_in(row) == "nothing" for row in rows]
    prefix = whole.index(False) if False in whole else len(whole)
    same = [
        abs(row["test.accuracy"] - s) < 0.01 for row, s in zip(rows[:prefix], scores, strict=False)
    ]
    assert all(same), "a round without a loss has another model than the simulator"
    return [
        f"{len(rows)} rounds, each once and in order; {answers} of {len(rows) * TAU2 * N} answers "
        "of nodes counted, none twice",
        f"until the first loss, {prefix} rounds have the simulator's accuracy",
    ]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=90.0, help="stop killing after that")
    parser.add_argument("--only", default="", help="kill only what has this word in its name")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of the first")
    parser.add_argument("--out", type=Path, help="write the table here, too")
    parser.add_argument("--folder", type=Path, help="work here, and leave it")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and end what was started
    every: list[Victim | Mishap] = [*victims(), *mishaps()]
    chosen = [v for v in every[args.skip :] if args.only in v.kind]
    steps = TAU2 * (4 * len(chosen) + 20)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="flower-recovery-"))
    config, port = config_of(steps), next(free_blocks(100))
    cut(config, folder / "parts")
    run_config = {"parts": str(folder / "parts"), "lr": config.train.lr}
    d = Deployment(plan_of(config, steps), LIGHT, folder / "deploy", port=port, node_port=port + 20)
    d = replace(d, run_config=run_config, timeout_s=180.0, tls=True)
    write(d)
    (d.folder / "logs").mkdir(exist_ok=True)
    here = Deployed(d)
    try:
        lines = killed(here, chosen, args.minutes)
    finally:
        here.stop()
    rows = rows_of(d)
    lines += ["", *check(rows, list(simulated(config_of(len(rows) * TAU2))))]
    print("\n".join(lines))
    if args.out:
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if not args.folder:
        shutil.rmtree(folder)


def killed(here: Deployed, chosen: list[Victim | Mishap], minutes: float) -> list[str]:
    """Start everything, kill one after the other, and return the table."""
    d = here.d
    for name in [*d.places, *d.nodes()]:
        here.start(name)
    wait(lambda: all_online(d), "all SuperNodes online")
    subprocess.run(["./run.sh"], cwd=d.folder, env=environment(d.folder), check=True)
    wait(lambda: len(rows_of(d)) >= 1, "the first round")
    begun = time.monotonic()
    wait(lambda: len(rows_of(d)) >= 3, "two rounds")
    usual_s, deadline = (time.monotonic() - begun) / 2, time.monotonic() + 60 * minutes
    fates = []
    for victim in chosen:
        if time.monotonic() > deadline:
            break
        fates.append(kill(here, victim))
        f = fates[-1]
        said = f"{f.kind}: {f.back_s:.0f} s, {f.round_s:.0f} s, {f.lost}"
        print(said, file=sys.stderr, flush=True)
    rows = [f"| {f.kind} | {f.back_s:.0f} | {f.round_s:.0f} | {f.lost} |" for f in fates]
    head = ["| killed | back after, s | next round after, s | lost |", "| --- | --- | --- | --- |"]
    told = f"{len(fates)} of {len(victims()) + len(mishaps())} tried"
    told += f"; a round takes {usual_s:.0f} s otherwise"
    return [*head, *rows, "", told]


def activations(d: Deployment) -> dict[str, str]:
    """Return since when each SuperNode is connected, by its name; those that are not are not in."""
    from flwr.proto.control_pb2 import ListNodesRequest

    found: dict[str, str] = {}
    for place in d.places:
        names = {public_key(d.folder / "keys" / f"{k}.pub"): k for k in keys_of(d, place)}
        try:
            with control._client(d, place) as client:
                nodes = client.ListNodes(ListNodesRequest()).nodes_info
        except FlowerError:
            continue
        found |= {
            names[node.public_key]: node.last_activated_at
            for node in nodes
            if node.status == "online" and node.public_key in names
        }
    return found


def links_online(d: Deployment, place: str) -> int:
    """Return how many SuperNodes a place has; 0 while it does not answer."""
    try:
        return online(d, place)
    except FlowerError:
        return 0


def all_online(d: Deployment) -> bool:
    """Whether every SuperNode is connected."""
    nodes = sum(links_online(d, place) for place in EDGES)
    return links_online(d, "coordinator") == len(EDGES) and nodes == N


if __name__ == "__main__":
    main()
