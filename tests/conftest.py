"""What every test gets."""

import signal
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from coterie.data import sources

# The same examples every time, however slow the machine is; `--hypothesis-profile random` tries
# others.
settings.register_profile(
    "random",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
settings.register_profile("repeatable", settings.get_profile("random"), derandomize=True)
settings.load_profile("repeatable")
torch.set_num_threads(1)  # as every run does, whatever OMP_NUM_THREADS says


def pytest_configure() -> None:
    """Take Ctrl-C, and the end of a terminal, also where who started the tests does not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in a line each what this machine lacks, and how many tests were skipped for it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in skipped
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"*** NOT TESTED ({count}): {reason} ***", yellow=True)


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
