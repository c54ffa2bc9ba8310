"""The server: groups the nodes, and runs the rounds."""

import logging
from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from coterie.flower import GroupStrategy
from group_app import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and print the accuracy after every global round."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("coterie").setLevel(logging.INFO)
    run = context.run_config
    config = task.settings(run, int(run["num-nodes"]) or 10)
    held_out = task.load(config)
    net = task.make_net(config, held_out)

    def evaluate(round_: int, arrays: ArrayRecord) -> MetricRecord:
        task.set_arrays(net, {key: array.numpy() for key, array in arrays.items()})
        loss, accuracy = task.test(net, held_out)
        print(f"round {round_}: accuracy {accuracy:.4f}, loss {loss:.4f}", flush=True)
        return MetricRecord({"accuracy": accuracy, "loss": loss})

    start = {key: Array(array.copy()) for key, array in task.get_arrays(net).items()}
    rounds = int(run["num-server-rounds"])
    strategy(run).start(
        grid, ArrayRecord(start), rounds, timeout=float(run["timeout"]), evaluate_fn=evaluate
    )


def strategy(run: Mapping[str, Any]) -> GroupStrategy:
    """Make the strategy that the app's settings ask for."""
    return GroupStrategy(
        num_groups=int(run["num-groups"]),
        tau1=int(run["tau1"]),
        tau2=int(run["tau2"]),
        evidence=run["evidence"],
        grouping=str(run["grouping"]),
        plan=run["plan"] or None,
        network=run["network"] or None,
        min_nodes=int(run["min-nodes"]),
        min_per_group=int(run["min-per-group"]),
        state_dir=run["state-dir"] or None,
        seed=int(run["seed"]),
    )
