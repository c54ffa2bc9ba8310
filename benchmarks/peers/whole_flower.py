# mypy: ignore-errors
"""A whole run by Flower: run_simulation with FedAvg on Ray, set up as in run_flower.py."""

from case import Task, asked, write_case
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_case import make_net, score, test_part
from whole_flower_app import client


def server(task: Task) -> ServerApp:
    """Return an app that runs the rounds, scores the model on the server, and writes rows."""
    app, case = ServerApp(), task.case
    net, part, seen = make_net(task), test_part(task), [0]

    def count(replies, weighted_by: str) -> MetricRecord:
        seen[0] += sum(reply["metrics"][weighted_by] for reply in replies)
        return MetricRecord({weighted_by: seen[0]})

    def after(server_round: int, arrays: ArrayRecord) -> None:
        if server_round == 0 or task.due(server_round):
            net.load_state_dict(arrays.to_torch_state_dict())
            task.record(server_round, *score(net, part), seen[0])

    @app.main()
    def run(grid, context) -> None:
        strategy = FedAvg(
            fraction_train=case.cohort / case.nodes,
            fraction_evaluate=0.0,
            min_train_nodes=case.cohort,
            min_available_nodes=case.nodes,
            train_metrics_aggr_fn=count,
        )
        strategy.start(
            grid,
            ArrayRecord(net.state_dict()),
            num_rounds=case.rounds,
            train_config=ConfigRecord({"case": write_case(case), "folder": str(task.folder)}),
            evaluate_fn=after,
        )

    return app


def main() -> None:
    """Run the case: as many actors as cores, each with one."""
    task = asked(__doc__)
    run_simulation(
        server(task),
        client,
        num_supernodes=task.case.nodes,
        backend_config={
            "init_args": {"num_cpus": task.cores, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main()
