"""What an algorithm keeps, at the coordinator: arrays in the names and shapes of the simulator's.

Its nodes have names here, and a row for each of them: `engine.memory` says which arrays there are.
torch is loaded where an algorithm needs it, and not for FedAvg.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from coterie.engine.contract import Models
from coterie.engine.memory import COMMON, GROUP, GROUPS, OWN, first_memory
from coterie.engine.server import after_mean
from coterie.flower import FlowerError
from coterie.flower.algorithm import FEDAVG, Added, trained_of
from coterie.flower.messages import Array, Arrays, Request

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Memory:
    """Arrays that are kept from one mean to the next; those of nodes have a row for each name."""

    names: tuple[str, ...] = ()
    arrays: Arrays = field(default_factory=dict)

    def own(self, name: str) -> dict[str, Array]:
        """Return what a node keeps, by the coordinator's copy."""
        row = self.names.index(name)
        mine = {k.removeprefix(OWN): a for k, a in self.arrays.items() if k.startswith(OWN)}
        return {key: np.asarray(array[row]) for key, array in mine.items()}

    def known(self, name: str) -> dict[str, Array]:
        """Return what a node is to know: what its group keeps, and what all know."""
        theirs = {k: a for k, a in self.arrays.items() if "~" not in k}
        found = {k: a for k, a in theirs.items() if k.startswith(COMMON)}
        if GROUPS in self.arrays:
            k = int(self.arrays[GROUPS][self.names.index(name)])
            found |= {key: np.asarray(a[k]) for key, a in theirs.items() if key.startswith(GROUP)}
        return found

    def only(self, names: Sequence[str]) -> "Memory":
        """Return what is kept by and for some of the nodes."""
        rows = [self.names.index(name) for name in names]
        each = {k: a[rows] if _by_node(k) else a for k, a in self.arrays.items()}
        return Memory(tuple(names), each)

    def renewed(self, kept: Mapping[str, Arrays]) -> "Memory":
        """Return this with what some nodes keep now; the others' stays as it was."""
        found = dict(self.arrays)
        for key in (k for k in self.arrays if k.startswith(OWN)):
            found[key] = self.arrays[key].copy()
            for name, arrays in kept.items():
                found[key][self.names.index(name)] = arrays[key.removeprefix(OWN)]
        return Memory(self.names, found)


def _by_node(key: str) -> bool:
    return key.startswith(OWN) or key == GROUPS


@dataclass(frozen=True, eq=False)
class Sent:
    """What is sent beside models for an algorithm, and who has what it keeps already.

    `there` has the numbers that Flower gave to the nodes whose last answer counted: what they keep
    is what the coordinator's copy says. Others, such as one that was restarted, are sent theirs.
    """

    added: Added = FEDAVG
    memory: Memory = field(default_factory=Memory)
    there: Mapping[str, int] = field(default_factory=dict)
    together: bool = True  # whether all groups are averaged in one

    def known(self, names: Sequence[str]) -> Arrays:
        """Return what all nodes of a group are sent."""
        sends = self.added.update.local and names and self.memory.names
        return self.memory.known(names[0]) if sends else {}

    def request(self, name: str, number: int, shared: Request) -> Request:
        """Return what a node is asked whose group is asked that."""
        if not self.added.update.local or self.there.get(name) == number:
            return shared
        own = {f"{OWN}{key}": array for key, array in self.memory.own(name).items()}
        return replace(shared, kept={**shared.kept, **own}) if own else shared

    @property
    def expected(self) -> Arrays:
        """Arrays such as every node has to send back."""
        renews = self.added.update.renew is not None and self.memory.names
        return self.memory.own(self.memory.names[0]) if renews else {}


def begin(added: Added, model: Arrays, names: Sequence[str]) -> Memory:
    """Return what these nodes, their groups and the server keep before the first step."""
    w = flat(model, trained_of(added, model))
    found = first_memory(added.update, len(names), w, len(w))
    return Memory(tuple(names), {key: array.numpy() for key, array in found.items()})


def check_memory(added: Added, memory: Memory, model: Arrays, n_groups: int) -> None:
    """Refuse what a file says is kept if it is not what an algorithm keeps."""
    like = begin(added, model, memory.names).arrays
    if len(set(memory.names)) < len(memory.names) or like.keys() != memory.arrays.keys():
        raise FlowerError(f"what is kept is not what {added.name} keeps; begin anew")
    for key, first in like.items():
        shape = (n_groups, *first.shape[1:]) if key.startswith(GROUP) else first.shape
        array = memory.arrays[key]
        if (array.shape, array.dtype) not in ((shape, first.dtype), (first.shape, first.dtype)):
            raise FlowerError(f"{key!r} that is kept has the shape {array.shape}, not {shape}")
    groups = memory.arrays.get(GROUPS)
    rows = min((len(a) for k, a in memory.arrays.items() if k.startswith(GROUP)), default=0)
    if groups is not None and groups.size and not 0 <= groups.min() <= groups.max() < max(rows, 1):
        raise FlowerError(f"{GROUPS!r} that is kept names groups that there are not")


def follow(
    added: Added,
    memory: Memory,
    models: Sequence[Arrays],
    groups: Sequence[Sequence[str]],
    weights: Mapping[str, float],
    counted: Sequence[str],
    *,
    everyone: bool,
) -> tuple[tuple[Arrays, ...], Memory]:
    """Let groups and the server do what follows a mean, as in a simulated run.

    `weights` has every node's examples, and `counted` the nodes whose models are in the mean.
    """
    import torch

    trained = trained_of(added, models[0])
    of = {name: k for k, names in enumerate(groups) for name in names}
    z = np.array([of[name] for name in memory.names])
    total = math.fsum(weights[name] for name in memory.names)
    p = np.array([weights[name] / total for name in memory.names])
    share = math.fsum(weights[name] for name in counted) / total
    w = torch.stack([flat(model, trained) for model in models])
    kept = {key: torch.from_numpy(np.array(array)) for key, array in memory.arrays.items()}
    before = Models(w, z, kept)
    after = after_mean(added.update, before, w.shape[1], p, z, share, everyone=everyone)
    if after is before:
        return tuple(models), memory
    found = {key: array.numpy() for key, array in after.memory.items()}
    changed = tuple(shaped(row, model, trained) for row, model in zip(after.w, models, strict=True))
    for arrays in (*changed, found):
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise FlowerError(f"{added.name} makes of a mean what is not finite; lower its rates")
    return changed, Memory(memory.names, found)


def flat(model: Arrays, trained: Sequence[str]) -> "Tensor":
    """Put some arrays of a model one behind the other: [d], in single precision or double.

    >>> flat({"w": np.eye(2, dtype=np.float32), "b": np.zeros(1, np.float32)}, ["b", "w"]).tolist()
    [0.0, 1.0, 0.0, 0.0, 1.0]
    """
    import torch

    kind = np.result_type(np.float32, *(model[key].dtype for key in trained))
    parts = [np.asarray(model[key], dtype=kind).ravel() for key in trained]
    return torch.from_numpy(np.concatenate(parts))


def shaped(w: "Tensor", model: Arrays, trained: Sequence[str]) -> Arrays:
    """Return a model whose arrays of these names are those numbers [d]."""
    found, at = dict(model), 0
    for key in trained:
        like = model[key]
        part = w[at : at + like.size].numpy()
        with np.errstate(over="ignore"):  # what is beyond the type is not finite, and told by that
            found[key] = part.reshape(like.shape).astype(like.dtype)
        at += like.size
    return found
