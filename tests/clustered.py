"""Small runs on Ray, in a process of their own: on a cluster of several machines that are none.

    python clustered.py MACHINES [kill]         kill: one of them goes in the middle of a round
    python clustered.py MACHINES sweep FOLDER   as many whole runs; one machine goes on the way,
                                                while HELD holds them all (held.py)

Prints the rows as JSON, a line each, and then how many actors died; of a sweep what was said.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import held
from coterie.config.files import make_config
from coterie.config.prepare import Prepared, prepare
from coterie.config.settings import Config
from coterie.engine.ray.actors import RayCrew
from coterie.engine.ray.cluster import Cluster
from coterie.engine.ray.engine import Sharded
from coterie.runs.sweep.jobs import Job, Stop
from coterie.runs.sweep.on_ray import run_on_ray
from coterie.simulation.loop import rounds

STORE_MBYTES = 100
KILLED_AT = 4  # the question in whose middle something dies
RAYS_OWN = [  # what Ray leaves behind where it starts processes, and Python warns of
    pytest.mark.filterwarnings("ignore:unclosed file .*/dev/null:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess [0-9]+ is still running:ResourceWarning"),
]


def config(engine: str = "ray", model: str = "2nn", steps: int = 8, **ray: object) -> Config:
    """Ten unequal nodes in two groups, on a tenth of the data."""
    return make_config(
        {
            "data": {"sample": 0.1},
            "partition": {"kind": "dirichlet", "alpha": 0.3, "num_nodes": 10, "num_edges": 2}
            | {"min_partition_size": 6},
            "model": {"name": model},
            "algorithm": {"num_groups": 2, "tau2": 3},
            "train": {"steps": steps, "lr": 0.02, "batch_size": 32, "engine": engine},
            "ray": {"object_store_mbytes": STORE_MBYTES, **ray},
        }
    )


def rows(prepared: Prepared) -> list[dict[str, Any]]:
    """All rows of a run, and the groups at its end."""
    states = list(rounds(prepared.problem))
    assert states[-1].groups is not None
    found = [asdict(state.row) for state in states]
    return [*found, {"z": states[-1].groups.grouping.z.tolist()}]


def crew_of(prepared: Prepared) -> RayCrew:
    """Return the actors of a run on Ray."""
    engine = prepared.problem.engine
    assert isinstance(engine, Sharded)
    assert isinstance(engine.crew, RayCrew)
    return engine.crew


def in_the_middle(kill: "Any") -> None:
    """Call `kill` once: when a question has been put to all actors, and none has answered."""
    first, asked = Cluster.first, [0]

    def watched(self: Cluster, waiting: Sequence[Any], seconds: float | None = None) -> list[Any]:
        asked[0] += len(waiting) > 1  # one waits for an actor that starts
        if asked[0] == KILLED_AT and kill:
            asked[0] += 1
            kill()
        return first(self, waiting, seconds)

    Cluster.first = watched  # type: ignore[method-assign]


def end_ray() -> None:
    """End the cluster of this process, and all that Ray leaves behind."""
    import ray

    ray.shutdown()
    gc.collect()


def writer_of(folder: Path) -> int:
    """Process, other than this one, that has a run's rows open."""
    wanted = str(folder / "rows.jsonl")
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            found, pid = str(handle.readlink()), int(handle.parts[2])
        except OSError:
            continue
        if found == wanted and pid != os.getpid():
            return pid
    raise AssertionError("nobody writes it")


@contextmanager
def cluster_of(machines: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Start machines on the loopback address; yield where, and what takes one of them away."""
    import ray
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster as Machines

    ray_constants.ENABLE_RAY_CLUSTER = False
    alike = {
        "num_cpus": 1,
        "include_dashboard": False,
        "object_store_memory": STORE_MBYTES << 20,
        "node_ip_address": "127.0.0.1",
    }
    cluster = Machines(initialize_head=True, head_node_args={**alike, "num_cpus": 0})
    others = [cluster.add_node(**alike) for _ in range(machines)]
    try:
        yield cluster.address, lambda: cluster.remove_node(others[0], allow_graceful=False)
    finally:
        ray.shutdown()
        cluster.shutdown()


def run_over(machines: int, killed: bool) -> None:
    """Run on actors of all machines."""
    with cluster_of(machines) as (address, lose_one):
        said: list[str] = []
        prepared = prepare(config(address=address), None, 1, said.append)
        crew = crew_of(prepared)
        assert len(crew.pids) == machines
        if killed:
            in_the_middle(lose_one)
        for row in rows(prepared):
            print(json.dumps(row))
        print(json.dumps({"deaths": crew.deaths, "said": said}), flush=True)


def sweep_over(machines: int, out: Path) -> None:
    """Do a run on every machine, and lose one when all have begun and none has ended."""
    import ray

    said: list[str] = []
    begun: set[str] = set()
    with cluster_of(machines) as (address, lose_one):
        what = config("vectorized", steps=40, address=address)
        what = replace(what, algorithm=replace(what.algorithm, **held.ALGORITHM))
        jobs = [
            Job(replace(what, seed=seed), out / f"seed{seed}", f"seed{seed}")
            for seed in range(machines)
        ]

        def on_row(label: str, _: dict[str, Any]) -> None:
            if len(begun) < machines:
                begun.add(label)
                if len(begun) == machines:
                    lose_one()
                    held.let_go(Path(os.environ[held.HELD]))

        failed = run_on_ray(jobs, 1, on_row, 0.0, Stop(), said.append)
        flags = [Cluster(address).flag() for _ in range(4)]
        where = [flag.pole.__ray_call__.remote(lambda _: node()) for flag in flags]
        about = {"failed": {label: str(error) for label, error in failed.items()}, "said": said}
        print(json.dumps({**about, "here": node(), "flags": ray.get(where)}), flush=True)


def node() -> str:
    """The machine of a cluster that this is."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


if __name__ == "__main__":
    if "sweep" in sys.argv:
        sweep_over(int(sys.argv[1]), Path(sys.argv[3]))
    else:
        run_over(int(sys.argv[1]), "kill" in sys.argv)
