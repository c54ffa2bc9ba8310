"""Operating a deployment, without processes: units, keys, hosts, numbers, what is carried over."""

import base64
import configparser
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from coterie.cli import main
from coterie.flower import FlowerError
from coterie.flower.deploy import Deployment, read_deployment, write
from coterie.flower.groups import Groups
from coterie.flower.hosts import hosts_of, machines_of, read_hosts
from coterie.flower.state import State, save_state, saved
from coterie.flower.units import compose, systemd
from coterie.preview.planfile import Plan, PlannedNode
from coterie.preview.planfile.writing import contents
from coterie.simulation.schedule import Schedule
from coterie.simulation.state import Plan as Groupings
from plans import EXAMPLE
from resuming import wait_for

APP = Path(__file__).parents[2] / "examples" / "flower_app"
NAMES = ("a", "b", "c", "d", "e", "f")
needs_flower = pytest.mark.skipif(
    find_spec("flwr") is None, reason="flwr is not installed: pip install 'coterie[flower]'"
)


def plan(names: Iterable[str] = NAMES, **changes: Any) -> Plan:
    nodes = tuple(PlannedNode(name, i % 2, 5, 0.1) for i, name in enumerate(names))
    servers = tuple(node.node for node in nodes[:2])
    whole = replace(EXAMPLE, servers=servers, nodes=nodes, tau1=1, tau2=2, steps=20)
    return replace(whole, **changes)


def deployment(folder: Path, **changes: Any) -> Deployment:
    return replace(Deployment(plan(), APP, folder), **changes)


def coterie(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def refused(*words: object) -> str:
    """What the command line says in one line when it refuses."""
    done = coterie(*words)
    assert done.exit_code == 2, done.output
    assert done.output.startswith("coterie: ")
    assert done.output.count("\n") == 1
    return done.output


# The folder


def test_a_deployment_is_read_as_it_was_written(tmp_path: Path) -> None:
    pytest.importorskip(
        "cryptography", reason="flwr is not installed: pip install 'coterie[flower]'"
    )
    d = deployment(tmp_path / "d", tls=True, rounds=3, numbers={"a": 6}, device_keys=True)
    write(d)
    again = read_deployment(tmp_path / "d")
    assert replace(again, app=APP, run_config={}) == d
    assert again.nodes() == d.nodes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read (No such file or directory); give the folder that coterie flower"),
        ("{", "is not JSON"),
        ("[]", "is no deployment of version 1"),
        ('{"format": "coterie-deployment", "version": 2}', "is no deployment of version 1"),
        ('{"format": "coterie-deployment", "version": 1}', "has no 'port'; write the folder again"),
    ],
)
@needs_flower
def test_a_folder_that_is_no_deployment_is_refused(
    tmp_path: Path, text: str | None, said: str
) -> None:
    write(deployment(tmp_path / "d"))
    path = tmp_path / "d" / "deployment.json"
    path.unlink() if text is None else path.write_text(text)
    for command in (["keep", path.parent, "node-0"], ["status", path.parent], ["run", path.parent]):
        assert said in refused("flower", *command)


@needs_flower
def test_commands_name_what_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    write(deployment(folder))
    assert (
        "has no process 'node-6'; it has coordinator, edge-0, edge-1 and the nodes of"
        in refused("flower", "keep", folder, "node-6")
    )
    assert "has no keys: it is on loopback, without --tls" in refused("flower", "register", folder)
    assert "has no keys" in refused("flower", "key", folder, "node-0")
    write(deployment(tmp_path / "s", tls=True))
    assert "unknown place 'edge-9'" in refused("flower", "register", tmp_path / "s", "edge-9")
    assert "unknown SuperNode 'node-9'" in refused("flower", "key", tmp_path / "s", "node-9")
    assert "start it with ./start.sh coordinator" in refused("flower", "register", tmp_path / "s")
    assert "start it with ./start.sh coordinator" in refused("flower", "run", tmp_path / "s")
    done = coterie("flower", "status", tmp_path / "s")
    assert done.exit_code == 1
    assert done.output.startswith("0 of 3 SuperLinks, 0 of 6 nodes, 0 of 2 edges, 0 of 3 apps; ")


def test_the_table_says_which_process_is_which_node(tmp_path: Path) -> None:
    write(deployment(tmp_path / "d", numbers={name: 10 + i for i, name in enumerate(NAMES)}))
    first, second, *_ = (tmp_path / "d" / "nodes.csv").read_text().splitlines()[:2]
    assert first == "process,node,group,superlink,port"
    assert second == "node-10,a,0,127.0.0.1:8001,9110"


def test_superlinks_remember_and_nobody_else_reads_it(tmp_path: Path) -> None:
    d = deployment(tmp_path / "d")
    write(d)
    for place in d.places:
        command = d.superlink(place)
        assert command[command.index("--database") + 1] == f"links/{place}.db"
    assert (d.folder / "links").stat().st_mode & 0o777 == 0o700


# Units


ODD = ["/opt/coterie/deploy", "/opt/100% sure/a b", '/opt/$HOME/it\'s "so"']


@pytest.mark.parametrize("home", ODD)
def test_the_systemd_unit_is_a_template_for_every_process(home: str) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(systemd(home, "/opt/venv/bin"))
    assert set(unit) == {"DEFAULT", "Unit", "Service", "Install"}
    service = unit["Service"]
    assert service["WorkingDirectory"] == home.replace("%", "%%")
    assert service["ExecStart"].endswith('/start.sh" %i')
    assert (service["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == ("always", "0")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("folder", ["deploy", "100% sure a b"])
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, folder: str) -> None:
    d = deployment(tmp_path / folder)
    write(d)
    unit = tmp_path / "coterie@node-0.service"  # an instance, as systemd makes it of the template
    shutil.copy(d.folder / "units" / "coterie@.service", tmp_path / "coterie@.service")
    unit.symlink_to(tmp_path / "coterie@.service")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "coterie@" in line]
    assert ours == []
    spoilt = (tmp_path / "coterie@.service").read_text().replace("Restart=always", "Restart=ever")
    (tmp_path / "coterie@.service").write_text(spoilt)
    again = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "coterie@" in again.stderr, "it would have said"


@pytest.mark.parametrize("home", ODD)
def test_the_compose_file_is_for_every_process(home: str) -> None:
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load(compose(home))
    assert list(found) == ["services"]
    (service,) = found["services"].values()
    there = home.replace("$", "$$")
    assert service["command"] == ["./start.sh", "${NAME:?a process, such as node-0}"]
    assert service["working_dir"] == there
    assert service["volumes"] == [{"type": "bind", "source": there, "target": there}]
    assert (service["restart"], service["network_mode"]) == ("unless-stopped", "host")


def compose_program() -> list[str]:
    """Docker Compose, if it is here: as a plugin or as a program of its own."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]):
            done = subprocess.run([*words, "version"], capture_output=True, check=False)
            if done.returncode == 0:
                return words
    return []


@pytest.mark.skipif(not compose_program(), reason="Docker Compose is not here")
def test_docker_compose_reads_the_file(tmp_path: Path) -> None:
    d = deployment(tmp_path / "$d 'a b'")
    write(d)
    config = [*compose_program(), "-f", str(d.folder / "units" / "compose.yaml"), "config"]
    env = {**os.environ, "NAME": "node-3", "COTERIE_IMAGE": "coterie"}
    done = subprocess.run(config, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "node-3" in done.stdout
    env.pop("NAME")
    done = subprocess.run(config, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0, "a process must be named"


def test_scripts_and_units_are_as_many_for_5000_nodes(tmp_path: Path) -> None:
    many = plan([f"n{i}" for i in range(5000)])
    d = deployment(tmp_path / "d", plan=many, node_port=20000)
    assert len(write(d)) == 5
    assert sum(path.is_file() for path in d.folder.iterdir()) < 10


# Hosts


def test_the_plans_servers_are_hosts() -> None:
    named = plan(("edge-a.example", "10.0.0.7", "c", "d"))
    assert hosts_of(named, "") == {
        "coordinator": "edge-a.example",
        "edge-0": "edge-a.example",
        "edge-1": "10.0.0.7",
    }
    assert hosts_of(named, "10.0.0.1")["coordinator"] == "10.0.0.1"
    with pytest.raises(FlowerError, match="the server of group 1 is 'switch h', which is no host"):
        hosts_of(plan(("a", "switch h", "c")), "")
    with pytest.raises(FlowerError, match=r"--coordinator must be a host .* got '0.0.0.0'"):
        hosts_of(named, "0.0.0.0")


def test_machines_are_found_by_the_names_of_the_plans_servers(tmp_path: Path) -> None:
    path = tmp_path / "machines.csv"
    path.write_text("server,host\nz,10.0.0.9\nb,10.0.0.2\na,10.0.0.1\n")
    assert read_hosts(path, plan()) == {
        "coordinator": "10.0.0.1",
        "edge-0": "10.0.0.1",
        "edge-1": "10.0.0.2",
    }
    assert read_hosts(path, plan(), "10.0.0.5")["coordinator"] == "10.0.0.5"
    path.write_text("server,host\na,10.0.0.1\na,10.0.0.2\n")
    with pytest.raises(FlowerError, match="'a' is there twice"):
        read_hosts(path, plan())
    path.write_text("server,host\na,10.0.0.1\n")
    with pytest.raises(FlowerError, match="'b', the server of group 1, is missing"):
        read_hosts(path, plan())
    path.write_text("server,host\na,0\n")
    with pytest.raises(FlowerError, match="'a' needs the host that others reach it by"):
        read_hosts(path, plan())


def test_every_machine_gets_the_keys_of_its_own_nodes_alone(tmp_path: Path) -> None:
    d = deployment(tmp_path / "d")
    rows = [f"{node.node},10.0.0.{i}" for i, node in enumerate(d.plan.nodes, 2)]
    (tmp_path / "hosts.csv").write_text("\n".join(["server,host", *rows]) + "\n")
    hosts = read_hosts(tmp_path / "hosts.csv", d.plan, "10.0.0.1")
    d = replace(d, hosts=hosts, machines=machines_of(tmp_path / "hosts.csv", d.plan))
    keys = {
        command[-1].split(":")[0]: {Path(word).name for word in command if "/keys/node-" in word}
        for command in d.copies()
        if command[1] == "-aR"
    }
    assert keys == {f"10.0.0.{i + 2}": {d.key(i)} for i in range(len(d.plan.nodes))}


@needs_flower
def test_a_complete_deployment_needs_nobody(tmp_path: Path) -> None:
    from coterie.flower.health import watch_health

    d = deployment(tmp_path / "d")
    trained(d.folder, d, 10)
    (d.folder / "result.json").write_text('{"status": "complete"}')
    said: list[str] = []
    assert watch_health(d, said.append, watch=False, every_s=1.0, as_json=False)
    assert said == ["5 of 10 rounds over, complete"]


@needs_flower
def test_hosts_from_the_plan_by_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(contents(plan(("10.0.0.1", "10.0.0.2", "c")), ".json"))
    words = ["flower", "up", tmp_path / "plan.json", "--app", APP, "-o", tmp_path / "d"]
    done = coterie(*words, "--hosts", "plan", "--coordinator", "10.0.0.3")
    assert done.exit_code == 0, done.output
    d = read_deployment(tmp_path / "d")
    assert d.hosts == {"coordinator": "10.0.0.3", "edge-0": "10.0.0.1", "edge-1": "10.0.0.2"}
    assert d.secure
    assert "--coordinator is for other machines" in refused(*words, "--coordinator", "10.0.0.3")


# Keys


@needs_flower
def test_keys_are_made_on_the_device_and_only_the_public_one_leaves_it(tmp_path: Path) -> None:
    d = deployment(tmp_path / "d", tls=True, device_keys=True)
    write(d)
    assert list((d.folder / "keys").iterdir()) == [], "none is made here"
    done = coterie("flower", "key", d.folder, "node-2")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("ecdsa-sha2-nistp384 ")
    assert (d.folder / "keys" / "node-2.pub").read_text().strip() == done.output.strip()
    assert (d.folder / "keys" / "node-2").stat().st_mode & 0o777 == 0o600
    assert coterie("flower", "key", d.folder, "node-2").output == done.output, "it is kept"
    far = replace(d, hosts={"edge-1": "10.0.0.2"})
    assert not any("keys/node" in word for command in far.copies() for word in command)


@needs_flower
def test_a_public_key_that_is_none_is_named(tmp_path: Path) -> None:
    from coterie.flower.control import public_key, register

    d = deployment(tmp_path / "d", tls=True)
    write(d)
    path = d.folder / "keys" / "node-0.pub"
    good = path.read_bytes()
    assert public_key(path).startswith(b"-----BEGIN PUBLIC KEY")
    kind, body = good.split()
    point = base64.b64decode(body).replace(b"\x04", b"\x02")  # compressed, which nobody reads
    for content in (b"rubbish\n", b"\xff", b"", kind + b" " + base64.b64encode(point)):
        path.write_bytes(content)
        with pytest.raises(FlowerError, match=r"node-0\.pub: is not a public key as OpenSSH has"):
            register(d, "edge-0")
    (d.folder / "keys" / "node-2.pub").write_bytes(good)
    path.write_bytes(good)
    with pytest.raises(FlowerError, match="are one key; every node needs its own"):
        register(d, "edge-0")


# What is carried from one deployment into another


def trained(folder: Path, d: Deployment, t: int) -> None:
    """Leave a deployment that has trained up to step t."""
    write(d)
    groups = Groups((("edge-0",), ("edge-1",)))
    rows = tuple({"t": k, "round": k // 2, "counted": 2} for k in range(2, t + 1, 2))
    model = {"w": np.arange(3.0)}
    state = State(t, (model,), Groupings(Schedule(2, 1), groups), rows=rows)
    about = {"edges": 2, "tau1": 1, "tau2": 2, "config.lr": 0.5}
    save_state(folder / "state", state, about)


@needs_flower
def test_a_changed_plan_goes_on_with_the_model_and_the_numbers(tmp_path: Path) -> None:
    old = deployment(tmp_path / "old", tls=True)
    trained(old.folder, old, 8)
    changed = plan(("f", "b", "new", "d", "a"), tau2=3, steps=30)  # c and e leave
    (tmp_path / "new.json").write_bytes(contents(changed, ".json"))
    words = ["flower", "up", tmp_path / "new.json", "--app", APP, "-o", tmp_path / "new", "--tls"]
    done = coterie(*words, "--from", old.folder, "--write-only")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0] == (
        "4 nodes stay, 1 of them in another group, 2 leave (c, e), 1 join (new); training goes on "
        "from step 8"
    )
    d = read_deployment(tmp_path / "new")
    assert d.numbers == {"f": 5, "b": 1, "new": 6, "d": 3, "a": 0}
    assert d.top == 7
    for key in ("node-0", "node-5", "edge-0", "edge-1"):
        for name in (key, f"{key}.pub"):
            assert (d.folder / "keys" / name).read_bytes() == (
                old.folder / "keys" / name
            ).read_bytes(), "a device keeps its key"
    assert not (d.folder / "keys" / "node-2").exists(), "who left has none"
    ca = Path("certificates") / "ca.crt"
    assert (d.folder / ca).read_bytes() == (old.folder / ca).read_bytes(), "the hosts are the same"
    header = saved(d.folder / "state")
    assert (header["t"], len(header["rows"])) == (8, 4)
    assert header["about"] == {"edges": 2, "tau1": 1, "tau2": 3, "config.lr": 0.5}
    for more in (["--from", old.folder], []):
        again = coterie(*words, *more, "--write-only")
        assert again.exit_code == 0, again.output
        assert read_deployment(tmp_path / "new") == d, "the same command again changes nothing"


@needs_flower
def test_a_deployment_waits_as_long_as_told_with_a_unit(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(contents(plan(), ".json"))
    words = ["flower", "up", tmp_path / "plan.json", "--app", APP, "-o", tmp_path / "up"]
    for text, seconds in (("90s", 90.0), ("1.5m", 90.0), ("120", 120.0), (None, 600.0)):
        told = [] if text is None else ["--timeout", text]
        done = coterie(*words, *told, "--write-only")
        assert done.exit_code == 0, done.output
        assert read_deployment(tmp_path / "up").timeout_s == seconds
    for text in ("0", "soon", "5MB", "nan"):
        done = coterie(*words, "--timeout", text, "--write-only")
        assert done.exit_code == 2
        assert "--timeout must be a time such as 2s, 500ms" in done.output


@needs_flower
def test_what_cannot_be_carried_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    old, path = deployment(tmp_path / "old"), tmp_path / "plan.json"
    write(old)
    path.write_bytes(contents(plan(steps=8), ".json"))
    words = ["flower", "up", path, "--app", APP, "-o", tmp_path / "new", "--from"]
    assert "state.safetensors: is not there; no round is over" in refused(*words, old.folder)
    assert "deployment.json: cannot be read" in refused(*words, tmp_path / "none")
    trained(old.folder, old, 8)
    said = "is at step 8, and the new plan ends at 8; plan more steps, or give more --rounds"
    assert said in refused(*words, old.folder)
    same = ["flower", "up", path, "--app", APP, "-o", old.folder, "--from", old.folder]
    assert "is the folder to write; choose another --out" in refused(*same)
    (old.folder / "state" / "state.safetensors").write_bytes(b"rubbish")
    assert "damaged" in refused(*words, old.folder)
    assert not (tmp_path / "new").exists()


# Whoever went away in the middle is asked once more


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say who sends: Flower's processes know it from their start."""
    from flwr.supercore.task_identity import TaskIdentity

    for key, value in (("_run_id", 1), ("_task_id", 1), ("_node_id", 1)):
        monkeypatch.setattr(TaskIdentity, key, value, raising=False)


class Going:
    """A grid whose node 1 loses its first message, in one way or another."""

    def __init__(self, how: str) -> None:
        self.how, self.sent = how, dict[str, Any]()
        self.begun = {1: "at first", 2: "at first"}

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=i, last_activated_at=at) for i, at in self.begun.items()]

    def get_node_ids(self) -> list[int]:
        return list(self.begun)

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        keys = []
        for message in messages:
            keys.append(f"m{len(self.sent)}")
            message.metadata.__dict__.update(_message_id=keys[-1], _run_id=1)
            self.sent[keys[-1]] = message
        return keys

    def pull_messages(self, keys: Iterable[str]) -> list[Any]:
        return [reply for key in sorted(keys) if (reply := self._reply(key)) is not None]

    def _reply(self, key: str) -> Any:
        from flwr.app import Error, Message, MetricRecord, RecordDict

        message, node = self.sent[key], self.sent[key].metadata.dst_node_id
        if node == 1 and key == "m0":
            if self.how == "crashed":
                return Message(Error(8, "crashed"), reply_to=message)
            if self.how == "restarted":
                self.begun[1] = "again"
                return None
            if self.how == "away for a while":
                self.begun[1] = "again"
            return Message(Error(5, "offline"), reply_to=message)
        content = RecordDict({"metrics": MetricRecord({"num-examples": len(self.sent)})})
        return Message(content, reply_to=message)


@needs_flower
@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize(
    ("how", "asked", "error"),
    [
        ("crashed", 3, ""),
        ("restarted", 3, ""),
        ("away for a while", 3, ""),
        ("away", 2, "offline"),
    ],
)
def test_a_node_that_lost_its_message_is_asked_once_more_and_counts_once(
    monkeypatch: pytest.MonkeyPatch, how: str, asked: int, error: str
) -> None:
    from coterie.flower import crew
    from coterie.flower.messages import Request

    monkeypatch.setattr(crew, "LOOK_S", 0.05)
    grid = Going(how)
    nodes = crew.GridCrew(grid, poll_s=0.01, back_s=0.5)
    request = Request(None, {})
    answers = nodes.ask("train", {1: request, 2: request}, 60.0)
    assert len(grid.sent) == asked
    assert sorted(a.node_id for a in answers) == [1, 2], "either once"
    assert {a.node_id: a.error for a in answers} == {1: error, 2: ""}


@needs_flower
@pytest.mark.usefixtures("identity")
def test_an_app_that_always_crashes_is_asked_no_third_time() -> None:
    from coterie.flower import crew
    from coterie.flower.messages import Request

    class Crashing(Going):
        def _reply(self, key: str) -> Any:
            from flwr.app import Error, Message

            return Message(Error(8, "crashed"), reply_to=self.sent[key])

    grid = Crashing("crashed")
    (answer,) = crew.GridCrew(grid, poll_s=0.01).ask("train", {1: Request(None, {})}, 60.0)
    assert (answer.error, len(grid.sent)) == ("crashed", 2)


# Apps and processes that ended


@needs_flower
@pytest.mark.parametrize(
    ("status", "living", "waited_s", "done", "again"),
    [
        ("running", [7], 99.0, False, False),
        ("running", [], 99.0, False, True),
        ("running", [], 1.0, False, False),
        ("running", None, 99.0, False, False),
        ("running", [], 99.0, True, False),
        ("pending", [], 99.0, False, True),
        ("finished:failed", [], 0.0, False, True),
        ("finished:failed", None, 0.0, False, True),
        ("finished:failed", [], 0.0, True, False),
        ("finished:completed", [], 99.0, False, False),
        ("finished:stopped", [], 99.0, False, False),
    ],
)
def test_an_app_is_begun_again_unless_it_runs_is_done_or_was_stopped(
    status: str, living: list[int] | None, waited_s: float, done: bool, again: bool
) -> None:
    from coterie.flower.control import App
    from coterie.flower.keep import due

    assert due(App(1, status), living, waited_s, done=done) is again


@needs_flower
def test_a_process_that_ends_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.flower import keep

    monkeypatch.setattr(keep, "FIRST_S", 0.01)
    d = deployment(tmp_path / "d")
    (d.folder / "logs").mkdir(parents=True)
    said: list[str] = []
    command = [sys.executable, "-c", "raise SystemExit(3)", "--host", "127.0.0.1", "--port", "1"]
    kept = keep.Kept(d, "node-0", command, said.append)
    try:
        deadline = time.monotonic() + 120
        while kept.restarts < 2 and time.monotonic() < deadline:
            kept.look()
            time.sleep(0.01)
    finally:
        keep.end_all([kept])
    assert kept.restarts == 2
    assert said[0].startswith("node-0 ended with 3; see ")


SENT = "Sending: 1\\nSent successfully"
STARTS = "Start `flwr-clientapp` process"
TAKEN = f"[RUN 2]\\nReceiving: 2\\nReceived successfully\\n{STARTS}"
DROPPED = "Sending: 1\\nRun ID 1 is not in `RUNNING` status. Ignoring reply message 1"


@needs_flower
@pytest.mark.skipif(sys.platform != "linux", reason="processes are seen on Linux alone")
@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("Sending: 1", "has an answer of which its app left a part"),
        (f"{STARTS}\\n{SENT}", ""),
        (f"Receiving: 2\\n{SENT}\\n{STARTS}", "has an answer that it does not send"),
        (f"{TAKEN}\\n[RUN 1]\\n{DROPPED}", "has an answer that it does not send"),
        (f"{TAKEN}\\n[RUN 2]\\n{DROPPED}", ""),
    ],
)
def test_a_node_that_has_an_answer_and_does_not_send_it_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, says: str
) -> None:
    from coterie.flower import keep

    for name, seconds in {"FIRST_S": 0.01, "HELPER_S": 0.01, "UNSENT_S": 0.3}.items():
        monkeypatch.setattr(keep, name, seconds)
    d = replace(deployment(tmp_path / "d"), timeout_s=0.3)
    (d.folder / "logs").mkdir(parents=True)
    said: list[str] = []
    words = f"import time; print('{log}\\nend', flush=True); time.sleep(600)"
    command = [sys.executable, "-c", words, "--host", "127.0.0.1", "--port", "1"]
    kept = keep.Kept(d, "node-0", command, said.append)
    try:
        wait_for(lambda: "end" in kept._log())
        until = time.monotonic() + (120 if says else 1.5)
        while not kept.restarts and time.monotonic() < until:
            kept.look()
            time.sleep(0.01)
    finally:
        keep.end_all([kept])
    assert kept.restarts == bool(says)
    assert says in "\n".join(said)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are seen on Linux alone")
def test_of_several_processes_of_an_app_the_newest_is_left(tmp_path: Path) -> None:
    from coterie.flower.processes import below, end_older

    waits, mark = "import time; time.sleep(600)", f"an-app-{tmp_path.name}"
    parent = f"""
import subprocess, sys, time
for _ in range(3):
    subprocess.Popen([sys.executable, "-c", "{waits}", "{mark}"])
    time.sleep(0.1)
{waits}
"""
    process = subprocess.Popen([sys.executable, "-c", parent], start_new_session=True)
    try:
        wait_for(lambda: len(below(process.pid, mark) or []) == 3)
        assert end_older(process.pid, mark) == 2
        wait_for(lambda: len(below(process.pid, mark) or []) == 1)
        assert end_older(process.pid, mark) == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are seen on Linux alone")
def test_a_process_that_ends_while_it_is_looked_at_is_nobodys_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from coterie.flower.processes import below

    def gone(self: Path, pattern: str) -> list[Path]:
        raise FileNotFoundError(2, "No such file or directory", str(self))

    monkeypatch.setattr(Path, "glob", gone)
    assert below(os.getpid(), "python") == []


def test_rounds_are_told_once_each(tmp_path: Path) -> None:
    from coterie.flower.health import Rounds

    d = deployment(tmp_path / "d")
    trained(d.folder, d, 4)
    rounds = Rounds(d)
    assert list(rounds.new()) == ["round 1 of 10: 2 edges", "round 2 of 10: 2 edges"]
    assert list(rounds.new()) == []
    trained(d.folder, d, 6)
    assert list(rounds.new()) == ["round 3 of 10: 2 edges"]


@needs_flower
def test_status_for_a_program_is_json(tmp_path: Path) -> None:
    d = deployment(tmp_path / "d")
    trained(d.folder, d, 4)
    done = coterie("flower", "status", d.folder, "--json")
    assert done.exit_code == 1
    found = json.loads(done.output)
    assert (found["well"], found["links"], len(found["rounds"])) == (False, [0, 3], 2)
