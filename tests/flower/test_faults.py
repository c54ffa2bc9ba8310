"""What the system refuses, and folders that are not as they were: one line, nothing half done."""

import ast
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

if find_spec("flwr") is None:
    pytest.skip("flwr is not installed: pip install 'coterie[flower]'", allow_module_level=True)

from altered import texts_of
from coterie import flower
from coterie.cli import main
from coterie.core.errors import CoterieError
from coterie.flower import FlowerError
from coterie.flower.control import App, apps
from coterie.flower.deploy import Deployment, check_place, held, read_deployment, write
from coterie.flower.groups import Groups
from coterie.flower.processes import check_free, flwr, start
from coterie.flower.state import State, save_state
from coterie.preview.planfile import Plan, PlannedNode
from coterie.preview.planfile.writing import contents
from coterie.simulation.schedule import Schedule
from coterie.simulation.state import Plan as Groupings
from plans import EXAMPLE
from ports import free_blocks

APP = Path(__file__).parents[2] / "examples" / "flower_app"
NAMES = ("a", "b", "c", "d")
EVERY = 23  # of the changed files, one in so many is tried here


def plan(**changes: Any) -> Plan:
    nodes = tuple(PlannedNode(name, i % 2, 5, 0.1) for i, name in enumerate(NAMES))
    whole = replace(EXAMPLE, servers=NAMES[:2], nodes=nodes, tau1=1, tau2=2, steps=20)
    return replace(whole, **changes)


def deployment(folder: Path, **changes: Any) -> Deployment:
    return replace(Deployment(plan(), APP, folder), **changes)


def coterie(*words: object) -> Result:
    return CliRunner().invoke(main, ["flower", *map(str, words)])


def refused(*words: object) -> str:
    """What the command line says in one line when it refuses."""
    done = coterie(*words)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2, done.output
    assert done.output.startswith("coterie: ")
    assert done.output.count("\n") == 1
    assert done.output.rstrip("\n").isprintable()
    return done.output


@pytest.fixture
def up(tmp_path: Path) -> list[object]:
    """Words of a command that writes a plan's deployment."""
    (tmp_path / "plan.json").write_bytes(contents(plan(), ".json"))
    return ["up", tmp_path / "plan.json", "--app", APP, "--write-only", "-o"]


# What the system refuses


def test_a_place_that_cannot_be_a_folder_is_one_line(tmp_path: Path, up: list[object]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for folder, said in (
        (tmp_path / "file", "file: cannot be used (it is no folder)"),
        (tmp_path / "file" / "x", "cannot be used (Not a directory)"),
        (Path("/proc/x"), "/proc/x: cannot be used (No such file or directory)"),
        (Path("/proc"), "/proc/links: cannot be used (No such file or directory)"),
        (Path("/dev/null"), "/dev/null: cannot be used (it is no folder)"),
        (tmp_path / "loop", "loop: cannot be used (it is no folder)"),
        (tmp_path / (300 * "x"), "cannot be used (File name too long)"),
        (tmp_path / "\x1b[2J", "no unit can name the folder"),
    ):
        assert said in refused(*up, folder)
        for command in (["status"], ["run"], ["keep"], ["register"], ["key"]):
            more = ["node-0"] if command[0] in ("keep", "key") else []
            assert "deployment.json: cannot be read (" in refused(*command, folder, *more)
        assert "deployment.json: cannot be read (" in refused(*up, tmp_path / "d", "--from", folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop", "plan.json"]


def test_an_app_that_cannot_be_copied_leaves_nothing(tmp_path: Path, up: list[object]) -> None:
    shutil.copytree(APP, tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe" / "x")
    shutil.copytree(APP, tmp_path / "gone")
    (tmp_path / "gone" / "x").symlink_to("nowhere")
    for name in ("pipe", "gone"):
        words = [*up[:2], "--app", tmp_path / name, "--write-only", "-o", tmp_path / "a" / "d"]
        assert f"{name}/x: cannot be copied (" in refused(*words)
        assert not (tmp_path / "a").exists()


def test_an_app_of_rubbish_is_refused_before_anything_is_written(
    tmp_path: Path, up: list[object]
) -> None:
    app = tmp_path / "app"
    app.mkdir()
    good = (APP / "pyproject.toml").read_text()
    for text in (
        "tool = 1",
        "[tool]\nflwr = []",
        "[tool.flwr]\napp = 'x'",
        "[tool.flwr.app]\nconfig = 1\n[tool.flwr.app.components]\nclientapp = 'a:b'",
        "[tool.flwr.app.components]\nclientapp = 3",
        f"x = {5000 * '9'}",
        f"x = {500 * '['}{500 * ']'}",
        "\x00",
        good.replace("[tool.flwr.app.config]", "[tool.flwr.app.confi]"),
    ):
        (app / "pyproject.toml").write_text(text)
        assert "app" in refused("up", up[1], "--app", app, "--write-only", "-o", tmp_path / "d")
    (app / "pyproject.toml").write_bytes(b"\xff\xfe")
    assert "is not a Flower app" in refused("up", up[1], "--app", app, "-o", tmp_path / "d")
    assert not (tmp_path / "d").exists()


def limited(n_bytes: int) -> Any:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


@pytest.mark.parametrize("there", [False, True])
def test_a_disk_that_is_full_leaves_nothing_half_written(
    tmp_path: Path, up: list[object], there: bool
) -> None:
    folder = tmp_path / "made" / "d"
    if there:
        folder.mkdir(parents=True)
    words = [sys.executable, "-m", "coterie", "flower", *map(str, up), str(folder)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, preexec_fn=limited(1000)
    )
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    if there:
        assert list(folder.iterdir()) == []
    else:
        assert not folder.parent.exists()
    assert coterie(*up, folder).exit_code == 0, "and then there is room"


@pytest.mark.parametrize("command", ["up", "status", "run", "keep", "register", "key"])
def test_a_current_folder_that_was_deleted_is_one_line(
    tmp_path: Path, up: list[object], command: str
) -> None:
    (tmp_path / "gone").mkdir()
    words = {"up": [*map(str, up), "d"], "keep": ["keep", ".", "node-0"], "key": ["key", ".", "x"]}
    told = ["flower", *words.get(command, [command, "."])]
    code = f"import os, sys; os.rmdir(os.getcwd()); from coterie.cli import main; main({told!r})"
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "gone",
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("coterie: ")
    assert done.stderr.count("\n") == 1


def test_a_program_that_is_missing_ends_the_command_and_leaves_no_process(
    tmp_path: Path, up: list[object]
) -> None:
    port = next(free_blocks(50))
    words = ["flower", *map(str, [w for w in up if w != "--write-only"]), str(tmp_path / "d")]
    words += ["--port", str(port), "--node-port", str(port + 10)]
    code = f"sys.executable = '/nowhere/python'; from coterie.cli import main; main({words!r})"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}"],
        env={**os.environ, "PATH": "/nowhere", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    said = "flower-superlink: flower-superlink cannot be started (No such file or directory)"
    assert done.stderr == f"coterie: {said}\n"


def test_a_process_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    d = deployment(tmp_path / "d")
    write(d)
    with pytest.raises(FlowerError, match=r"logs/x\.log: true cannot be started \(No such file"):
        start(d, "x", ["true"])
    with pytest.raises(FlowerError, match="no-such-program cannot be started"):
        flwr(d, ["no-such-program"])
    with pytest.raises(FlowerError, match="cannot be started"):
        flwr(replace(d, folder=tmp_path / "gone"), ["true"])


def test_a_port_that_is_taken_is_named_before_anything_is_started(
    tmp_path: Path, up: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.flower.local.STOP_S", 0.5)
    port = next(free_blocks(50))
    words = [*[w for w in up if w != "--write-only"], tmp_path / "d", "--port", port]
    for at, said in ((port + 1, "--port"), (port + 12, "--node-port"), (port + 15, "--node-port")):
        with socket.socket() as other:
            other.bind(("127.0.0.1", at))
            other.listen()
            done = coterie(*words, "--node-port", port + 10)
        assert done.exit_code == 2
        assert f"port {at} is taken; choose others with {said}" in done.output
    assert not (tmp_path / "d" / "logs").exists(), "nothing was started"
    check_free(port + 1)


# Somebody else answers


@pytest.fixture
def stranger() -> Iterator[HTTPServer]:
    """A server that is no SuperLink, on the first of three free ports."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"\xff\xff rubbish")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", next(free_blocks(50))), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_stranger_on_the_port_of_a_superlink_is_told_in_one_line(
    tmp_path: Path, stranger: HTTPServer
) -> None:
    port = stranger.server_address[1]
    write(deployment(tmp_path / "d", port=port, node_port=port + 10))
    assert "is not the SuperLink of coordinator" in refused("run", tmp_path / "d")
    done = coterie("status", tmp_path / "d")
    assert done.exit_code == 1
    assert "is not the SuperLink of coordinator" in done.output


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    write(deployment(tmp_path / "d", tls=True))
    path = tmp_path / "d" / "certificates" / "ca.crt"
    for content in (b"rubbish", b"\xff", b""):
        path.write_bytes(content)
        assert "ca.crt: is no certificate that can be used" in refused("run", tmp_path / "d")
    path.unlink()
    assert "ca.crt: is no certificate that can be used" in refused("run", tmp_path / "d")
    (tmp_path / "d" / "keys" / "node-0.pub").write_bytes(b"\xff\x1b[2J")
    assert "is not a public key" in refused("key", tmp_path / "d", "node-0")


# Files that were altered


def trained(d: Deployment) -> None:
    """Leave a deployment that has trained up to step 8."""
    write(d)
    groups = Groups((("edge-0",), ("edge-1",)))
    rows = tuple({"t": k, "round": k // 2, "counted": 2} for k in range(2, 9, 2))
    state = State(8, ({"w": np.arange(3.0)},), Groupings(Schedule(2, 1), groups), rows=rows)
    save_state(d.folder / "state", state, {"edges": 2, "tau1": 1, "tau2": 2})


def answered(*words: object) -> None:
    """Whatever a file says, a command does it or refuses it in one line."""
    done = coterie(*words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (0, 1, 2)
    if done.exit_code == 2:
        assert done.output.count("\n") == 1
        assert len(done.output) < 1000


def some(good: Any, offset: int = 0) -> list[str]:
    return [text for _, text in texts_of(good)][offset::EVERY]


def test_a_plan_that_was_altered_is_deployed_or_refused_before_anything_is_written(
    tmp_path: Path, up: list[object]
) -> None:
    path, folder = tmp_path / "plan.json", tmp_path / "d"
    for text in some(json.loads(path.read_text())):
        path.write_text(text, errors="surrogatepass")
        answered(*up, folder)
        assert (folder / "deployment.json").exists() or not folder.exists()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_deployment_that_was_altered_is_read_or_refused_in_one_line(
    tmp_path: Path, up: list[object]
) -> None:
    port = next(free_blocks(100))
    old = deployment(tmp_path / "old", port=port, node_port=port + 10)
    numbered = replace(old, numbers={n: i for i, n in enumerate(NAMES)}, hosts={"edge-0": "::1"})
    trained(numbered)
    for name in ("deployment.json", "plan.json"):
        path = old.folder / name
        good = path.read_text()
        for k, text in enumerate(some(json.loads(good), 5)):
            path.write_text(text, errors="surrogatepass")
            try:
                read_deployment(old.folder)
            except CoterieError as error:
                assert str(path) in str(error)
                assert "\n" not in str(error)
                answered("run", old.folder)
            answered(*up, tmp_path / "new", "--from", old.folder)
            shutil.rmtree(tmp_path / "new", ignore_errors=True)
            if k % 8 == 0:
                answered("status", old.folder)
        path.write_text(good)


@pytest.mark.parametrize("name", ["..", "../../x", "a/b", "/etc/passwd", "-x", "a b", "$(x)", "~"])
def test_names_of_nodes_are_never_names_of_files(
    tmp_path: Path, up: list[object], name: str
) -> None:
    nodes = (PlannedNode(name, 0, 5, 0.1), *plan().nodes[1:])
    (tmp_path / "plan.json").write_bytes(contents(plan(nodes=nodes, servers=(name, "b")), ".json"))
    done = coterie(*up, tmp_path / "a" / "d", "--tls")
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "a"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"d"}
    assert sorted(path.name for path in (tmp_path / "a" / "d" / "keys").glob("node-*.pub")) == [
        f"node-{i}.pub" for i in range(4)
    ]


def test_a_result_of_rubbish_does_not_break_the_status(tmp_path: Path) -> None:
    port = next(free_blocks(100))
    d = deployment(tmp_path / "d", port=port, node_port=port + 10)
    trained(d)
    for text in ("[]", '{"status": ["x"], "error": {"a": "\\u001b[2J\\n"}}', "{", 9000 * "["):
        (d.folder / "result.json").write_text(text)
        done = coterie("status", d.folder)
        assert done.exit_code == 1, done.output
        assert "\x1b" not in done.output
        assert done.output.count("\n") == 1


# Two commands, moved folders, clocks


def test_a_second_command_does_not_touch_a_folder_that_runs(
    tmp_path: Path, up: list[object]
) -> None:
    d = deployment(tmp_path / "d")
    write(d)
    before = {path: path.read_bytes() for path in d.folder.rglob("*") if path.is_file()}
    with held(d, d.places):
        said = "another process is running it; wait for that one or stop it"
        assert said in refused(*up, d.folder, "--port", 9500, "--node-port", 9700)
        assert said in refused("keep", d.folder, "edge-0")
    now = {path: path.read_bytes() for path in before}
    assert now == before, "nothing is written"
    assert coterie(*up, d.folder).exit_code == 0


def test_a_folder_that_was_moved_serves_nobody_but_can_be_written_where_it_is(
    tmp_path: Path, up: list[object]
) -> None:
    d = deployment(tmp_path / "d")
    trained(d)
    moved = d.folder.rename(tmp_path / "moved")
    for place in d.places:
        said = refused("keep", moved, place)
        assert f"was written as '{tmp_path / 'd'}'; move it back, or write it here" in said
    assert not d.folder.exists(), "nothing is made where it was"
    state = (moved / "state" / "state.safetensors").read_bytes()
    assert coterie(*up, moved).exit_code == 0
    assert (moved / "state" / "state.safetensors").read_bytes() == state
    config = (moved / "edge-app" / "pyproject.toml").read_text()
    assert str(moved) in config
    assert f'"{d.folder}"' not in config
    (tmp_path / "link").symlink_to(moved)
    for folder in (moved, tmp_path / "link"):
        check_place(folder)


def test_nothing_that_waits_goes_by_a_clock_that_can_be_set() -> None:
    allowed = {"monotonic", "sleep", "perf_counter"}
    for path in Path(str(flower.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == "time":
                    assert node.attr in allowed, path
                if node.value.id == "datetime":
                    assert path.name == "certificates.py", "which are for a year"


def test_an_app_that_runs_is_the_last_though_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flwr.common import serde
    from flwr.supercore.control import ControlHttpClient

    def run(number: int, at: str, status: str, more: str) -> Any:
        how = SimpleNamespace(status=status, sub_status=more)
        return SimpleNamespace(run_id=number, pending_at=at, status=how)

    before = run(1, "2030-01-02T00:00:00", "finished", "failed")
    now = run(2, "2030-01-01T00:00:00", "running", "")
    found = SimpleNamespace(run_dict={1: before, 2: now})
    monkeypatch.setattr(ControlHttpClient, "ListRuns", lambda *_: found)
    monkeypatch.setattr(serde, "run_from_proto", lambda run: run)
    d = deployment(tmp_path / "d")
    assert apps(d, "coordinator") == [App(2, "running"), App(1, "finished:failed")]


def test_a_command_without_flower_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("flwr", "cryptography", "coterie.flower.certificates", "coterie.flower.control"):
        monkeypatch.setitem(sys.modules, name, None)
    done = CliRunner().invoke(main, ["flower", "key", str(tmp_path), "a"])
    assert done.exit_code == 2
    assert done.output == "coterie: flwr: needs coterie[flower]: pip install 'coterie[flower]'\n"
