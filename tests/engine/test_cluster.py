"""What is said of clusters without one: no Ray, no such address, settings at odds."""

import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.config.files import expand, make_config, to_toml
from coterie.core.errors import ClusterError, ConfigError
from coterie.engine.ray.cluster import Cluster, Size, check_address
from coterie.runs.checkpoint import difference
from coterie.runs.sweep import place_jobs, sweep_folder
from resuming import coterie, tiny


def test_without_ray_the_way_to_install_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    file = tmp_path / "run.toml"
    file.write_text(to_toml(tiny()))
    for words in (("run", file, "--set", "train.engine=ray"), ("sweep", file, "--engine", "ray")):
        done = coterie(*words, "--out", tmp_path / "out")
        assert done.exit_code == 2
        assert "coterie: Ray is not installed; pip install 'coterie[ray]'" in done.output
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("address", ["", "here", "ray://host", "host:port", "ray://:1", "a/b:1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match=r"must be local, auto, HOST:PORT or ray://HOST:PORT"):
        check_address(address)


def test_a_cluster_that_does_not_answer_is_told_with_the_way_to_start_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert check_address(f"127.0.0.1:{port}") == "127.0.0.1"
    with pytest.raises(ClusterError, match=f"with: ray start --head --port {port}"):
        check_address(f"127.0.0.1:{port}")
    with pytest.raises(ClusterError, match=f"--ray-client-server-port {port}"):
        check_address(f"ray://127.0.0.1:{port}")


class Machines(Cluster):
    """Two machines of four CPUs, of which one has a GPU."""

    def __init__(self) -> None:
        self.local = False

    def total(self, what: str) -> float:
        return {"CPU": 8.0, "GPU": 1.0}[what]

    def largest(self, what: str) -> float:
        return {"CPU": 4.0, "GPU": 1.0}[what]


KEYS = {"CPU": "ray.cpus_per_actor", "GPU": "ray.gpus_per_actor", "number": "ray.actors"}


@pytest.mark.parametrize(
    ("size", "number", "said"),
    [
        (Size(1), 9, "ray.actors = 9 with ray.cpus_per_actor = 1 needs 9 CPUs, and .* has 8"),
        (Size(5), 1, "ray.cpus_per_actor = 5 needs 5 CPUs, .* has 8 .4 on its largest"),
        (Size(1, 1.0), 2, "ray.gpus_per_actor = 1 needs 2 GPUs, and the cluster has 1"),
    ],
)
def test_what_can_never_fit_is_refused_before_it_is_waited_for(
    size: Size, number: int, said: str
) -> None:
    with pytest.raises(ClusterError, match=said):
        Machines().check(size, number, KEYS)
    Machines().check(Size(4), 2, KEYS)
    Machines().check(Size(1, 0.5), 2, KEYS)


def test_where_a_run_runs_is_no_part_of_what_it_is(tmp_path: Path) -> None:
    here, there = make_config({}), make_config({"ray": {"address": "auto", "actors": 8}})
    assert here == there and difference(here, there) is None
    (job,) = place_jobs([here], tmp_path)
    with sweep_folder(tmp_path, [replace(job, folder=tmp_path / job.label)]):
        (again,) = place_jobs([there], tmp_path)
        assert (again.label, again.config.ray.actors) == (job.label, 8)
    with pytest.raises(ConfigError, match="where runs run changes no result"):
        expand({"sweep": {"ray.actors": [1, 2]}})


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not read with train.engine = 'ray'; set ray.cpus_per"):
        make_config({"train": {"engine": "ray", "threads": 2}})
    file = tmp_path / "run.toml"
    for given, said in (
        ('engine = "ray"', "leave out one of them"),
        ('device = "cuda"', "needs ray.gpus_per_run"),
    ):
        key = given.partition(" ")[0]
        usual = {"engine": 'engine = "vectorized"', "device": 'device = "cpu"'}[key]
        file.write_text(to_toml(tiny()).replace(usual, given))
        done = coterie("sweep", file, "--engine", "ray", "--out", tmp_path / "out")
        assert done.exit_code == 2 and said in done.output
