"""What has no end is refused before it is opened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.config.files import read_experiment
from coterie.core.errors import ConfigError, CoterieError
from coterie.partition.file import read_columns
from coterie.preview.from_labels import read_histograms
from coterie.preview.planfile.reading import read_plan
from coterie.topology.file import read_topology
from coterie.topology.values import Speed


@pytest.mark.parametrize("kind", ["pipe", "zero"])
def test_a_pipe_that_nobody_writes_and_a_device_are_refused_by_every_reader(
    kind: str, tmp_path: Path
) -> None:
    for suffix in (".toml", ".csv", ".json"):
        path = tmp_path / f"x{suffix}"
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    for read in (
        lambda: read_experiment(tmp_path / "x.toml"),
        lambda: read_histograms(tmp_path / "x.csv"),
        lambda: read_plan(tmp_path / "x.json"),
        lambda: read_columns(tmp_path / "x.csv", 10),
        lambda: read_topology(tmp_path / "x.csv", Speed(), Speed()),
        lambda: read_topology(tmp_path / "x.json", Speed(), Speed()),
    ):
        with pytest.raises(CoterieError, match=r"x\.\w+: cannot be read \(a device or pipe is no"):
            read()


def test_nothing_is_an_experiment_with_all_defaults() -> None:
    assert read_experiment(Path("/dev/null")) == {}


def test_what_a_shell_offers_is_read() -> None:
    program = "import sys; from coterie.cli import main; main(['plan', '/dev/stdin', '--json'])"
    bad = b"[train]\nsteps = -1\n"
    done = subprocess.run(
        [sys.executable, "-c", program], input=bad, capture_output=True, check=False
    )
    assert b"train.steps must be" in done.stderr


def test_a_folder_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        read_experiment(tmp_path)
