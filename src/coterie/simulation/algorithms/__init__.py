"""The algorithms by name: the paper's and others', each a function of its options.

One of your own is named by its import path, `my_pkg.algos:feddyn`.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from coterie.core.errors import ConfigError, unknown
from coterie.simulation.algorithm import Algorithm, Groups
from coterie.simulation.algorithms.ditto import ditto
from coterie.simulation.algorithms.fedbn import fedbn
from coterie.simulation.algorithms.feddyn import feddyn
from coterie.simulation.algorithms.fednova import fednova
from coterie.simulation.algorithms.fedopt import fedadam, fedavgm, fedyogi
from coterie.simulation.algorithms.fedper import fedper
from coterie.simulation.algorithms.fedprox import fedprox
from coterie.simulation.algorithms.hier_fedprox import hier_fedprox
from coterie.simulation.algorithms.hier_scaffold import hier_scaffold
from coterie.simulation.algorithms.ifca import ifca
from coterie.simulation.algorithms.own import called, own_algorithm
from coterie.simulation.algorithms.scaffold import scaffold

Make = Callable[..., Algorithm]


def _of(about: str, **parts: Any) -> Make:
    """Return an algorithm without options."""
    return lambda: Algorithm(about, **parts)


MAKERS: dict[str, Make] = {
    "fedavg": _of("no groups: a global mean every tau1*tau2 steps"),
    "hierfavg": _of("groups are the network edges", groups="edge"),
    "fedavg-c": _of("groups by least hop distance", groups="search", iid=False),
    "fedavg-i": _of("groups by least divergence Delta", groups="search", comm=False),
    "fedavg-ic": _of("groups by both costs: the paper's algorithm", groups="search"),
    "centralized": _of("all data on one node: no network", pooled=True),
    "fedprox": fedprox,
    "scaffold": scaffold,
    "feddyn": feddyn,
    "fednova": fednova,
    "fedavgm": fedavgm,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedper": fedper,
    "fedbn": fedbn,
    "ditto": ditto,
    "ifca": ifca,
    "hier-fedprox": hier_fedprox,
    "hier-scaffold": hier_scaffold,
}
ALGORITHMS: dict[str, Algorithm] = {name: make() for name, make in MAKERS.items()}
FIXED = ("hierfavg", "fedavg-c", "fedavg-i", "fedavg-ic", "centralized", "ifca")  # their groups


def find_algorithm(
    name: str,
    options: Mapping[str, Any] | None = None,
    groups: Groups | Literal["auto"] = "auto",
) -> Algorithm:
    """Make the algorithm of that name, or import path, with some options and groups.

    >>> find_algorithm("fedavg-ic").searched, find_algorithm("feddyn", {"alpha": 1}, "edge").groups
    (True, 'edge')
    """
    if name in MAKERS:
        found: Algorithm = called(name, MAKERS[name], options or {})
    elif ":" in name:
        found = own_algorithm(name, options or {})
    else:
        own = "(your own: 'my_pkg.algos:feddyn')"
        raise ConfigError(f"{unknown('algorithm', name, MAKERS)} {own}")
    return with_groups(found, name, groups)


def with_groups(found: Algorithm, name: str, groups: Groups | Literal["auto"]) -> Algorithm:
    """Let an algorithm of that name train in other groups than its own, where it has room for it.

    >>> with_groups(Algorithm("mine"), "mine", "edge").groups
    'edge'
    """
    if groups == "auto":
        return found
    fixed = name in FIXED or found.pooled or found.policy is not None
    if fixed and groups != found.groups:
        raise ConfigError(
            f"algorithm.groups cannot be {groups!r}: {name} decides about groups itself; leave it "
            "out, or take another algorithm, such as 'fedavg'"
        )
    return replace(found, groups=groups)


def option_names() -> set[str]:
    """Return the names of all options that the algorithms here have."""
    return {name for make in MAKERS.values() for name in inspect.signature(make).parameters}


def described() -> dict[str, str]:
    """Say of every algorithm what it is, and which options it has.

    >>> described()["fedprox"]
    'FedProx: local steps are pulled to the model that the node was given (options: mu = 0.01)'
    """
    found = {}
    for name, make in MAKERS.items():
        takes = inspect.signature(make).parameters.items()
        options = ", ".join(f"{key} = {p.default}" for key, p in takes)
        found[name] = ALGORITHMS[name].about + (f" (options: {options})" if options else "")
    return {**found, "your own": "'my_pkg.algos:feddyn': a function that returns an Algorithm"}
