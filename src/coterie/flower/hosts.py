"""The places of a deployment, and the hosts by which others reach them."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from coterie.core.csv_rows import read_rows
from coterie.flower import FlowerError
from coterie.flower.edge import edge_name
from coterie.preview.planfile import Plan

LOOPBACK = "127.0.0.1"
COORDINATOR = "coordinator"
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")  # at the end of a name: an address in disguise


def places_of(plan: Plan) -> list[str]:
    """Return the coordinator and the edges."""
    return [COORDINATOR, *(edge_name(k) for k in range(len(plan.servers)))]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and no other can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def wrong_host(host: str) -> bool:
    """Whether others cannot reach a place by that host: no address and no name, or all addresses.

    >>> [wrong_host(host) for host in ("10.0.0.1", "::1", "edge-1.example")]
    [False, False, False]
    >>> [wrong_host(host) for host in ("0.0.0.0", "0", "::0", "-x", "köln.example", "a b", "")]
    [True, True, True, True, True, True, True]
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return not NAME.fullmatch(host) or bool(NUMBER.fullmatch(host.rpartition(".")[2]))
    return (getattr(address, "ipv4_mapped", None) or address).is_unspecified


def hosts_of(plan: Plan, coordinator: str) -> dict[str, str]:
    """Take the names of the plan's servers for the hosts of the edges.

    Without a host for the coordinator it is with the first group.
    """
    for k, server in enumerate(plan.servers):
        if wrong_host(server):
            raise FlowerError(
                f"the server of group {k} is {server!r}, which is no host; name servers by their "
                "hosts in the network file, or write a CSV of server and host and pass --hosts"
            )
    if wrong_host(coordinator or plan.servers[0]):
        raise FlowerError(f"--coordinator must be a host that others reach, got {coordinator!r}")
    edges = {edge_name(k): server for k, server in enumerate(plan.servers)}
    return {COORDINATOR: coordinator or plan.servers[0], **edges}


def read_hosts(path: Path, plan: Plan, coordinator: str = "") -> dict[str, str]:
    """Read a CSV with the columns place and host: the coordinator, and edge-0, edge-1, ...

    Or with server and host, a row for every machine: which of them are servers the plan says.
    """
    columns, rows = read_rows(path, FlowerError)
    if "server" in columns:
        return _by_server(path, rows, plan, coordinator)
    places = places_of(plan)
    found: dict[str, str] = {COORDINATOR: coordinator} if coordinator else {}
    for where, cells in rows:
        place, host = (cells.get(key, "").strip() for key in ("place", "host"))
        if place not in places:
            raise FlowerError(f"{where}: place must be one of {', '.join(places)}, got {place!r}")
        _add(found, where, place, host, place)
    if missing := [place for place in places if place not in found]:
        raise FlowerError(f"{path}: {missing[0]} is missing; it needs a host")
    return found


def _add(found: dict[str, str], where: str, name: str, host: str, shown: str) -> None:
    """Take the host of one more place or machine, or say what is wrong with it."""
    if name in found:
        raise FlowerError(f"{where}: {shown} is there twice")
    if wrong_host(host):
        raise FlowerError(
            f"{where}: {shown} needs the host that others reach it by, an address or a name in "
            f"ASCII, got {host!r}"
        )
    found[name] = host


def _by_server(
    path: Path, rows: Sequence[tuple[str, Mapping[str, str]]], plan: Plan, coordinator: str
) -> dict[str, str]:
    """Return the hosts of the plan's servers from a table of machines."""
    found: dict[str, str] = {COORDINATOR: coordinator} if coordinator else {}
    for where, cells in rows:
        server, host = (cells.get(key, "").strip() for key in ("server", "host"))
        _add(found, where, server, host, repr(server))
    for k, server in enumerate(plan.servers):
        if server not in found:
            raise FlowerError(f"{path}: {server!r}, the server of group {k}, is missing")
    edges = {edge_name(k): found[server] for k, server in enumerate(plan.servers)}
    return {COORDINATOR: found.get(COORDINATOR, edges[edge_name(0)]), **edges}


def machines_of(hosts: Path | None, plan: Plan) -> dict[str, str]:
    """Return the hosts of nodes by name, as far as they are told: by a CSV of server and host.

    Without a file, of nodes whose names are hosts.
    """
    names = {node.node for node in plan.nodes}
    if hosts is None:
        return {name: name for name in names if not wrong_host(name)}
    _, rows = read_rows(hosts, FlowerError)
    found = ((c.get("server", "").strip(), c.get("host", "").strip()) for _, c in rows)
    return {server: host for server, host in found if server in names}
