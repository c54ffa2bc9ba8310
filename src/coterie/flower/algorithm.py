"""Which algorithm runs on Flower: by name, by import path, or as a value; what cannot is refused.

Nothing here imports torch or Flower.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie.engine.update import NOTHING, Update
from coterie.flower import FlowerError
from coterie.flower.groups import digest
from coterie.flower.messages import Arrays
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.algorithms import find_algorithm
from coterie.simulation.algorithms.own import told_apart


@dataclass(frozen=True)
class Added:
    """What is added to SGD and a mean, and the name that the server and its nodes have for it.

    `trained` names the arrays of a model that it is about; without any, all floating-point ones.
    """

    name: str = "fedavg"
    update: Update = NOTHING
    trained: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether nothing is added."""
        return self.update == NOTHING


FEDAVG = Added()


def added(
    algorithm: str | Algorithm | Update = "fedavg",
    options: Mapping[str, Any] | None = None,
    trained: tuple[str, ...] = (),
) -> Added:
    """Return what an algorithm adds on Flower; refuse one that cannot run there.

    >>> added("feddyn", {"alpha": 0.5}).name, added("fedavg-ic").plain
    ('feddyn(alpha=0.5)', True)
    """
    if isinstance(algorithm, str):
        made, said = find_algorithm(algorithm, options), algorithm
        if options:
            said += f"({', '.join(f'{key}={options[key]!r}' for key in sorted(options))})"
    elif options:
        raise FlowerError("options are not read: the algorithm is a value, no function of any")
    else:
        made = told_apart(algorithm, "your algorithm")
        said = f"your algorithm {digest(algorithm)}"
    if fault := _fault(made):
        raise FlowerError(f"{said} is not offered on Flower: {fault}")
    return FEDAVG if made.update == NOTHING else Added(said, made.update, trained)


def _fault(made: Algorithm) -> str:
    """Say why an algorithm cannot run on Flower; empty if it can."""
    if made.policy is not None:
        return "it decides about groups and models itself; simulate it, or take another"
    if made.update.personal is not None or made.update.beside is not None:
        return "its nodes have models of their own, and a node here has its group's; simulate it"
    if made.pooled:
        return "it trains on one node that holds everything; simulate it"
    if made.groups == "edge" or not (made.iid and made.comm):
        return "its groups are fixed; take 'fedavg', and grouping, alpha_iid and alpha_comm"
    return ""


def trained_of(added: Added, model: Arrays) -> tuple[str, ...]:
    """Name the arrays that an algorithm is about, in their order; refuse names that are none.

    Others, such as the statistics of a batch norm, are averaged and no more.
    """
    floats = [key for key, array in model.items() if array.dtype.kind == "f"]
    for name in added.trained:
        if name not in floats:
            why = "is not of floating-point numbers" if name in model else "is not in the model"
            raise FlowerError(f"trained: {name!r} {why}; it has {', '.join(floats) or 'none'}")
    if not floats:
        raise FlowerError(f"{added.name} needs floating-point arrays, and the model has none")
    return added.trained or tuple(floats)
