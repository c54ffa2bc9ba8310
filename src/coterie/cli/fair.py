"""`coterie fair`: every method at its best, and whether one is first beyond noise."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import click

from coterie.cli.commands import Stopped, echo, loading, print_table
from coterie.cli.options import Number, out_option, set_option
from coterie.cli.running import Pace, check_out, run_all, runs_at_once
from coterie.config.shipped import read_configs
from coterie.core.errors import CoterieError, did_you_mean

if TYPE_CHECKING:
    from coterie.analysis.fair import Method, Reached, Target
    from coterie.analysis.tuning import Point, Score, Space
    from coterie.config.settings import Config
    from coterie.runs.record import RecordedRun
    from coterie.runs.sweep import Job, RunsFailed

CHOSEN = ("name", "grouping", "tau1", "tau2", "num_groups")  # of [algorithm], by the command
OWN = (
    *(f"algorithm.{key}" for key in CHOSEN),
    *("network.combine", "data.scored", "train.measure", "train.eval_every"),
)


@click.command()
@click.argument("file")
@click.option("--target-accuracy", type=Number(0, 1), help="Accuracy to reach, such as 0.75.")
@click.option(
    "--target-loss",
    type=Number(0),
    help="Training loss to reach, instead or too; with both, the accuracy chooses settings.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, 1000),
    default=12,
    help="Trials of every method, of learning rate and schedule together [12].",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=5,
    help="Seeds that the best of every method is run with, on the test part [5].",
)
@click.option(
    "--methods",
    metavar="A,B,...",
    help="Methods to compare; '+combined' behind a name: models are combined under edges [all].",
)
@set_option()
@out_option("DIR", "Folder for the runs and the table [runs/fair-NAME].")
@runs_at_once
def fair(
    file: str,
    target_accuracy: float | None,
    target_loss: float | None,
    trials: int,
    seeds: int,
    methods: str | None,
    overrides: tuple[str, ...],
    out: Path | None,
    pace: Pace,
) -> None:
    """Find the best learning rate and schedule of every method, and say who is first at a target.

    \b
      coterie fair factories --target-accuracy 0.75
      coterie fair factories --target-accuracy 0.75 --methods fedavg,coterie --trials 20
      coterie fair my.toml --target-loss 0.5 --seeds 10

    FILE is a TOML file or the name of one that ships with coterie; it describes one run. Methods
    are fedavg, hierfavg, fedavg-i, fedavg-c and fedavg-ic (the paper's search), random, and coterie
    (its own search), each with and without models that are combined under edges.

    All have as many trials, on the seed of FILE, scored on the validation part. The best is run
    with other seeds, scored on the test part. Printed are the simulated seconds to the target, the
    bytes on the slow tier until then, and who is first, by how much, and whether that is noise.
    docs/explanation/fair.md says why so.

    Stopped with Ctrl-C or killed, the same command goes on where it was. fair.json, fair.png and
    all runs are in the folder.
    """
    from coterie.analysis.fair import in_words, judge, reached
    from coterie.render.page.fair import fair_figure
    from coterie.render.page.html import png, write

    wanted, aims = _methods(methods), _targets(target_accuracy, target_loss)
    config = _one(file, overrides)
    folder = out or Path("runs") / f"fair-{Path(file).stem}"
    check_out(folder)
    again = _again(file, target_accuracy, target_loss, trials, seeds, methods, overrides, out)
    _check_methods(config, wanted)
    if target_accuracy is not None:
        _check_accuracy(config)
    slow = _slow_tier(config)
    search = _Search(config, wanted, aims, trials, folder, pace, again)
    try:
        chosen = search.best()
        runs = search.tested(chosen, seeds)
    except KeyboardInterrupt as stopped:  # between two rounds
        raise Stopped(f"stopped; go on with: {again}") from stopped
    lines: list[str] = []
    said: dict[str, Any] = {"slow_tier": slow, "trials": trials, "notes": search.notes()}
    for aim in aims:
        found = [reached(name, runs[name], aim, slow, chosen[name]) for name in wanted]
        verdict = judge(found)
        told = in_words(verdict, found, aim)
        _print_methods(found, runs, aim, slow)
        for line in told:
            echo(f"- {line}")
        echo()
        lines += told
        said[aim.key] = {
            "target": aim.value,
            "methods": [asdict(each) for each in found],
            "verdict": asdict(verdict),
            "words": told,
        }
    for line in search.notes():
        echo(f"note: {line}")
    first = [reached(name, runs[name], aims[0], slow, chosen[name]) for name in wanted]
    write(folder / "fair.json", (json.dumps(_finite(said), indent=1) + "\n").encode())
    write(folder / "fair.png", png(fair_figure(first, aims[0])))
    echo(f"\nrun folder: {folder}\npicture: {folder / 'fair.png'}")


def _methods(text: str | None) -> "dict[str, Method]":
    """Read the methods that are wanted; '+combined' behind a name combines models under edges.

    >>> list(_methods("fedavg, coterie+combined"))
    ['fedavg', 'coterie+combined']
    """
    from coterie.analysis.fair import COMBINED, METHODS

    both = {name + more: name for name in METHODS for more in ("", COMBINED)}
    names = list(both) if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in both:
            raise CoterieError(f"unknown method {name!r}{did_you_mean(name, both)}")
    found = {}
    for name in names:
        method = METHODS[both[name]]
        how = "all" if name.endswith(COMBINED) else "none"
        found[name] = replace(method, settings={**method.settings, "network.combine": how})
    return found


def _targets(accuracy: float | None, loss: float | None) -> "list[Target]":
    from coterie.analysis.fair import Target

    told = [("test_accuracy", accuracy), ("train_loss", loss)]
    found = [Target(key, value) for key, value in told if value is not None]
    if not found:
        raise CoterieError("say what to reach: --target-accuracy 0.75, or --target-loss 0.5")
    return found


def _one(file: str, overrides: tuple[str, ...]) -> "Config":
    """Read the only run that a file describes; what the command chooses cannot be set."""
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key in OWN:
            raise CoterieError(f"--set {text}: coterie fair chooses {key} itself; leave it out")
    _, configs = read_configs(file, overrides)
    if len(configs) > 1:
        raise CoterieError(
            f"{file} describes {len(configs)} runs, and a fair comparison begins with one; fix "
            "what it sweeps by --set"
        )
    return configs[0]


def _finite(value: Any) -> Any:
    """Write what is infinite as null, as JSON has no infinity.

    >>> _finite({"low": [float("-inf"), 1.0], 2: "a"})
    {'low': [None, 1.0], '2': 'a'}
    """
    if isinstance(value, dict):
        return {str(key): _finite(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inside) for inside in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _check_methods(config: "Config", wanted: "Mapping[str, Method]") -> None:
    """Make the first config of every method, so that what cannot run is said before any does."""
    for method in wanted.values():
        space = _space(method, config)
        _config_at(config, method, space, tuple(len(axis.values) - 1 for axis in space))


def _check_accuracy(config: "Config") -> None:
    """Refuse a target that no run of a task without an accuracy could reach."""
    from coterie.config.factories import load_dataset, make_task_of

    task = make_task_of(config, load_dataset(config))
    if task.right is None:
        raise CoterieError(
            f"--target-accuracy is a share of right answers, which task {task.name!r} has not; "
            "take --target-loss"
        )


def _space(method: "Method", config: "Config") -> "Space":
    from coterie.analysis.fair import space_of

    n = config.partition.num_nodes
    return space_of(method, config.train.lr, 10**9 if n == "auto" else n)


def _config_at(
    config: "Config", method: "Method", space: "Space", point: "Point", **more: Any
) -> "Config":
    from coterie.analysis.tuning import values_at
    from coterie.config.files import changed

    return changed(config, {**method.settings, **values_at(space, point), **more})


def _slow_tier(config: "Config") -> str:
    from coterie.preview.scenarios import survey

    with loading("network") as show:
        show("slow link", 0, 0)
        return survey("", "", config).slow


class _Search:
    """The trials of all methods, round by round, and the runs of their best."""

    def __init__(
        self,
        config: "Config",
        methods: "Mapping[str, Method]",
        targets: "Sequence[Target]",
        trials: int,
        folder: Path,
        pace: Pace,
        again: str,
    ) -> None:
        measured = ["accuracy", *(["loss"] if any(t.sign < 0 for t in targets) else [])]
        self.measure = {"train.measure": measured, "train.eval_every": 1}
        self.config, self.methods, self.target = config, methods, targets[0]
        self.trials, self.folder, self.pace, self.again = trials, folder, pace, again
        self.spaces = {name: _space(method, config) for name, method in methods.items()}
        self.scores: dict[str, dict[Point, Score]] = {name: {} for name in methods}

    def best(self) -> dict[str, dict[str, Any]]:
        """Try until every method has had its trials; return the best settings of each."""
        from coterie.analysis.tuning import best, next_points, values_at

        number = 0
        while True:
            todo = {
                (name, point): _config_at(
                    self.config,
                    method,
                    self.spaces[name],
                    point,
                    **self.measure,
                    **{"data.scored": "val", "label": name},
                )
                for name, method in self.methods.items()
                for point in next_points(self.spaces[name], self.scores[name], self.trials)
            }
            if not todo:
                break
            number += 1
            echo(f"search, round {number}: {len(todo)} trials", err=True)
            ended = self._run(list(todo.values()))
            for (name, point), run in zip(todo, ended, strict=True):
                self.scores[name][point] = self._score(run)
        return {
            name: values_at(self.spaces[name], best(scores)) for name, scores in self.scores.items()
        }

    def tested(
        self, chosen: Mapping[str, dict[str, Any]], seeds: int
    ) -> "dict[str, dict[int, RecordedRun | None]]":
        """Run the best of every method with seeds that it was not chosen by, on the test part.

        None is a run that diverged, which is never at the target.
        """
        from coterie.config.files import changed

        first = self.config.seed + 1
        todo = {
            (name, seed): changed(
                self.config,
                {
                    **method.settings,
                    **chosen[name],
                    **self.measure,
                    **{"data.scored": "test", "seed": seed, "label": name},
                },
            )
            for name, method in self.methods.items()
            for seed in range(first, first + seeds)
        }
        echo(f"test: {len(todo)} runs", err=True)
        ended = dict(zip(todo, self._run(list(todo.values())), strict=True))
        return {
            name: {seed: run for (own, seed), run in ended.items() if own == name}
            for name in self.methods
        }

    def notes(self) -> list[str]:
        """Say of which methods the best may be elsewhere: the budget, or a list, was too short."""
        from coterie.analysis.tuning import open_ends

        return [
            f"{name}: {line}"
            for name, scores in self.scores.items()
            for line in open_ends(self.spaces[name], scores)
        ]

    def _score(self, run: "RecordedRun | None") -> "Score":
        from coterie.analysis.tuning import score

        if run is None:
            return score(None, None)
        row = self.target.first(run.rows)
        nearest = self.target.nearest(run.rows)
        return score(None if row is None else row["seconds"], nearest, self.target.sign)

    def _run(self, configs: "list[Config]") -> "list[RecordedRun | None]":
        """Run what is not complete; return the runs, None for those that diverged."""
        from coterie.runs.record import COMPLETE, ended, read_run
        from coterie.runs.sweep import RunsFailed, place_jobs, still_to_do

        jobs = place_jobs(configs, self.folder)
        todo, _ = still_to_do(jobs)
        if todo:
            try:
                run_all(self.folder, todo, self.pace, self.again)
            except RunsFailed as failure:
                self._check_failed(jobs, failure)
        return [read_run(job.folder) if ended(job.folder) == COMPLETE else None for job in jobs]

    def _check_failed(self, jobs: "list[Job]", failure: "RunsFailed") -> None:
        """Take a trial that diverged for a bad one; any other failure ends the command."""
        from coterie.runs.record import ended

        folders = {job.label: job.folder for job in jobs}
        if not all(ended(folders[label]) for label in failure.failed):
            raise failure


def _print_methods(
    found: "Sequence[Reached]",
    runs: "Mapping[str, Mapping[int, RecordedRun | None]]",
    target: "Target",
    slow: str,
) -> None:
    from coterie.analysis.fair import ends_at, interval

    rows = []
    for each in found:
        seconds, moved = each.known, [v for v in each.slow_bytes.values() if v is not None]
        span = interval(seconds) if seconds else None
        part = f"{len(seconds)} of {len(each.seconds)}"
        rows.append(
            [
                each.method,
                f"{each.chosen['train.lr']:g}",
                str(each.chosen.get("algorithm.num_groups", "-")),
                str(each.chosen["algorithm.tau1"]),
                str(each.chosen.get("algorithm.tau2", "-")),
                "never" if span is None else f"{span.mean:.4g}",
                "-" if span is None or len(seconds) < 2 else f"{span.low:.4g} to {span.high:.4g}",
                part,
                "-" if not moved else f"{sum(moved) / len(moved) / 1e6:,.4g}",
                ends_at([run for run in runs[each.method].values() if run]),
            ]
        )
    head = ("method", "lr", "K", "tau1", "tau2", "s", "95%", "seeds", f"{slow}\nMB", "ends at")
    foot = "s, MB: until the target, mean of the seeds that reach it; K: groups"
    print_table(f"time to {target}", head, rows, foot)


def _again(
    file: str,
    target: float | None,
    target_loss: float | None,
    trials: int,
    seeds: int,
    methods: str | None,
    overrides: tuple[str, ...],
    out: Path | None,
) -> str:
    """Write the command that goes on."""
    words = ["coterie", "fair", file]
    words += ["--target-accuracy", f"{target:g}"] if target is not None else []
    words += ["--target-loss", f"{target_loss:g}"] if target_loss is not None else []
    words += ["--trials", str(trials), "--seeds", str(seeds)]
    words += ["--methods", methods] if methods else []
    words += [word for text in overrides for word in ("--set", text)]
    return join([*words, *(["--out", str(out)] if out else [])])
