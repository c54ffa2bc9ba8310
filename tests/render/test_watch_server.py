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
from made_runs import made_run, write_run
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
