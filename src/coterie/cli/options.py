"""Arguments and options that several commands have, each declared once."""

import math
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from coterie.core.errors import CoterieError
from coterie.core.memory import THREADS_PER_CORE
from coterie.core.units import EXAMPLES, MOST_MODEL_BYTES, Kind, quantity

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
PATH = click.Path(path_type=Path)
SETTING = "KEY=VALUE"
DRAWS_BY_OUT = "; draw only with --out"  # what --json does to a command that draws


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """A size, rate or time with a unit; a bare number is in bytes, bytes/s or seconds.

    >>> Quantity("time").convert("1.5h", None, None), Quantity("size", whole=True)("1.005MB")
    (5400.0, 1005000)
    """

    def __init__(
        self, kind: Kind, *, zero: bool = False, most: float = math.inf, whole: bool = False
    ) -> None:
        """Take what is above 0, or 0 too, and at most `most`; `whole` takes no part of a byte."""
        self.name, self.kind = kind, kind
        self.zero, self.most, self.whole = zero, most, whole

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | int:
        """Read what was given."""
        option = param.opts[-1] if param else self.name
        try:
            number = value if isinstance(value, float) else quantity(str(value), self.kind)
        except ValueError as error:
            raise CoterieError(f"{option} {error}") from error
        fine = math.isfinite(number) and (0 < number <= self.most or (self.zero and number == 0))
        whole = fine and math.isclose(number, round(number), rel_tol=1e-12)  # 1.005MB is rounded
        if not fine or (self.whole and not whole):
            upto = f" and at most {self.most:,.0f}" if math.isfinite(self.most) else ""
            rule = f"{'>= 0' if self.zero else 'above 0'}{upto}{' whole bytes' * self.whole}"
            raise CoterieError(f"{option} must be {EXAMPLES[self.kind]}, {rule}, got {value!r}")
        return round(number) if self.whole else number


class Cores(click.IntRange):
    """A number of processes or threads, from one to more than the cores here have a use for.

    >>> Cores().convert("1", None, None)
    1
    """

    def __init__(self) -> None:
        """Take at least one; what is too many depends on the machine, and is in no help."""
        super().__init__(min=1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read what was given."""
        number, cores = int(super().convert(value, param, ctx)), os.cpu_count() or 1
        if number > THREADS_PER_CORE * cores:
            option = param.opts[-1] if param else self.name
            raise CoterieError(
                f"{option} must be <= {THREADS_PER_CORE * cores:,} here, {THREADS_PER_CORE} for "
                f"each of {cores} cores, got {number:,}"
            )
        return number


class Number(click.FloatRange):
    """A number within bounds; nan and infinity are none.

    >>> Number(0, 1).convert("0.5", None, None)
    0.5
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read what was given."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            option = param.opts[-1] if param else self.name
            raise CoterieError(f"{option} must be a finite number, got {value!r}")
        return number


class OutPath(click.Path):
    """A file or folder to write, refused at once if its name is no text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read what was given."""
        try:
            str(value).encode()
        except UnicodeEncodeError as error:
            option = param.opts[-1] if param else "the name"
            raise CoterieError(f"{option} must be a name in UTF-8, got {value!a}") from error
        return super().convert(value, param, ctx)


OUT = OutPath(path_type=Path)
runs_argument = click.argument("runs", nargs=-1, required=True, type=PATH)
target_option = click.option(
    "--target", type=Number(0, 1), help="Target accuracy to time [the baseline's]."
)
VIEW = [
    click.option(
        "--lines",
        metavar="KEYS",
        default="",
        help="Name lines by these settings, with commas [label, or algorithm and [optimizer]].",
    ),
    click.option(
        "--baseline",
        metavar="NAME",
        default="",
        help="Line that target and speed-ups refer to [fedavg].",
    ),
    click.option(
        "--best",
        metavar="KEYS",
        default="",
        help="Keep only each line's best value of these settings, by the validation part. Values "
        "with missing seeds are skipped. On a tie the smaller value wins.",
    ),
    click.option(
        "--score",
        metavar="last|best|mean:K",
        default="last",
        help="Accuracy of a run: last evaluation, best, or mean of the last K [last].",
    ),
]
OWN_FILES = [
    click.option(
        "--nodes",
        type=PATH,
        help="Without FILE: CSV of your nodes (docs/reference/network-files.md).",
    ),
    click.option(
        "--network",
        type=PATH,
        help="Without FILE: the nodes' network, a CSV, GraphML or JSON "
        "(docs/reference/network-files.md).",
    ),
    click.option(
        "--model-bytes",
        type=Quantity("size", most=MOST_MODEL_BYTES, whole=True),
        metavar="SIZE",
        help="Without FILE: size of a model on the wire, such as 1476392 or 5MB.",
    ),
]
jobs_option = click.option("--jobs", type=Cores(), help="Runs at a time [one a core].")


def own_files(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command be given `nodes`, `network` and `model_bytes` in place of an experiment."""
    for option in reversed(OWN_FILES):
        command = option(command)
    return command


def own_or_file(
    command: str,
    file: str | None,
    nodes: Path | None,
    network: Path | None,
    model_bytes: int | None,
) -> tuple[Path, Path, int] | None:
    """Return the three that stand in for an experiment, or None with FILE; refuse parts of both."""
    told = {"--nodes": nodes, "--network": network, "--model-bytes": model_bytes}
    given = [option for option, value in told.items() if value is not None]
    if file is not None:
        if given:
            raise CoterieError(f"FILE says all that {given[0]} does; leave one of them out")
        return None
    if nodes is None or network is None or model_bytes is None:
        lacks = " and ".join(option for option in told if option not in given)
        raise CoterieError(
            f"without FILE, {lacks} must be given too"
            if given
            else f"needs FILE, or --nodes, --network and --model-bytes; see coterie {command} "
            "--help"
        )
    return nodes, network, model_bytes


def set_option(what: str = "of the file, such as algorithm.tau1=5") -> Option:
    """Let a command change settings, which it gets as `overrides`."""
    text = f"Change a setting {what}; 'coterie list settings' shows all."
    return click.option("--set", "overrides", multiple=True, metavar=SETTING, help=text)


def out_option(metavar: str, what: str, **more: Any) -> Option:
    """Let a command write to a place of the user's."""
    return click.option("-o", "--out", type=OUT, metavar=metavar, help=what, **more)


def json_option(more: str = "") -> Option:
    """Let a command print for a program, which it gets as `as_json`."""
    text = f"Print JSON instead of tables{more}."
    return click.option("--json", "as_json", is_flag=True, help=text)


def view_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command be told how to put runs side by side, which it gets as `view`."""

    @wraps(command)
    def viewed(*args: Any, lines: str, baseline: str, best: str, score: str, **rest: Any) -> Any:
        from coterie.analysis.lines import read_view

        return command(*args, view=read_view(lines, baseline, best, score), **rest)

    for option in reversed([target_option, *VIEW]):
        viewed = option(viewed)
    return viewed
