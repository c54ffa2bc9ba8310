# mypy: ignore-errors
"""Flower's client of a whole run, in a module of its own so that Ray's actors keep its data."""

from functools import lru_cache
from pathlib import Path

import torch
from case import Task, read_task
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch_case import Nodes, make_net

client = ClientApp()


@lru_cache(maxsize=1)
def prepared(case: str, folder: str) -> tuple[Task, nn.Module, Nodes]:
    """Open the case and make the network, once in each actor."""
    torch.set_num_threads(1)
    task = read_task(case, Path(folder), Path())
    return task, make_net(task), Nodes(task)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train one node, from the arrays in the message."""
    config = message.content["config"]
    task, net, nodes = prepared(config["case"], config["folder"])
    case = task.case
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=case.lr, momentum=case.momentum)
    seen = 0
    for _ in range(case.epochs):
        for x, y in nodes.batches(context.node_config["partition-id"]):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            seen += len(y)
    told = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord({"num-examples": seen}),
    }
    return Message(content=RecordDict(told), reply_to=message)
