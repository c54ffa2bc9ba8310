"""The edge tier without processes: orders, the commands that are written, certificates."""

import json
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from coterie.cli import main
from coterie.config.prepare import prepare
from coterie.flower import FlowerError
from coterie.flower.control import keys_of
from coterie.flower.deploy import Deployment, write
from coterie.flower.edge import coordinator_terms, digest_of, edge_name, serve, terms_of
from coterie.flower.hosts import read_hosts
from coterie.flower.means import mean
from coterie.flower.messages import Answer, Kind, Request
from coterie.flower.spool import Filled, Order, Spool
from coterie.grouping import Evidence, Grouping
from coterie.preview.planfile import Plan, PlanError, PlannedNode
from coterie.preview.planfile.writing import contents
from coterie.simulation.loop import rounds as simulated
from coterie.simulation.policies.given import Given
from crews import (
    TaskCrew,
    accuracy,
    close_calls,
    config_of,
    first_model,
    late,
    same_arrays,
    scalar_config,
)
from plans import EXAMPLE
from resuming import PATIENCE_S

APP = Path(__file__).parents[2] / "examples" / "flower_app"
N = 6
Z = [0, 1, 0, 1, 1, 0]
needs_flower = pytest.mark.skipif(
    find_spec("flwr") is None, reason="flwr is not installed: pip install 'coterie[flower]'"
)


def plan() -> Plan:
    nodes = tuple(PlannedNode(str(i), k, 5, 0.1) for i, k in enumerate(Z))
    return replace(EXAMPLE, servers=("0", "1"), nodes=nodes, tau1=2, tau2=3, steps=12)


def test_edges_and_a_coordinator_train_the_model_that_the_simulator_trains(tmp_path: Path) -> None:
    config = config_of(N, tau1=2, tau2=3, num_groups=2)
    spools = [Spool(tmp_path / edge_name(k)) for k in range(2)]
    terms = terms_of(plan(), 1.0)
    crews = [TaskCrew(config, N, away={i for i in range(N) if Z[i] != k}) for k in range(2)]
    edges = [
        threading.Thread(target=serve, args=(crews[k], plan(), k, spools[k], terms))
        for k in range(2)
    ]
    for thread in edges:
        thread.start()
    model: Any = first_model(config)
    for start in (0, 6):
        orders = [Order(model, start, start + 6, start == 6) for _ in spools]
        for spool, order in zip(spools, orders, strict=True):
            spool.put(order)
        found = [s.result(o, PATIENCE_S) for s, o in zip(spools, orders, strict=True)]
        model = mean([f.arrays for f in found], [f.about["num_examples"] for f in found])
    for thread in edges:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    def planner(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        return Grouping(np.array(Z), np.arange(2))

    problem = replace(prepare(config).problem, planner=planner, policy=Given())
    *_, last = simulated(problem)
    ours = np.concatenate([model[key].ravel() for key in ("1.weight", "1.bias")])
    np.testing.assert_allclose(ours, last.models.w[0].numpy(), rtol=0, atol=2e-6)
    assert accuracy(config, model) == pytest.approx(
        last.row.test_accuracy, abs=close_calls(config, model, 2e-6)
    )


def test_the_coordinator_averages_once_in_a_round() -> None:
    terms = coordinator_terms(plan(), 0, 1.0)
    assert (terms.schedule.tau1, terms.schedule.tau2, terms.steps) == (6, 1, 12)
    assert coordinator_terms(plan(), 5, 1.0).steps == 30


def test_an_order_is_filled_once_and_known_by_its_content(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    order = Order({"w": np.zeros(2)}, 0, 3, last=False)
    spool.put(order)
    spool.put(order)
    again = spool.wait()
    assert again is not None
    assert again.key == order.key
    spool.fill(again, Filled({"w": np.ones(2)}, {"num_examples": 3}))
    assert spool.wait(lambda: bool(spool.result(order, 1.0))) is None
    assert same_arrays(spool.result(order, 1.0).arrays, {"w": np.ones(2)})
    spool.put(Order({"w": np.ones(2)}, 3, 6, last=True))
    assert len(list(tmp_path.iterdir())) == 1, "what is done is cleared away"
    with pytest.raises(FlowerError, match=r"no result within 0.01 s"):
        spool.result(order, 0.01)


def test_an_edge_whose_nodes_are_all_late_says_so(tmp_path: Path) -> None:
    config, spool = config_of(N), Spool(tmp_path)
    crew = TaskCrew(config, N, dict.fromkeys(range(N), late))
    order = Order(first_model(config), 6, 12, last=True)
    spool.put(order)
    tries = iter([False, True])
    serve(crew, plan(), 1, spool, terms_of(plan(), 1.0), lambda: next(tries))
    with pytest.raises(FlowerError, match="group 1: too few nodes answered in any mean; '1' is"):
        spool.result(order, 1.0)
    looks = iter([False, True])
    assert spool.wait(lambda: next(looks)) is None, "not before it is asked for again"
    spool.put(order)
    assert spool.wait() is not None, "it is tried again"


class Silent:
    """Two nodes that do not say who they are."""

    def nodes(self) -> list[int]:
        return [1, 2]

    def ask(self, kind: Kind, asked: Mapping[int, Request], timeout_s: float) -> list[Answer]:
        return []


class Broken(Silent):
    """Nodes that cannot even be asked."""

    def ask(self, kind: Kind, asked: Mapping[int, Request], timeout_s: float) -> list[Answer]:
        raise OSError("no way to the nodes")


@pytest.mark.parametrize(
    ("crew", "said"),
    [
        (Silent(), "group 1: none of 2 nodes said who it is: no answer within the time limit"),
        (Broken(), "group 1: no way to the nodes"),
    ],
)
def test_an_edge_that_cannot_call_its_roll_says_so_and_goes_on(
    tmp_path: Path, crew: Silent, said: str
) -> None:
    spool, order = Spool(tmp_path), Order({"w": np.zeros(2)}, 6, 12, last=True)
    spool.put(order)
    tries = iter([False, True])
    serve(crew, plan(), 1, spool, terms_of(plan(), 1.0), lambda: next(tries))
    with pytest.raises(FlowerError, match=said):
        spool.result(order, 1.0)


def test_an_edge_has_time_for_its_roll_call_and_for_a_late_node_in_every_mean() -> None:
    terms = coordinator_terms(plan(), 0, 10.0)
    longest_s = 10.0 * (1 + plan().tau2)
    assert longest_s < terms.config["wait"] < terms.timeout_s


def test_an_order_of_other_settings_is_another_order(tmp_path: Path) -> None:
    spool, arrays = Spool(tmp_path), {"w": np.zeros(2)}
    order, other = (
        Order(arrays, 0, 6, False, digest_of({"lr": lr, "coterie-rounds": 3})) for lr in (0.1, 0.5)
    )
    spool.put(order)
    spool.fill(order, Filled({"w": np.ones(2)}, {"num_examples": 3}))
    assert digest_of({"lr": 0.1, "coterie-rounds": 9}) == order.settings, "more rounds are the same"
    spool.put(other)
    found = spool.wait()
    assert found is not None
    assert (found.key, found.settings) == (other.key, other.settings)
    with pytest.raises(FlowerError, match="no result within"):
        spool.result(other, 0.01)


def test_a_model_with_a_scalar_array_goes_through_an_edge(tmp_path: Path) -> None:
    config, spool = scalar_config(N), Spool(tmp_path)
    order = Order(first_model(config), 0, 6, last=True)
    spool.put(order)
    tries = iter([False, True])
    serve(TaskCrew(config, N), plan(), 0, spool, terms_of(plan(), 1.0), lambda: next(tries))
    found = spool.result(order, 1.0)
    assert {key: array.shape for key, array in found.arrays.items()} == {
        key: array.shape for key, array in order.arrays.items()
    }
    assert found.arrays["2.num_batches_tracked"] == 6


def deployment(tmp_path: Path, **changes: Any) -> Deployment:
    return replace(Deployment(plan(), APP, tmp_path / "deploy"), **changes)


def commands(d: Deployment) -> list[list[str]]:
    links = [d.superlink(place) for place in d.places]
    return [*links, *d.bridges().values(), *d.nodes().values()]


def test_on_loopback_nothing_listens_beyond_it(tmp_path: Path) -> None:
    for command in commands(deployment(tmp_path)):
        assert command[command.index("--host") + 1] == "127.0.0.1"
        assert "--insecure" in command
    ports = [c[c.index("--port") + 1] for c in commands(deployment(tmp_path))]
    assert len(set(ports)) == len(ports)


HOSTS = {"coordinator": "10.0.0.1", "edge-0": "10.0.0.2", "edge-1": "edge.example"}


def test_beyond_loopback_tls_and_keys_are_on(tmp_path: Path) -> None:
    d = deployment(tmp_path, hosts=HOSTS)
    assert not d.local
    for command in commands(d):
        assert "--insecure" not in command
    for place in d.places:
        command = d.superlink(place)
        assert command[command.index("--host") + 1] == HOSTS[place]
        assert command[command.index("--ssl-certfile") + 1] == f"certificates/{place}.pem"
        assert "--enable-supernode-auth" in command
    for command in [*d.bridges().values(), *d.nodes().values()]:
        assert command[command.index("--host") + 1] == "127.0.0.1", "its own port stays here"
        assert "--root-certificates" in command
        assert "--auth-supernode-private-key" in command
    assert [len(keys_of(d, place)) for place in d.places] == [2, 3, 3]
    assert d.nodes()["node-1"][2] == "edge.example:8002"


@needs_flower
def test_certificates_are_for_their_hosts_and_secrets_are_secret(tmp_path: Path) -> None:
    d = deployment(tmp_path, hosts=HOSTS)
    write(d)
    there = d.folder / "certificates"
    for place, host in HOSTS.items():
        check = "-verify_hostname" if host == "edge.example" else "-verify_ip"
        ask = ["openssl", "verify", "-CAfile", str(there / "ca.crt"), check, host]
        done = subprocess.run(
            [*ask, str(there / f"{place}.pem")], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    secrets = [*there.glob("*.key"), *(p for p in (d.folder / "keys").iterdir() if not p.suffix)]
    assert len(secrets) == 3 + 2 + N
    assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}
    before = (there / "ca.crt").read_bytes()
    write(d)
    assert (there / "ca.crt").read_bytes() == before, "written again, keys stay"
    links = tomllib.loads((d.folder / "home" / "config.toml").read_text())["superlink"]
    assert links["edge-0"]["address"] == "10.0.0.2:8001"
    assert links["edge-0"]["insecure"] is False


def test_what_is_written_reports_to_nobody_and_is_shell(tmp_path: Path) -> None:
    scripts = write(deployment(tmp_path))
    names = ["start.sh", "register.sh", "run.sh", "coterie@.service", "compose.yaml"]
    assert [path.name for path in scripts] == names, "as many for 5,000 nodes as for 6"
    for path in scripts[:3]:
        assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0
        assert "FLWR_TELEMETRY_ENABLED=0" in path.read_text()
        assert "0.0.0.0" not in path.read_text()


def test_the_apps_keep_the_client_and_get_another_server(tmp_path: Path) -> None:
    d = deployment(tmp_path, run_config={"num-nodes": N})
    write(d)
    parts = {}
    for name in ("edge-app", "coordinator-app"):
        raw = tomllib.loads((d.folder / name / "pyproject.toml").read_text())
        app = raw["tool"]["flwr"]["app"]
        parts[name] = app["components"]
        assert app["config"]["num-nodes"] == N
        assert (d.folder / name / "group_app" / "task.py").exists()
    assert parts["edge-app"] == {
        "serverapp": "coterie.flower.apps:edge",
        "clientapp": "group_app.client_app:app",
    }
    assert parts["coordinator-app"] == {
        "serverapp": "coterie.flower.apps:coordinator",
        "clientapp": "coterie.flower.apps:bridge",
    }


def test_a_deployment_that_cannot_be_is_refused(tmp_path: Path) -> None:
    write(deployment(tmp_path))
    with pytest.raises(FlowerError, match="is of another plan; choose another --out"):
        write(deployment(tmp_path, plan=replace(plan(), tau2=4)))
    with pytest.raises(FlowerError, match="is not a Flower app"):
        write(deployment(tmp_path, app=tmp_path / "none"))
    with pytest.raises(FlowerError, match="its config has no 'colour'"):
        write(deployment(tmp_path, run_config={"colour": "red"}))


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"app": APP / "none"}, "is not a Flower app"),
        ({"run_config": {"colour": "red"}}, "its config has no 'colour'"),
        (
            {"run_config": {"algorithm": "scaffold"}},
            "algorithm = 'scaffold' is not offered on the edge tier",
        ),
        ({"hosts": {"coordinator": "köln.example"}}, "cannot be reached by others as 'köln"),
        ({"hosts": {"edge-1": "0.0.0.0"}}, "edge-1 cannot be reached by others as '0.0.0.0'"),
        ({"timeout_s": float("nan")}, "--timeout must be above 0 and finite, got nan"),
        ({"node_port": 8002}, "ports 8000 to 8002 of SuperLinks and 8002 to 8009 of SuperNodes"),
        ({"node_port": 65530}, "port 65537 is beyond 65535"),
    ],
)
def test_what_cannot_be_deployed_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(FlowerError) as refused:
        write(deployment(tmp_path, tls=True, **changes))
    assert said in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "plan.json").write_text("{")
    with pytest.raises(PlanError, match="is not JSON"):
        write(deployment(tmp_path))
    assert list(everything(tmp_path)) == ["deploy/plan.json"]


def test_a_deployment_inside_its_app_is_refused(tmp_path: Path) -> None:
    app = tmp_path / "app"
    shutil.copytree(APP, app)
    before = everything(tmp_path)
    for folder in (app, app / "deploy", tmp_path):
        with pytest.raises(FlowerError, match="are one inside the other; choose another --out"):
            write(deployment(tmp_path, app=app, folder=folder, tls=True))
    assert everything(tmp_path) == before


def verified(folder: Path, place: str, host: str) -> bool:
    """Whether a place's certificate is for a host, by the folder's authority."""
    there = folder / "certificates"
    ask = ["openssl", "verify", "-CAfile", str(there / "ca.crt"), "-verify_ip", host]
    done = subprocess.run([*ask, str(there / f"{place}.pem")], capture_output=True, check=False)
    return done.returncode == 0


@needs_flower
def test_for_other_hosts_certificates_are_made_anew_and_keys_stay(tmp_path: Path) -> None:
    d = deployment(tmp_path, hosts=HOSTS)
    write(d)
    before = everything(d.folder)
    other = replace(d, hosts={**HOSTS, "coordinator": "10.9.9.1"})
    write(other)
    assert verified(d.folder, "coordinator", "10.9.9.1")
    assert verified(d.folder, "edge-0", HOSTS["edge-0"])
    after = everything(d.folder)
    keys = [name for name in before if name.startswith("keys/")]
    assert {name: after[name] for name in keys} == {name: before[name] for name in keys}
    (d.folder / "keys" / "node-3").unlink()
    write(other)
    same = everything(d.folder)
    assert {**same, "keys/node-3": after["keys/node-3"]} == after, "moved away is not made again"


@needs_flower
def test_what_a_stopped_command_left_out_is_made_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.flower import certificates

    d, secret, stop_at = deployment(tmp_path, hosts=HOSTS), certificates._write_secret, ""

    def stops(path: Path, *content: Any) -> None:
        if path.name == stop_at:
            raise KeyboardInterrupt
        secret(path, *content)

    monkeypatch.setattr(certificates, "_write_secret", stops)
    for name in ("edge-1", "node-3", "coordinator.key", "edge-1.key"):
        stop_at = name
        with pytest.raises(KeyboardInterrupt):
            write(d)
        assert not (d.folder / "certificates" / "ca.crt").exists()
    stop_at = ""
    write(d)
    assert verified(d.folder, "coordinator", HOSTS["coordinator"])
    names = {*d.places[1:], *d.nodes()}
    assert {p.name for p in (d.folder / "keys").iterdir()} == names | {f"{n}.pub" for n in names}


@needs_flower
@pytest.mark.parametrize("name", ['a"b', "a\\", '\\"', "a 'b' =c", "köln", "a.toml"])
def test_flower_reads_every_name_of_a_node_as_it_is(tmp_path: Path, name: str) -> None:
    from flwr.common.config import parse_config_args

    _, *others = plan().nodes
    named = replace(plan(), servers=(name, "1"), nodes=(PlannedNode(name, 0, 5, 0.1), *others))
    d = deployment(tmp_path, plan=named, folder=tmp_path / 'a "b"')
    for command, key, value in (
        (d.nodes()["node-0"], "node-id", name),
        (d.bridges()["edge-0"], "folder", str(d.folder)),
    ):
        config = parse_config_args([command[command.index("--node-config") + 1]])
        assert config[key] == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("place,host\ncoordinator,a\n", "edge-0 is missing; it needs a host"),
        ("place,host\ncoordinator,a\ncoordinator,b\n", "coordinator is there twice"),
        (
            "place,host\nedge-7,a\n",
            "one of coordinator, edge-0, edge-1, got 'edge-7'",
        ),
        ("place,host\ncoordinator,0.0.0.0\n", "needs the host that others reach it by"),
        *(
            (f"place,host\ncoordinator,{host}\n", "needs the host that others reach it by")
            for host in ("a b", "0", "::0", "::", "::ffff:0.0.0.0", "0x0", "-x", "köln.example", "")
        ),
        ("x\n1\n", "place must be one of"),
    ],
)
def test_hosts_that_are_wrong_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "hosts.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FlowerError) as refused:
        read_hosts(path, plan())
    assert said in str(refused.value)


@needs_flower
def test_the_command_writes_and_starts_nothing_for_other_machines(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(contents(plan(), ".json"))
    hosts = "\n".join(["place,host", *(f"{place},{host}" for place, host in HOSTS.items())])
    (tmp_path / "hosts.csv").write_text(hosts)
    words = ["flower", "up", str(tmp_path / "plan.json"), "--hosts", str(tmp_path / "hosts.csv")]
    done = CliRunner().invoke(main, [*words, "--app", str(APP), "-o", str(tmp_path / "d")])
    assert done.exit_code == 0, done.output
    there, others = str(tmp_path / "d"), "--include 'keys/*.pub' --exclude 'keys/*'"
    for kept in ("certificates/*.key", "links/*", "logs/*", "state/*"):
        others += f" --exclude '{kept}'"
    assert done.output.splitlines()[1:-1] == [
        f"rsync -a {others} {there}/ 10.0.0.2:{there}/",
        f"rsync -aR {there}/./certificates/edge-0.key {there}/./keys/edge-0 "
        + " ".join(f"{there}/./keys/node-{i}" for i in (0, 2, 5))
        + f" 10.0.0.2:{there}/",
        f"rsync -a {others} {there}/ edge.example:{there}/",
        f"rsync -aR {there}/./certificates/edge-1.key {there}/./keys/edge-1 "
        + " ".join(f"{there}/./keys/node-{i}" for i in (1, 3, 4))
        + f" edge.example:{there}/",
    ]
    assert json.loads((tmp_path / "d" / "plan.json").read_text())["version"] == 1
    other = CliRunner().invoke(main, ["flower", "up", str(tmp_path / "hosts.csv")])
    assert other.exit_code == 2
    assert "is not a plan" in other.output


def test_without_flower_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(contents(plan(), ".json"))
    code = (
        "import sys; from importlib.util import find_spec as f; import importlib.util as u\n"
        "u.find_spec = lambda name, *a: None if name == 'flwr' else f(name, *a)\n"
        "from coterie.cli import main; main(sys.argv[1:])"
    )
    words = [sys.executable, "-c", code, "flower", "up", str(tmp_path / "plan.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "coterie: flwr: needs coterie[flower]: pip install 'coterie[flower]'\n"
