import hashlib
import http.client
import io
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request

import pytest

from coterie.core.errors import DataError
from coterie.data.download import Redirects, check_address, download, npm_pack

BODY = bytes(range(256)) * 1024
SHA256 = hashlib.sha256(BODY).hexdigest()


class Site(ThreadingHTTPServer):
    """Serves BODY in the manner that the path says, and notes the range of each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str | None]] = []
        self.closing = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Site

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        path, wanted = self.path[1:], self.headers["Range"]
        again = path in [known for known, _ in self.server.asked]
        self.server.asked.append((path, wanted))
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        rest, whole = BODY[start:], str(len(BODY))
        span = f"bytes {start}-{len(BODY) - 1}/{whole}"
        match path:
            case "no-range":
                self.answer(200, BODY, Content_Length=whole)
            case "other-range" if wanted:
                self.answer(206, BODY, Content_Range=span.replace(str(start), "0", 1))
            case "no-span" if wanted:
                self.answer(206, rest, Content_Length=str(len(rest)))
            case "unasked":
                self.answer(206, BODY, Content_Range=span)
            case "cut" if not again:
                self.answer(200, BODY[:100_000], Content_Length=whole)
            case "short":
                status, length = 206 if wanted else 200, str(len(rest))
                self.answer(status, rest[:1000], Content_Length=length, Content_Range=span)
            case "no-length":
                self.answer(200, BODY)
            case "open-end" if wanted:
                self.answer(206, rest, Content_Range=span.replace(whole, "*"))
            case "open-end-with-length" if wanted:
                length = str(len(rest))
                self.answer(
                    206, rest, Content_Length=length, Content_Range=span.replace(whole, "*")
                )
            case "no-range-at-all":
                self.answer(416, b"", Content_Length="0")
            case "gone":
                self.answer(404, b"", Content_Length="0")
            case "empty":
                self.answer(204, b"")
            case "silent":
                self.server.closing.wait()
            case "garbage":
                self.wfile.write(b"this is no HTTP\r\n\r\n")
            case "chunks":
                self.protocol_version = "HTTP/1.1"
                self.answer(200, b"5\r\nhello\r\n9\r\nbroken", Transfer_Encoding="chunked")
                self.close_connection = True
            case "moved":
                self.answer(302, b"", Location="/file", Content_Length="0")
            case "loop":
                self.answer(302, b"", Location="/loop", Content_Length="0")
            case "to-file":
                self.answer(302, b"", Location="file:///file", Content_Length="0")
            case "to-ftp":
                self.answer(302, b"", Location="ftp://127.0.0.1/file", Content_Length="0")
            case _ if wanted and not rest:
                self.answer(416, b"", Content_Length="0", Content_Range=f"bytes */{whole}")
            case _ if wanted:
                self.answer(206, rest, Content_Length=str(len(rest)), Content_Range=span)
            case _:
                self.answer(200, BODY, Content_Length=whole)


@contextmanager
def serving() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            site.closing.set()
            site.shutdown()
            thread.join()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as running:
        yield running


def part_of(to: Path, content: bytes | None = None) -> Path:
    part = to.with_name(to.name + ".part")
    if content is not None:
        part.write_bytes(content)
    return part


def test_a_file_is_downloaded_and_its_progress_told(site: Site, tmp_path: Path) -> None:
    to, ticks = tmp_path / "new" / "file.bin", []
    download(
        site.url("file"),
        to,
        sha256=SHA256.upper(),
        tick=lambda done, total: ticks.append((done, total)),
    )
    assert to.read_bytes() == BODY
    assert list(to.parent.iterdir()) == [to]
    assert ticks[0] == (0, len(BODY))
    assert ticks[-1] == (len(BODY), len(BODY))
    assert ticks == sorted(ticks)


def test_a_file_that_is_there_is_replaced_at_the_end_only(site: Site, tmp_path: Path) -> None:
    to = tmp_path / "file"
    to.write_bytes(b"old")
    with pytest.raises(DataError):
        download(site.url("cut"), to)
    assert to.read_bytes() == b"old"
    download(site.url("cut"), to)
    assert to.read_bytes() == BODY


def test_a_cut_download_goes_on_where_it_stopped(site: Site, tmp_path: Path) -> None:
    to, ticks = tmp_path / "file", []
    with pytest.raises(DataError, match=rf"/cut: broke off after 100000 of {len(BODY)} bytes"):
        download(site.url("cut"), to, sha256=SHA256)
    assert not to.exists()
    assert part_of(to).read_bytes() == BODY[:100_000]
    download(
        site.url("cut"), to, sha256=SHA256, tick=lambda done, total: ticks.append((done, total))
    )
    assert to.read_bytes() == BODY
    assert site.asked == [("cut", None), ("cut", "bytes=100000-")]
    assert ticks[0] == (100_000, len(BODY))
    assert not part_of(to).exists()


@pytest.mark.parametrize("path", ["moved", "open-end", "open-end-with-length"])
def test_a_redirect_or_an_unknown_total_does_not_hinder_going_on(
    site: Site, tmp_path: Path, path: str
) -> None:
    to = tmp_path / "file"
    part_of(to, BODY[:5])
    download(site.url(path), to, sha256=SHA256)
    assert to.read_bytes() == BODY
    assert {wanted for _, wanted in site.asked} == {"bytes=5-"}


def test_a_server_without_ranges_sends_the_whole_again(site: Site, tmp_path: Path) -> None:
    to = tmp_path / "file"
    part_of(to, b"stale")
    download(site.url("no-range"), to)
    assert to.read_bytes() == BODY
    assert site.asked == [("no-range", "bytes=5-")]


@pytest.mark.parametrize(
    ("path", "have"),
    [("other-range", b"stale"), ("no-span", b"stale"), ("file", BODY), ("file", BODY + b"stale")],
    ids=["another range", "a range unsaid", "complete", "too long"],
)
def test_a_part_that_the_server_cannot_go_on_from_is_started_over_once(
    site: Site, tmp_path: Path, path: str, have: bytes
) -> None:
    to = tmp_path / "file"
    part_of(to, have)
    download(site.url(path), to)
    assert to.read_bytes() == BODY
    assert site.asked == [(path, f"bytes={len(have)}-"), (path, None)]


@pytest.mark.parametrize("have", [b"", b"stale"])
def test_a_server_that_refuses_the_whole_range_too_is_an_error(
    site: Site, tmp_path: Path, have: bytes
) -> None:
    part_of(tmp_path / "file", have)
    with pytest.raises(DataError, match="the server answered 416"):
        download(site.url("no-range-at-all"), tmp_path / "file")
    assert len(site.asked) == (2 if have else 1)


def test_a_wrong_checksum_is_refused_and_the_next_try_starts_fresh(
    site: Site, tmp_path: Path
) -> None:
    to = tmp_path / "file"
    part_of(to, b"stale")
    with pytest.raises(
        DataError, match=rf"/file: sha256 must be {SHA256[:12]}\.\.\., got [0-9a-f]{{12}}\.\.\.$"
    ):
        download(site.url("file"), to, sha256=SHA256)
    assert list(tmp_path.iterdir()) == []
    download(site.url("file"), to, sha256=SHA256)
    assert to.read_bytes() == BODY


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("gone", r"/gone: the server answered 404 Not Found"),
        ("empty", r"/empty: the server answered 204, not 200"),
        ("unasked", r"/unasked: the server answered 206, not 200"),
        ("garbage", r"/garbage: cannot be downloaded \(this is no HTTP\); try again to go on"),
        ("chunks", r"/chunks: cannot be downloaded \(IncompleteRead\(.*\); try again to go on"),
        ("silent", r"/silent: cannot be downloaded \(timed out\); try again to go on"),
        ("loop", r"/loop: the server answered 302 .*infinite loop"),
        ("to-file", r"/to-file: the server answered 302 .*is not allowed"),
        ("to-ftp", r"must be an http or https address"),
        ("a space", r"cannot be downloaded \(.*control characters"),
        ("é", r"cannot be downloaded"),
    ],
)
def test_what_the_server_does_wrong_is_said_in_one_line(
    site: Site, tmp_path: Path, path: str, says: str
) -> None:
    with pytest.raises(DataError, match=says) as caught:
        download(site.url(path), tmp_path / "file", timeout_s=0.3 if path == "silent" else 30)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "file").exists()


def test_a_server_that_is_not_there_is_an_error(tmp_path: Path, site: Site) -> None:
    with serving() as gone:
        url = gone.url("file")
    part_of(tmp_path / "file", b"kept")
    with pytest.raises(DataError, match=rf"{url}: cannot be downloaded \(.*refused"):
        download(url, tmp_path / "file")
    assert part_of(tmp_path / "file").read_bytes() == b"kept"


def test_each_short_answer_brings_the_part_further(site: Site, tmp_path: Path) -> None:
    to = tmp_path / "file"
    for n in (1000, 2000, 3000):
        with pytest.raises(DataError, match=f"broke off after {n} of"):
            download(site.url("short"), to)
        assert part_of(to).read_bytes() == BODY[:n]


@pytest.mark.parametrize("path", ["file", "no-length"])
def test_a_body_longer_than_allowed_is_refused_and_not_kept(
    site: Site, tmp_path: Path, path: str
) -> None:
    ticks: list[int] = []
    with pytest.raises(DataError, match=rf"/{path}: has \w+ bytes, at most 70000 are allowed"):
        download(
            site.url(path), tmp_path / "file", max_bytes=70_000, tick=lambda n, _: ticks.append(n)
        )
    assert max(ticks) == 0 if path == "file" else max(ticks) <= 70_000
    assert list(tmp_path.iterdir()) == []
    download(site.url(path), tmp_path / "file", max_bytes=len(BODY))
    assert (tmp_path / "file").read_bytes() == BODY


def test_ctrl_c_keeps_the_part(site: Site, tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        if done > 0:
            raise KeyboardInterrupt

    to = tmp_path / "file"
    with pytest.raises(KeyboardInterrupt):
        download(site.url("file"), to, tick=interrupt)
    kept = part_of(to).read_bytes()
    assert kept
    assert BODY.startswith(kept)
    download(site.url("file"), to)
    assert to.read_bytes() == BODY
    assert site.asked[1] == ("file", f"bytes={len(kept)}-")


@pytest.mark.parametrize(
    "url", ["file:///etc/hosts", "ftp://127.0.0.1/x", "data:,x", "images.zip", "", "http"]
)
def test_only_web_addresses_are_downloaded(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(url)}: must be an http or https address"):
        download(url, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_redirect_from_https_to_http_is_refused_and_the_others_are_followed() -> None:
    def follow(before: str, after: str) -> Request | None:
        answer = io.BytesIO()
        return Redirects().redirect_request(
            Request(before), answer, 302, "Found", http.client.HTTPMessage(), after
        )

    with pytest.raises(DataError, match=r"^https://a/x: must not redirect to http://a/x"):
        follow("https://a/x", "http://a/x")
    with pytest.raises(DataError, match=r"^file:///x: must be an http or https address"):
        follow("https://a/x", "file:///x")
    for before, after in [
        ("http://a", "https://a"),
        ("http://a", "http://b"),
        ("https://a", "https://b"),
    ]:
        check_address(after, before)
        request = follow(before, after)
        assert request is not None
        assert request.full_url == after


def fake_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put an executable `npm` before all others; `$to` is where it is asked to write."""
    folder.mkdir()
    (folder / "npm").write_text(
        "#!/bin/sh\n"
        'for a in "$@"; do case "$a" in --pack-destination=*) to="${a#*=}";; esac; done\n' + script
    )
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_npm_packs_a_package_into_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_npm(
        tmp_path / "bin",
        monkeypatch,
        f'echo "$@" > "{tmp_path}/asked"; printf x > "$to/scope-data-1.0.0.tgz"',
    )
    packed = npm_pack("@scope/data", tmp_path / "new" / "folder")
    assert packed == tmp_path / "new" / "folder" / "scope-data-1.0.0.tgz"
    assert packed.read_bytes() == b"x"
    assert list(packed.parent.iterdir()) == [packed]
    asked = (tmp_path / "asked").read_text()
    assert re.fullmatch(r"pack --ignore-scripts .* -- @scope/data\n", asked)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "echo 'npm error code E404' >&2; echo 'npm error 404 Not Found - GET x' >&2;"
            "echo 'npm error A complete log of this run can be found in: y' >&2; exit 1",
            "npm pack data: 404 Not Found - GET x$",
        ),
        ("echo first >&2; echo last >&2; echo >&2; exit 3", "npm pack data: last$"),
        ('printf half > "$to/data.tgz"; exit 1', "npm pack data: it made no .tgz"),
        ("exit 0", "npm pack data: it made no .tgz and gave no reason"),
        ("exec sleep 60", "npm pack data: took longer than 0.3 s"),
    ],
)
def test_npm_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    fake_npm(tmp_path / "bin", monkeypatch, script)
    with pytest.raises(DataError, match=says):
        npm_pack("data", tmp_path / "folder", timeout_s=0.3 if "sleep" in script else 60)
    assert list((tmp_path / "folder").iterdir()) == []


def test_without_npm_there_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert npm_pack("data", tmp_path / "folder") is None
    assert not (tmp_path / "folder").exists()
