"""Flower over loopback: accuracy against the simulator's, and bytes through the global server.

    python benchmarks/flower.py [--nodes 20] [--groups 4] [--rounds 3] [--tau2 2]

Runs four times on real SuperLinks and SuperNodes: GroupStrategy on one SuperLink, the edge tier,
Flower's own FedAvg with as many means, and FedAvg with as many global rounds. Bytes are counted in
a proxy that all SuperNodes of the global SuperLink connect through.
"""

import argparse
import resource
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from coterie import Config, make_config
from coterie.config.prepare import prepare
from coterie.flower.deploy import Deployment, write
from coterie.flower.hosts import COORDINATOR
from coterie.flower.local import run_locally
from coterie.grouping import Evidence, Grouping
from coterie.preview.plan import plans
from coterie.preview.planfile.writing import plan_of
from coterie.simulation.loop import rounds
from coterie.simulation.policies.given import Given
from fleets import LIGHT, Fleet, cut


class Proxy:
    """Passes connections on to another port of this machine, and counts the bytes both ways."""

    def __init__(self, to: int) -> None:
        """Take the port to pass on to; its own is any free one."""
        self.to, self.nbytes = to, 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                continue
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(a, b), daemon=True).start()

    def _pass(self, a: socket.socket, b: socket.socket) -> None:
        try:
            while piece := a.recv(65536):
                b.sendall(piece)
                with self._lock:
                    self.nbytes += len(piece)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            a.close()


@dataclass(frozen=True)
class Through(Deployment):
    """A deployment whose coordinator is reached through a proxy."""

    proxy: int = 0

    def address(self, place: str) -> str:
        """Return the proxy's address for the coordinator."""
        return f"127.0.0.1:{self.proxy}" if place == COORDINATOR else super().address(place)


def config_of(args: argparse.Namespace, evidence: str) -> Config:
    """One class a node where there are nodes enough."""
    kind = "Dtt" if args.nodes >= 10 else "dirichlet"
    return make_config(
        {
            "partition": {"kind": kind, "num_nodes": args.nodes},
            "network": {"topology": "edge-cloud"},
            "algorithm": {
                "num_groups": args.groups,
                "tau2": args.tau2,
                "evidence": evidence,
            },
            "train": {"steps": args.rounds * args.tau2, "lr": 0.5},
        }
    )


def through(
    fleet: Fleet,
    proxy: Proxy,
    folder: Path,
    config: Config,
    args: argparse.Namespace,
    **more: Any,
) -> dict[str, Any]:
    """Run the light app on one SuperLink, and count what goes through it."""
    c = config.train
    settings = {
        "parts": str(folder / "parts"),
        "num_groups": args.groups,
        "tau2": args.tau2,
        "rounds": args.rounds,
        "lr": c.lr,
        "lr_decay": c.lr_decay,
        **more,
    }
    began = time.monotonic()
    with fleet.up() as processes:
        fleet.run(**settings)
        found = fleet.wait(processes)
    scores = [found["accuracy"][key] for key in sorted(found["accuracy"], key=int)]
    return {"accuracy": scores[-1], "bytes": proxy.nbytes, "s": time.monotonic() - began}


def tiered(args: argparse.Namespace, config: Config, folder: Path, port: int) -> dict[str, Any]:
    """Run a plan on the edge tier, and count what goes through the coordinator's SuperLink."""
    view = plans([config], methods=("coterie",))
    plan = plan_of(view)
    proxy = Proxy(port)
    d = Through(
        plan,
        LIGHT,
        folder / "tiers",
        port=port,
        node_port=port + 100,
        rounds=args.rounds,
        run_config={
            "parts": str(folder / "parts"),
            "lr": config.train.lr,
            "lr-decay": config.train.lr_decay,
        },
        proxy=proxy.port,
    )
    write(d)
    began = time.monotonic()
    found: Any = run_locally(d)
    seconds = time.monotonic() - began
    z = np.array([node.group for node in plan.nodes])

    def planner(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        return replace(view.chosen.grouping, z=z)

    problem = replace(prepare(config).problem, planner=planner, policy=Given())
    *_, last = rounds(problem)
    return {
        "accuracy": found["rows"][-1]["test.accuracy"],
        "simulated": last.row.test_accuracy,
        "bytes": proxy.nbytes,
        "s": seconds,
    }


def main() -> None:
    """Run what is asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("nodes", 20), ("groups", 4), ("rounds", 3), ("tau2", 2), ("port", 20000)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--only", default="tiers,often,grouped,seldom")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="coterie-flower-"))
    config = config_of(args, "labels")
    cut(config, folder / "parts")
    found: dict[str, dict[str, Any]] = {}
    for k, name in enumerate(args.only.split(",")):
        port = args.port + 300 * k
        if name == "tiers":
            found[name] = tiered(args, config, folder, port)
        else:
            proxy = Proxy(port)
            fleet = Fleet(folder / name, args.nodes, port, proxy.port)
            more: dict[str, Any] = {"plain": name != "grouped"}
            if name == "seldom":
                more |= {"tau1": args.tau2, "tau2": 1}
            found[name] = through(fleet, proxy, folder, config, args, **more)
        print(name, found[name], flush=True)
    for name, (tau1, tau2) in {"often": (1, 1), "seldom": (args.tau2, 1)}.items():
        if name in found:
            plain = replace(config.algorithm, name="fedavg", tau1=tau1, tau2=tau2)
            *_, last = rounds(prepare(replace(config, algorithm=plain)).problem)
            found[name]["simulated"] = last.row.test_accuracy
    if "grouped" in found:
        found["grouped"]["simulated"] = simulated(config, args)
    report(found, args)


def simulated(config: Config, args: argparse.Namespace) -> float | None:
    """The same run simulated: planned on labels, over a star, as without a network file."""
    from coterie.flower.network import network_of
    from coterie.flower.roster import Roster

    n = args.nodes
    star, _ = network_of(None, Roster({str(i): i for i in range(n)}))
    problem = prepare(config).problem
    fleet = replace(problem.fleet, network=star, edge_of=star.edge_of)
    problem = replace(problem, fleet=fleet)
    *_, last = rounds(problem)
    return last.row.test_accuracy


def report(found: dict[str, dict[str, Any]], args: argparse.Namespace) -> None:
    """Print the table."""
    print(f"{args.nodes} nodes, {args.groups} groups, {args.rounds} rounds, tau2 {args.tau2}")
    print(f"{'':10} {'accuracy':>9} {'simulated':>9} {'kB':>8} {'s':>6}")
    for name, row in found.items():
        other = f"{row['simulated']:.4f}" if "simulated" in row else "-"
        kb = row["bytes"] / 1e3
        print(f"{name:10} {row['accuracy']:9.4f} {other:>9} {kb:8.0f} {row['s']:6.0f}")
    for name in ("often", "seldom"):
        if name in found and "tiers" in found:
            share = found["tiers"]["bytes"] / found[name]["bytes"]
            print(f"tiers / FedAvg {name}: {share:.1%} (limit {1 / args.tau2 + 0.1:.0%})")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    print(f"largest process: {most:.0f} MB")


if __name__ == "__main__":
    main()
