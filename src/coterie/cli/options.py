"""Arguments and options that several commands have, each declared once."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
PATH = click.Path(path_type=Path)
SETTING = "KEY=VALUE"
DRAWS_BY_OUT = "; draw only with --out"  # what --json does to a command that draws

runs_argument = click.argument("runs", nargs=-1, required=True, type=PATH)
target_option = click.option(
    "--target", type=click.FloatRange(0, 1), help="Target accuracy to time [the baseline's]."
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
jobs_option = click.option(
    "--jobs", type=click.IntRange(min=1), help="Runs at a time [one a core]."
)


def set_option(what: str = "of the file, such as algorithm.tau1=5") -> Option:
    """Let a command change settings, which it gets as `overrides`."""
    text = f"Change a setting {what}; 'coterie list settings' shows all."
    return click.option("--set", "overrides", multiple=True, metavar=SETTING, help=text)


def out_option(metavar: str, what: str, **more: Any) -> Option:
    """Let a command write to a place of the user's."""
    return click.option("-o", "--out", type=PATH, metavar=metavar, help=what, **more)


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
