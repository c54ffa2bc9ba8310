"""A node: it says who it is, and trains the model that its group gives it."""

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from coterie import Config
from coterie.flower.client import answer_query, local_update, node_name, steps_of
from group_app import task

app = ClientApp()


def prepare(context: Context) -> tuple[int, Config, task.Part]:
    """Return this node's number, the settings, and its examples."""
    node = int(context.node_config.get("partition-id", node_name(context)))
    num_nodes = context.run_config["num-nodes"] or context.node_config["num-partitions"]
    config = task.settings(context.run_config, int(num_nodes))
    return node, config, task.load(config, node)


@app.query()
def query(message: Message, context: Context) -> Message:
    """Say who this node is, and show label counts or a sketch of its gradient, as asked."""
    _, config, part = prepare(context)

    def gradient(arrays: task.Arrays) -> np.ndarray:
        net = task.make_net(config, part)
        task.set_arrays(net, arrays)
        return task.gradient(net, part)

    counts = part.y.bincount(minlength=part.n_classes).tolist()
    batches = task.batches(part, config)
    return answer_query(message, context, len(part.y), counts, gradient, batches)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Take the local steps that are asked for, from the model that came."""
    node, config, part = prepare(context)
    net = task.make_net(config, part)
    start, stop = steps_of(message)
    rates = task.rates(part, start, stop, config)
    turn = local_update(message, context, net, rates, *task.algorithm(context.run_config))
    loss = task.train(net, part, node, start, stop, config, turn.step)
    return turn.answer(len(part.y), {"loss": loss})
