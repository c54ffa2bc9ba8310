"""`coterie plan --trials`: train what could be done in simulation, and advise what is soonest."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import join, quote
from typing import Any

from coterie.analysis.fair import GIVEN, METHODS, Reached, Target, ratio
from coterie.cli.commands import echo, loading
from coterie.cli.pages import check_file, print_page, write_files
from coterie.config.files import changed, named_code
from coterie.config.settings import AlgorithmConfig, Config
from coterie.core.amounts import duration, size
from coterie.core.errors import CoterieError
from coterie.core.types import Json
from coterie.preview.advice import Advice
from coterie.preview.data import title_of
from coterie.preview.kept_trials import Kept
from coterie.preview.plan import planned, plans
from coterie.preview.scenarios import survey
from coterie.preview.trials import Ran, Tried, doings, settings, try_out
from coterie.render.page.advice import how_often
from coterie.render.page.fair import fair_figure
from coterie.render.page.html import Page, Section, Table, page_files

HEAD = (
    *("", "mean after\nsteps", "lr", "groups", "to the\ntarget", "seeds", "slow tier"),
    "times\nas long",
)
PLAIN = ("fedavg", "hierfavg", "fedavg-i", "fedavg-c", "fedavg-ic")  # algorithms that are tried
AIMS = ("target_accuracy", "max_gbytes")  # of a run that chooses for itself


def try_plan(
    file: str,
    configs: Sequence[Config],
    trials: int,
    path: Path | None,
    *,
    as_json: bool,
    again: Sequence[str],
) -> None:
    """Try, print what is soonest beside the rest, and draw it; `again` is the command."""
    config, target = _checked(configs)
    keep = None if path is None or _own_code(config) else path.with_suffix(".trials.jsonl")
    if keep is not None:
        check_file("--out", keep, "trials.html")
    left = "nothing was written" if keep is None else f"go on with: {join(again)}"
    with loading(Path(file).stem, left) as progress:
        progress("what could be done, and what its means cost", 0, 0)
        advice = Advice(plans([config], methods=("coterie", "edge")))
        slow = survey("", "", config).slow
        every = doings(advice, config)
        tried = try_out(config, every, slow, trials, Kept(keep), progress, target)
        progress("drawing", 0, 0)
        page = _page(config, tried, slow, len(configs), given=target > 0)
        files = page_files(page, path)
    if as_json:
        echo(json.dumps(_plain(tried, slow), indent=1))
    else:
        print_page(page)
        if tried.chosen is not None:
            echo(f"coterie run {quote(file)} {settings(tried)}\n")
    write_files(files, err=as_json)
    if keep is not None:
        echo(f"what was tried: {keep}", err=as_json)


def _checked(configs: Sequence[Config]) -> tuple[Config, float]:
    """Return the run that is planned, with numbers where a run would choose, and its target.

    The target is 0 where none is given. Algorithms that would not be tried are refused.
    """
    config, own = planned(configs)
    if own.name not in PLAIN or own.options or own.groups != "auto":
        what = own.name if own.name not in PLAIN else "options" if own.options else "groups"
        raise CoterieError(
            "--trials compares FedAvg with groups of its own, and the file has algorithm."
            f"{'name = ' + repr(what) if what == own.name else what}; leave it out"
        )
    for key in AIMS:
        if getattr(config.algorithm, key) != getattr(AlgorithmConfig(), key):
            raise CoterieError(f"--trials aims at a training loss; leave out algorithm.{key}")
    number = dict(zip(("num_groups", "tau1", "tau2"), config.algorithm.usual, strict=True))
    given = {f"algorithm.{key}": number[key] for key in config.algorithm.open}
    return changed(config, {**given, "algorithm.target_loss": 0.0}), config.algorithm.target_loss


def _own_code(config: Config) -> bool:
    """Whether somebody's code has a part in a result, which nobody can tell has changed."""
    return bool(named_code(asdict(config)))


def _page(config: Config, tried: Tried, slow: str, runs: int, *, given: bool) -> Page:
    """Show what is soonest, and the best of all else beside it."""
    target = Target("train_loss", tried.target)
    reached = [each.reached for each in tried.found]
    rows = [_row(each, tried) for each in tried.found]
    what = (
        "algorithm.target_loss"
        if given
        else f"which FedAvg has after {config.train.steps:,} steps with a mean after each, at its "
        "best learning rate"
    )
    foot = (
        f"{title_of(config)}; target: training loss {tried.target:.4g}, {what}\n"
        "to the target: simulated time, geometric mean of the seeds that reach it\n"
        f"slow tier: {slow}, bytes until then\n"
        "times as long: on seeds that no trial was run with, with its 95% interval"
    )
    if tried.chosen is not None:
        foot += f"\nas advised: {settings(tried)}"
    table = Table(f"In short: {_sentence(tried)}", HEAD, rows, foot, words=True)
    remarks = list(tried.notes)
    if runs > 1:
        remarks.append(f"tried is one of the {runs} runs that the file describes")
    if config.algorithm.budget_s:
        remarks.append("algorithm.budget_s: groups depend on how busy the machine is")
    figure = partial(fair_figure, reached, target)
    alt = "Simulated seconds to the target of each thing to do, seed by seed"
    section = Section([table], figure, alt, remarks=remarks)
    return Page("Coterie: what is soonest, by trials", [section])


def _row(ran: Ran, tried: Tried) -> tuple[str, ...]:
    chosen, reached = ran.settings, ran.reached
    tau1, tau2, known = chosen["algorithm.tau1"], chosen["algorithm.tau2"], reached.known
    moved = [value for value in reached.slow_bytes.values() if value is not None]
    combined = "\ncombined" if chosen["network.combine"] == "all" else ""
    groups = chosen["algorithm.num_groups"]
    return (
        ran.name,
        (f"{tau1}, {tau1 * tau2}" if tau2 > 1 else f"{tau1}") + combined,
        f"{chosen['train.lr']:g}",
        "-" if groups == GIVEN["algorithm.num_groups"] else f"{groups}",
        duration(ran.mean) if known else "never",
        f"{len(known)} of {len(ran.ends)}",
        size(sum(moved) / len(moved)) if moved else "-",
        "" if tried.chosen is None or tried.chosen is ran else _times(ran, tried.chosen),
    )


def _times(ran: Ran, chosen: Ran) -> str:
    """Say how many times as long something takes as what is chosen, on seeds without trials."""
    one, other = (
        Reached(each.name, dict(list(each.reached.seconds.items())[1:]), {}, {})
        for each in (ran, chosen)
    )
    times = ratio(one, other)
    if times is None or not one.whole:
        return "not on all"
    return f"{times.mean:.3g}x ({times.low:.3g} to {times.high:.3g})"


def _sentence(tried: Tried) -> str:
    """Say what to do in one sentence."""
    if tried.chosen is None:
        return "nothing that was tried is at the target; give more --trials"
    there, of = len(tried.chosen.reached.known), len(tried.chosen.ends)
    rare = "" if there == of else f" (at the target on {there} of {of} seeds alone)"
    return _words(tried.chosen.settings) + rare


def _words(chosen: Json) -> str:
    """Say what to do, without how sure that is."""
    combined = chosen["network.combine"] == "all"
    when = how_often(chosen["algorithm.tau1"], chosen["algorithm.tau2"], combined=combined)
    if chosen["algorithm.tau2"] == 1:
        return f"do not group: FedAvg, {when}"
    searched = METHODS["coterie"].settings["algorithm.name"] == chosen["algorithm.name"]
    number = chosen["algorithm.num_groups"]
    what = f"make {number} groups" if searched else "take the network edges as groups"
    return f"{what}; {when}"


def _plain(tried: Tried, slow: str) -> dict[str, Any]:
    """Return everything as plain values; null is never."""
    return {
        "advice": _sentence(tried),
        "settings": None if tried.chosen is None else settings(tried),
        "target_loss": tried.target,
        "slow_tier": slow,
        "chosen": None if tried.chosen is None else tried.chosen.name,
        "options": [
            {
                **asdict(ran.reached),
                "mean_seconds": ran.mean if math.isfinite(ran.mean) else None,
                "steps": ran.steps,
            }
            for ran in tried.found
        ],
        "notes": list(tried.notes),
    }
