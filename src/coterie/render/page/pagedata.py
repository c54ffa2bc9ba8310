"""Everything that the page of runs shows, as one JSON value: the page only draws it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean

from coterie.analysis.compare import Block, block_of, first_at_target, targets_of
from coterie.analysis.export import run_names
from coterie.analysis.format import Column, cells, columns, figures_of, footing, heading
from coterie.analysis.lines import (
    PLAIN,
    Arranged,
    Naming,
    View,
    arrange,
    differing,
    label,
    name_of,
    naming_of,
    pooled,
)
from coterie.analysis.palette import look_numbers
from coterie.core.types import Json, Progress
from coterie.paper import Table
from coterie.render.page.chosen import choices
from coterie.render.page.costs import bars, pareto
from coterie.render.page.curve_data import AXES, QUANTITIES, curve, hit, quantities_of
from coterie.render.page.network_data import groups_of, key_of, network_of
from coterie.render.page.node_data import nodes_of
from coterie.runs.record import RecordedRun

MakeCurve = Callable[[Sequence[RecordedRun], int], Json]
MakeNetwork = Callable[[RecordedRun], Json]
MakeNodes = Callable[[Sequence[RecordedRun]], Json | None]
FORMAT = 1
MOST_POINTS, LEAST_POINTS = 2000, 200  # of a curve
MOST_NUMBERS = 400_000  # of all curves: about 3 MB


def page_data(
    runs: Sequence[RecordedRun],
    target: float | None = None,
    left_out: Sequence[str] = (),
    progress: Progress = lambda what, done, of: None,
    *,
    tables: Sequence[Table] = (),
    view: View = PLAIN,
    expected: Sequence[Json] = (),
    make_curve: MakeCurve = curve,
    make_network: MakeNetwork = network_of,
    make_nodes: MakeNodes = nodes_of,
) -> Json:
    """Describe runs block by block; `left_out` are lines about runs that could not be shown.

    A block holds runs that differ in what names lines and in the seed only; nothing is averaged
    across blocks.
    Runs that are not complete are lines of their own; before its groups are known, a run's grouping
    is empty. `tables` stand on top. For a page that is made again and again: `expected` are the
    configs of all runs to come, so that colours stay, and what makes curves, networks and nodes may
    remember what it made.
    """
    blocks = arrange(runs, view, expected)
    naming = naming_of([*expected, *(run.config for run in runs)], view)
    named = {run.folder: label(run, naming) for run in runs}
    styles = _styles(blocks, expected, naming)
    most = _most_points(blocks)
    page = _Page(styles, _names(runs), most, {}, make_curve, make_network, make_nodes)
    told = []
    made = [block_of(own, target, view) for own in blocks]
    figures = figures_of([line for block in made for line in block.lines])
    for number, pair in enumerate(zip(blocks, made, strict=True)):
        progress("settings", number, len(blocks))
        told.append(_block(page, *pair, target, view, figures))
    return {
        "format": FORMAT,
        "title": f"{len(runs)} run{'' if len(runs) == 1 else 's'}",
        "made_by": f"coterie {version('coterie')}",
        "left_out": list(left_out),
        "tables": [asdict(table) for table in tables],
        "notes": _version_notes(runs, page.names),
        "axes": [axis._asdict() for axis in AXES],
        "quantities": [quantity._asdict() for quantity in quantities_of(runs)],
        "columns": [name.replace("\n", " ") for name in columns(made)],
        "blocks": told,
        "networks": list(page.networks.values()),
        **_settings(runs, page.names, named, blocks),
    }


@dataclass(frozen=True)
class _Page:
    """What the blocks of a page share; a network that several runs have is kept once."""

    styles: dict[str, int]  # the look of every label, the same in all blocks
    names: dict[Path, str]
    most_points: int
    networks: dict[bytes, Json]
    make_curve: MakeCurve
    make_network: MakeNetwork
    make_nodes: MakeNodes

    def network(self, run: RecordedRun) -> int | None:
        """Return the number of a run's network; None for a run that needs or has none yet."""
        if not run.grouping or pooled(run):
            return None
        key = key_of(run)
        if key not in self.networks:
            self.networks[key] = self.make_network(run)
        return list(self.networks).index(key)


def _styles(blocks: Sequence[Arranged], expected: Sequence[Json], naming: Naming) -> dict[str, int]:
    """Number the looks of labels; a line keeps its own when its runs are complete."""
    names = {
        line: name_of(runs[0].config, naming)
        for block in blocks
        for line, runs in block.lines.items()
    }
    to_come = [name_of(config, naming) for config in expected]
    number_of = look_numbers([*to_come, *names.values()])
    return {line: number_of[name] for line, name in names.items()}


def _names(runs: Sequence[RecordedRun]) -> dict[Path, str]:
    """Name runs by their folders, without the part of the path that all have in common."""
    folders = [run.folder for run in runs]
    return dict(zip(folders, run_names(folders), strict=True)) if runs else {}


def _most_points(blocks: Sequence[Arranged]) -> int:
    """Share the numbers that a page may hold among its curves."""
    numbers = sum(
        len(AXES) + len(QUANTITIES) * (4 if len(own) > 1 else 1)
        for block in blocks
        for own in block.lines.values()
    )
    return max(LEAST_POINTS, min(MOST_POINTS, MOST_NUMBERS // max(numbers, 1)))


def _block(
    page: _Page,
    own: Arranged,
    block: Block,
    target: float | None,
    view: View,
    figures: Sequence[Column],
) -> Json:
    by_label = own.lines
    targets = targets_of(own.shown, target, view, own.naming)
    said = [100 * value for value in targets.values()]
    lines = [
        {
            "label": line.algorithm,
            "style": page.styles[line.algorithm],
            "cells": row,
            "accuracy": line.accuracy,
            "target_s": line.target_s,
            "reached": line.reached,
            **_line(page, by_label[line.algorithm], targets),
        }
        for line, row in zip(block.lines, cells(block.lines, figures), strict=True)
    ]
    first = first_at_target(block.lines)
    return {
        "heading": heading(block),
        "footing": footing(block),
        "target": {"mean": mean(said), "low": min(said), "high": max(said)} if said else None,
        "first": None if first is None else block.lines.index(first),
        "notes": [*_notes(by_label, lines), *(f"Note: {note}." for note in block.notes)],
        "lines": lines,
        "bars": bars([by_label[line.algorithm] for line in block.lines]),
        "pareto": pareto(
            [
                (page.styles[name], name, page.names[run.folder], run)
                for name, own in by_label.items()
                for run in own
            ]
        ),
    }


def _line(page: _Page, runs: list[RecordedRun], targets: dict[int, float]) -> Json:
    first = runs[0]
    network = page.network(first)
    drawn = network is not None and "at" in list(page.networks.values())[network]
    return {
        "seeds": [run.config["seed"] for run in runs],
        "curve": page.make_curve(runs, page.most_points),
        "hit": hit(runs, targets),
        "groups": groups_of(first) if first.grouping else None,
        "network": network,
        "z": first.grouping["z"] if drawn else None,
        "servers": first.grouping.get("servers") if drawn else None,
        "nodes": page.make_nodes(runs) if first.grouping else None,
    }


def _notes(by_label: dict[str, list[RecordedRun]], lines: list[Json]) -> list[str]:
    """Say what the figures of a block might hide."""
    notes = []
    done = {name for name, own in by_label.items() if own[0].summary["status"] == "complete"}
    seeds = {line["label"]: line["seeds"] for line in lines if line["label"] in done}
    if len({tuple(own) for own in seeds.values()}) > 1:
        said = ", ".join(f"{name} {len(own)}" for name, own in seeds.items())
        notes.append(f"Lines have different seeds ({said}): their means are not of the same draws.")
    notes += [said for name, own in by_label.items() for said in choices(name, own)]
    for name, own in by_label.items():
        versions = {_version(run) for run in own}
        if len(versions) > 1:
            said = " and ".join(sorted(versions))
            notes.append(f"{name} is a mean over runs of coterie {said}.")
    thinned = [line for line in lines if len(line["curve"]["x"]["t"]) < line["curve"]["points"]]
    if thinned:
        most = max(line["curve"]["points"] for line in thinned)
        kept = max(len(line["curve"]["x"]["t"]) for line in thinned)
        notes.append(
            f"Curves of up to {most:,} points are drawn with at most {kept:,}: the least and the "
            "most of every stretch are kept, so no peak is lost."
        )
    for line in lines:
        if line["nodes"] and "problem" in line["nodes"]:
            notes.append(f"{line['label']}: nodes are not shown: {line['nodes']['problem']}")
        if line["curve"]["unshared"]:
            notes.append(
                f"{line['label']}: {line['curve']['unshared']} steps that not all seeds measured "
                "are left out of its curve."
            )
        if line["curve"]["between"]:
            notes.append(
                f"{line['label']}: seeds chose different schedules and were measured at different "
                "steps; its curve is the mean of straight lines between them."
            )
    return notes


def _version(run: RecordedRun) -> str:
    return str(run.meta["versions"].get("coterie", "unknown"))


def _version_notes(runs: Sequence[RecordedRun], names: dict[Path, str]) -> list[str]:
    """Remark on runs of another version of coterie than most have."""
    by_version: dict[str, list[str]] = {}
    for run in runs:
        by_version.setdefault(_version(run), []).append(names[run.folder])
    most = max(by_version, key=lambda v: len(by_version[v]), default="")
    return [
        f"{len(own)} of {len(runs)} runs are from coterie {other}, the others from {most}; "
        f"figures may not compare: {', '.join(own[:8])}{', ...' if len(own) > 8 else ''}"
        for other, own in by_version.items()
        if other != most
    ]


def _settings(
    runs: Sequence[RecordedRun],
    names: dict[Path, str],
    named: dict[Path, str],
    blocks: Sequence[Arranged],
) -> Json:
    """Settings that all runs share, those that differ, and where each run comes from."""
    tables = [{"seed": run.config["seed"], **run.settings} for run in runs]
    differs = differing(tables)
    first = tables[0] if tables else {}
    shared = {key: _said(value) for key, value in first.items() if key not in differs}
    place = {run.folder: at for at, block in enumerate(blocks) for run in block.members}
    told = [
        {
            "name": names[run.folder],
            "block": place.get(run.folder),
            "label": named[run.folder],
            "accuracy": run.summary["test_accuracy"],
            "settings": [_said(table.get(key)) for key in differs],
            "origin": _origin(run),
        }
        for run, table in zip(runs, tables, strict=True)
    ]
    origins = list({str(run["origin"]): run["origin"] for run in told}.values())
    for run in told:
        run["origin"] = origins.index(run["origin"])
    return {"differs": differs, "shared": shared, "runs": told, "origins": origins}


def _origin(run: RecordedRun) -> dict[str, str]:
    said = {key: str(value) for key, value in run.meta["versions"].items()}
    more = {key: str(run.meta[key]) for key in ("platform", "commit") if run.meta.get(key)}
    return said | more


def _said(value: object) -> str:
    return "-" if value is None or value == "" else str(value)
