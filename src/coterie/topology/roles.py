"""Who may serve a group, and how many members, as a file of nodes or links says it.

`server` makes a switch a place that serves. `may_serve` does the same, and of a device it says
whether the device can be a server. `capacity` is the most members that a place serves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.core.arrays import Bools, Ints
from coterie.core.csv_rows import Cells
from coterie.core.errors import TopologyError
from coterie.topology.values import UNLIMITED

ROLES = ("server", "may_serve", "capacity")
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Role:
    """What is said of a vertex, None where nothing is, and where it is said."""

    server: bool | None
    may_serve: bool | None
    capacity: int | None
    where: str

    @property
    def serves(self) -> bool:
        """Whether a switch of this role is a place that serves."""
        return bool(self.server or self.may_serve)


def truth(cells: Cells, column: str, where: str) -> bool | None:
    """Read yes or no; None where nothing is said.

    >>> truth({"server": "Yes"}, "server", "net.csv"), truth({}, "server", "net.csv")
    (True, None)
    """
    text = cells.get(column, "").strip()
    if text and text.lower() not in TRUTHS:
        raise TopologyError(f"{where}: {column} must be yes or no, got {text[:40]!r}")
    return TRUTHS[text.lower()] if text else None


def whole(cells: Cells, column: str, where: str) -> int | None:
    """Read a whole number of members; None where nothing is said.

    >>> whole({"capacity": "40"}, "capacity", "net.csv"), whole({}, "capacity", "net.csv")
    (40, None)
    """
    text = cells.get(column, "").strip()
    if not text:
        return None
    number = int(text[:12]) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= UNLIMITED:
        raise TopologyError(
            f"{where}: {column} must be a whole number of members from 1 to {UNLIMITED:,}, got "
            f"{text[:40]!r}"
        )
    return number


def read_role(name: str, cells: Cells, where: str) -> Role:
    """Read what is said of a vertex, and refuse what contradicts itself."""
    at = f"{where}: node {name!r}"
    role = Role(
        truth(cells, "server", at),
        truth(cells, "may_serve", at),
        whole(cells, "capacity", at),
        where,
    )
    if None not in (role.server, role.may_serve) and role.server != role.may_serve:
        raise TopologyError(f"{at}: server and may_serve say different things; keep one of them")
    return role


def add_said(said: dict[str, dict[str, str]], name: str, cells: Cells, where: str) -> bool:
    """Add what a row of a CSV says of a vertex to what others said; return whether it says any."""
    told = {column: cells.get(column, "").strip() for column in ROLES}
    before = said.setdefault(name, {})
    for column, text in told.items():
        if text and text.lower() != before.setdefault(column, text).lower():
            raise TopologyError(
                f"{where}: {column} of {name!r} is {text[:40]!r} here, and {before[column][:40]!r} "
                "in a row before"
            )
    return any(told.values())


def serving(
    names: Sequence[str], n: int, roles: Mapping[str, Role], path: Path
) -> tuple[tuple[int, ...], Ints | None, Bools | None]:
    """Return the places among the switches, their capacities, and which of n devices may serve.

    `names` are of the vertices, n devices first.
    """
    may_serve = np.ones(n, dtype=np.bool_)
    capacity: dict[int, int] = {}
    for at, name in enumerate(names):
        role = roles.get(name)
        if role is None:
            continue
        if at >= n:
            if role.serves:
                capacity[at - n] = role.capacity or UNLIMITED
            elif role.capacity is not None:
                raise TopologyError(
                    f"{role.where}: node {name!r} has a capacity and does not serve; add server = "
                    "yes, or leave the capacity out"
                )
            continue
        if role.server:
            raise TopologyError(
                f"{role.where}: node {name!r} is a device and a server; use a switch"
            )
        if role.capacity is not None:
            raise TopologyError(
                f"{role.where}: node {name!r} is a device, and capacity is of places here; give a "
                "device's in a column capacity of the nodes' file"
            )
        may_serve[at] = role.may_serve is not False
    if n and not (may_serve.any() or capacity):
        raise TopologyError(f"{path}: no device may serve and no place does; let one of them")
    limited = any(most < UNLIMITED for most in capacity.values())
    said = any(roles[name].may_serve is not None for name in names[:n] if name in roles)
    return (
        tuple(capacity),
        np.array(list(capacity.values()), dtype=np.int64) if limited else None,
        may_serve if said else None,
    )
