"""What is trained, on what, and how: replace these functions with your own.

As they are, node i holds what node i holds in a simulated run of the same settings, starts from
the same weights and takes the same batches: both give the same model.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from coterie import Config, make_config
from coterie.config.factories import divide, load_dataset, local_steps
from coterie.engine.module import inputs
from coterie.flower import FlowerError
from coterie.models import make_model

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Part:
    """Examples x [N, ...] and labels y [N] of one node, or those held out for the test."""

    x: Tensor
    y: Tensor
    n_classes: int


def settings(run: Mapping[str, Any], num_nodes: int) -> Config:
    """Return the settings of the app as coterie's, which name data, partition and model."""
    return make_config(
        {
            "seed": int(run["seed"]),
            "partition": {"kind": str(run["partition"]), "num_nodes": num_nodes},
            "model": {"name": str(run["model"])},
            "algorithm": {"num_groups": 1},  # the strategy groups, on the server
            "train": {
                "lr": float(run["learning-rate"]),
                "lr_decay": float(run["lr-decay"]),
                "batch_size": int(run["batch-size"]) or "full",
            },
        }
    )


def algorithm(run: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return which algorithm the app's settings ask for, and its options: 'alpha=0.1 beta=2'."""
    words = [word.partition("=") for word in str(run["algorithm-options"]).split()]
    try:
        return str(run["algorithm"]), {key: json.loads(value) for key, _, value in words}
    except ValueError as error:
        given = run["algorithm-options"]
        raise FlowerError(
            f"algorithm-options must be such as 'alpha=0.1', got {given!r}"
        ) from error


def load(config: Config, node: int | None = None) -> Part:
    """Load the training examples of a node, or without one the test examples."""
    divided = divide(config, load_dataset(config))
    split, dataset = divided.split, divided.dataset
    at = split.test if node is None else split.train[divided.partition.indices[node]]
    return Part(torch.from_numpy(dataset.x[at]), torch.from_numpy(dataset.y[at]), dataset.n_classes)


def make_net(config: Config, part: Part) -> nn.Module:
    """Make the model with the weights that every node starts from."""
    torch.manual_seed(config.seed)
    return make_model(config.model.name, tuple(part.x.shape[1:]), part.n_classes)


def rates(part: Part, start: int, stop: int, config: Config) -> list[float]:
    """Return the learning rate of every batch of local steps start+1 .. stop."""
    steps, each = local_steps(config), batches(part, config)
    return [steps.lr_at(t) for t in range(start + 1, stop + 1) for _ in range(each)]


def batches(part: Part, config: Config) -> int:
    """Return how many batches a local step of a node has."""
    return len(local_steps(config).batches(1, 0, len(part.y)))


def train(
    net: nn.Module,
    part: Part,
    node: int,
    start: int,
    stop: int,
    config: Config,
    step: Callable[[], None],
) -> float:
    """Take the node's local steps start+1 .. stop, each by `step`; return the last batch's loss."""
    steps, loss = local_steps(config), torch.zeros(())
    net.train()
    for t in range(start + 1, stop + 1):
        for batch in steps.batches(t, node, len(part.y)):
            x, y = (part.x, part.y) if batch is None else (part.x[batch], part.y[batch])
            net.zero_grad()
            loss = cross_entropy(net(inputs(x)), y)
            loss.backward()  # type: ignore[no-untyped-call]
            step()
    return loss.item()


def gradient(net: nn.Module, part: Part) -> np.ndarray:
    """Return the gradient [d] of the mean loss over all examples of a node."""
    net.eval()
    loss = cross_entropy(net(inputs(part.x)), part.y)
    grads = torch.autograd.grad(loss, list(net.parameters()))
    return torch.cat([g.reshape(-1) for g in grads]).numpy()


@torch.no_grad()
def test(net: nn.Module, part: Part) -> tuple[float, float]:
    """Return the mean loss and the accuracy."""
    net.eval()
    scores = net(inputs(part.x))
    right = int((scores.argmax(dim=1) == part.y).sum())
    return float(cross_entropy(scores, part.y)), right / len(part.y)


def get_arrays(net: nn.Module) -> dict[str, np.ndarray]:
    """Return the model as named arrays."""
    return {key: value.detach().numpy() for key, value in net.state_dict().items()}


def set_arrays(net: nn.Module, arrays: Arrays) -> None:
    """Make named arrays the model."""
    net.load_state_dict({key: torch.from_numpy(np.array(a)) for key, a in arrays.items()})
