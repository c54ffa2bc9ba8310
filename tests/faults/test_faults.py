"""A few of every fault on a few kinds of command; `make faults` tries all of both."""

import errno
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from faults.control import Happens, compiler
from faults.inflict import BY_FAULT, FAULTS, Tally
from faults.kinds import BY_NAME, OUT
from faults.promises import difference, ending, half_written, said_badly
from faults.rig import Rig, a_rig, namespace
from faults.zygote import Ended

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "reliability.md"
FEW = [BY_NAME[name] for name in ("run", "run, regrouped, nodes scored", "report")]
CITED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NO_COMPILER = "no C compiler: faults of files come from a shim that it builds"
NO_NAMESPACE = "no mount namespace: no disk can be filled or mounted read-only"
long = pytest.mark.long


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    if sys.platform != "linux" or compiler() is None:
        pytest.skip(NO_COMPILER)
    with a_rig(kinds=FEW) as made:
        yield made


def tried(rig: Rig, name: str, times: int) -> Tally:
    tally = Tally()
    BY_FAULT[name].inflict(rig, times, tally)
    assert tally.bad == []
    assert tally.cases
    return tally


def test_a_kill_at_any_moment_loses_nothing(rig: Rig) -> None:
    assert tried(rig, "kill -9", 3).struck == 3


def test_a_write_that_finds_no_room_loses_nothing(rig: Rig) -> None:
    tried(rig, "disk full within a write", 2)


def test_an_io_error_loses_nothing(rig: Rig) -> None:
    tried(rig, "I/O error, once", 3)


@long
def test_a_disk_that_fails_from_then_on_loses_nothing(rig: Rig) -> None:
    tried(rig, "I/O error, from then on", 3)


@long
def test_an_io_error_in_reading_loses_nothing(rig: Rig) -> None:
    tried(rig, "I/O error in reading", 3)


@long
def test_a_disk_that_becomes_read_only_loses_nothing(rig: Rig) -> None:
    tried(rig, "read-only on the way", 3)


@pytest.mark.parametrize(
    "name", [pytest.param("SIGTERM", marks=long), pytest.param("SIGINT", marks=long), "SIGHUP"]
)
def test_a_signal_at_any_moment_loses_nothing(rig: Rig, name: str) -> None:
    tried(rig, name, 2)


@long
def test_a_paused_run_is_taken_by_nobody_else(rig: Rig) -> None:
    tried(rig, "SIGSTOP, SIGCONT", 2)


def test_of_two_writers_one_writes(rig: Rig) -> None:
    tried(rig, "two writers", 2)


@pytest.mark.long
def test_a_clock_that_jumps_changes_nothing(rig: Rig) -> None:
    assert tried(rig, "clock jumps", 1).struck == 1


@pytest.mark.long
def test_a_run_that_was_moved_after_a_kill_goes_on(rig: Rig) -> None:
    tried(rig, "moved after a kill", 1)


@long
def test_a_run_whose_folder_is_renamed_under_it_goes_on_later(rig: Rig) -> None:
    tried(rig, "moved during a run", 2)


@long
def test_a_deleted_current_folder_is_one_line(rig: Rig) -> None:
    tried(rig, "current folder deleted", 3)


@long
def test_without_a_cache_folder_runs_run(rig: Rig) -> None:
    tried(rig, "no cache folder", 2)


@long
def test_watching_disturbs_nothing(rig: Rig) -> None:
    tried(rig, "watched meanwhile", 2)


@pytest.mark.parametrize(
    "name",
    [pytest.param(f.name, marks=[long] * (f.name != "disk full")) for f in FAULTS if f.mounts],
)
def test_a_disk_that_is_full_or_read_only_loses_nothing(name: str) -> None:
    if compiler() is None:
        pytest.skip(NO_COMPILER)
    if not namespace():
        pytest.skip(NO_NAMESPACE)
    kinds = [word for kind in FEW for word in ("--kind", kind.name)]
    command = [sys.executable, str(ROOT / "tests" / "faults"), "--only", name, "-n", "2", *kinds]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}: 2 cases" in done.stdout


def test_the_shim_strikes_where_it_is_told_to(rig: Rig) -> None:
    case = rig.case(BY_NAME["run"])
    rig.strike(case, Happens(at_call=3, error=errno.EIO))
    ended = case.end(case.start(), 2)
    assert rig.control.counted.happened == 1
    assert "cannot be written (Input/output error)" in ended.err
    case.settle(ended)
    assert case.bad == []


def test_what_is_lost_or_half_written_is_noticed(rig: Rig) -> None:
    case = rig.case(BY_NAME["run"])
    case.end(case.start(), 0)
    wanted = ending(case.place)
    summary = case.place / OUT / "summary.json"
    whole = summary.read_bytes()
    summary.write_bytes(whole[:-5])
    assert [line.partition(":")[0] for line in half_written(case.place)] == ["out/summary.json"]
    summary.write_bytes(whole)
    (case.place / OUT / "grouping.json").unlink()
    assert difference(ending(case.place), wanted) == "out/grouping.json is missing"


def test_a_traceback_and_a_wrong_exit_are_noticed() -> None:
    shown = Ended(1, "Traceback (most recent call last):\nOSError", "")
    assert len(said_badly(shown, (0, 2))) == 2
    assert said_badly(Ended(2, "coterie: no\n", ""), (2,)) == []
    assert said_badly(Ended(2, "no\n", ""), (2,)) != []
    assert said_badly(Ended(-signal.SIGKILL, "", "", hung=True), (-signal.SIGKILL,)) == ["it hung"]


def test_every_test_that_the_page_of_promises_names_exists() -> None:
    cited = CITED.findall(PAGE.read_text())
    assert cited
    missing = [
        f"{path}::{name}" for path, name in cited if f"def {name}(" not in (ROOT / path).read_text()
    ]
    assert missing == []


def test_every_row_of_the_page_of_promises_names_a_test() -> None:
    lines = PAGE.read_text().splitlines()
    begin = lines.index("| fault | what happens | test |") + 2
    rows = list(takewhile(lambda line: line.startswith("| "), lines[begin:]))
    assert len(rows) > 10
    assert [row for row in rows if not CITED.search(row)] == []
