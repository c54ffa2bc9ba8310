# mypy: ignore-errors
"""Flower's client, in a module of its own so that Ray's actors import it and keep its data."""

from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch_work import Batch, batches, network, nodes
from work import LEARNING_RATE, WORKS

client = ClientApp()


@lru_cache(maxsize=1)
def prepared(name: str, fraction: float) -> tuple[nn.Module, list[list[Batch]]]:
    """Make the network and everybody's mini-batches, once in each actor."""
    torch.set_num_threads(1)
    work = WORKS[name].part(fraction)
    return network(work), [batches(node, work.batch) for node in nodes(work)]


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train one node for an epoch, from the arrays in the message."""
    config = message.content["config"]
    net, of_nodes = prepared(config["work"], config["fraction"])
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=LEARNING_RATE)
    seen = 0
    for x, y in of_nodes[context.node_config["partition-id"]]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        seen += len(y)
    told = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord({"num-examples": seen}),
    }
    return Message(content=RecordDict(told), reply_to=message)
