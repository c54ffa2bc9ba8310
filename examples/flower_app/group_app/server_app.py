"""The server: groups the nodes, and runs the rounds."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord
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

    def evaluate_fn(round_: int, arrays: ArrayRecord) -> MetricRecord:
        score = evaluate(run, {key: array.numpy() for key, array in arrays.items()})
        print(f"round {round_}: {score}", flush=True)
        return MetricRecord(score)

    start = ArrayRecord({key: Array(array) for key, array in initial(run).items()})
    strategy(run).start(
        grid,
        start,
        int(run["num-server-rounds"]),
        timeout=float(run["timeout"]),
        train_config=train_config(run),
        evaluate_fn=evaluate_fn,
    )


def train_config(run: Mapping[str, Any]) -> ConfigRecord:
    """Return what nodes train by: a state is not gone on with by anything else."""
    keys = ("model", "partition", "num-nodes", "learning-rate", "lr-decay", "batch-size", "seed")
    return ConfigRecord({key: run[key] for key in keys})


def initial(run: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the model that all start from (coterie-initial)."""
    config = task.settings(run, int(run["num-nodes"]) or 10)
    net = task.make_net(config, task.load(config))
    return {key: array.copy() for key, array in task.get_arrays(net).items()}


def trained(run: Mapping[str, Any]) -> list[str]:
    """Name the arrays of the model that are trained; others are averaged and no more."""
    config = task.settings(run, int(run["num-nodes"]) or 10)
    net = task.make_net(config, task.load(config))
    return [name for name, w in net.named_parameters() if w.requires_grad]


def evaluate(run: Mapping[str, Any], arrays: task.Arrays) -> dict[str, float]:
    """Score a model on the examples that no node has (coterie-evaluate)."""
    config = task.settings(run, int(run["num-nodes"]) or 10)
    held_out = task.load(config)
    net = task.make_net(config, held_out)
    task.set_arrays(net, arrays)
    loss, accuracy = task.test(net, held_out)
    return {"accuracy": accuracy, "loss": loss}


def strategy(run: Mapping[str, Any]) -> GroupStrategy:
    """Make the strategy that the app's settings ask for."""
    algorithm, options = task.algorithm(run)
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
        algorithm=algorithm,
        options=options,
        trained=trained(run),
    )
