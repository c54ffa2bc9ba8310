# mypy: ignore-errors
"""Flower: run_simulation with FedAvg over as many SuperNodes as there are nodes.

Ray runs as many actors as it is given cores, one core each; each keeps the data of all nodes, so
that no round loads anything. CPU seconds are those of Ray's processes too.
"""

import os

import torch
from flower_app import client
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_work import mean_loss, network, nodes
from watch import Task, Watch, asked, tree_cpu_s


def server(task: Task, watch: Watch) -> ServerApp:
    """Return an app that runs a warm-up round and the timed ones."""
    app = ServerApp()
    net, data = network(task.work), nodes(task.work)
    seen = [0]

    def count(replies, weighted_by: str) -> MetricRecord:
        seen[0] = sum(reply["metrics"][weighted_by] for reply in replies)
        return MetricRecord({weighted_by: seen[0]})

    def after(server_round: int, arrays: ArrayRecord) -> None:
        if server_round:
            watch.stop(seen[0])
        net.load_state_dict(arrays.to_torch_state_dict())
        watch.loss(mean_loss(net, data))
        watch.start()

    @app.main()
    def run(grid, context) -> None:
        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_train_nodes=task.work.nodes,
            min_available_nodes=task.work.nodes,
            train_metrics_aggr_fn=count,
        )
        strategy.start(
            grid,
            ArrayRecord(net.state_dict()),
            num_rounds=1 + task.rounds,
            train_config=ConfigRecord({"work": task.work.name, "fraction": task.fraction}),
            evaluate_fn=after,
        )

    return app


def main() -> None:
    """Run what was asked for."""
    task = asked(__doc__)
    torch.set_num_threads(1)
    cores = len(os.sched_getaffinity(0))
    watch = Watch(tree_cpu_s)
    run_simulation(
        server(task, watch),
        client,
        num_supernodes=task.work.nodes,
        backend_config={
            "init_args": {"num_cpus": cores, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    note = f"{cores} actors of one core each; CPU seconds include Ray's processes"
    watch.tell("flower", task, ["flwr", "ray", "torch"], note)


if __name__ == "__main__":
    main()
