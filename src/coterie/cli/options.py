"""Arguments and options that several commands have, each declared once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
PATH = click.Path(path_type=Path)
SETTING = "KEY=VALUE"
DRAWS_BY_OUT = "; draw only with --out"  # what --json does to a command that draws

runs_argument = click.argument("runs", nargs=-1, required=True, type=PATH)
target_option = click.option(
    "--target", type=click.FloatRange(0, 1), help="Target accuracy to time [FedAvg's final]."
)
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
