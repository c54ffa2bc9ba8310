"""A small run on Ray, in a process of its own: on a cluster of several machines that are none.

    python clustered.py MACHINES [kill]       kill: one of them goes in the middle of a round

Prints the rows as JSON, a line each, and then how many actors died.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from coterie.cluster import Cluster
from coterie.config import make_config
from coterie.engine.crew import RayCrew
from coterie.engine.sharded import Sharded
from coterie.prepare import Prepared, prepare
from coterie.run import rounds
from coterie.sections import Config

STORE_MBYTES = 100
KILLED_AT = 4  # the question in whose middle something dies


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


def main(machines: int, killed: bool) -> None:
    """Start machines on the loopback address, and run over them."""
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
        said: list[str] = []
        prepared = prepare(config(address=cluster.address), None, 1, said.append)
        crew = crew_of(prepared)
        assert len(crew.pids) == machines
        if killed:
            in_the_middle(lambda: cluster.remove_node(others[0], allow_graceful=False))
        for row in rows(prepared):
            print(json.dumps(row))
        print(json.dumps({"deaths": crew.deaths, "said": said}), flush=True)
    finally:
        import ray

        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), "kill" in sys.argv)
