"""Actors in this process, to see what dealing nodes to several does without starting any."""

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from coterie.engine.contract import LocalSteps, Sampling
from coterie.engine.local_rule import LocalRule
from coterie.engine.module import HeldSizes
from coterie.engine.ray.engine import Sharded
from coterie.engine.ray.worker import Part, Shard
from coterie.engine.sequential import Sequential
from engines import MODULES, nodes_of


class Here:
    """Hires actors that are objects; what they are asked is counted."""

    def __init__(self) -> None:
        self.members: list[Shard] = []
        self.asked: list[str] = []
        self.answers: list[Any] = []

    def pack(self, module: nn.Module) -> bytes:
        return pickle.dumps(module)

    def crew(self, kind: Callable[[Part], Shard], parts: Sequence[Part]) -> "Here":
        self.members = [kind(part) for part in parts]
        return self

    def ask(self, method: str, *shared: Any, each: Sequence[Any] | None = None) -> list[Any]:
        self.asked.append(method)
        more = [()] * len(self.members) if each is None else [(one,) for one in each]
        self.answers = [
            getattr(member, method)(*shared, *own)
            for member, own in zip(self.members, more, strict=True)
        ]
        return self.answers


def sharded(
    name: str,
    actors: int,
    kernel: str,
    rule: LocalRule | None = None,
    lr: float | None = None,
    dtype: torch.dtype = torch.float64,
    held_sizes: HeldSizes | None = None,
    sampling: Sampling = "epoch",
) -> tuple[Sequential, Sharded, Here]:
    """Return the oracle, the same on several actors, and these."""
    torch.manual_seed(3)
    module, nodes, rule = MODULES[name]().to(dtype), nodes_of(), rule or LocalRule()
    held_out: Any = {"val": (nodes.x[:30], nodes.y[:30]), "test": (nodes.x, nodes.y)}
    steps = LocalSteps(lr or (0.02 if "cnn" in name else 0.1), 0.99, 5, "epoch", 3, sampling)
    own = held_sizes
    oracle = Sequential(copy.deepcopy(module), nodes, held_out, steps, rule=rule, held_sizes=own)
    here = Here()
    engine = Sharded(module, nodes, held_out, steps, here, actors, rule=rule, held_sizes=own)
    engine.choose({"kernel": kernel, "actors": str(actors)})
    return oracle, engine, here
