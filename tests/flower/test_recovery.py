"""Flower for real, and what dies of it: kept processes on loopback. `make test-flower`."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if find_spec("flwr") is None:
    pytest.skip("flwr is not installed: pip install 'coterie[flower]'", allow_module_level=True)
if os.environ.get("COTERIE_FLOWER") != "1":
    pytest.skip("takes minutes: make test-flower", allow_module_level=True)

from coterie import Config, make_config
from coterie.config.prepare import prepare
from coterie.flower.carry import carry_keys, carry_run, prepared
from coterie.flower.certificates import write_node_keys
from coterie.flower.control import keys_of, online, register
from coterie.flower.deploy import Deployment, write
from coterie.flower.health import rows_of
from coterie.flower.local import Local, run_locally, started
from coterie.flower.processes import HELPER, SERVER_APP, below
from coterie.grouping import Evidence, Grouping
from coterie.preview.planfile import Plan, PlannedNode, Predicted
from coterie.simulation.loop import rounds
from coterie.simulation.policies.given import Given
from fleets import LIGHT, cut
from ports import free_blocks
from resuming import wait_for

N, TAU2, ROUNDS = 4, 2, 2


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """First of a hundred free ports, others for every test."""
    return free_blocks(100)


def config_of(n: int = N, num_rounds: int = ROUNDS) -> Config:
    return make_config(
        {
            "data": {"sample": 0.2},
            "partition": {"kind": "dirichlet", "num_nodes": n, "num_edges": 2},
            "network": {"topology": "edge-cloud"},
            "algorithm": {"num_groups": 2, "tau2": TAU2, "evidence": "labels"},
            "train": {"steps": num_rounds * TAU2, "lr": 0.5},
        }
    )


def plan_of(config: Config, names: list[str], steps: int) -> Plan:
    """Nodes of these names, in turn in either group."""
    sizes = prepare(config).problem.fleet.class_counts.sum(axis=1)
    nodes = tuple(
        PlannedNode(name, i % 2, int(sizes[int(name)]), 0.0) for i, name in enumerate(names)
    )
    times = Predicted(0, 0, 0, 0)
    servers = names[0], names[1]
    return Plan("nodes in turn", "given", 1, TAU2, steps, 31_400, 0.0, times, servers, nodes)


def deployed(tmp_path: Path, port: int, num_rounds: int = ROUNDS, **changes: Any) -> Deployment:
    config = config_of(num_rounds=num_rounds)
    cut(config, tmp_path / "parts")
    plan = plan_of(config, [str(i) for i in range(N)], num_rounds * TAU2)
    d = Deployment(plan, LIGHT, tmp_path / "deploy", port=port, node_port=port + 20)
    run = {"parts": str(tmp_path / "parts"), "lr": config.train.lr}
    d = replace(d, run_config=run, timeout_s=120.0, **changes)
    write(d)
    return d


def simulated(config: Config) -> float:
    """Accuracy at the end of a simulated run in the same groups."""
    from coterie.flower.network import network_of
    from coterie.flower.roster import Roster

    def planner(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        return Grouping(np.arange(N) % 2, np.arange(2))

    problem = prepare(config).problem
    star, _ = network_of(None, Roster({str(i): i for i in range(N)}))
    assert star.edge_of is not None
    fleet = replace(problem.fleet, network=star, edge_of=star.edge_of)
    *_, last = rounds(replace(problem, fleet=fleet, planner=planner, policy=Given()))
    assert last.row.test_accuracy is not None
    return last.row.test_accuracy


def all_online(d: Deployment) -> bool:
    nodes = sum(online(d, place) for place in d.places[1:])
    return online(d, "coordinator") == 2 and nodes == len(d.plan.nodes)


def kept(here: Local, condition: Any) -> None:
    """Keep the processes until something is so."""

    def looked() -> bool:
        here.look()
        return bool(condition())

    wait_for(looked)


def test_a_superlink_that_was_killed_lets_its_nodes_in_again(tmp_path: Path, port: Any) -> None:
    d = deployed(tmp_path, next(port), tls=True)
    with started(d) as here:
        kept(here, lambda: all_online(d))
        before = {name: process.pid for name, process in here.processes.items()}
        here.processes["edge-0"].kill()
        kept(here, lambda: here.places["edge-0"].link.restarts)
        kept(here, lambda: here.places["edge-0"].ready)
        again = time.monotonic() + 40  # as long as a heartbeat takes, and more
        kept(here, lambda: time.monotonic() > again)
        assert online(d, "edge-0") == 2, "they are known"
        now = {name: process.pid for name, process in here.processes.items()}
        assert {name for name in now if now[name] != before[name]} == {"edge-0"}


def test_keys_are_registered_once_however_often(tmp_path: Path, port: Any) -> None:
    d = deployed(tmp_path, next(port), tls=True, device_keys=True)
    said: list[str] = []
    write_node_keys(d.folder / "keys", ["node-0", "edge-0", "edge-1"])
    with started(d, said.append) as here:
        kept(here, lambda: here.places["edge-0"].ready)
        first = register(d, "edge-0")
        assert (first.new, first.known, first.missing) == (0, 1, ("node-2",)), "the place did it"
        write_node_keys(d.folder / "keys", keys_of(d, "edge-0"))
        kept(here, lambda: any("1 keys registered, 1 known before" in line for line in said))
        assert register(d, "edge-0").new == 0, "a key that came later is taken by the place, too"
        write_node_keys(d.folder / "keys", keys_of(d, "edge-1"))
        kept(here, lambda: all_online(d))


def descendant(here: Local, name: str, program: str) -> int | None:
    """Process below one of the deployment's that runs a program."""
    found = below(here.processes[name].pid, program)
    return found[0] if found else None


def killing(d: Deployment, *victims: tuple[int, str, str]) -> dict[str, Any]:
    """Run a deployment, and kill processes after so many rounds: (rounds, of whom, program)."""
    from coterie.flower import local

    left, watched = list(victims), local._watch

    def watch(here: Local, told: Any) -> None:
        def hunt() -> None:
            while left:
                after, name, program = left[0]
                pid = here.processes[name].pid if not program else descendant(here, name, program)
                if len(rows_of(d)) >= after and pid:
                    os.kill(pid, signal.SIGKILL)
                    left.pop(0)
                time.sleep(0.2)

        threading.Thread(target=hunt, daemon=True).start()
        watched(here, told)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_watch", watch)
        found: dict[str, Any] = run_locally(d)
    assert left == [], "all were killed"
    return found


def test_a_killed_supernode_does_not_end_the_command(tmp_path: Path, port: Any) -> None:
    d = deployed(tmp_path, next(port), num_rounds=3)
    rows = killing(d, (1, "node-0", ""))["rows"]
    assert [row["round"] for row in rows] == [1, 2, 3]
    for row in rows:
        answers = sum(
            row[f"train.nodes-{fate}"] for fate in ("counted", "late", "failed", "rejected")
        )
        assert answers == N * TAU2, "every node once in a mean, whatever came of it"


def test_killed_links_helpers_and_apps_change_no_digit(tmp_path: Path, port: Any) -> None:
    d = deployed(tmp_path, next(port), num_rounds=4, tls=True)
    rows = killing(
        d,
        (1, "edge-0", ""),
        (2, "coordinator", SERVER_APP),
        (3, "edge-1", HELPER),
    )["rows"]
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert [row["train.nodes-counted"] for row in rows] == 4 * [N * TAU2]
    assert rows[-1]["test.accuracy"] == pytest.approx(simulated(config_of(num_rounds=4)), abs=0.01)


def test_a_changed_plan_goes_on_with_others(tmp_path: Path, port: Any) -> None:
    old = deployed(tmp_path, next(port), tls=True)
    run_locally(old)
    plan = plan_of(config_of(), ["2", "1", "0"], 4 * TAU2)  # 3 leaves; 0 and 2 stay in their group
    new = replace(old, plan=plan, folder=tmp_path / "new")
    new, carried = prepared(old.folder, new)
    assert (carried.leave, carried.join, carried.step) == (("3",), (), ROUNDS * TAU2)
    carry_keys(old.folder, new)
    write(new)
    carry_run(old.folder, new)
    rows: Any = run_locally(new)["rows"]
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert [row["train.nodes-counted"] for row in rows] == [8, 8, 6, 6]


def test_the_written_scripts_start_everything(tmp_path: Path, port: Any) -> None:
    from coterie.flower.processes import environment

    d = deployed(tmp_path, next(port), num_rounds=1, tls=True)
    env = environment(d.folder)
    names = [*d.places, *d.nodes()]
    keepers = [
        subprocess.Popen(["./start.sh", name], cwd=d.folder, env=env, stdout=subprocess.DEVNULL)
        for name in names
    ]
    try:

        def up() -> bool:
            done = subprocess.run(
                ["coterie", "flower", "status", str(d.folder), "--json"],
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            return '"links": [3, 3], "nodes": [4, 4], "bridges": [2, 2]' in done.stdout

        wait_for(up)
        again = subprocess.run(
            ["./register.sh"], cwd=d.folder, env=env, capture_output=True, text=True, check=False
        )
        assert again.returncode == 0, again.stderr
        assert "0 keys registered, 2 known before" in again.stdout
        subprocess.run(["./run.sh"], cwd=d.folder, env=env, check=True)
        wait_for((d.folder / "result.json").exists)
        told = subprocess.run(
            ["coterie", "flower", "status", str(d.folder), "--watch"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "round 1 of 1: 2 edges, 8 answers of nodes, accuracy" in told.stdout
        assert "1 of 1 rounds over, complete" in told.stdout
    finally:
        for keeper in keepers:
            keeper.terminate()
        for keeper in keepers:
            keeper.wait(120)
