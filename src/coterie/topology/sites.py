"""Devices on the sites of a network: a CSV says where each is, and how fast its own link is."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from coterie.core.arrays import Bools
from coterie.core.boundary import reader
from coterie.core.csv_rows import header, listed, read_rows
from coterie.core.errors import TopologyError
from coterie.topology.matrix import numbered, speeds
from coterie.topology.roles import truth
from coterie.topology.values import Speed, Topology

NODE, SITE, MAY_SERVE = "node", "site", "may_serve"


def has_sites(path: Path) -> bool:
    """Whether a CSV of nodes puts them on sites."""
    return SITE in header(path)


@reader(TopologyError)
def attach(sites: Topology, path: Path, access: Speed) -> Topology:
    """Put the devices of a CSV on a network of sites, which are its switches.

    Columns are `node`, `site`, and perhaps the speeds and latency of the device's own link, for
    which else `access` holds. Devices are numbered in the order of the file. Other columns are
    passed over.
    """
    columns, rows = read_rows(path, TopologyError)
    if NODE not in columns or not rows:
        raise TopologyError(
            f"{path}: needs a column node, separated by commas, got {listed(columns)}"
            if NODE not in columns
            else f"{path}: has no nodes; give each a row"
        )
    number_of = {name: s for s, name in enumerate(sites.names)}
    names: dict[str, int] = {}
    table = np.empty((len(rows), 3))
    for at, (where, cells) in enumerate(rows):
        name, site = cells[NODE].strip(), cells[SITE].strip()
        if site not in number_of:
            raise unknown_site(where, site, sites.names)
        if not name or name in names or name in number_of:
            why = "is there twice" if name in names else "is a site, too" if name else "is no name"
            raise TopologyError(f"{where}: node {name!r} {why}; give every node a name of its own")
        names[name] = number_of[site]
        table[at] = speeds(cells, where)
    usual = np.array([access.bytes_per_s, access.bytes_per_s, access.latency_s])
    table = np.where(np.isnan(table), usual, table)
    return replace(
        sites,
        switch_of=np.array(list(names.values()), dtype=np.int64),
        bytes_per_s=np.concatenate([table[:, :2].ravel(), sites.bytes_per_s]),
        latency_s=np.concatenate([table[:, 2], sites.latency_s]),
        names=(*names, *sites.names),
    )


def unknown_site(where: str, site: str, known: Collection[str]) -> TopologyError:
    """Return the error for a site that a network does not have."""
    some = list(islice(known, 3))
    more = f" and {len(known) - 3} more" if len(known) > 3 else ""
    return TopologyError(f"{where}: unknown site {site!r}; there is {listed(some)}{more}")


def may_serve(topology: Topology, path: Path, names: Sequence[str]) -> Bools:
    """Read which devices can be a server [n]; those that a CSV of nodes says nothing of can."""
    n, before = topology.n_devices, topology.may_serve
    may = np.ones(n, dtype=np.bool_) if before is None else before.copy()
    _, rows = read_rows(path, TopologyError)
    for node, (where, cells) in zip(numbered(path, rows, names, n), rows, strict=True):
        said = truth(cells, MAY_SERVE, where)
        if said and not may[node]:
            raise TopologyError(
                f"{where}: node {topology.name(node)!r} may serve here, and may not in the network"
            )
        may[node] &= said is not False
    if not (may.any() or topology.places):
        raise TopologyError(f"{path}: no device may serve and no place does; let one of them")
    return may
