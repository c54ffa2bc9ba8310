"""From one deployment into another: the model, the rounds that are over, numbers and keys."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from coterie.core.regular import read_mapping
from coterie.flower import FlowerError
from coterie.flower.deploy import HOSTS, SETTINGS, Deployment, read_deployment, real
from coterie.flower.edge import coordinator_terms, edge_name
from coterie.flower.groups import Groups
from coterie.flower.health import STATE
from coterie.flower.state import FILE, carry_state, saved


@dataclass(frozen=True)
class Carried:
    """What changes between two plans: names of nodes, and the step that training is at."""

    stay: tuple[str, ...]
    move: tuple[str, ...]  # of those that stay: to another group
    leave: tuple[str, ...]
    join: tuple[str, ...]
    step: int

    def __str__(self) -> str:
        """Put it into a line."""
        said = [f"{len(self.stay)} nodes stay, {len(self.move)} of them in another group"]
        for word, names in (("leave", self.leave), ("join", self.join)):
            said.append(f"{len(names)} {word}{f' ({_some(names)})' if names else ''}")
        return f"{', '.join(said)}; training goes on from step {self.step}"


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def renumbered(old: Deployment, new: Deployment) -> Deployment:
    """Give nodes that stay the numbers that they had, and those that join the next ones.

    So a device keeps its key, its port and its part of the data, whatever its place in the plan.
    """
    had = {node.node: old.number(i) for i, node in enumerate(old.plan.nodes)}
    taken, numbers = old.top, dict[str, int]()
    for node in new.plan.nodes:
        if node.node in had:
            numbers[node.node] = had[node.node]
        else:
            numbers[node.node], taken = taken, taken + 1
    return replace(new, numbers=numbers)


def as_before(d: Deployment) -> Deployment:
    """Keep the numbers that the folder gives its nodes already, if it is of this plan."""
    if not (d.folder / SETTINGS).exists():
        return d
    before = read_deployment(d.folder)
    return replace(d, numbers=before.numbers) if before.plan == d.plan else d


def prepared(folder: Path, new: Deployment) -> tuple[Deployment, Carried]:
    """Return a deployment that goes on where another is, and what changes; nothing is written."""
    old = read_deployment(folder)
    if real(folder) == real(new.folder):
        raise FlowerError(f"--from {folder} is the folder to write; choose another --out")
    header = saved(folder / STATE)
    if not header:
        raise FlowerError(f"{folder / STATE / FILE}: is not there; no round is over in {folder}")
    steps = coordinator_terms(new.plan, new.rounds, new.timeout_s).steps
    if header["t"] >= steps:
        raise FlowerError(
            f"{folder} is at step {header['t']}, and the new plan ends at {steps}; plan more "
            "steps, or give more --rounds"
        )
    group = {node.node: node.group for node in old.plan.nodes}
    stay = tuple(node.node for node in new.plan.nodes if node.node in group)
    now = {node.node: node.group for node in new.plan.nodes}
    return renumbered(old, new), Carried(
        stay,
        tuple(name for name in stay if group[name] != now[name]),
        tuple(name for name in group if name not in now),
        tuple(name for name in now if name not in group),
        int(header["t"]),
    )


def carry_keys(folder: Path, new: Deployment) -> None:
    """Copy the keys of those that stay, and the certificates if all hosts are as they were."""
    if not new.secure:
        return
    old = read_deployment(folder)
    names = [*set(old.places[1:]) & set(new.places[1:]), *set(old.nodes()) & set(new.nodes())]
    wanted = [f"keys/{name}{end}" for name in names for end in ("", ".pub")]
    if read_mapping(folder / HOSTS) == {place: new.host(place) for place in new.places}:
        there = sorted((folder / "certificates").iterdir())
        wanted += [f"certificates/{path.name}" for path in there if path.name != Path(HOSTS).name]
        wanted.append(HOSTS)
    for name in wanted:
        if (folder / name).exists() and not (new.folder / name).exists():
            (new.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / name, new.folder / name)


def carry_run(folder: Path, new: Deployment) -> None:
    """Put the model and the rounds that are over into the new folder, unless it has its own."""
    if (new.folder / STATE / FILE).exists():
        return
    edges = tuple(edge_name(k) for k in range(len(new.plan.servers)))
    plan = new.plan
    changes = {"edges": len(edges), "tau1": plan.tau1, "tau2": plan.tau2}
    groups = Groups(tuple((name,) for name in edges))
    carry_state(folder / STATE, new.folder / STATE, groups, changes)
