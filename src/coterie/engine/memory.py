"""What is kept from one mean to the next: arrays in the models' memory, by whose they are."""

from dataclasses import replace
from typing import TYPE_CHECKING

from coterie.engine.contract import Models
from coterie.engine.update import Arrays, Kept, Update

if TYPE_CHECKING:
    from torch import Tensor

OWN, GROUP, COMMON = "own.", "group.", "common."  # nodes', groups' and what all know
PART, BESIDE = "own.~part", "own.~model"  # a node's part of its model [n, k], and its second model
PLACES = "common.~part"  # the places [k] of that part in a model
LAST = "common.~last"  # the last global model, where the server needs it
GROUPS = "common.~z"  # the group of every node, where groups keep anything; always on the host


def first_memory(
    update: Update, n: int, w: "Tensor", d: int, places: "Tensor | None" = None
) -> "dict[str, Tensor]":
    """Return what n nodes, groups and the server keep before the first step from the model w.

    Its first d numbers are trained, and those at `places` stay on nodes.
    """
    memory: dict[str, Tensor] = {}
    kept = Kept() if update.begin is None else update.begin(n, w[:d])
    memory |= {f"{OWN}{key}": array for key, array in kept.node.items()}
    memory |= {f"{COMMON}{key}": array for key, array in kept.server.items()}
    if update.group is not None:
        memory |= _of_groups(kept.group, 1)
        memory[GROUPS] = w.new_zeros(n, device="cpu").long()
    if places is not None:
        memory |= {PLACES: places, PART: w[places].repeat(n, 1)}
    if update.beside is not None:
        memory[BESIDE] = w.repeat(n, 1)
    if update.server is not None:
        memory[LAST] = w[:d].clone()
    return memory


def regrouped(update: Update, models: Models, z: "Tensor", d: int) -> Models:
    """Return models whose groups are z [n], on the host; new groups have what one has at first."""
    if update.group is None or bool((models.memory[GROUPS] == z).all()):
        return models
    kept = Kept() if update.begin is None else update.begin(len(z), models.w[0, :d])
    memory = {k: v for k, v in models.memory.items() if not k.startswith(GROUP)}
    memory |= _of_groups(kept.group, int(z.max()) + 1)
    return replace(models, memory={**memory, GROUPS: z})


def _of_groups(arrays: Arrays, K: int) -> "dict[str, Tensor]":
    return {f"{GROUP}{key}": a[None].repeat(K, *[1] * a.ndim) for key, a in arrays.items()}


def remembered(models: Models, kind: str) -> "dict[str, Tensor]":
    """Return the arrays of a kind in the models' memory by their own names."""
    return {k.removeprefix(kind): v for k, v in models.memory.items() if k.startswith(kind)}


def remembering(models: Models, kind: str, arrays: Arrays) -> Models:
    """Return models with other arrays of a kind in their memory."""
    named = {f"{kind}{key}": array for key, array in arrays.items()}
    return replace(models, memory={**models.memory, **named})


def theirs(arrays: Arrays) -> Arrays:
    """Leave out the arrays that are ours: an algorithm does not see them."""
    return {key: array for key, array in arrays.items() if not key.startswith("~")}
