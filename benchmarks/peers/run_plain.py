# mypy: ignore-errors
"""The peer that everybody could write: a plain PyTorch loop over nodes and mini-batches."""

from collections.abc import Iterable, Sequence
from itertools import chain, repeat

import torch
from torch import nn
from torch_work import Batch, batches, mean_loss, network, nodes
from watch import Watch, asked
from work import LEARNING_RATE


def run_round(
    net: nn.Module,
    of_nodes: Iterable[list[Batch]],
    p: Sequence[float],
    lr: float = LEARNING_RATE,
    epochs: int = 1,
    momentum: float = 0.0,
) -> int:
    """Train every node from the global model and put the weighted mean into the network."""
    parameters = list(net.parameters())
    start = [w.detach().clone() for w in parameters]
    mean = [torch.zeros_like(w) for w in start]
    seen = 0
    for mini, p_i in zip(of_nodes, p, strict=True):
        with torch.no_grad():
            for w, w0 in zip(parameters, start, strict=True):
                w.copy_(w0)
        optimizer = torch.optim.SGD(parameters, lr=lr, momentum=momentum)
        for x, y in chain.from_iterable(repeat(mini, epochs)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            seen += len(y)
        with torch.no_grad():
            for total, w in zip(mean, parameters, strict=True):
                total.add_(w, alpha=p_i)
    with torch.no_grad():
        for w, value in zip(parameters, mean, strict=True):
            w.copy_(value)
    return seen


def main() -> None:
    """Run what was asked for."""
    task = asked(__doc__)
    torch.set_num_threads(1)
    watch = Watch()
    data = nodes(task.work)
    net = network(task.work)
    mini = [batches(node, task.work.batch) for node in data]
    sizes = task.work.sizes()
    p = (sizes / sizes.sum()).tolist()
    watch.loss(mean_loss(net, data))
    for _ in range(1 + task.rounds):
        watch.start()
        watch.stop(run_round(net, mini, p))
        watch.loss(mean_loss(net, data))
    watch.tell("plain", task, ["torch"])


if __name__ == "__main__":
    main()
