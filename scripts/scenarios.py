"""Write the network files of the scenarios: experiments/scenarios/*.csv.

python scripts/scenarios.py            write all
python scripts/scenarios.py --check    say whether they are as they would be written

Where a figure comes from is said in the scenario's own TOML file. Devices are listed edge by edge,
in the order in which a partition numbers its nodes.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import e
from pathlib import Path
from statistics import NormalDist

FOLDER = Path(__file__).resolve().parents[1] / "experiments" / "scenarios"
HEAD = "a,b,up_mbit_per_s,down_mbit_per_s,latency_ms,tier,server"
Link = tuple[float, float, float]  # Mbit/s up, Mbit/s down, ms


@dataclass(frozen=True)
class Tree:
    """Devices under stations, perhaps on a shared radio, and stations on a core."""

    device: str
    station: str
    core: str
    stations: int
    each: int
    access: Link
    uplink: Link
    tier: str  # of the uplinks
    shared: Link | None = None  # what all devices of a station share on their way to it
    sigma: float = 0.0  # of the log of the devices' speeds
    classes: tuple[tuple[Link, int], ...] = ()  # links of devices, and how many have each


FAST, MIDDLE, SLOW = (17.18, 115.22, 7.0), (1.8, 12.2, 7.0), (0.45, 3.0, 7.0)
METRO, RURAL = ((FAST, 14), (MIDDLE, 8), (SLOW, 3)), ((FAST, 3), (MIDDLE, 15), (SLOW, 7))
LAN: Link = (1000.0, 1000.0, 0.5)
BACKBONE: Link = (1000.0, 1000.0, 10.0)
TREES = {
    "hospitals-8": Tree(
        *("hospital", "exchange", "centre", 4, 2, FAST, BACKBONE, "backbone"),
        classes=((FAST, 4), (MIDDLE, 3), (SLOW, 1)),
    ),
    "hospitals-50": Tree(
        *("hospital", "exchange", "centre", 10, 5, FAST, BACKBONE, "backbone"),
        classes=METRO + RURAL,
    ),
    "phones-lte": Tree(
        *("phone", "station", "core", 10, 10, (6.0, 13.0, 20.0), (100.0, 100.0, 5.0), "backhaul"),
        shared=(28.0, 44.0, 0.0),
        sigma=0.5,
    ),
    "phones-5g": Tree(
        *("phone", "station", "core", 10, 10, (50.0, 100.0, 4.0), (1000.0, 1000.0, 5.0)),
        "backhaul",
        shared=(135.0, 585.0, 0.0),
        sigma=0.5,
    ),
    "factories": Tree("machine", "factory", "cloud", 5, 10, LAN, (17.18, 115.22, 7.0), "uplink"),
    "vehicles": Tree(
        *("vehicle", "unit", "core", 6, 10, (6.0, 6.0, 2.0), (6.0, 13.0, 20.0), "backhaul"),
        shared=(6.0, 6.0, 0.0),
    ),
    "ships": Tree("sensor", "ship", "shore", 8, 5, LAN, (2.43, 19.73, 362.0), "satellite"),
    "campus": Tree(
        *("laptop", "building", "centre", 10, 10, (620.0, 620.0, 2.0), (10_000.0, 10_000.0, 0.5)),
        "backbone",
        shared=(620.0, 620.0, 0.0),
    ),
}
WAN = {
    ("Virginia", "Singapore"): (67.0, 67.0, 108.4),
    ("Virginia", "Sao Paulo"): (67.0, 67.0, 59.8),
    ("Singapore", "Sao Paulo"): (17.0, 17.0, 164.1),
}


def tree_rows(tree: Tree) -> Iterator[str]:
    """List the links of a tree: devices, what they share, uplinks; the core serves, too."""
    links = list(device_links(tree))
    for number, link in enumerate(links):
        at = f"{tree.station} {number // tree.each + 1}"
        to = at if tree.shared is None else f"radio {number // tree.each + 1}"
        yield row(f"{tree.device} {number + 1}", to, link, "access")
    for station in range(1, tree.stations + 1):
        if tree.shared is not None:
            yield row(f"radio {station}", f"{tree.station} {station}", tree.shared, "radio")
        yield row(f"{tree.station} {station}", tree.core, tree.uplink, tree.tier, "yes")
    yield f"{tree.core},,,,,,yes"


def device_links(tree: Tree) -> Iterator[Link]:
    """Give every device its link: in classes dealt in turn, or spread about the median."""
    n = tree.stations * tree.each
    if tree.classes:
        half = len(tree.classes) // 2 if n == 50 else len(tree.classes)
        for part in (tree.classes[:half], tree.classes[half:]):
            yield from dealt(part)
        return
    up, down, ms = tree.access
    for number in range(n):
        # Quantiles of a lognormal, dealt so that neighbours differ: 37 and n share no factor.
        quantile = ((37 * number) % n + 0.5) / n
        factor = NormalDist().inv_cdf(quantile) * tree.sigma
        yield up * e**factor, down * e**factor, ms


def dealt(classes: tuple[tuple[Link, int], ...]) -> Iterator[Link]:
    """Deal links of several classes as evenly as they go: whoever is furthest behind is next."""
    n = sum(count for _, count in classes)
    given = [0] * len(classes)
    for place in range(1, n + 1):
        behind = [count * place / n - given[k] for k, (_, count) in enumerate(classes)]
        k = behind.index(max(behind))
        given[k] += 1
        yield classes[k][0]


def cloud_rows() -> Iterator[str]:
    """List the links of three regions of ten machines, each joined to the others."""
    regions = list(dict.fromkeys(name for pair in WAN for name in pair))
    for number in range(30):
        yield row(f"machine {number + 1}", regions[number // 10], (1000.0, 1000.0, 0.25), "access")
    for (a, b), link in WAN.items():
        yield row(a, b, link, "wan", "yes")
    yield f"{regions[-1]},,,,,,yes"


def row(a: str, b: str, link: Link, tier: str, server: str = "") -> str:
    """Write a link."""
    up, down, ms = (f"{value:.4g}" if value < 1000 else f"{value:.0f}" for value in link)
    return f"{a},{b},{up},{down},{ms},{tier},{server}"


def files() -> dict[Path, str]:
    """Return every file with what is in it."""
    rows = {name: tree_rows(tree) for name, tree in TREES.items()}
    rows["cloud-3-regions"] = cloud_rows()
    return {FOLDER / f"{name}.csv": "\n".join([HEAD, *found, ""]) for name, found in rows.items()}


def main() -> None:
    """Write the files, or check them."""
    for path, text in files().items():
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            raise SystemExit(f"{path.name} is not as it would be written: run scripts/scenarios.py")


if __name__ == "__main__":
    main()
