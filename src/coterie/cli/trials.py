"""`coterie plan --trials`: train what could be done in simulation, and advise what is soonest."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import join
from typing import Any

from coterie.analysis.fair import GIVEN, METHODS, Target, in_words, judge
from coterie.analysis.trials import TAU2, Doing, Kept, Ran, Tried, doing, settings, try_out
from coterie.cli.commands import echo, loading
from coterie.cli.pages import print_page, write_files
from coterie.config.settings import Config
from coterie.core.amounts import duration, size
from coterie.preview.advice import Advice, Candidate, Kind
from coterie.preview.data import title_of
from coterie.preview.plan import planned, plans
from coterie.preview.scenarios import survey
from coterie.render.page.advice import NAMES
from coterie.render.page.fair import fair_figure
from coterie.render.page.html import Page, Section, Table, page_files

BY_KIND: dict[Kind, str] = {"fedavg": "fedavg", "edges": "hierfavg", "groups": "coterie"}
HEAD = (
    *("", "mean after\nsteps", "com-\nbined", "lr", "groups", "to the target", "from - to"),
    *("seeds", "slow tier", "times\nas long"),
)


def try_plan(
    name: str,
    configs: Sequence[Config],
    trials: int,
    path: Path | None,
    *,
    as_json: bool,
    again: Sequence[str],
) -> None:
    """Try, print what is soonest beside the rest, and draw it; `again` is the command."""
    config, _ = planned(configs)
    kept = Kept(None if path is None else path.with_suffix(".trials.jsonl"))
    left = "nothing was written" if path is None else f"go on with: {join(again)}"
    with loading(name, left) as progress:
        progress("what could be done, and what its means cost", 0, 0)
        advice = Advice(plans([config], methods=("coterie", "edge")))
        slow = survey("", "", config).slow
        tried = try_out(config, doings(advice, config), slow, trials, kept, progress)
        progress("drawing", 0, 0)
        page = _page(config, tried, slow)
        files = page_files(page, path)
    if as_json:
        echo(json.dumps(_plain(tried, slow), indent=1))
    else:
        print_page(page)
    write_files(files, err=as_json)


def doings(advice: Advice, config: Config) -> list[Doing]:
    """List what could be done, the most promising first, each beginning with what is advised."""
    found = []
    candidates = advice.candidates(advice.view.network)
    for kind, option in sorted(advice.options.items(), key=lambda each: -each[1].speed):
        own = [c for c in candidates if (c.kind, c.name) == (kind, option.what.name)]
        begin = {
            "algorithm.tau1": option.means.tau1,
            "algorithm.tau2": option.means.tau2,
            "algorithm.num_groups": len(option.what.grouping.servers),
        }
        ways = {tau2: _combined(own, tau2) for tau2 in (1, *TAU2)}
        found.append(doing(NAMES[kind], BY_KIND[kind], config, begin, ways))
    return found


def _combined(candidates: Sequence[Candidate], tau2: int) -> bool:
    """Whether a round is shorter where models are combined under edges."""
    return min(candidates, key=lambda c: c.global_s + (tau2 - 1) * c.group_s).combined


def _page(config: Config, tried: Tried, slow: str) -> Page:
    """Show what is soonest, the best of all else, and whether the difference is noise."""
    target = Target("train_loss", tried.target)
    reached = [each.reached for each in tried.found]
    rows = [_row(each, tried) for each in tried.found]
    title = f"In short: {_sentence(tried)}"
    foot = (
        f"{title_of(config)}; target: training loss {tried.target:.4g}, which FedAvg has after "
        f"{config.train.steps:,} steps with a mean after each, at its best learning rate\n"
        f"to the target: geometric mean of the seeds that reach it; slow tier: {slow}"
    )
    if tried.chosen is not None:
        foot += f"\nas advised: {settings(tried)}"
    table = Table(title, HEAD, rows, foot, words=True)
    remarks = [*in_words(judge(reached), reached, target), *tried.notes]
    figure = partial(fair_figure, reached, target)
    alt = "Simulated seconds to the target of each thing to do, seed by seed"
    section = Section([table], figure, alt, remarks=remarks)
    return Page("Coterie: what is soonest, by trials", [section])


def _row(ran: Ran, tried: Tried) -> tuple[str, ...]:
    chosen, reached = ran.settings, ran.reached
    tau1, tau2, known = chosen["algorithm.tau1"], chosen["algorithm.tau2"], reached.known
    moved = [value for value in reached.slow_bytes.values() if value is not None]
    times = ""
    if tried.chosen is not None and tried.chosen is not ran:
        times = f"{ran.mean / tried.chosen.mean:.3g}x" if known else "never there"
    groups = chosen["algorithm.num_groups"]
    return (
        ran.name,
        f"{tau1}, {tau1 * tau2}" if tau2 > 1 else f"{tau1}",
        "yes" if chosen["network.combine"] == "all" else "no",
        f"{chosen['train.lr']:g}",
        "-" if groups == GIVEN["algorithm.num_groups"] else f"{groups}",
        duration(ran.mean) if known else "never",
        f"{duration(min(known))} - {duration(max(known))}" if known else "-",
        f"{len(known)} of {len(ran.ends)}",
        size(sum(moved) / len(moved)) if moved else "-",
        times,
    )


def _sentence(tried: Tried) -> str:
    """Say what to do in one sentence."""
    if tried.chosen is None:
        return "nothing that was tried gets to the target; raise train.steps, or lower train.lr"
    chosen = tried.chosen.settings
    tau1, tau2 = chosen["algorithm.tau1"], chosen["algorithm.tau2"]
    steps = "every step" if tau1 == 1 else f"every {tau1} steps"
    how = ", models combined at edges" if chosen["network.combine"] == "all" else ""
    if tau2 == 1:
        return f"do not group: FedAvg, a mean {steps}{how}"
    own = METHODS["coterie"].settings["algorithm.name"] == chosen["algorithm.name"]
    groups = f"make {chosen['algorithm.num_groups']} groups" if own else "take the network edges"
    groups += "" if own else " as groups"
    return f"{groups}; a group mean {steps}, a global one every {tau1 * tau2}{how}"


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
