"""How much memory a run needs: what cannot be had is refused before anything is computed."""

import numpy as np

from coterie.core.amounts import size
from coterie.core.errors import ConfigError
from coterie.core.memory import ALWAYS_THERE, physical_memory
from coterie.data import Dataset
from coterie.engine.update import Update

SEARCHED = 40  # bytes of a node and a group in a search: seconds, their powers, tolls, and copies
FLOAT = 4  # bytes of a number of a model
MEANS = 16  # bytes of a number of a group's model: as it is, as a sum, and the next
NODE = 600  # bytes of a node: its numbers, names and places in arrays
WAYS = {
    "examples": "lower data.sample",
    "what nodes keep": "use fewer nodes, a smaller model, or an algorithm that keeps less",
    "models of groups": "lower algorithm.num_groups, or use a smaller model",
    "the search for groups": "lower algorithm.num_groups, or use fewer nodes",
    "nodes": "use fewer nodes",
}


def check_memory(
    dataset: Dataset,
    n: int,
    d: int,
    update: Update,
    groups: int,
    *,
    searched: bool,
    staying: int = 0,
) -> None:
    """Refuse a run of n nodes, with models of d numbers, that this machine has no room for.

    So many of them are `staying` on nodes, each of which has its own. What is counted is what
    grows: pages of a file that is mapped, and threads' batches, are not.
    """
    x = dataset.x
    stored = 0 if isinstance(x, np.memmap) else x.nbytes
    needs = {
        "examples": stored + x.nbytes + dataset.y.nbytes,
        "what nodes keep": 2 * n * (_kept(update, n, d) + FLOAT * staying),  # before and after
        "models of groups": MEANS * groups * d,
        "the search for groups": SEARCHED * n * groups if searched else 0,
        "nodes": NODE * n,
    }
    needed = sum(needs.values())
    there = physical_memory() if needed > ALWAYS_THERE else None
    if there is not None and needed > there:
        most = max(needs, key=lambda what: needs[what])
        raise ConfigError(
            f"{n:,} nodes need {size(needed)} of memory, {size(needs[most])} of it for {most}; "
            f"this machine has {size(there)}; {WAYS[most]}"
        )


def _kept(update: Update, n: int, d: int) -> int:
    """Count the bytes that a node keeps from mean to mean by an algorithm.

    One's own algorithm is asked only where it could matter: as much as a model each would be much.
    """
    beside = 0 if update.beside is None else FLOAT * d
    if update.begin is None or n * FLOAT * d < ALWAYS_THERE:
        return beside
    import torch

    kept = update.begin(1, torch.zeros(d)).node.values()
    return beside + sum(FLOAT * array.numel() for array in kept)
