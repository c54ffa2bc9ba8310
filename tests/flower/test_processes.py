"""Flower for real: SuperLinks, SuperNodes and apps as processes on loopback. `make test-flower`."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

if find_spec("flwr") is None:
    pytest.skip("flwr is not installed: pip install 'coterie[flower]'", allow_module_level=True)
if os.environ.get("COTERIE_FLOWER") != "1":
    pytest.skip("takes minutes: make test-flower", allow_module_level=True)

from coterie import Config, make_config
from coterie.config.prepare import prepare
from coterie.flower import FlowerError
from coterie.flower.certificates import write_node_keys
from coterie.flower.deploy import Deployment, write
from coterie.flower.local import run_locally, started
from coterie.flower.processes import environment, start, stop
from coterie.grouping import Evidence, Grouping
from coterie.network import Network
from coterie.preview.plan import plans
from coterie.preview.planfile import Plan
from coterie.preview.planfile.writing import contents, plan_of
from coterie.simulation.loop import rounds
from coterie.simulation.policies.given import Given
from coterie.simulation.problem import Problem
from fleets import LIGHT, Fleet, cut
from ports import free_blocks
from resuming import PATIENCE_S, alive, children, wait_for

APP = Path(__file__).parents[2] / "examples" / "flower_app"
N, ROUNDS, TAU2 = 4, 2, 2
STEPS = ROUNDS * TAU2
LISTENS = "0A"  # the state of a socket that does


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """First of a hundred free ports, others for every test."""
    return free_blocks(100)


def config_of(n: int = N, **algorithm: Any) -> Config:
    return make_config(
        {
            "data": {"sample": 0.2},
            "partition": {"kind": "dirichlet", "num_nodes": n, "num_edges": 2},
            "network": {"topology": "edge-cloud"},
            "algorithm": {"num_groups": 2, "tau2": TAU2, "evidence": "labels", **algorithm},
            "train": {"steps": STEPS, "lr": 0.5},
        }
    )


def settings(folder: Path, config: Config) -> dict[str, Any]:
    return {"parts": str(folder), "lr": config.train.lr, "rounds": ROUNDS, "tau2": TAU2}


def over(problem: Problem, network: Network) -> Problem:
    """The nodes of a problem on another network."""
    assert network.edge_of is not None
    fleet = replace(problem.fleet, network=network, edge_of=network.edge_of)
    return replace(problem, fleet=fleet)


def simulated(config: Config, z: list[int] | None = None) -> float:
    """Accuracy at the end of a simulated run: over a star, or in groups that are given."""
    from coterie.flower.network import network_of
    from coterie.flower.roster import Roster

    problem = prepare(config).problem
    if z is None:
        star, _ = network_of(None, Roster({str(i): i for i in range(problem.fleet.n)}))
        problem = over(problem, star)
    else:
        groups = np.array(z)

        def planner(evidence: Evidence, rng: np.random.Generator) -> Grouping:
            servers = np.array([groups.tolist().index(k) for k in range(groups.max() + 1)])
            return Grouping(groups, servers)

        star, _ = network_of(None, Roster({str(i): i for i in range(problem.fleet.n)}))
        problem = replace(over(problem, star), planner=planner, policy=Given())
    *_, last = rounds(problem)
    assert last.row.test_accuracy is not None
    return last.row.test_accuracy


def test_groups_on_one_superlink_reach_the_simulators_accuracy(tmp_path: Path, port: Any) -> None:
    config = config_of()
    cut(config, tmp_path / "parts")
    fleet = Fleet(tmp_path / "fleet", N, next(port))
    with fleet.up() as processes:
        fleet.run(**settings(tmp_path / "parts", config))
        found = fleet.wait(processes)
    assert found["accuracy"][str(ROUNDS)] == pytest.approx(simulated(config), abs=0.01)
    assert found["train"][str(ROUNDS)]["counted"] == N


def test_scaffold_on_one_superlink_reaches_the_simulators_accuracy(
    tmp_path: Path, port: Any
) -> None:
    config = config_of(name="scaffold", groups="search")
    cut(config, tmp_path / "parts")
    fleet, state = Fleet(tmp_path / "fleet", N, next(port)), tmp_path / "state"
    with fleet.up() as processes:
        more = {"algorithm": "scaffold", "state_dir": str(state)}
        fleet.run(**settings(tmp_path / "parts", config), **more)
        found = fleet.wait(processes)
    assert found["accuracy"][str(ROUNDS)] == pytest.approx(simulated(config), abs=0.01)
    for k in range(1, ROUNDS + 1):
        told = found["train"][str(k)]
        assert (told["counted"], told["failed"]) == (N, 0), "nodes kept what is theirs"
    with safe_open(state / "state.safetensors", "np") as file:
        assert file.get_tensor("kept/own.c").shape == (N, 7850)
        assert np.abs(file.get_tensor("kept/common.c")).max() > 0


def test_a_node_that_sends_nan_and_one_that_is_killed_do_not_end_the_run(
    tmp_path: Path, port: Any
) -> None:
    config = config_of()
    cut(config, tmp_path / "parts")
    fleet = Fleet(tmp_path / "fleet", N, next(port))
    state = tmp_path / "state"
    with fleet.up() as processes:
        more = {"faulty": "nan:1,hold:3", "timeout": 60.0, "state_dir": str(state)}
        fleet.run(**settings(tmp_path / "parts", config), **more)
        wait_for((state / "state.safetensors").exists)
        os.killpg(processes["node-3"].pid, signal.SIGKILL)
        found = fleet.wait(processes)
    last = found["train"][str(ROUNDS)]
    assert last["rejected"] == 2, "in either mean of the round"
    assert last["late"] + last["failed"] >= 1
    assert 0 < found["accuracy"][str(ROUNDS)] < 1


def planned(config: Config) -> Plan:
    return plan_of(plans([config], methods=("coterie",)))


def tiers(tmp_path: Path, config: Config, port: int, **changes: Any) -> Deployment:
    cut(config, tmp_path / "parts")
    run = {"parts": str(tmp_path / "parts"), "lr": config.train.lr}
    d = Deployment(planned(config), LIGHT, tmp_path / "deploy", port=port, node_port=port + 20)
    d = replace(d, run_config=run, timeout_s=120.0, rounds=ROUNDS, **changes)
    write(d)
    return d


def test_the_edge_tier_with_tls_and_keys_reaches_the_simulators_accuracy(
    tmp_path: Path, port: Any
) -> None:
    config = config_of()
    d = tiers(tmp_path, config, next(port), tls=True)
    rows: Any = run_locally(d)["rows"]
    z = [node.group for node in d.plan.nodes]
    assert rows[-1]["test.accuracy"] == pytest.approx(simulated(config, z), abs=0.01)
    assert [row["counted"] for row in rows] == [2, 2]


def test_a_node_without_a_known_key_is_not_let_in(tmp_path: Path, port: Any) -> None:
    d = tiers(tmp_path, config_of(), next(port), tls=True)
    command = d.nodes()["node-0"]
    command[command.index("--port") + 1] = str(d.port + 90)
    command[command.index("--auth-supernode-private-key") + 1] = "keys/stranger"
    write_node_keys(d.folder / "keys", ["stranger"])
    logs = d.folder / "logs"
    with started(d):
        stranger = start(d, "stranger", command)
        try:
            for k in range(N):
                said(logs / f"node-{k}.log", "SuperNode ID")
            said(logs / "stranger.log", "Starting Flower SuperNode")
            time.sleep(10)  # as long again as the others took, or more
            assert "SuperNode ID" not in (logs / "stranger.log").read_text()
        finally:
            stop([stranger])


def said(log: Path, words: str) -> None:
    wait_for(lambda: log.exists() and words in log.read_text())


def test_killed_in_the_middle_the_same_command_goes_on_to_the_same_model(
    tmp_path: Path, port: Any
) -> None:
    config = config_of()
    d = tiers(tmp_path, config, next(port))
    (tmp_path / "plan.json").write_bytes(contents(d.plan, ".json"))
    words = [
        *(sys.executable, "-m", "coterie", "flower", "up", str(tmp_path / "plan.json")),
        *("--app", str(LIGHT), "-o", str(d.folder), "--rounds", str(ROUNDS)),
        *("--port", str(d.port), "--node-port", str(d.node_port), "--timeout", "120"),
        *("--run-config", f'parts="{tmp_path / "parts"}"', "--run-config", "lr=0.5"),
        *("--run-config", 'faulty="hold:1"'),
    ]
    process = subprocess.Popen(words, start_new_session=True)
    try:
        wait_for((d.folder / "state" / "state.safetensors").exists, process)
        started_by_it = children(process.pid)
    finally:
        process.kill()
        process.wait()
    (tmp_path / "parts" / "go").touch()
    wait_for(lambda: not any(map(alive, started_by_it)))  # their ports are free again
    said_before = (d.folder / "logs" / "coordinator-app.log").read_text()
    assert "goes on from step" not in said_before
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=3 * PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    z = [node.group for node in d.plan.nodes]
    score = float(done.stdout.rpartition("accuracy ")[2].split(",")[0])
    assert score == pytest.approx(simulated(config, z), abs=0.01)
    log = (d.folder / "logs" / "coordinator-app.log").read_text()
    assert f"goes on from step {TAU2} of {STEPS}" in log, "and not from the first"
    assert log.count(f"step {TAU2} of {STEPS}: ") == 1, "what was done is not done again"
    assert log.count(f"step {STEPS} of {STEPS}: ") == 1


def test_nothing_that_is_started_listens_beyond_loopback(tmp_path: Path, port: Any) -> None:
    d = tiers(tmp_path, config_of(), next(port))
    with started(d) as here:
        for name in d.nodes():
            said(d.folder / "logs" / f"{name}.log", "SuperNode ID")
        pids = [pid for process in here.processes.values() for pid in family(process.pid)]
        listening = [address for pid in pids for address in listens(pid)]
    assert len(listening) >= len(here.processes), "every SuperLink and SuperNode has a port"
    assert [address for address in listening if not address.endswith("0100007F")] == []


def family(pid: int) -> list[int]:
    """A process and all below it."""
    return [pid, *(other for child in children(pid) for other in family(child))]


def listens(pid: int) -> list[str]:
    """Addresses, in hexadecimal, on which a process listens by TCP."""
    own = set()
    for handle in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            own.add(str(handle.readlink()))
        except OSError:
            continue
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return [
        row[1].partition(":")[0]
        for row in rows
        if row[3] == LISTENS and f"socket:[{row[9]}]" in own
    ]


DYING = """

def evaluate(run, arrays):
    import os

    os._exit(3)
"""


def test_a_coordinator_that_dies_without_a_word_ends_the_command(tmp_path: Path, port: Any) -> None:
    config, app = config_of(), tmp_path / "app"
    shutil.copytree(LIGHT, app)
    with (app / "light_app.py").open("a") as file:
        file.write(DYING)
    d = tiers(tmp_path, config, next(port), app=app)
    with pytest.raises(FlowerError, match="the app of coordinator ended 3 times without a round"):
        run_locally(d)


@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'flwr[simulation]'")
@pytest.mark.parametrize("settings", ["", "algorithm='scaffold'"])
def test_the_example_app_runs_as_it_is_in_flowers_simulation(
    tmp_path: Path, port: Any, settings: str
) -> None:
    first = next(port)
    env = {
        **environment(tmp_path),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(first),
        "FLWR_LOCAL_CONTROL_API_PORT": str(first + 1),
    }
    flwr = str(Path(sys.executable).parent / "flwr")
    try:
        done = subprocess.run(
            [flwr, "run", ".", "--stream", *(["--run-config", settings] if settings else [])],
            cwd=APP,
            env=env,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE_S,
            check=False,
        )
        assert "round 3: {'accuracy'" in done.stdout + done.stderr
        assert " failed" not in done.stdout + done.stderr, "every node kept what is its own"
    finally:
        end_local_superlink(tmp_path / "home")


def end_local_superlink(home: Path) -> None:
    """End the SuperLink that `flwr run` left behind: the one that logs into this home."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(home / "local-superlink").encode() in b" ".join(words):
            os.kill(int(folder.name), signal.SIGTERM)
