"""What every test gets."""

import signal
from pathlib import Path

import pytest

from coterie.data import sources


def pytest_configure() -> None:
    """Take Ctrl-C also where the shell that started the tests does not, as in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep datasets in a folder of the test's own, which does not exist yet."""
    folder = tmp_path_factory.mktemp("data") / "cache"
    monkeypatch.setenv("COTERIE_DATA", str(folder))
    return folder


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of known files that the test can write."""
    folder = tmp_path / "pins"
    folder.mkdir()
    for path in sources.PINS.glob("*.sha256"):
        (folder / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(sources, "PINS", folder)
    return folder
