"""The server of a watched folder only reads, answers this machine alone, and sends news once."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from coterie.cli import main
from coterie.render.watch import Live, Server
from coterie.render.watch.live import _found
from made_runs import made_run, write_run
from resuming import PATIENCE_S
from watched import data_of, request, rising, statuses, under_way


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the folder whenever asked."""
    monkeypatch.setattr("coterie.render.watch.live.LEAST_S", 0.0)
    monkeypatch.setattr("coterie.render.watch.live.SHARE", 1e9)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A server that watches a folder with one complete run."""
    write_run(made_run(tmp_path / "runs" / "a"))
    server = Server(Live(tmp_path / "runs"))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(main, ["watch", str(tmp_path), "--port", str(port)])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert f"--port {port}: cannot be used" in done.output


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FROB"])
def test_nothing_but_reading_is_answered(port: int, method: str) -> None:
    answer, _ = request(port, "/data.json", method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil:0"]
)
def test_a_foreign_name_is_refused(port: int, host: str) -> None:
    for path in ("/", "/data.json"):
        answer, body = request(port, path, Host=host.replace(":0", f":{port}"))
        assert answer.status == 403
        assert b"fedavg" not in body
    assert request(port, Host=f"localhost:{port}")[0].status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/a/rows.jsonl",
        "/a/../data.json",
        "/data.json/",
        "\\..\\..",
        "*",
    ],
)
def test_no_path_leads_to_a_file(port: int, path: str) -> None:
    answer, body = request(port, path)
    assert (answer.status, body) == (404, b"there is / and /data.json\n")


@pytest.mark.parametrize("path", ["/", "/data.json", "/nothing"])
def test_every_answer_keeps_others_out(port: int, path: str) -> None:
    answer, body = request(port, path)
    headers = {name.lower(): value for name, value in answer.getheaders()}
    assert not any(name.startswith("access-control") for name in headers)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["server"].strip() == "coterie"
    policy = headers["content-security-policy"]
    for rule in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    head, nothing = request(port, path, "HEAD")
    assert (head.status, nothing) == (answer.status, b"")
    assert head.getheader("Content-Length") == str(len(body))


def test_what_is_known_already_is_not_sent_again(port: int, tmp_path: Path) -> None:
    answer, _ = request(port)
    tag = answer.getheader("ETag")
    assert tag
    again, nothing = request(port, If_None_Match=tag)
    assert (again.status, nothing, again.getheader("ETag")) == (304, b"", tag)
    under_way(rising(tmp_path / "runs" / "b"), 3)
    fresh, body = request(port, If_None_Match=tag)
    assert (fresh.status, len(json.loads(body)["runs"])) == (200, 2)


def test_the_server_is_for_this_machine_alone(tmp_path: Path) -> None:
    server = Server(Live(tmp_path))
    try:
        assert server.server_address[0] == "127.0.0.1"
        assert server.url == f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.server_close()


def test_watching_changes_nothing_in_the_folder(port: int, tmp_path: Path) -> None:
    def state() -> list[tuple[str, int, int]]:
        found = [tmp_path / "runs", *sorted((tmp_path / "runs").rglob("*"))]
        return [(str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in found]

    before = state()
    assert statuses(data_of(port)) == {"a": "complete"}
    request(port, "/")
    os.utime(tmp_path / "runs" / "a" / "meta.json", ns=(1, 1))
    changed = state()
    assert changed != before
    assert statuses(data_of(port)) == {"a": "complete"}
    assert state() == changed


BROKEN = [
    b"GET http://[bad/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET //[::1 HTTP/1.1\r\nHost: {host}\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: {host}\r\n\r\n",
    b"GET / HTTP/x\r\n\r\n",
    b"GET / a b c HTTP/1.1\r\n\r\n",
    b"\x00\xff\xfe\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: [bad\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: {host}\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: {host}\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: {host}\r\n\r\n",
]


def raw(port: int, request: bytes) -> bytes:
    """Send bytes, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as line:
        line.sendall(request.replace(b"{host}", f"127.0.0.1:{port}".encode()))
        line.shutdown(socket.SHUT_WR)
        found = b""
        try:
            while more := line.recv(65536):
                found += more
        except ConnectionResetError:  # what it did not read of us was too much
            pass
        return found


@pytest.mark.parametrize("request_", BROKEN)
def test_a_broken_request_is_refused_without_a_traceback(
    port: int, request_: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    found = raw(port, request_)
    assert found == b"" or b" 4" in found[:12] or b" 5" in found[:12], found[:80]
    assert b"fedavg" not in found
    assert request(port, "/")[0].status == 200
    assert capfd.readouterr() == ("", "")


def test_an_address_that_is_none_is_a_bad_request(port: int) -> None:
    assert raw(port, BROKEN[0]).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "what", ["bytes=9-1", "bytes=-", "x", "bytes=0-0,99-1", "bytes=" + "9" * 500]
)
def test_a_range_is_not_minded(port: int, what: str) -> None:
    answer, body = request(port, "/data.json", Range=what)
    assert answer.status == 200
    assert json.loads(body)["runs"]


def test_who_asks_while_another_looks_gets_what_was_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(made_run(tmp_path / "a"))
    live = Live(tmp_path)
    before = live.latest()
    looks, may_go_on = threading.Event(), threading.Event()

    def slow(folder: Path) -> object:
        looks.set()
        may_go_on.wait(PATIENCE_S)
        return _found(folder)

    monkeypatch.setattr("coterie.render.watch.live._found", slow)
    write_run(made_run(tmp_path / "b"))
    thread = threading.Thread(target=live.latest)
    thread.start()
    assert looks.wait(PATIENCE_S)
    assert live.latest() == before
    may_go_on.set()
    thread.join()
    assert len(json.loads(live.latest().body)["runs"]) == 2


@pytest.mark.parametrize("name", ["rows.jsonl", "summary.json", "config.toml", "runs.json"])
def test_a_pipe_in_the_folder_keeps_nobody_waiting(port: int, tmp_path: Path, name: str) -> None:
    odd = write_run(made_run(tmp_path / "runs" / "odd"))
    (odd / name).unlink(missing_ok=True)
    os.mkfifo(odd / name)
    data = data_of(port)
    assert statuses(data)["a"] == "complete"
    assert f"{name}: must be a regular file, is a pipe" in data["page"]["left_out"][0]
